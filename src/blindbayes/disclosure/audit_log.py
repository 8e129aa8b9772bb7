"""The site's audit log: what was approved, joined, refused, opened, and how it ended. A hash chain (`io.chain`).

Facts are public names, hashes and codes, never a value from a row. A hash chain alone misses a cut at the end, so sites show
each other their heads at the start of every run and store what they were shown (`agent.rollback`).
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from blindbayes.errors import LedgerError
from blindbayes.io.chain import GENESIS, Chain, ChainFormat

_CHAIN = ChainFormat("audit log", number="number", kind="event", previous="previous", separators=(", ", ": "), max_line=4 << 20)

_INDEXED = ("event", "run", "study", "site")


class Subject(str):
    """A person authenticated by an identity provider: a name for display; issuer and subject identify them in the log.

    Two sessions of one subject are one person, whatever their names. A name of people.toml is never equal to a subject: code
    that decides compares `origin_of`.
    """

    __slots__ = ("issuer", "roles", "subject")
    issuer: str
    subject: str
    roles: frozenset[str]

    def __new__(cls, name: str, issuer: str, subject: str, roles: frozenset[str]) -> Subject:
        made = super().__new__(cls, f"{name} [{subject[:12]}]")
        made.issuer, made.subject, made.roles = issuer, subject, roles
        return made


def origin_of(who: Any) -> dict[str, str]:
    """Return issuer and subject of a person who signed in by the organisation; empty for a name."""
    return {"issuer": who.issuer, "subject": who.subject} if isinstance(who, Subject) else {}


class AuditLog:
    """One file. Several processes of the site may append to it (the agent and the command line)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chain = Chain(path, _CHAIN)
        self._lock = threading.Lock()
        self.derived: dict[str, tuple[str, Any]] = {}  # by run: the hash of its last entry, and what followed from its entries
        self._indexed = 0  # the number of entries in the index
        self._index: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)

    def append(self, event: str, **facts: str | int | float | bool | list[str] | None) -> str:
        """Write one entry, which is on disk when this returns, and return the new head.

        A `who` that signed in by the organisation is written with issuer and subject.
        """
        return str(self._chain.append(event, facts | origin_of(facts.get("who")))["hash"])

    @property
    def head(self) -> str:
        """The hash of the last entry."""
        return self._chain.head[1]

    @property
    def numbered_head(self) -> tuple[int, str]:
        """The number and the hash of the last entry."""
        count, head = self._chain.head
        return max(count - 1, 0), head

    def entries(self) -> list[dict[str, Any]]:
        """Return every entry. Each is verified once in the life of this process."""
        return self._chain.entries()

    def locked(self) -> contextlib.AbstractContextManager[bytes]:
        """Return the file's bytes, while no other process writes."""
        return self._chain.locked()

    def hash_at(self, number: int) -> str | None:
        """Return the hash of an entry, or None if there is no such entry."""
        return self._chain.hash_at(number)

    def where(self, field: str, value: str, *events: str) -> list[dict[str, Any]]:
        """Return the entries whose `event`, `run`, `study` or `site` is `value`, oldest first; with `events`, those alone."""
        return self.where_each(field, (value,), *events)[value]

    def where_each(self, field: str, values: Iterable[str], *events: str) -> dict[str, list[dict[str, Any]]]:
        """Return the entries of each value as `where` does, with one look at the file."""
        with self._lock:
            _, new, rehearsed = self._chain.grown(self._indexed)
            for entry in new:
                for name in _INDEXED:
                    if isinstance(entry.get(name), str):
                        self._index[name, entry[name]].append(entry)
                        self._index[name, entry[name], entry["event"]].append(entry)
                self._indexed += 1  # afterwards: if memory runs out, one entry may be in it twice, and none is left out

            def matches(value: str) -> Iterator[dict[str, Any]]:
                keys: list[tuple[str, ...]] = [(field, value, event) for event in events] or [(field, value)]
                for key in keys:
                    yield from self._index.get(key, ())
                yield from (e for e in rehearsed if e.get(field) == value and (not events or e["event"] in events))

            results = {value: list(matches(value)) for value in values}
        if len(events) > 1:
            for entries in results.values():
                entries.sort(key=lambda entry: entry["number"])
        return results

    def verify(self, *, must_hold: str | None = None) -> int:
        """Read the whole file again and return the number of entries.

        With `must_hold`, a head that another site has seen must be among them.
        """
        heads = [entry["hash"] for entry in self._chain.verify()]
        if must_hold is not None and must_hold != GENESIS and must_hold not in heads:
            raise LedgerError("the audit log lacks an entry that another site has seen: it was cut or replaced")
        return len(heads)
