"""Charge a site's own ledger for a run: once, before anything of the run is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import EXACT, Head, Ledger, LedgerEntry
from blindbayes.dp.noise.mechanisms import PrivacyCost


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge to a party's ledger, for its part of a run."""

    spend: Spend
    unit: str  # whom it protects
    also: tuple[str, ...] = ()  # prefixes of other units that it protects as well
    mechanism: str | None = None
    draw: str = ""  # the name of a draw of labels that it pays for too
    repeat: Spend | None = None  # the cost if the ledger has paid for that draw already

    @classmethod
    def from_cost(cls, cost: PrivacyCost) -> Charge:
        return cls(Spend.from_cost(cost), cost.unit)

    def plus(self, other: Charge) -> Charge:
        """Return one charge for both."""

        def both(spend: Spend) -> Spend:
            return Spend(spend.epsilon + other.spend.epsilon, spend.delta + other.spend.delta)

        repeat = other.spend if self.repeat is None else both(self.repeat)
        return replace(self, spend=both(self.spend), repeat=repeat, mechanism=f"{self.mechanism}, {other.mechanism}")

    def pay(self, ledger: Ledger, purpose: str, **facts: Any) -> LedgerEntry:
        """Charge the ledger. Raises `PrivacyError`, and writes nothing, if the unit or the budget does not fit."""
        spend: Spend | None = self.spend
        if self.draw:
            facts["draw"] = self.draw
            if any(entry.fields.get("draw") == self.draw for entry in ledger.entries()):
                spend = self.repeat
        if spend is None:
            return ledger.note("repeated", purpose=purpose, **facts)
        own_unit = ledger.balance().unit
        unit = own_unit if self.also and own_unit.startswith(self.also) else self.unit
        mechanism = {"mechanism": self.mechanism} if self.mechanism else {}
        return ledger.charge(spend, purpose=purpose, unit=unit, **mechanism, **facts)


class RunLedger(Ledger):
    """A site's ledger, with entries by run and study."""

    def pay(self, charge: Charge, purpose: str, study: str, run_id: str) -> None:
        """Pay for a run unless it is paid. Raises `PrivacyError` if the budget does not suffice."""
        if not self.has_paid(run_id):
            charge.pay(self, purpose, run=run_id, study=study)

    def note_exact(self, purpose: str, study: str, run_id: str) -> None:
        """Record that a run opens an exact sum, which costs no epsilon: the log heads that peers keep then cover it."""
        if not self.has_paid(run_id, EXACT):
            self.note(EXACT, purpose=purpose, run=run_id, study=study)

    def charges_of(self, study: str) -> int:
        """Return how often the ledger was charged for a study."""
        return sum(entry.kind == "charge" and entry.fields.get("study") == study for entry in self.entries())

    def has_paid(self, run_id: str, kind: str = "charge") -> bool:
        """Return True if the ledger has an entry of this kind for a run."""
        return any(entry.kind == kind and entry.fields.get("run") == run_id for entry in self.entries())


def parse_head(text: str) -> tuple[int, str]:
    """Return the number and the hash in the text of a ledger's head. Raises `ConfigError`."""
    head = Head.parse(text)
    return head.n, head.hash


def max_moved(previous: Sequence[int | None], withdrawn: Sequence[bool] = ()) -> int:
    """Return the largest number of these releases that one stay of a record in this site's table can change.

    Release i reveals how this site's statistics changed since release `previous[i]`, or all of them (None; -1: since one that
    is not among these). A record that is in the table from release a up to, not including, release b is present at release i
    if a <= i < b and the site had not taken its rows back then (`withdrawn[i]`). It changes release i if it is present at i or
    at previous[i], but not at both. So a line of changes costs it two, however long; each time that the site takes its rows
    back or brings them again costs one more, and so does each release that no later one adds to.
    """
    count = len(previous)
    present = 1 - np.array(withdrawn or [False] * count, dtype=np.int64)
    weights, both = present.copy(), np.zeros((count + 1, count + 1), dtype=np.int64)
    for i, before in enumerate(previous):
        if before is not None and before >= 0:
            weights[before] += present[before]
            both[before, i + 1] = present[before] * present[i]
    prefix = np.concatenate([[0], np.cumsum(weights)])
    pairs = both[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)  # [a, b]: increments whose two releases both lie in the stay
    moved = prefix[None, :] - prefix[:, None] - 2 * pairs
    return int(moved.max()) + sum(before == -1 for before in previous)
