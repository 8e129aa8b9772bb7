"""Append-only, hash-chained files: one JSON object per line, fsynced, locked by the operating system.

The ledger, the audit log of a site and the query log of a share are such files. Each line has its number, the hash of the
previous line and its own hash: SHA-256 of its other fields in canonical JSON.

**Torn writes.** An entry counts if and only if its whole line, including the newline, is on disk. Debris of a killed process
or a full disk is never dropped: the next writer closes it with CAN (0x18) and a newline, and appends an entry of kind `torn`
with its length and hash. Recovery itself may be killed any number of times. Any other line that does not verify was altered.

**Truncation.** A chain does not show what was cut off its end. A `Chain` that has read the file refuses one that no longer
begins with what it read; after a restart only a head stored elsewhere detects it.

**Cost.** A `Chain` verifies each line once. While no other process writes, later calls only look at the file's state;
afterwards the known part is compared by one hash and only the rest is parsed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from blindbayes.errors import ConfigError, LedgerError
from blindbayes.io.files import sync
from blindbayes.io.untrusted import read_json_table

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

GENESIS = "0" * 64
CANCEL = b"\x18"
TORN = "torn"
LOCK_SECONDS = 30.0
_MAX_BYTES = 1 << 31  # of a whole chain: hundreds of thousands of runs

Entry = dict[str, Any]
_rehearsed: ContextVar[dict[Path, list[Entry]] | None] = ContextVar("rehearsed", default=None)


@contextlib.contextmanager
def rehearsal() -> Iterator[None]:
    """Dry-run mode: appends are validated, and visible to reads inside the block, but not written."""
    token = _rehearsed.set({})
    try:
        yield
    finally:
        _rehearsed.reset(token)


def is_rehearsal() -> bool:
    """Return True inside a `rehearsal`."""
    return _rehearsed.get() is not None


Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class ChainFormat:
    """Field names and limits of one kind of chain."""

    noun: str  # for messages: "ledger"
    number: str = "n"
    kind: str = "kind"
    previous: str = "prev"
    prefix: bytes = b""  # hashed before every line
    separators: tuple[str, str] = (",", ":")
    max_line: int = 1 << 16
    clock: Callable[[], str] = lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    reserved: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reserved", frozenset((self.number, self.kind, self.previous, "time", "hash")))

    def canonical(self, fields: Mapping[str, Any]) -> bytes:
        text = json.dumps(fields, sort_keys=True, separators=self.separators, ensure_ascii=True, allow_nan=False)
        return text.encode()

    def digest(self, fields: Mapping[str, Any]) -> str:
        """Return the hash of a line, from its other fields."""
        body = {name: value for name, value in fields.items() if name != "hash"}
        return hashlib.sha256(self.prefix + self.canonical(body)).hexdigest()

    def line(self, number: int, kind: str, previous: str, fields: Mapping[str, Any]) -> tuple[Entry, bytes]:
        if clash := self.reserved & set(fields):
            raise ConfigError(f"the field {min(clash)!r} is reserved by the {self.noun}")
        entry = {**fields, self.number: number, self.kind: kind, self.previous: previous, "time": self.clock()}
        try:
            entry["hash"] = self.digest(entry)
            line = self.canonical(entry) + b"\n"
            entry = read_json_table(line, "an entry", max_bytes=self.max_line)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"an entry of the {self.noun} must hold JSON values only") from error
        if len(line) > self.max_line:
            raise ConfigError(f"an entry of the {self.noun} has at most {self.max_line} bytes")
        return entry, line

    def verified(self, line: bytes, number: int, previous: str) -> Entry | None:
        """Parse a line without its newline; return None unless it is entry `number` after `previous`."""
        try:
            fields = read_json_table(line, "a line", max_bytes=self.max_line, error=LedgerError)
            if not set(fields) >= self.reserved or type(fields[self.number]) is not int:
                return None
            chained = (fields[self.number], fields[self.previous], fields["hash"])
            good = chained == (number, previous, self.digest(fields)) and self.canonical(fields) == line
        except (LedgerError, ValueError, TypeError):
            return None
        return fields if good and isinstance(fields[self.kind], str) else None


@dataclass(frozen=True, slots=True)
class _Read:
    """Verified state: whole entries, where they end, and a hash of their bytes."""

    entries: list[Entry] = field(default_factory=list)  # shared and growing; the first `count` are this state's
    count: int = 0
    end: int = 0
    prefix: Any = field(default_factory=hashlib.sha256)
    debris: bytes = b""
    stamp: Stamp | None = None

    @property
    def head(self) -> str:
        return self.entries[self.count - 1]["hash"] if self.count else GENESIS

    def known(self) -> list[Entry]:
        return self.entries[: self.count]


class Chain:
    """A chain at a path. Several processes may append; each object verifies a line once."""

    def __init__(self, path: Path, form: ChainFormat, *, missing: str | None = None) -> None:
        self.path = path
        self.form = form
        self._missing = missing  # why an absent file is refused; None: it is an empty chain
        self._known = _Read()

    # -- reading -----------------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return all entries, verified."""
        with self._open(write=False) as handle:
            return self._with_rehearsed([] if handle is None else self._load(handle).known())

    @contextlib.contextmanager
    def locked(self) -> Iterator[bytes]:
        """Yield the verified bytes of the file; no process writes meanwhile."""
        with self.writing() as writer:
            yield writer.bytes()

    def hash_at(self, number: int) -> str | None:
        """Return the hash of an entry, or None if there is no such entry."""
        count, entries, _ = self.grown(max(number, 0))
        return str(entries[0]["hash"]) if 0 <= number < count else None

    def grown(self, since: int) -> tuple[int, list[Entry], list[Entry]]:
        """Return the number of entries, those from number `since` on, and those of a rehearsal."""
        with self._open(write=False) as handle:
            known = _Read() if handle is None else self._load(handle)
        return known.count, known.entries[since : known.count], self._with_rehearsed([])

    def _with_rehearsed(self, entries: list[Entry]) -> list[Entry]:
        return [*entries, *(_rehearsed.get() or {}).get(self.path, ())]

    @property
    def head(self) -> tuple[int, str]:
        """The number of entries, and the hash of the last."""
        with self._open(write=False) as handle:
            known = _Read() if handle is None else self._load(handle)
        return known.count, known.head

    def verify(self) -> list[Entry]:
        """Return all entries, verified again from the first byte."""
        with self._open(write=False) as handle:
            return [] if handle is None else self._parse(_Read(), _read_all(handle)).known()

    # -- writing -----------------------------------------------------------------------------------------------------------

    def create(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write the first line, whole or not at all: to a temporary file that is then linked to its name."""
        _, line = self.form.line(0, kind, GENESIS, fields)
        folder = self.path.parent
        draft = folder / f".{self.path.name}.{os.getpid()}.new"
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _write_all(handle, line)
            finally:
                os.close(handle)
            try:
                os.link(draft, self.path)
            finally:
                os.unlink(draft)
            sync(folder)
        except FileExistsError as error:
            raise LedgerError(f"{self.path.name}: the path exists; a {self.form.noun} is never overwritten") from error
        except OSError as error:
            raise LedgerError(f"{self.path.name}: the {self.form.noun} cannot be created ({error.strerror})") from error

    def append(self, kind: str, fields: Mapping[str, Any]) -> Entry:
        """Append an entry; it is on disk when this returns."""
        with self.writing() as writer:
            return writer.append(kind, fields)

    @contextlib.contextmanager
    def writing(self) -> Iterator[ChainWriter]:
        """Lock the chain exclusively, to read, decide and append."""
        with self._open(write=True) as handle:
            if handle is None:  # pragma: no cover - a writer always has a file
                raise LedgerError(f"{self.path.name}: the {self.form.noun} cannot be opened")
            self._recover(handle)
            yield ChainWriter(self, handle)

    def _recover(self, handle: int) -> None:
        """Record the debris of a killed writer in a `torn` entry."""
        known = self._load(handle)
        if not known.debris:
            return
        closing = b"" if known.debris.endswith(CANCEL + b"\n") else CANCEL + b"\n"
        debris = known.debris + closing
        entry, line = self.form.line(known.count, TORN, known.head, _torn(debris))
        self._write(handle, closing + line)
        self._grow(handle, debris + line, entry)

    def _append(self, handle: int, kind: str, fields: Mapping[str, Any]) -> Entry:
        rehearsed = _rehearsed.get()
        if rehearsed is not None:
            known = self._with_rehearsed(self._known.known())
            entry, _ = self.form.line(len(known), kind, known[-1]["hash"] if known else GENESIS, fields)
            rehearsed.setdefault(self.path, []).append(entry)
            return entry
        entry, line = self.form.line(self._known.count, kind, self._known.head, fields)
        self._write(handle, line)
        self._grow(handle, line, entry)
        return entry

    def _write(self, handle: int, raw: bytes) -> None:
        try:
            _write_all(handle, raw)
        except OSError as error:
            why = f"the entry could not be written ({error.strerror}); nothing was released"
            raise LedgerError(f"{self.path.name}: {why}") from error

    def _grow(self, handle: int, raw: bytes, entry: Entry) -> None:
        """Update the verified state after a write by this object."""
        known = self._known
        if known.count == len(known.entries):
            known.entries.append(entry)
            entries = known.entries
        else:  # another reader went further with the same list
            entries = [*known.known(), entry]
        prefix = known.prefix.copy()
        prefix.update(raw)
        self._known = _Read(entries, known.count + 1, known.end + len(raw), prefix, b"", _stamp(handle))

    # -- the file ----------------------------------------------------------------------------------------------------------

    def _load(self, handle: int) -> _Read:
        """Return the current state of the file, from memory where possible."""
        known, stamp = self._known, _stamp(handle)
        if known.stamp == stamp:
            return known
        try:
            os.fsync(handle)  # a killed writer may have left a line that is not on disk: from here on it counts
            raw = _read_all(handle)
        except OSError as error:
            raise LedgerError(f"{self.path.name}: the {self.form.noun} cannot be read ({error.strerror})") from error
        start = raw[: known.end]
        if hashlib.sha256(start).digest() == known.prefix.digest():
            state = self._parse(known, raw)
        else:
            self._parse(_Read(), raw)  # raises if a line was altered, and names it
            raise LedgerError(
                f"{self.path.name}: the {self.form.noun} was cut or replaced since this process read it: nothing runs on it"
            )
        self._known = replace(state, stamp=stamp)
        return self._known

    def _parse(self, known: _Read, raw: bytes) -> _Read:
        """Parse entries in order. Debris is allowed at the end, and between entries if a `torn` entry covers it."""
        form, name = self.form, self.path.name
        entries, head = known.known(), known.head
        end = start = known.end
        while start < len(raw):
            newline = raw.find(b"\n", start)
            if newline < 0:
                break  # an unfinished line: debris
            entry = form.verified(raw[start:newline], len(entries), head)
            if entry is None:
                if not raw[start:newline].endswith(CANCEL):
                    if not entries and not raw.lstrip().startswith(b"{"):
                        raise LedgerError(f"{name}: this is not a {form.noun}")
                    raise LedgerError(f"{name}: entry {len(entries)} does not verify: the {form.noun} was altered")
            else:
                debris = raw[end:start]
                own = {key: value for key, value in entry.items() if key not in form.reserved}
                if (entry[form.kind] == TORN) != bool(debris) or (debris and own != _torn(debris)):
                    raise LedgerError(
                        f"{name}: entry {len(entries)} does not match the debris before it: the {form.noun} was altered"
                    )
                entries.append(entry)
                head, end = entry["hash"], newline + 1
            start = newline + 1
        prefix = known.prefix.copy()
        prefix.update(raw[known.end : end])
        return _Read(entries, len(entries), end, prefix, raw[end:])

    def _lock(self, handle: int, kind: int) -> None:
        """Wait for the lock up to `LOCK_SECONDS`: its holder only writes a line."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerError(
                        f"{self.path.name}: another process has locked the {self.form.noun} for {LOCK_SECONDS:g} s"
                    ) from None
                time.sleep(0.002)

    @contextlib.contextmanager
    def _open(self, *, write: bool) -> Iterator[int | None]:
        """Open and lock the file: exclusively for a writer, shared for readers. Yield None if it is missing and may be."""
        if fcntl is None:  # pragma: no cover
            raise LedgerError(f"a {self.form.noun} needs POSIX file locks")
        flags = (os.O_RDWR | os.O_APPEND if write else os.O_RDONLY) | os.O_CLOEXEC
        gone = self._missing if self._known.count == 0 else f"the {self.form.noun} is gone; nothing more runs without it"
        if write and gone is None:
            flags |= os.O_CREAT
        try:
            handle = os.open(self.path, flags, 0o600)
        except FileNotFoundError as error:
            if gone is None and not write:
                yield None
                return
            raise LedgerError(f"{self.path.name}: {gone}") from error
        except OSError as error:
            raise LedgerError(f"{self.path.name}: the {self.form.noun} cannot be opened ({error.strerror})") from error
        try:
            self._lock(handle, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
            here, opened = os.stat(self.path), os.fstat(handle)
            if (here.st_dev, here.st_ino) != (opened.st_dev, opened.st_ino):
                raise LedgerError(f"{self.path.name}: the file was replaced while it was being opened")
            if write and opened.st_size == 0:
                sync(self.path.parent)
            yield handle
        except FileNotFoundError as error:
            raise LedgerError(f"{self.path.name}: the file was removed while it was being opened") from error
        finally:
            os.close(handle)  # releases the lock


class ChainWriter:
    """A chain that this process has locked exclusively."""

    def __init__(self, chain: Chain, handle: int) -> None:
        self._chain = chain
        self._handle = handle

    def bytes(self) -> bytes:
        return _read_all(self._handle)

    def entries(self) -> list[Entry]:
        return self._chain._with_rehearsed(self._chain._known.known())

    def append(self, kind: str, fields: Mapping[str, Any]) -> Entry:
        return self._chain._append(self._handle, kind, fields)


def _torn(debris: bytes) -> dict[str, Any]:
    return {"bytes": len(debris), "sha256": hashlib.sha256(debris).hexdigest()}


def _stamp(handle: int) -> Stamp:
    state = os.fstat(handle)
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _read_all(handle: int) -> bytes:
    size = os.fstat(handle).st_size
    if size > _MAX_BYTES:
        raise LedgerError("the file is larger than 2 GiB: it is not a record of a site")
    parts, offset = [], 0
    while offset < size and (part := os.pread(handle, min(1 << 20, size - offset), offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _write_all(handle: int, data: bytes) -> None:
    """Write and fsync. A short write leaves debris that the next writer records."""
    view = memoryview(data)
    while view:
        done = os.write(handle, view)
        if done == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[done:]
    os.fsync(handle)
