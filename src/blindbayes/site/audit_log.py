"""The site's audit log: what was approved, joined, refused, opened and how it ended. Append-only, hash-chained, fsynced.

One JSON object per line. Facts are public names, hashes and codes, never a value from a row. A hash chain alone misses a cut
at the end, so sites show each other their heads at the start of every run and keep what they were shown (`witness`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blindbayes.errors import LedgerError
from blindbayes.foreign import read_json_table

GENESIS = "0" * 64


class AuditLog:
    """One file; several processes of the site may append (the agent and the command line)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, **facts: str | int | float | bool | list[str] | None) -> str:
        """Write one entry; it is on disk when this returns. The new head."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            last = self._last(handle)
            entry = {
                "number": last["number"] + 1 if last else 0,
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "event": event,
                **facts,
                "previous": last["hash"] if last else GENESIS,
            }
            entry["hash"] = _digest(entry)
            line = json.dumps(entry, sort_keys=True, ensure_ascii=True).encode() + b"\n"
            if os.write(handle, line) != len(line):
                raise LedgerError("the audit log cannot be written: the disk is full")
            os.fsync(handle)
            return str(entry["hash"])
        except OSError as cause:
            raise LedgerError(f"the audit log cannot be written: {cause.strerror}") from cause
        finally:
            os.close(handle)

    def _last(self, handle: int) -> dict[str, Any] | None:
        """The last whole entry; a torn line (a crash, a full disk) is cut off."""
        end = os.fstat(handle).st_size
        block, start = b"", end
        while start > 0:
            size = min(4096, start)
            start -= size
            block = os.pread(handle, size, start) + block
            if block.rstrip(b"\n").count(b"\n") >= 2:
                break
        if not block:
            return None
        if not block.endswith(b"\n"):
            cut = block.rfind(b"\n") + 1
            os.ftruncate(handle, start + cut)
            block = block[:cut]
        lines = block.splitlines()
        try:
            return (_read(lines[-1]) if lines else {}) or None
        except LedgerError as cause:
            raise LedgerError("the audit log is damaged; see `blindbayes site audit`") from cause

    @property
    def head(self) -> str:
        """The hash of the last entry."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            last = self._last_read_only(file.read())
            return str(last["hash"]) if last else GENESIS
        return GENESIS

    def _last_read_only(self, raw: bytes) -> dict[str, Any] | None:
        lines = raw[: raw.rfind(b"\n") + 1].splitlines()
        return _read(lines[-1]) if lines else None

    def entries(self) -> Iterator[dict[str, Any]]:
        """Every entry, verified on the way. Raises `LedgerError` at the first that does not fit."""
        previous = GENESIS
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return
        for number, line in enumerate(raw[: raw.rfind(b"\n") + 1].splitlines()):
            try:
                entry = _read(line)
                claimed = entry.pop("hash")
            except (LedgerError, KeyError):
                raise LedgerError(f"entry {number} of the audit log is damaged") from None
            if entry.get("previous") != previous or entry.get("number") != number or _digest(entry) != claimed:
                raise LedgerError(f"entry {number} of the audit log was altered")
            previous = claimed
            yield {**entry, "hash": claimed}

    def verify(self, *, must_hold: str | None = None) -> int:
        """The number of entries. With `must_hold`, a head that another site has seen must be among them."""
        heads = [entry["hash"] for entry in self.entries()]
        if must_hold is not None and must_hold != GENESIS and must_hold not in heads:
            raise LedgerError("the audit log lacks an entry that another site has seen: it was cut or replaced")
        return len(heads)


def _read(line: bytes) -> dict[str, Any]:
    return read_json_table(line, "an entry of the audit log", error=LedgerError)


def _digest(entry: dict[str, Any]) -> str:
    content = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
