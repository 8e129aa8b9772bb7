"""The site's audit log: what was approved, joined, refused, opened and how it ended. A chain (`storage.chain`).

Facts are public names, hashes and codes, never a value from a row. A hash chain alone misses a cut at the end, so sites show
each other their heads at the start of every run and keep what they were shown (`witness`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blindbayes.errors import LedgerError
from blindbayes.storage.chain import GENESIS, Chain, ChainFormat

_CHAIN = ChainFormat("audit log", number="number", kind="event", previous="previous", separators=(", ", ": "), max_line=4 << 20)


class AuditLog:
    """One file; several processes of the site may append (the agent and the command line)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chain = Chain(path, _CHAIN)

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

    def verify(self, *, must_hold: str | None = None) -> int:
        """The number of entries, all read anew. With `must_hold`, a head that another site has seen must be among them."""
        heads = [entry["hash"] for entry in self._chain.verify()]
        if must_hold is not None and must_hold != GENESIS and must_hold not in heads:
            raise LedgerError("the audit log lacks an entry that another site has seen: it was cut or replaced")
        return len(heads)
