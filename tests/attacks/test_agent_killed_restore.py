"""A restore that ends at any point: killed, or with a full disk, it leaves no site that does not know that it is behind.

On the code before, a kill after the files were unpacked left a live site: approvals counted, and it paid from an old ledger.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from blindbayes.agent.store import backup as backups
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import ConfigError
from support.sites import BOOK, Office

pytestmark = pytest.mark.usefixtures("light_backups")

PHRASE = "correct horse battery"


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(backups, "_key", lambda *_: bytes(32))
    office = Office(tmp_path, ("north", "south", "west"))
    office.net.approve(office.net.make_study(BOOK), runs=9)
    backups.backup(office.net.sites["north"].home, tmp_path / "b", PHRASE)
    return tmp_path / "b"


def unaware(folder: Path) -> bool:
    """Whether an agent could be started here and would not know that it came back."""
    try:
        home = SiteFolder.open(folder)
    except ConfigError:
        return False
    return home.history.behind() is None or home.approvals.all() != []


def test_wherever_a_restore_is_killed_no_site_is_left_that_does_not_know(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen, really, rename = tmp_path / "back", [], os.fsync, Path.rename

    @contextlib.contextmanager
    def patched_back() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as plain:
            plain.setattr(os, "fsync", really)
            yield

    def look() -> None:
        shutil.rmtree(tmp_path / "as-killed", ignore_errors=True)  # what is on the disk now is what a kill leaves
        if folder.exists():
            shutil.copytree(folder, tmp_path / "as-killed")
        seen.append(unaware(tmp_path / "as-killed"))

    def synced(handle: int) -> None:
        with patched_back():  # a look reads logs, which syncs them
            look()
        really(handle)

    def renamed(path: Path, to: Path) -> Path:
        look()
        return rename(path, to)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", synced)
        patched.setattr(Path, "rename", renamed)
        home = backups.restore(sealed, folder, PHRASE)
    assert len(seen) > 10
    assert not any(seen)
    assert home.history.behind() is not None
    assert home.approvals.all() == []
    assert not list(folder.glob(".*"))


def test_a_disk_that_fills_up_leaves_nothing_and_what_a_kill_left_is_named(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, really, calls = tmp_path / "back", os.fsync, iter(range(99))

    def full(handle: int) -> None:
        if next(calls) == 5:
            raise OSError(errno.ENOSPC, "no space left")
        really(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            backups.restore(sealed, folder, PHRASE)
    assert not list(folder.iterdir())
    (folder / ".restoring").mkdir()
    with pytest.raises(ConfigError, match="a restore did not end there"):
        backups.restore(sealed, folder, PHRASE)
    assert (folder / ".restoring").exists()  # it may be that of a restore that still runs
    (folder / ".restoring").rmdir()
    assert not unaware(backups.restore(sealed, folder, PHRASE).folder)


@pytest.mark.parametrize("kind", ["sparse", "many", "large", "twice", "under a file"])
def test_a_backup_that_would_fill_the_disk_or_is_no_folder_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "_key", lambda *_: bytes(32))
    monkeypatch.setattr(backups, "_MAX_FILES", 3)
    monkeypatch.setattr(backups, "_MAX_BYTES", 1000)
    names = {"many": ["a", "b", "c", "d"], "twice": ["a", "a"], "under a file": ["a", "a/b"]}.get(kind, ["a"])
    tar_bytes = io.BytesIO()
    with tarfile.open(fileobj=tar_bytes, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 1001 if kind == "large" else 1
            if kind == "sparse":
                entry.type = tarfile.GNUTYPE_SPARSE
            tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    with (tmp_path / "b").open("wb") as file:
        file.write(backups._MAGIC + bytes(16))
        sealing = backups._Sealing(file, bytes(32))
        sealing.write(tar_bytes.getvalue())
        sealing.finish()
    with pytest.raises(ConfigError, match=r"at most|no file of a site|no folder of a site"):
        backups.restore(tmp_path / "b", tmp_path / "back", PHRASE)
    assert not list((tmp_path / "back").iterdir())
