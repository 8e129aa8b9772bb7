"""The folder of tables that staff choose from and upload to in the console (`[console] data` in site.toml).

A name is never a path: no separators, no leading dot, nothing that leaves the folder through a link. An upload is written to a
draft that becomes the file at its end, so that a table is either whole or absent; drafts of a killed agent are removed when it
starts. The bytes are counted and stored here, not parsed.
"""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import re
import shutil
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError
from blindbayes.io.files import make_private_folder, sync

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx", ".xls", ".xlsb", ".ods")
"""Endings of tables that can be uploaded; packed ones are unpacked first, so that a small file cannot become a large one."""

TABLE_FILES = (*TABLES, ".gz", ".bz2", ".zst", ".xz", ".zip", ".duckdb")
"""Endings of all tables that staff can choose."""

_PARQUET = (".parquet", ".pq")
_WORKBOOKS = (".xlsx", ".xlsb", ".ods")
_NAME = re.compile(r"[^\W_][\w .()+-]{0,119}")
_DRAFT = ".upload-"
_MAX_LISTED = 500


class TooLarge(ConfigError):
    """An upload exceeds `max_upload_mb`."""


class NoSpace(ConfigError):
    """The disk has too little free space for an upload."""


def require_table_name(name: str) -> str:
    """Return the name of an uploaded table. Raises `ConfigError` unless it is a plain file name of a known kind."""
    if not _NAME.fullmatch(name) or name.endswith((" ", ".")):
        raise ConfigError(
            "a table's file name has at most 120 letters, digits, blanks and - _ + . ( ), a letter or digit first: rename it"
        )
    if not name.lower().endswith(TABLES):
        raise ConfigError(f"upload a file that ends in {', '.join(TABLES)}; unpack a compressed one first")
    return name


@dataclass(frozen=True, slots=True)
class DataFolder:
    """See the module's docstring."""

    folder: Path
    max_bytes: int
    min_free_bytes: int

    def files(self) -> list[dict[str, Any]]:
        """Return name, size and time of change of the tables in the folder, newest first."""
        rows: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(ConfigError, OSError):
                    state = self.require(entry.name).stat()
                    rows.append({"name": entry.name, "size": state.st_size, "changed": state.st_mtime})
        return sorted(rows, key=lambda row: row["changed"], reverse=True)[:_MAX_LISTED]

    def require(self, name: str) -> Path:
        """Return the path of a table of the folder. Raises `ConfigError` for anything else."""
        if not _NAME.fullmatch(name) or not name.lower().endswith(TABLE_FILES):
            raise ConfigError("choose one of the files that the page lists")
        root = self.folder.resolve()
        path = (root / name).resolve()
        if path.parent != root or not path.is_file():
            raise ConfigError("that file is not in the data folder, or is a link that leaves it: choose one of the list")
        return root / name

    def begin(self, name: str, *, replace: bool = False) -> Upload:
        """Begin an upload. Raises before anything is written if the name is taken or the disk is nearly full."""
        require_table_name(name)
        with _full_disk():
            path = make_private_folder(self.folder).resolve() / name
        if self.max_bytes <= 0:
            raise ConfigError("uploads are off at this site (max_upload_mb under [console] in site.toml)")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ConfigError("that name belongs to a link or a folder: choose another")
        if path.exists() and not replace:
            raise ConfigError("a file of that name is there already: tick 'Replace', or rename the new one")
        self.require_space()
        return Upload(self, path)

    def require_space(self, more: int = 0) -> None:
        """Raise `NoSpace` unless the disk would keep `min_free_mb` after this number of further bytes."""
        if shutil.disk_usage(self.folder).free < self.min_free_bytes + more:
            raise NoSpace("the disk is nearly full: free some space and upload again; nothing was stored")

    def erase_leftovers(self) -> None:
        """Remove the drafts of uploads that a killed agent left."""
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"{_DRAFT}*"):
                path.unlink(missing_ok=True)


@dataclass(slots=True)
class Upload:
    """One file on its way. Every method may block: call them in a thread. End with `finish` or `abandon`."""

    data: DataFolder
    path: Path
    size: int = 0
    _draft: Path = field(init=False, repr=False)
    _file: IO[bytes] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._draft = self.path.parent / f"{_DRAFT}{Coins.system().bytes(8).hex()}"
        with _full_disk():
            self._file = os.fdopen(os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")

    def write(self, piece: bytes) -> None:
        """Append to the draft. Raises `TooLarge` or `NoSpace`; the caller then abandons it."""
        self.size += len(piece)
        if self.size > self.data.max_bytes:
            raise TooLarge(
                f"the file is larger than {self.data.max_bytes >> 20:,} MB, the limit of this site (max_upload_mb under "
                "[console] in site.toml); nothing was stored. Ask the operator to copy it into the data folder"
            )
        self.data.require_space(len(piece))
        with _full_disk():
            self._file.write(piece)

    def finish(self) -> None:
        """Rename the draft to the file, durably."""
        with _full_disk():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        if not self.size:
            raise ConfigError("the file is empty; nothing was stored")
        if self.path.suffix.lower() in _WORKBOOKS:
            _require_small(self._draft, self.data.max_bytes)
        if self.path.suffix.lower() in _PARQUET:
            _require_small_groups(self._draft, self.data.max_bytes)
        with _full_disk():
            os.replace(self._draft, self.path)
            sync(self.path.parent)

    def abandon(self) -> None:
        """Remove the draft, if there still is one."""
        with contextlib.suppress(OSError):
            self._file.close()
        self._draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _full_disk() -> Any:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace("the disk is full: free some space and upload again; nothing was stored") from None
        raise ConfigError(f"the file cannot be stored ({error.strerror}); nothing was stored") from None


def _require_small(path: Path, max_bytes: int) -> None:
    """Raise `TooLarge` if a workbook, which is a zip archive, unpacks to more than `max_bytes`, whatever its headers state."""
    left = max_bytes
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                info.file_size, info.CRC = left + 1, None  # type: ignore[assignment]  # read on beyond the stated size
                with archive.open(info) as member:
                    while piece := member.read(1 << 20):
                        left -= len(piece)
                        if left < 0:
                            raise TooLarge("the workbook unpacks to more than this site's limit; nothing was stored")
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
        raise ConfigError("the file is not a workbook that can be read; nothing was stored") from None


def _require_small_groups(path: Path, max_bytes: int) -> None:
    """Raise `TooLarge` if a row group of a Parquet file, which is read as a whole, states that it unpacks to more."""
    from blindbayes.data.libraries import pa, pq

    try:
        facts = pq.read_metadata(path)
        largest = max((facts.row_group(at).total_byte_size for at in range(facts.num_row_groups)), default=0)
    except (pa.ArrowException, OSError, ValueError):
        raise ConfigError("the file is not a Parquet file that can be read; nothing was stored") from None
    if largest > max_bytes:
        raise TooLarge(
            "a row group of the Parquet file unpacks to more than this site's limit (max_upload_mb under [console] in "
            "site.toml); nothing was stored. Write it with smaller row groups"
        )
