"""The site's audit log: what was approved, joined, refused, opened and how it ended. A chain (`storage.chain`).

Facts are public names, hashes and codes, never a value from a row. A hash chain alone misses a cut at the end, so sites show
each other their heads at the start of every run and keep what they were shown (`witness`).
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from blindbayes.errors import LedgerError
from blindbayes.io.chain import GENESIS, Chain, ChainFormat

_CHAIN = ChainFormat("audit log", number="number", kind="event", previous="previous", separators=(", ", ": "), max_line=4 << 20)

_FIELDS = ("event", "run", "study", "site")


class AuditLog:
    """One file; several processes of the site may append (the agent and the command line)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chain = Chain(path, _CHAIN)
        self._lock = threading.Lock()
        self._sorted = 0  # how many entries stand in the index
        self._index: dict[tuple[str, Any], list[dict[str, Any]]] = defaultdict(list)

    def append(self, event: str, **facts: str | int | float | bool | list[str] | None) -> str:
        """Write one entry; it is on disk when this returns. The new head."""
        return str(self._chain.append(event, facts)["hash"])

    @property
    def head(self) -> str:
        """The hash of the last entry."""
        return self._chain.head[1]

    @property
    def numbered_head(self) -> tuple[int, str]:
        """The number of the last entry and its hash."""
        count, head = self._chain.head
        return max(count - 1, 0), head

    def entries(self) -> list[dict[str, Any]]:
        """Every entry, verified; each once, as long as this process lives."""
        return self._chain.entries()

    def held(self) -> contextlib.AbstractContextManager[bytes]:
        """The file's bytes; nobody writes meanwhile."""
        return self._chain.locked()

    def hash_at(self, number: int) -> str | None:
        """The hash of an entry; None: there is none."""
        return self._chain.hash_at(number)

    def of(self, field: str, value: str) -> list[dict[str, Any]]:
        """The entries whose `event`, `run`, `study` or `site` is `value`, oldest first: each is sorted in once."""
        with self._lock:
            self._sorted, new, rehearsed = self._chain.grown(self._sorted)
            for entry in new:
                for name in _FIELDS:
                    if isinstance(entry.get(name), str):
                        self._index[name, entry[name]].append(entry)
            return [*self._index.get((field, value), ()), *(entry for entry in rehearsed if entry.get(field) == value)]

    def verify(self, *, must_hold: str | None = None) -> int:
        """The number of entries, all read anew. With `must_hold`, a head that another site has seen must be among them."""
        heads = [entry["hash"] for entry in self._chain.verify()]
        if must_hold is not None and must_hold != GENESIS and must_hold not in heads:
            raise LedgerError("the audit log lacks an entry that another site has seen: it was cut or replaced")
        return len(heads)
