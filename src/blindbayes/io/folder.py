"""A release on disk: written whole into a new folder, read back to be checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from blindbayes.errors import ConfigError

_MAX_FILES, _MAX_BYTES = 1000, 1 << 29


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
    """Every file of a release, by relative path. Links are not followed."""
    where = Path(folder)
    if not where.is_dir():
        raise ConfigError(f"{where.name!r} is not a folder; name the release folder")
    found: list[Path] = []
    size = 0
    for path in where.rglob("*"):
        if path.is_symlink():
            raise ConfigError(f"{path.name!r} is a link; a release holds files only")
        if path.is_file():
            size += path.stat().st_size
            found.append(path)
        elif not path.is_dir():
            raise ConfigError(f"{path.name!r} is no file; a release holds files only")
        if len(found) > _MAX_FILES or size > _MAX_BYTES:
            raise ConfigError("the folder is too large to be one release; name the release folder itself")
    return {path.relative_to(where).as_posix(): path.read_bytes() for path in sorted(found)}
