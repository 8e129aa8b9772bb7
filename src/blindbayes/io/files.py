"""Files that survive a crash and stay private: atomic replacement, fsync of file and folder, mode 0600."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from blindbayes.errors import ConfigError


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make renames and new names in `folder` durable."""
    sync(folder)


def make_private_folder(folder: Path) -> Path:
    """`folder`, made if missing, readable by its owner only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def write_whole(path: Path, payload: bytes, *, private: bool = True, replace: bool = True) -> None:
    """Write `payload` so that after a crash `path` holds either its old content or all of the new one."""
    mode = 0o600 if private else 0o644
    if not replace and path.exists():
        raise ConfigError(f"{path.name} exists already; nothing was overwritten")
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
    sync_folder(path.parent)


def read_private(path: Path) -> bytes:
    """The content of a private file; refused if anyone but its owner may read it."""
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
        sync_folder(path.parent)
