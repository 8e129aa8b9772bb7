"""A disk that loses power: of a folder only what was synced is left.

While a `Disk` is active it watches `os.fsync` and `os.fdatasync`. A file's content is on disk as of its last sync, a name as of
the last sync of its folder. `after(loss)` makes a copy of the folder as a machine finds it when it starts again:

* "all": nothing that was not synced is there;
* "half": of what was appended to a file since its last sync, the first half is there;
* "none": everything is there (a killed process, no power loss).

`cut(at)` stops the program at its sync number `at`, before it takes effect, so that a test can try every moment.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

Loss = Literal["all", "half", "none"]


class PowerCutError(BaseException):
    """The power fails at this sync. No handler of the program catches it."""


class Disk:
    """A folder and what of it is on disk; everything that is in it at the start is."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.syncs = 0
        self._cut = -1
        self._handles: list[int] = []  # of synced files, so that no number of a file is used again
        self._contents: dict[int, tuple[bytes, int]] = {}  # number of a file -> synced content, mode
        self._names: dict[int, dict[str, int]] = {}  # number of a folder -> synced names
        for path in [folder, *folder.rglob("*")]:
            self._note(path)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: object) -> object:
        def sync(handle: int) -> None:
            if self.syncs == self._cut:
                raise PowerCutError
            self.syncs += 1
            real(handle)  # type: ignore[operator]
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if path.is_relative_to(self.folder):
                self._note(path)

        return sync

    def _note(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        state = os.fstat(handle)
        self._handles.append(handle)
        if stat.S_ISDIR(state.st_mode):
            self._names[state.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[state.st_ino] = (path.read_bytes(), stat.S_IMODE(state.st_mode))

    @contextmanager
    def cut(self, at: int) -> Iterator[None]:
        """Stop what runs in this context at the sync number `at` from now."""
        self._cut = self.syncs + at
        try:
            yield
        except PowerCutError:
            pass
        finally:
            self._cut = -1

    def after(self, into: Path, loss: Loss = "all") -> Path:
        """Copy the folder as it is found after the power failed."""
        if loss == "none":
            return Path(shutil.copytree(self.folder, into))
        current = {path.stat().st_ino: path for path in self.folder.rglob("*")}
        into.mkdir(mode=0o700, parents=True)
        self._restore(self.folder.stat().st_ino, into, current, loss)
        return into

    def _restore(self, folder: int, into: Path, current: dict[int, Path], loss: Loss) -> None:
        for name, number in self._names.get(folder, {}).items():
            path = into / name
            if number in self._names or (number in current and current[number].is_dir()):
                path.mkdir(mode=0o700)
                self._restore(number, path, current, loss)
                continue
            content, mode = self._contents.get(number, (b"", 0o600))
            if loss == "half" and number in current:
                whole = current[number].read_bytes()
                content = whole[: (len(content) + len(whole)) // 2] if whole.startswith(content) else content
            path.write_bytes(content)
            path.chmod(mode)

    def close(self) -> None:
        for handle in self._handles:
            os.close(handle)
