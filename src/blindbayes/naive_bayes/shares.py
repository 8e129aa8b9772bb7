"""A party's share of a model that exists only in shares, and its file.

A `ModelShare` holds one party's part of a study over columns: its shares of score tables (uniform modulo 2^bits, whatever the
data), its shares of the sums they were made from (uniform modulo 2^64), and, if the party knows the class of its rows, the
statistics of its *own* columns, which are in clear because they are its own. Neither file alone says anything about the other
party's columns; both together are the model. If either party destroys its share, the model is gone.

The query budget is stored beside the share: every batch is charged, durably, before anything of it is sent. Each party counts
for itself; a query is answered only if both have budget left.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError, DataError, LedgerError, PrivacyError
from blindbayes.io import typed
from blindbayes.io.chain import Chain, ChainFormat
from blindbayes.io.chain import Entry as Line
from blindbayes.io.files import erase, read_private, write_whole

_MAGIC = b"blindbayes share 1\n"
U64Array = npt.NDArray[np.uint64]
R = TypeVar("R", bound=msgspec.Struct)
_SPENT = ChainFormat("record of charged queries", prefix=b"blindbayes spent v1")


class _Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shape: tuple[int, ...]
    words: bytes

    @classmethod
    def pack(cls, array: U64Array) -> _Array:
        return cls(tuple(array.shape), array.astype("<u8").tobytes())

    def array(self) -> U64Array:
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
    references: dict[str, bytes] = {}  # per other party: the instances by which its answers are audited


class KeptShare(ABC):
    """The common part of every kind of share: a file for its owner alone, a query budget, destruction."""

    study: str
    party: str
    public: Mapping[str, Any]  # what all parties agreed on
    queries: int | None  # instances that may be classified; None: no limit
    path: Path | None
    _spent: int
    _destroyed: bool

    @classmethod
    @abstractmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a share file. Damaged files, and files that others may read, are refused."""

    @abstractmethod
    def body(self) -> bytes:
        """Return the content of the file, without its frame."""

    @abstractmethod
    def wipe(self) -> None:
        """Overwrite the secrets in memory."""

    @property
    def agreed(self) -> tuple[Any, ...]:
        """Facts that the shares of one model have in common."""
        return self.study, dict(self.public)

    # -- budget --------------------------------------------------------------------------------------------------------

    @property
    def spent(self) -> int:
        """Instances charged so far."""
        if self.path is None:
            return self._spent
        return self._charged()[0]

    def charge(self, count: int, run: str | None = None, *, known: int = 0) -> None:
        """Charge a batch, durably, or refuse it. Called before anything of the batch is sent.

        A `run` is charged once: if it resumes after a crash it asks again and pays nothing. `known` is what another record
        says was charged before: the file beside the share may be an older copy.
        """
        self.require_alive()
        if count < 1:
            raise ConfigError("a batch has at least one instance")
        if self.path is None:
            self._require_budget(self._spent, count)
            self._spent += count
            return
        try:
            with self._record().writing() as writer:
                spent, paid = _spent(writer.entries())
                if run is not None and run in paid:
                    self._require_paid(paid[run], count)
                    return
                self._require_budget(max(spent, known), count)
                writer.append("batch", {"count": count, "run": run})
        except LedgerError as cause:
            raise DataError(f"the query budget cannot be charged: {cause}; nothing was classified") from None

    def require_budget(self, count: int, run: str | None = None, *, known: int = 0) -> None:
        """Refuse a batch that `charge` would refuse. Charges nothing."""
        self.require_alive()
        if self.path is None:
            self._require_budget(self._spent, count)
            return
        spent, paid = self._charged()
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
                f"{max(self.queries - spent, 0)} of {self.queries} are left. Enough queries reveal the model: "
                "ask for fewer, or agree on a new study and train again"
            )

    def _charged(self) -> tuple[int, dict[str, int]]:
        try:
            return _spent(self._record().entries())
        except LedgerError as cause:
            raise DataError(f"the query budget cannot be read: {cause}") from None

    def _record(self) -> Chain:
        if self.path is None:
            raise ConfigError("this share has no file")
        return Chain(self.path.with_name(self.path.name + ".spent"), _SPENT)

    # -- file ----------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the share, readable by its owner alone. Later charges are counted beside it."""
        self.require_alive()
        target = Path(path)
        if target.exists():
            raise ConfigError(f"{target.name} exists already; a share is never overwritten")
        body = self.body()
        write_whole(target, _MAGIC + hashlib.sha256(body).digest() + body)
        spent, self.path = self._spent, target
        if spent:
            self._record().append("batch", {"count": spent, "run": None})

    def destroy(self) -> None:
        """Erase the share, in memory and on disk. Without it the other share is noise: the model no longer exists."""
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


class _Head(msgspec.Struct, frozen=True):
    study: str
    party: str
    public: dict[str, Any]
    queries: int | None


@dataclass(slots=True)
class ShareHead(KeptShare):
    """The head of every kind of share file: enough to list, to charge and to destroy it."""

    study: str
    party: str
    public: Mapping[str, Any]
    queries: int | None = None
    path: Path | None = None
    _spent: int = 0
    _destroyed: bool = False

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        head = read_share(path, _Head)
        return cls(head.study, head.party, head.public, head.queries, Path(path))

    def body(self) -> bytes:
        raise ConfigError("only a whole share is written")

    def wipe(self) -> None:
        """Do nothing: a head holds no secret."""


def read_share(path: str | os.PathLike[str], kind: type[R]) -> R:
    """Read the record in a share file. Damaged files, other kinds, and files that others may read are refused."""
    raw = read_private(Path(path))
    head = len(_MAGIC)
    body = raw[head + 32 :]
    if raw[:head] != _MAGIC or hashlib.sha256(body).digest() != raw[head : head + 32]:
        raise DataError("the file is not a share file, or it is damaged")
    try:
        return typed.decode(body, kind)
    except (msgspec.MsgspecError, ValueError):
        raise DataError("the share file is of another version, or of another protocol") from None


@dataclass(slots=True)
class ModelShare(KeptShare):
    """One party's share of a model. All parties agreed on `public`; other fields never leave the party."""

    study: str
    party: str
    public: Mapping[str, Any]
    tables: dict[str, dict[str, U64Array]] = field(repr=False)  # per other party: shares of score tables by feature
    sums: dict[str, U64Array] = field(repr=False)  # per other party: shares of the class-conditional sums
    local: Mapping[str, Any] | None = field(repr=False)  # statistics of own columns, by name, if the class is known
    queries: int | None = None
    references: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # per other party: for audits of its answers
    path: Path | None = None
    _spent: int = 0
    _destroyed: bool = False

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        record = read_share(path, _Record)
        tables = {other: {name: item.array() for name, item in own.items()} for other, own in record.tables.items()}
        sums = {other: item.array() for other, item in record.sums.items()}
        return cls(
            record.study, record.party, record.public, tables, sums, record.local, record.queries, record.references, Path(path)
        )

    def body(self) -> bytes:
        tables = {other: {name: _Array.pack(item) for name, item in own.items()} for other, own in self.tables.items()}
        sums = {other: _Array.pack(item) for other, item in self.sums.items()}
        local = None if self.local is None else dict(self.local)
        own = dict(self.public), tables, sums, local, self.queries, dict(self.references)
        return msgspec.msgpack.encode(_Record("blindbayes.share/1", self.study, self.party, *own))

    def wipe(self) -> None:
        for own in (*self.tables.values(), self.sums):
            for item in own.values():
                item.setflags(write=True)
                item.fill(0)
        self.tables, self.sums, self.local = {}, {}, None


def _spent(lines: list[Line]) -> tuple[int, dict[str, int]]:
    """Return the instances charged, in total and by run."""
    batches = [line for line in lines if line["kind"] == "batch"]
    return sum(line["count"] for line in batches), {line["run"]: line["count"] for line in batches if line["run"] is not None}
