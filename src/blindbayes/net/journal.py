"""The journal of one run: everything a role needs to return to the same state after a crash.

Append-only and encrypted. The seed, the input's digest and the code version are in it before the first message is sent; every
received message and every decision (who was in time, who was given up) before anything that depends on it is sent. Records are
chained, so none can be altered, moved or removed in the middle. A head authenticates its lengths, so that damage is not taken
for a torn end. A crash may leave a torn last record, which is cut off. A cut further back (a restored backup) is noticed by the
other parties, which say what they have seen: `link` compares.

A large record begins on a page and is written past the system's cache by the thread that commits, since nobody reads a copy
there. Where zeros stand in place of a record, the next one begins on the next page.

The record key is fresh per run, wrapped under the site's storage key, and erased when the run ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import importlib.metadata
import mmap
import os
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

import msgspec

import blindbayes
from blindbayes.crypto.aead import TAG_BYTES, seal, seal_fresh, seal_into, unseal, unseal_fresh
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import derive_key
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError
from blindbayes.io import typed
from blindbayes.io.files import erase, make_private_folder, read_private, sync, write_whole
from blindbayes.net.identity import framed

_NONCE_BYTES = 12
_HEAD_TAG_BYTES = 8
_HEAD_BYTES = 4 + 4 + _NONCE_BYTES + _HEAD_TAG_BYTES  # lengths of record and content, nonce, tag
_PAGE = 4096
_LARGE = 256 * 1024  # of a content
_SPARE_BYTES = 32 * 1024**2  # of pages that a process keeps for the next large records, of any run
DEFAULT_QUOTA = 4 * 1024**3
_CACHE_BYTES = 32 * 1024**2
_MIN_CHARGE = 4096  # a record counts as a page: its place in memory is larger than an empty message on disk
_FIRST_BYTES = 8192  # more than the first record takes
Secrets: TypeAlias = Mapping[str, bytes]
NOTHING: Secrets = {}


class Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """The first record: everything a role depends on, except the messages."""

    study: str
    run_id: str
    me: str
    seed: bytes
    input_digest: bytes
    code: str

    def __repr__(self) -> str:
        return f"Begun({self.run_id}, <redacted>)"


class ReceivedMessage(msgspec.Struct, frozen=True, array_like=True, tag="received"):
    """A whole message of another party. Its bytes follow the record, sealed apart, so that they are not copied."""

    sender: str
    step: str


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """The end of wait number `wait` of the role, where the messages alone do not determine it."""

    wait: int
    arrived: tuple[str, ...] = ()  # with a quorum: who was in time
    lost: str | None = None  # the party that was given up
    reason: str = ""


Record = Begun | ReceivedMessage | Decided
_DECODER = typed.decoder(Record)


@dataclass(slots=True)
class _Stored:
    """The location of a received message."""

    at: int  # offset of its record
    number: int
    link: bytes  # the chain before its record
    payload: tuple[str, bytes] | None = field(default=None, repr=False)  # with its step


def _page(at: int) -> int:
    return -(-at // _PAGE) * _PAGE


def _end(at: int, size: int, content: int) -> int:
    """Return where the next record begins, unless it is large: a head does not cross a page."""
    end = at + size
    return _page(end) if content >= _LARGE or -end % _PAGE < _HEAD_BYTES else end


def _place(number: int, link: bytes) -> bytes:
    """Return the associated data that binds a record to its number and to all records before it."""
    return framed(b"blindbayes journal v1", number.to_bytes(8, "big"), link)


class SentDigest:
    """A count and running digest of what one party has sent another, to be compared without sending it again.

    Each message contributes its AES-GCM tag at its index, under a key of the pair's `secret`: without the key, two histories
    have the same digest with probability below 2^-100, at a tenth of the cost of SHA-256. Without a secret (a card without
    key), SHA-256 of the message replaces the tag, since a tag under a public key is linear. The digest need not resist the two
    parties themselves: one that lies about what it has could as well claim to have nothing.
    """

    def __init__(self, study: str, run_id: str, sender: str, receiver: str, secret: bytes = b"") -> None:
        names = (study.encode(), run_id.encode(), sender.encode(), receiver.encode())
        self.digest = hashlib.sha256(framed(b"blindbayes sent v1", *names)).digest()
        self._key = secret and derive_key(secret, "sent", self.digest)
        self.count = 0
        self.bytes = 0

    def add(self, step: str, payload: bytes) -> None:
        """Count a message."""
        if self._key:
            tag = seal(self._key, step.encode(), associated=payload, nonce=self.count)
        else:
            tag = hashlib.sha256(payload).digest() + step.encode()
        self.digest = hashlib.sha256(self.digest + tag).digest()
        self.count += 1
        self.bytes += len(payload)


class _Pages:
    """Buffers that large records are sealed in, kept for the next records: fresh pages cost as much as sealing them.

    What lies in them is sealed, and on disk.
    """

    def __init__(self) -> None:
        self._spare: list[mmap.mmap] = []
        self._size = 0
        self._lock = threading.Lock()  # a thread may write while the loop seals

    def take(self, size: int) -> memoryview:
        """Return a buffer that begins on a page of memory and ends in zeros."""
        with self._lock:
            buffer = min((spare for spare in self._spare if len(spare) >= size), key=len, default=None)
            if buffer is not None:
                self._spare.remove(buffer)
                self._size -= len(buffer)
        if buffer is None:
            buffer = mmap.mmap(-1, 1 << (size - 1).bit_length(), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                with contextlib.suppress(OSError):  # a system without large pages
                    buffer.madvise(mmap.MADV_HUGEPAGE)
        view = memoryview(buffer)[:size]
        view[-_PAGE:] = bytes(_PAGE)
        return view

    def give(self, buffer: mmap.mmap) -> None:
        """Keep a buffer for later, unless the limit is reached."""
        with self._lock:
            if self._size + len(buffer) <= _SPARE_BYTES:
                self._spare.append(buffer)
                self._size += len(buffer)


_PAGES = _Pages()


@cache
def code_version() -> str:
    """Return the package's version and a digest of its source: a replay needs the same code."""
    root = Path(blindbayes.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(framed(str(path.relative_to(root)).encode(), path.read_bytes()))
    return f"{importlib.metadata.version('blindbayes')}+{total.hexdigest()[:16]}"


class Journal:
    """One run's journal, open for appending. Use `create`, `open` or `find`."""

    def __init__(self, folder: Path, key: bytes, handle: int, *, quota: int, secrets: Secrets) -> None:
        self._folder = folder
        self.secrets = secrets  # shared with other parties, by name
        self._key = key
        self._content_key = derive_key(key, "content")
        self._head_key = derive_key(key, "head")
        self._handle = handle
        self._direct = -1  # past the system's cache; opened for the first large record
        self._waiting: deque[tuple[int, memoryview]] = deque()  # records that are not written yet, and where
        self._writing = threading.Lock()
        self._coins = Coins.system()
        self._size = 0
        self._charged = 0  # against the quota
        self._number = 0
        self._link = bytes(32)
        self._committed = 0
        self._cached = 0
        self._quota = quota
        self._begun: Begun | None = None
        self._stored: dict[str, list[_Stored]] = {}
        self._streams: dict[str, SentDigest] = {}
        self.decisions: dict[int, Decided] = {}

    # -- life --------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, folder: Path, begun: Begun, storage_key: bytes, *, quota: int = DEFAULT_QUOTA, secrets: Secrets = NOTHING
    ) -> Journal:
        """Make a journal with its first record on disk."""
        make_private_folder(folder)
        key = Coins.system().bytes(32)
        wrapped = seal_fresh(storage_key, key, associated=framed(b"journal key", begun.run_id.encode()))
        write_whole(folder / "key", wrapped, replace=False)
        handle = os.open(folder / "journal", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        journal = cls(folder, key, handle, quota=quota, secrets=secrets)
        journal._append(begun)
        journal.commit()
        sync(folder)
        return journal

    @classmethod
    def open(
        cls, folder: Path, run_id: str, storage_key: bytes, *, quota: int = DEFAULT_QUOTA, secrets: Secrets = NOTHING
    ) -> Journal:
        """Open the journal of an interrupted run. Raise `IntegrityError` if a record does not verify."""
        key = unseal_fresh(storage_key, read_private(folder / "key"), associated=framed(b"journal key", run_id.encode()))
        try:
            handle = os.open(folder / "journal", os.O_RDWR)
        except FileNotFoundError:
            raise ConfigError("the run has a key but no journal: it never began") from None
        journal = cls(folder, key, handle, quota=quota, secrets=secrets)
        try:
            journal._read_all()
        except BaseException:
            os.close(handle)
            raise
        sync(make_private_folder(folder))  # names that a killed process left may not be on disk
        return journal

    @classmethod
    def find(
        cls, folder: Path, run_id: str, storage_key: bytes, *, quota: int = DEFAULT_QUOTA, secrets: Secrets = NOTHING
    ) -> Journal | None:
        """Open the journal if the run began, else return None. Remove what a crash left before the first record."""
        if not folder.exists():
            return None
        path = folder / "journal"
        if path.exists() and (path.stat().st_size > 0 or (folder / "key").exists()):
            with contextlib.suppress(ConfigError):
                return cls.open(folder, run_id, storage_key, quota=quota, secrets=secrets)
            if path.stat().st_size > _FIRST_BYTES:
                raise IntegrityError()
        path.unlink(missing_ok=True)
        erase(folder / "key")
        return None

    @property
    def begun(self) -> Begun:
        if self._begun is None:
            raise LocalProtocolError("the journal has no first record")
        return self._begun

    @property
    def size(self) -> int:
        return self._size

    def close(self) -> None:
        """Stop, keeping the journal for a later `open`."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):  # nobody depends on what was not committed
                self._flush()
            for handle in {self._handle, self._direct} - {-1}:
                os.close(handle)
            self._handle = self._direct = -1

    def erase(self) -> None:
        """Destroy the key, then the records. Nothing of the run can be replayed after this."""
        erase(self._folder / "key")
        self._key = self._content_key = self._head_key = bytes(32)
        with self._writing:
            self._waiting.clear()
        self.close()
        (self._folder / "journal").unlink(missing_ok=True)
        sync(self._folder)

    # -- writing -----------------------------------------------------------------------------------------------------

    def receive(self, sender: str, step: str, payload: bytes) -> None:
        """Append the next message of `sender`. Durable after `commit`."""
        record, number, link = ReceivedMessage(sender, step), self._number, self._link
        self._index(record, payload, self._append(record, payload), number, link)

    def decide(self, decided: Decided) -> None:
        """Append a decision. Durable after `commit`."""
        self._append(decided)

    def commit(self) -> None:
        """Return when everything appended is on disk."""
        if not self.dirty:
            return
        reached = self._number  # a thread may commit while the loop appends
        try:
            self._flush()
            os.fdatasync(self._handle)
        except OSError as cause:
            raise LocalProtocolError(f"the journal cannot be written: {cause.strerror}") from cause
        self._committed = max(self._committed, reached)

    async def commit_async(self) -> None:
        """Commit in a thread, so that the event loop goes on."""
        if self.dirty:
            await asyncio.to_thread(self.commit)

    @property
    def dirty(self) -> bool:
        """True if something was appended and not yet committed."""
        return self._committed < self._number

    def _append(self, record: Record, content: bytes | None = None) -> int:
        """Seal a record, append it, and return where it begins."""
        nonce, size = self._coins.bits(96), 0 if content is None else len(content) + TAG_BYTES
        body = seal(self._key, msgspec.msgpack.encode(record), associated=_place(self._number, self._link), nonce=nonce)
        head = len(body).to_bytes(4, "big") + size.to_bytes(4, "big") + nonce.to_bytes(_NONCE_BYTES, "big")
        head += self._head_tag(head, _place(self._number, self._link))
        begins, whole = len(head) + len(body), len(head) + len(body) + size
        if self._charged + whole > self._quota:
            raise LocalProtocolError(
                "the journal is over its quota of disk: raise journal_quota_mb in site.toml, or ask for less at once"
            )
        at = _page(self._size) if size >= _LARGE else self._size
        piece = _PAGES.take(_page(whole)) if size >= _LARGE else memoryview(bytearray(whole))
        piece[:begins] = head + body
        if content is not None:
            seal_into(self._content_key, content, piece[begins:whole], associated=body, nonce=nonce)
        if size >= _LARGE or self._waiting:
            self._waiting.append((at, piece))
        else:
            try:
                self._write(at, piece)
            except OSError as cause:
                raise LocalProtocolError(f"the journal cannot be written: {cause.strerror}") from cause
        self._took(record, at, head, body[-TAG_BYTES:], bytes(piece[begins:whole][-TAG_BYTES:]))
        return at

    def _head_tag(self, lengths_and_nonce: bytes, place: bytes) -> bytes:
        return hmac.digest(self._head_key, lengths_and_nonce + place, "sha256")[:_HEAD_TAG_BYTES]

    def _write(self, at: int, piece: memoryview) -> None:
        done, large = 0, isinstance(piece.obj, mmap.mmap)
        try:
            while done < len(piece):
                done += os.pwrite(self._past_cache() if large else self._handle, piece[done:], at + done)
        except OSError as cause:
            if large and cause.errno == errno.EINVAL and self._direct != self._handle:  # a file system that cannot
                os.close(self._direct)
                self._direct = self._handle
                self._write(at, piece)
                return
            if done:
                os.ftruncate(self._handle, at)
            raise

    def _past_cache(self) -> int:
        if self._direct < 0:
            try:
                self._direct = os.open(self._folder / "journal", os.O_RDWR | os.O_DIRECT)
            except (AttributeError, OSError):
                self._direct = self._handle
        return self._direct

    def _flush(self) -> None:
        """Write the waiting records in order."""
        with self._writing:
            while self._waiting:
                self._write(*self._waiting[0])
                _, piece = self._waiting.popleft()
                if isinstance(piece.obj, mmap.mmap):
                    _PAGES.give(piece.obj)

    def _took(self, record: Record, at: int, head: bytes, *tags: bytes) -> None:
        # Head and tags stand for the record: without the key there are no other bodies that they fit.
        length, content = (int.from_bytes(head[part], "big") for part in (slice(4), slice(4, 8)))
        end = _end(at, _HEAD_BYTES + length + content, content)
        self._link = hashlib.sha256(b"".join([self._link, head, *tags])).digest()
        self._number += 1
        self._charged += max(end - self._size, _MIN_CHARGE)
        self._size = end
        if isinstance(record, Begun):
            self._begun = record
        elif isinstance(record, Decided):
            self.decisions[record.wait] = record

    def _index(self, record: ReceivedMessage, payload: bytes, at: int, number: int, link: bytes) -> None:
        self.stream(record.sender).add(record.step, payload)
        cached = (record.step, payload) if self._cached + len(payload) <= _CACHE_BYTES else None
        self._cached += len(payload) if cached is not None else 0
        self._stored.setdefault(record.sender, []).append(_Stored(at, number, link, cached))

    # -- reading -----------------------------------------------------------------------------------------------------

    def count(self, sender: str) -> int:
        return len(self._stored.get(sender, ()))

    def stream(self, sender: str) -> SentDigest:
        """Return the count and running digest of what `sender` has sent."""
        if sender not in self._streams:
            names = self.begun.study, self.begun.run_id, sender, self.begun.me
            self._streams[sender] = SentDigest(*names, self.secrets.get(sender, b""))
        return self._streams[sender]

    def is_held(self, sender: str, index: int, step: str, payload: bytes) -> bool:
        """Return True if this is that message: a repetition, not an equivocation. After the end nobody asks."""
        stored = self._stored[sender][index]
        return self._handle < 0 or (stored.payload or self._read_message(stored)) == (step, payload)

    def take(self, sender: str, index: int) -> tuple[str, bytes]:
        """Return step and payload of one message. It leaves memory; the disk keeps it."""
        stored = self._stored[sender][index]
        message, stored.payload = stored.payload, None
        if message is None:
            return self._read_message(stored)
        self._cached -= len(message[1])
        return message

    def _read_message(self, stored: _Stored) -> tuple[str, bytes]:
        self._flush()
        pieces = self._pieces(stored.at, _place(stored.number, stored.link))
        record, content = self._opened(pieces, stored.number, stored.link) if pieces else (None, b"")
        if not isinstance(record, ReceivedMessage):
            raise IntegrityError()
        return record.step, content

    def _pieces(self, at: int, place: bytes) -> list[bytes]:
        """Return head, body and sealed content of the record there, or nothing if the file ends before the record does."""
        head = os.pread(self._handle, _HEAD_BYTES, at)
        if len(head) < _HEAD_BYTES or not any(head):
            return []
        if not hmac.compare_digest(head[-_HEAD_TAG_BYTES:], self._head_tag(head[:-_HEAD_TAG_BYTES], place)):
            raise IntegrityError()
        length, size = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
        if at + _HEAD_BYTES + length + size > os.fstat(self._handle).st_size:
            return []
        body = os.pread(self._handle, length, at + _HEAD_BYTES)
        return [head, body, os.pread(self._handle, size, at + _HEAD_BYTES + length)]

    def _opened(self, pieces: list[bytes], number: int, link: bytes) -> tuple[Record, bytes]:
        head, body, sealed = pieces
        nonce = int.from_bytes(head[8:-_HEAD_TAG_BYTES], "big")
        try:
            record: Record = _DECODER.decode(unseal(self._key, body, associated=_place(number, link), nonce=nonce))
        except msgspec.MsgspecError as cause:
            raise IntegrityError() from cause
        if not isinstance(record, ReceivedMessage):
            return record, b""
        return record, unseal(self._content_key, sealed, associated=body, nonce=nonce)

    def _read_all(self) -> None:
        end = os.fstat(self._handle).st_size
        while True:
            at, number, link = self._size, self._number, self._link
            if not any(os.pread(self._handle, _HEAD_BYTES, at)):
                at = _page(at)
            if not (pieces := self._pieces(at, _place(number, link))):
                break
            try:
                record, content = self._opened(pieces, number, link)
            except IntegrityError:
                if _end(at, sum(map(len, pieces)), len(pieces[2])) >= end and number > 0:
                    break  # torn: the lengths reached the disk before the rest
                raise
            self._took(record, at, pieces[0], *(piece[-TAG_BYTES:] for piece in pieces[1:]))
            if isinstance(record, ReceivedMessage):
                self._index(record, content, at, number, link)
        if self._begun is None:
            raise ConfigError("the journal has no first record: the run never began")
        if self._size < end:
            os.ftruncate(self._handle, self._size)
        os.fsync(self._handle)
        self._committed = self._number
