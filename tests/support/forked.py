"""Agents and commands as processes that are forked with everything imported.

A new interpreter takes two seconds of CPU until an agent has imported what its first run needs; tests start hundreds of agents.
A server of multiprocessing, one for each process of pytest, imports it once and forks. Each child is a process with its own
number, signals, environment, folder and standard streams. The server has neither used gRPC nor opened a database, and has no
threads but those of the allocators of Arrow and DuckDB, which know of forks.

Under pytest `Loopback` starts its agents so (conftest.py); with `new_interpreters` they start as without tests.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import IO, Any
from unittest import mock

import numpy as np

from blindbayes.cli import main
from blindbayes.testing.loopback import Loopback, LoopbackSite, run_agent

IMPORTED = (
    "blindbayes.agent.serve",
    "blindbayes.console.port",
    "blindbayes.data.digest",
    "blindbayes.data.infer",
    "blindbayes.naive_bayes.load",
    "blindbayes.naive_bayes.private",
    "blindbayes.testing.loopback",
    "blindbayes_papers.azimian2022.chain_sum.roles",
    "blindbayes_papers.huai2015.oblivious_sum.roles",
    "blindbayes_papers.kikuchi2011",
    "blindbayes_papers.vaidya2008.ring_sum.roles",
    "ibis.backends.duckdb.converter",
    "jinja2",
    "pandas",
    "pyarrow.pandas_compat",
    "sklearn.utils.validation",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
)
"""What an agent imports until its first run is done."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""For the server: it must have no threads when it forks."""


class Forked:
    """A forked process with the interface of `subprocess.Popen` that tests use."""

    def __init__(self, call: Callable[..., None], *words: object, stdout: int, stderr: int) -> None:
        """Call a function in a child. Its standard streams are nothing and two files, by their descriptors."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(IMPORTED))
        with mock.patch.dict(os.environ, ONE_THREAD):
            forkserver.ensure_running()
        streams = [Connection(os.dup(each), readable=False) for each in (stdout, stderr)]  # travel to the child
        arguments = (call, [str(word) for word in words], os.getcwd(), dict(os.environ), *streams)
        self._process = context.Process(target=_child, args=arguments, daemon=True)
        with mock.patch.dict(sys.modules, {"__main__": ModuleType("__main__")}):  # a child would import that of pytest
            self._process.start()
        for each in streams:
            each.close()
        self.pid, self._lock = self._process.pid, threading.Lock()
        self.stdout: IO[bytes] | None = None

    def send_signal(self, name: int) -> None:
        if self.poll() is None:
            os.kill(self.pid or 0, name)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        with self._lock:  # of two threads one would read the code and the other the end of the pipe
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        wait([self._process.sentinel], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code


def _child(call: Callable[..., None], words: list[str], folder: str, environment: dict[str, str], *streams: Connection) -> None:
    gc.freeze()  # a collection would write to all that is shared
    np.random.seed()
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it may start others
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    try:
        call(*words)
    finally:
        atexit._run_exitfuncs()


class ForkedSite(LoopbackSite):
    """A site whose agent is forked, unless it needs an environment of its own from its first import on."""

    def launch(self, *, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        if environment or prefix:
            super().launch(environment=environment, prefix=prefix)
            return
        reader, writer = os.pipe()
        with (self.home.folder / "agent.err").open("ab") as errors:
            process: Any = Forked(run_agent, self.home.folder, stdout=writer, stderr=errors.fileno())
        os.close(writer)
        process.stdout = os.fdopen(reader, "rb")
        self.process = process


@contextlib.contextmanager
def new_interpreters() -> Iterator[None]:
    """Meanwhile agents start in interpreters of their own."""
    before, Loopback.site_type = Loopback.site_type, LoopbackSite
    try:
        yield
    finally:
        Loopback.site_type = before


def command(*words: object, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    """Run `blindbayes` with these words; what it printed, and its exit code."""
    return _run(_main, *words, timeout=timeout)


def script(*words: object, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    """Run a Python file with these words, as `command` does."""
    return _run(_script, *words, timeout=timeout)


def _run(call: Callable[..., None], *words: object, timeout: float) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Forked(call, *words, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        texts = [os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0).decode() for each in (out, err)]
        return subprocess.CompletedProcess([str(word) for word in words], code, *texts)


def _main(*words: str) -> None:
    sys.argv = ["blindbayes", *words]
    main()


def _script(path: str, *words: str) -> None:
    sys.argv = [path, *words]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")
