"""Files that survive a crash and stay private: atomic replacement, fsync of file and folder, mode 0600."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from blindbayes.errors import ConfigError

_MAX_FILES, _MAX_BYTES = 1000, 1 << 29  # of a release folder


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private_folder(folder: Path) -> Path:
    """Create a folder that only its owner can read, if it is missing, and return it when its name is on disk."""
    missing = [each for each in folder.parents if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in {folder, folder.parent, *missing}:  # existing ones too: a process that was killed may have made them
        sync(each.parent)
    return folder


def write_whole(path: Path, payload: bytes, *, private: bool = True, replace: bool = True) -> None:
    """Write `payload` so that after a crash `path` holds either its old content or all of the new one."""
    mode = 0o600 if private else 0o644
    if not replace and path.exists():
        raise ConfigError(f"{path.name} exists already; nothing was overwritten")
    if path.exists() and not path.is_file():
        raise ConfigError(f"{str(path)!r} is not a regular file; nothing was written: choose another path")
    draft = path.with_name(f".{path.name}.draft")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:  # an interrupt too leaves no draft behind
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_private(path: Path) -> bytes:
    """Return the content of a file that only its owner may read; refuse one that others can read."""
    try:
        state = path.stat()
    except FileNotFoundError:
        raise ConfigError(f"{path.name} is missing in {path.parent.name}/") from None
    if stat.S_IMODE(state.st_mode) & 0o077:
        raise ConfigError(f"{path.name} can be read by others: chmod 600 it, and make new keys if it ever left this machine")
    return path.read_bytes()


def erase(path: Path) -> None:
    """Overwrite a small file, then remove it. On media that copy on write the overwrite is best effort."""
    with contextlib.suppress(FileNotFoundError):
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
        sync(path.parent)


def write_folder(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> Path:
    """Write the files, by relative path. The folder must be new or empty."""
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    if any(where.iterdir()):
        raise ConfigError("the release folder is not empty; choose another")
    for name, content in files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return where


def read_folder(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """Return every file of a release by relative path; links are refused."""
    where = Path(folder)
    if not where.is_dir():
        raise ConfigError(f"{where.name!r} is not a folder; name the release folder")
    paths: list[Path] = []
    size = 0
    for path in where.rglob("*"):
        if path.is_symlink():
            raise ConfigError(f"{path.name!r} is a link; a release holds files only")
        if path.is_file():
            size += path.stat().st_size
            paths.append(path)
        elif not path.is_dir():
            raise ConfigError(f"{path.name!r} is not a regular file; a release holds files only")
        if len(paths) > _MAX_FILES or size > _MAX_BYTES:
            raise ConfigError("the folder is too large to be one release; name the release folder itself")
    return {path.relative_to(where).as_posix(): path.read_bytes() for path in sorted(paths)}
