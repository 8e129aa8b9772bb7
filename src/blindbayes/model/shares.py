"""A party's share of a model that nobody sees, and its file.

A `ModelShare` holds one party's part of a study over columns: its shares of score tables (uniform modulo 2^bits, whatever the
data), its shares of the sums they were made from (uniform modulo 2^64), and, if the party knows the class of its rows, the
statistics of its *own* columns, which are in clear because they are its own. Neither file alone says anything about the other
party's columns; both together are the model. Either party can `destroy` its own, and the model is gone.

The query budget lives beside the share: every batch is charged, durably, before anything of it is sent. Each party counts for
itself; a query goes through only if both have budget left.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError, DataError, PrivacyError

_MAGIC = b"blindbayes share 1\n"
Words = npt.NDArray[np.uint64]
R = TypeVar("R", bound=msgspec.Struct)


class _Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shape: tuple[int, ...]
    words: bytes

    @classmethod
    def of(cls, array: Words) -> _Array:
        return cls(tuple(array.shape), array.astype("<u8").tobytes())

    def array(self) -> Words:
        if any(size < 0 for size in self.shape) or int(np.prod(self.shape)) * 8 != len(self.words):
            raise DataError("a share file holds an array of the wrong size")
        return np.frombuffer(self.words, dtype="<u8").astype(np.uint64).reshape(self.shape)


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["blindbayes.share/1"]
    study: str
    party: str
    public: dict[str, Any]
    tables: dict[str, dict[str, _Array]]
    sums: dict[str, _Array]
    local: dict[str, Any] | None
    queries: int | None


class KeptShare(ABC):
    """What every kind of share has in common: a file for its owner alone, a budget of queries, an end."""

    study: str
    party: str
    queries: int | None  # instances that may be classified; None: no limit
    path: Path | None
    _spent: int
    _destroyed: bool

    @abstractmethod
    def body(self) -> bytes:
        """The file's content, without its frame."""

    @abstractmethod
    def wipe(self) -> None:
        """Overwrite and forget what is secret, in memory."""

    # -- budget --------------------------------------------------------------------------------------------------------

    @property
    def spent(self) -> int:
        """Instances charged so far."""
        if self.path is None:
            return self._spent
        with self._locked() as file:
            return _read_spent(file)[0]

    def charge(self, count: int, run: str | None = None, *, known: int = 0) -> None:
        """Charge a batch, durably, or refuse it. Called before anything of the batch is sent.

        A `run` is charged once: one that goes on after a crash asks again and pays nothing. `known` is what another record
        says was charged before: the file beside the share may be an older copy, and counts for no less.
        """
        self.require_alive()
        if count < 1:
            raise ConfigError("a batch has at least one instance")
        if self.path is None:
            self._require_budget(self._spent, count)
            self._spent += count
            return
        with self._locked() as file:
            spent, paid, end = _read_spent(file)
            if run is not None and run in paid:
                self._require_paid(paid[run], count)
                return
            self._require_budget(max(spent, known), count)
            os.ftruncate(file, end)  # a torn line was never charged: nothing was sent before it was whole
            os.lseek(file, 0, os.SEEK_END)
            _write_line(file, f"{count} {run}\n" if run else f"{count}\n")

    def require_budget(self, count: int, run: str | None = None, *, known: int = 0) -> None:
        """Refuse a batch that `charge` would refuse. Charges nothing."""
        self.require_alive()
        if self.path is None:
            self._require_budget(self._spent, count)
            return
        with self._locked() as file:
            spent, paid, _ = _read_spent(file)
        if run is not None and run in paid:
            self._require_paid(paid[run], count)
        else:
            self._require_budget(max(spent, known), count)

    def _require_paid(self, paid: int, count: int) -> None:
        if count > paid:
            raise PrivacyError(f"{self.party}: this batch was charged before, for fewer instances; give it another name")

    def _require_budget(self, spent: int, count: int) -> None:
        if self.queries is not None and spent + count > self.queries:
            raise PrivacyError(
                f"{self.party}: the query budget does not pay for this: {count} instances are charged, and "
                f"{max(self.queries - spent, 0)} of {self.queries} are left. Repeated queries let the model be read off: "
                "ask for fewer, or agree on a new study and train again"
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        if self.path is None:
            raise ConfigError("this share has no file")
        from blindbayes.storage.files import sync_folder

        beside = self.path.with_name(self.path.name + ".spent")
        is_new = not beside.exists()
        file = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_new:
                sync_folder(beside.parent)
            yield file
        finally:
            os.close(file)

    # -- file ----------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the share, readable by its owner alone. Later charges are counted beside it."""
        from blindbayes.storage.files import write_whole

        self.require_alive()
        target = Path(path)
        if target.exists():
            raise ConfigError(f"{target.name} exists already; a share is never overwritten")
        body = self.body()
        write_whole(target, _MAGIC + hashlib.sha256(body).digest() + body)
        spent, self.path = self._spent, target
        if spent:
            with self._locked() as file:
                _write_line(file, f"{spent}\n")

    def destroy(self) -> None:
        """Erase the share, in memory and on disk. Without it the other share is noise: the model no longer exists."""
        from blindbayes.storage.files import erase

        self.wipe()
        self._destroyed = True
        if self.path is not None:
            for path in (self.path, self.path.with_name(self.path.name + ".spent")):
                if path.exists():
                    erase(path)

    def require_alive(self) -> None:
        """Refuse to work with a share that was destroyed."""
        if self._destroyed or (self.path is not None and not self.path.exists()):
            raise ConfigError(f"{self.party}: this share of the model was destroyed; train again")


def read_share(path: str | os.PathLike[str], kind: type[R]) -> R:
    """The record in a share file. A damaged one, one of another kind, or one that others may read, is refused."""
    from blindbayes.storage.files import read_private

    raw = read_private(Path(path))
    head = len(_MAGIC)
    body = raw[head + 32 :]
    if raw[:head] != _MAGIC or hashlib.sha256(body).digest() != raw[head : head + 32]:
        raise DataError("the share file is damaged, or is none")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError):
        raise DataError("the share file is of another version, or of another protocol") from None


@dataclass(slots=True)
class ModelShare(KeptShare):
    """One party's share. `public` is what all parties agreed on; other fields never leave the party."""

    study: str
    party: str
    public: Mapping[str, Any]
    tables: dict[str, dict[str, Words]] = field(repr=False)  # per other party: shares of score tables by feature
    sums: dict[str, Words] = field(repr=False)  # per other party: shares of the class-conditional sums
    local: Mapping[str, Any] | None = field(repr=False)  # statistics of own columns, by name, if the class is known
    queries: int | None = None
    path: Path | None = None
    _spent: int = 0
    _destroyed: bool = False

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelShare:
        """Read a share file. A damaged one, or one that others may read, is refused."""
        record = read_share(path, _Record)
        tables = {other: {name: item.array() for name, item in own.items()} for other, own in record.tables.items()}
        sums = {other: item.array() for other, item in record.sums.items()}
        return cls(record.study, record.party, record.public, tables, sums, record.local, record.queries, Path(path))

    def body(self) -> bytes:
        """The file's content, without its frame."""
        tables = {other: {name: _Array.of(item) for name, item in own.items()} for other, own in self.tables.items()}
        sums = {other: _Array.of(item) for other, item in self.sums.items()}
        local = None if self.local is None else dict(self.local)
        return msgspec.msgpack.encode(
            _Record("blindbayes.share/1", self.study, self.party, dict(self.public), tables, sums, local, self.queries)
        )

    def wipe(self) -> None:
        """Overwrite and forget what is secret, in memory."""
        for own in (*self.tables.values(), self.sums):
            for item in own.values():
                item.setflags(write=True)
                item.fill(0)
        self.tables, self.sums, self.local = {}, {}, None


def _write_line(file: int, line: str) -> None:
    """On disk whole, or an error: half a line counts for nothing, so on a full disk a batch would be free."""
    raw = line.encode()
    try:
        if os.write(file, raw) == len(raw):
            os.fsync(file)
            return
    except OSError as cause:
        raise DataError(f"the query budget cannot be charged: {cause.strerror}; nothing was classified") from None
    raise DataError("the query budget cannot be charged: the disk is full; nothing was classified")


def _read_spent(file: int) -> tuple[int, dict[str, int], int]:
    """Instances charged, what each run paid of them, and where the last whole line ends."""
    os.lseek(file, 0, os.SEEK_SET)
    raw = b""
    while piece := os.read(file, 1 << 16):
        raw += piece
    end = raw.rfind(b"\n") + 1
    try:
        lines = [line.split(" ", 1) for line in raw[:end].decode().splitlines()]
        return sum(int(line[0]) for line in lines), {line[1]: int(line[0]) for line in lines if len(line) > 1}, end
    except ValueError:
        raise DataError("the record of charged queries is damaged") from None
