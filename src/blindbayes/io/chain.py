"""Append-only files that others may rely on: one JSON object per line, hash-chained, fsynced, locked by the operating system.

The ledger, the site's audit log and the record of queries beside a share are such files. Each line carries its number, the
hash of the line before and its own hash, the SHA-256 of its other fields in canonical JSON.

**Torn writes.** An entry counts if and only if its whole line, the newline included, is on disk. What a killed process or a
full disk left behind is never dropped: the next writer closes it with the mark CAN (0x18) and a newline, and appends an entry
of kind `torn` that holds its length and hash. Recovery may be killed too, any number of times. Any other line that does not
verify is tampering.

**Cuts.** A chain does not show what was cut off its end. A `Chain` that has read the file remembers how far and refuses a
file that no longer begins with what it read; after a restart only a head kept elsewhere tells (`verify`).

**Cost.** A `Chain` verifies each line once. While nobody else writes, later reads and appends look at nothing but the file's
state; after another process wrote, the known part is compared by one hash over its bytes and only what follows is parsed.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blindbayes.errors import ConfigError, LedgerError
from blindbayes.io.files import sync_folder
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
    """Within it every chain decides as it would, and writes nothing: whoever could not pay or log is refused beforehand.

    What is appended is seen by whoever reads within it, so that several things can be rehearsed one after the other.
    """
    token = _rehearsed.set({})
    try:
        yield
    finally:
        _rehearsed.reset(token)


def is_rehearsal() -> bool:
    """Whether nothing is written."""
    return _rehearsed.get() is not None


Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class ChainFormat:
    """How one kind of chain is written."""

    noun: str  # for messages: "ledger"
    number: str = "n"
    kind: str = "kind"
    previous: str = "prev"
    prefix: bytes = b""  # hashed before every line
    separators: tuple[str, str] = (",", ":")
    max_line: int = 1 << 16
    clock: Callable[[], str] = lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    @property
    def reserved(self) -> frozenset[str]:
        """Fields that the chain writes itself."""
        return frozenset((self.number, self.kind, self.previous, "time", "hash"))

    def canonical(self, fields: Mapping[str, Any]) -> bytes:
        """The one way to write these fields."""
        text = json.dumps(fields, sort_keys=True, separators=self.separators, ensure_ascii=True, allow_nan=False)
        return text.encode()

    def digest(self, fields: Mapping[str, Any]) -> str:
        """The hash of a line, from its other fields."""
        body = {name: value for name, value in fields.items() if name != "hash"}
        return hashlib.sha256(self.prefix + self.canonical(body)).hexdigest()

    def line(self, number: int, kind: str, previous: str, fields: Mapping[str, Any]) -> tuple[Entry, bytes]:
        """A new entry and its line."""
        if clash := self.reserved & set(fields):
            raise ConfigError(f"the {self.noun} keeps the field {min(clash)!r} for itself")
        entry = {**fields, self.number: number, self.kind: kind, self.previous: previous, "time": self.clock()}
        try:
            entry["hash"] = self.digest(entry)
            line = self.canonical(entry) + b"\n"
            entry = read_json_table(line, "an entry", max_bytes=self.max_line)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"an entry of the {self.noun} holds JSON values only") from error
        if len(line) > self.max_line:
            raise ConfigError(f"an entry of the {self.noun} has at most {self.max_line} bytes")
        return entry, line

    def verified(self, line: bytes, number: int, previous: str) -> Entry | None:
        """The entry on a line without its newline, if it is entry `number` behind `previous`."""
        try:
            fields = read_json_table(line, "a line", max_bytes=self.max_line, error=LedgerError)
            if not set(fields) >= self.reserved or type(fields[self.number]) is not int:
                return None
            found = (fields[self.number], fields[self.previous], fields["hash"])
            good = found == (number, previous, self.digest(fields)) and self.canonical(fields) == line
        except (LedgerError, ValueError, TypeError):
            return None
        return fields if good and isinstance(fields[self.kind], str) else None


@dataclass(frozen=True, slots=True)
class _Read:
    """What has been read and verified: whole entries, where they end, and a hash of their bytes."""

    entries: list[Entry] = field(default_factory=list)  # grows; a reader takes as many as `count` says
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
    """The chain at a path. Several processes may append; each object verifies a line once."""

    def __init__(self, path: Path, form: ChainFormat, *, missing: str | None = None) -> None:
        self.path = path
        self.form = form
        self._missing = missing  # why an absent file is refused; None: it is an empty chain
        self._known = _Read()

    # -- reading -----------------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All entries, verified."""
        with self._open(write=False) as handle:
            return self._with_rehearsed([] if handle is None else self._load(handle).known())

    @contextlib.contextmanager
    def held(self) -> Iterator[bytes]:
        """The file's bytes, verified; nobody writes meanwhile."""
        with self.writing() as writer:
            yield writer.bytes()

    def hash_at(self, number: int) -> str | None:
        """The hash of an entry; None: there is none."""
        count, entries, _ = self.grown(max(number, 0))
        return str(entries[0]["hash"]) if 0 <= number < count else None

    def grown(self, since: int) -> tuple[int, list[Entry], list[Entry]]:
        """How many entries there are, those from number `since` on, and those that were only rehearsed."""
        with self._open(write=False) as handle:
            known = _Read() if handle is None else self._load(handle)
        return known.count, known.entries[since : known.count], self._with_rehearsed([])

    def _with_rehearsed(self, entries: list[Entry]) -> list[Entry]:
        """The entries, and those that were only rehearsed."""
        return [*entries, *(_rehearsed.get() or {}).get(self.path, ())]

    @property
    def head(self) -> tuple[int, str]:
        """How many entries there are, and the hash of the last."""
        with self._open(write=False) as handle:
            known = _Read() if handle is None else self._load(handle)
        return known.count, known.head

    def verify(self) -> list[Entry]:
        """All entries, read and verified from the first byte, whatever this object knows."""
        with self._open(write=False) as handle:
            return [] if handle is None else self._parse(_Read(), _read_all(handle)).known()

    # -- writing -----------------------------------------------------------------------------------------------------------

    def create(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Put the first line in place whole or not at all: a temporary file, linked to its name."""
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
            sync_folder(folder)
        except FileExistsError as error:
            raise LedgerError(
                f"{self.path.name}: something stands at this path; a {self.form.noun} is never overwritten"
            ) from error
        except OSError as error:
            raise LedgerError(f"{self.path.name}: the {self.form.noun} cannot be created ({error.strerror})") from error

    def append(self, kind: str, fields: Mapping[str, Any]) -> Entry:
        """One more entry; it is on disk when this returns."""
        with self.writing() as writer:
            return writer.append(kind, fields)

    @contextlib.contextmanager
    def writing(self) -> Iterator[ChainWriter]:
        """Hold the chain alone: read, decide, append."""
        with self._open(write=True) as handle:
            if handle is None:  # pragma: no cover - a writer always has a file
                raise LedgerError(f"{self.path.name}: the {self.form.noun} cannot be opened")
            self._recover(handle)
            yield ChainWriter(self, handle)

    def _recover(self, handle: int) -> None:
        """Record what a killed writer left behind as torn."""
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
        """Take note of what this object wrote itself."""
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
        """What the file holds now, as far as possible from memory."""
        known, stamp = self._known, _stamp(handle)
        if known.stamp == stamp:
            return known
        raw = _read_all(handle)
        start = raw[: known.end]
        if hashlib.sha256(start).digest() == known.prefix.digest():
            found = self._parse(known, raw)
        else:
            self._parse(_Read(), raw)  # says which line was altered, if it is one
            raise LedgerError(
                f"{self.path.name}: the {self.form.noun} was cut or replaced since this process read it: nothing runs on it"
            )
        self._known = found = _Read(found.entries, found.count, found.end, found.prefix, found.debris, stamp)
        return found

    def _parse(self, known: _Read, raw: bytes) -> _Read:
        """Entries in order. Unfinished writes may stand between them if a `torn` entry covers them, or at the end."""
        form, name = self.form, self.path.name
        entries, head = known.known(), known.head
        end = at = known.end
        while at < len(raw):
            newline = raw.find(b"\n", at)
            if newline < 0:
                break  # an unfinished line: debris
            entry = form.verified(raw[at:newline], len(entries), head)
            if entry is None:
                if not raw[at:newline].endswith(CANCEL):
                    if not entries and not raw.lstrip().startswith(b"{"):
                        raise LedgerError(f"{name}: this is no {form.noun}")
                    raise LedgerError(f"{name}: entry {len(entries)} does not verify: the {form.noun} was altered")
            else:
                debris = raw[end:at]
                own = {key: value for key, value in entry.items() if key not in form.reserved}
                if (entry[form.kind] == TORN) != bool(debris) or (debris and own != _torn(debris)):
                    raise LedgerError(
                        f"{name}: entry {len(entries)} does not cover what stands before it: the {form.noun} was altered"
                    )
                entries.append(entry)
                head, end = entry["hash"], newline + 1
            at = newline + 1
        prefix = known.prefix.copy()
        prefix.update(raw[known.end : end])
        return _Read(entries, len(entries), end, prefix, raw[end:])

    def _lock(self, handle: int, kind: int) -> None:
        """Wait for the lock, but not for ever: whoever holds it writes one line."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerError(
                        f"{self.path.name}: another process has held the {self.form.noun} for {LOCK_SECONDS:g} s"
                    ) from None
                time.sleep(0.002)

    @contextlib.contextmanager
    def _open(self, *, write: bool) -> Iterator[int | None]:
        """The file, locked: exclusively for a writer, shared for readers. None: there is none, and none is needed."""
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
                sync_folder(self.path.parent)
            yield handle
        except FileNotFoundError as error:
            raise LedgerError(f"{self.path.name}: the file was removed while it was being opened") from error
        finally:
            os.close(handle)  # releases the lock


class ChainWriter:
    """A chain that is held alone."""

    def __init__(self, chain: Chain, handle: int) -> None:
        self._chain = chain
        self._handle = handle

    def bytes(self) -> bytes:
        """The file, verified."""
        return _read_all(self._handle)

    def entries(self) -> list[Entry]:
        """All entries, those just written included."""
        return self._chain._with_rehearsed(self._chain._known.known())

    def append(self, kind: str, fields: Mapping[str, Any]) -> Entry:
        """One more entry, on disk when this returns."""
        return self._chain._append(self._handle, kind, fields)


def _torn(debris: bytes) -> dict[str, Any]:
    return {"bytes": len(debris), "sha256": hashlib.sha256(debris).hexdigest()}


def _stamp(handle: int) -> Stamp:
    state = os.fstat(handle)
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _read_all(handle: int) -> bytes:
    size = os.fstat(handle).st_size
    if size > _MAX_BYTES:
        raise LedgerError("the file is longer than any record of a site: it is none")
    parts, at = [], 0
    while at < size and (part := os.pread(handle, min(1 << 20, size - at), at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _write_all(handle: int, data: bytes) -> None:
    """Write and make durable. A short write leaves debris that the next writer records."""
    view = memoryview(data)
    while view:
        done = os.write(handle, view)
        if done == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[done:]
    os.fsync(handle)
