"""A private PostgreSQL server for the tests: its own folder, its own port on the loopback, gone afterwards."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blindbayes.testing.loopback import free_port
from support import programs


class Unavailable(Exception):
    """Why there is no server."""


def find_binaries() -> Path:
    """The folder of `initdb` and `postgres`; under CI=true and root it is installed once if it is absent."""
    found = programs.find(_folder, "postgresql")
    if found is None:
        raise Unavailable("PostgreSQL is not installed (no initdb)")
    return found


def _folder() -> Path | None:
    folders = [Path(path).parent for path in sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)]
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def _open_folder() -> Path:
    """A folder for temporary files that every user can reach: the server does not run as root."""
    for folder in (Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/dev/shm")):
        if folder.is_dir() and all(part.stat().st_mode & 0o001 for part in (folder, *folder.parents)):
            return folder
    raise Unavailable("there is no folder for temporary files that every user can reach")


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a running server, without a table."""
    binaries = find_binaries()
    user = None
    if os.geteuid() == 0:  # the server refuses to run as root
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in names), None)
        if user is None:
            raise Unavailable("there is no user to run PostgreSQL as")
    folder = Path(tempfile.mkdtemp(prefix="bbpg", dir=None if user is None else _open_folder()))
    process = None
    try:
        if user is not None:
            shutil.chown(folder, user)
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(folder)}
        options = {"user": user, "env": environment, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        data = folder / "data"
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "tests", "--auth=trust", "--no-sync", "-E", "UTF8"],
            check=True,
            timeout=120,
            **options,
        )
        port = free_port()
        process = subprocess.Popen(
            [binaries / "postgres", "-D", data, "-F", "-k", folder, "-p", str(port), "-c", "listen_addresses=127.0.0.1"],
            **options,
        )
        _wait(port, process)
        yield f"postgres://tests@127.0.0.1:{port}/postgres"
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    until = time.monotonic() + 60
    while time.monotonic() < until:
        if process.poll() is not None:
            raise Unavailable("the PostgreSQL server stopped while it started")
        try:
            psycopg.connect(host="127.0.0.1", port=port, user="tests", dbname="postgres", connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise Unavailable("the PostgreSQL server did not answer")
