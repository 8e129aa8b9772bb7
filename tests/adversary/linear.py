"""What a coalition learns where every message is a linear function of inputs and coins: measured, not traced.

Each honest input and each honest coin is moved by one, and the words that the coalition receives are compared: that is the
whole matrix, whatever the code does inside. Elimination then gives the functionals of inputs that no coin hides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from adversary.arena import Arena, Change, honest
from adversary.knowledge import Form, _functionals
from blindbayes.crypto.coins import Coins
from blindbayes.protocols import registry

Lever = tuple[str, str, int]  # "x" or "coin", party, which


class Levers(Coins):
    """Coins whose words can be moved one by one."""

    def __init__(self, party: str, moved: Lever | None, seen: set[Lever]) -> None:
        super().__init__(Coins.seeded(bytes(32)).derive(party)._stream, bytes(32))
        self._party, self._moved, self._all, self._count = party, moved, seen, 0

    def words(self, count: int) -> Any:
        drawn = super().words(count)
        lever = ("coin", self._party, self._count)
        self._count += 1
        self._all.add(lever)
        return drawn + np.uint64(1) if lever == self._moved else drawn


def measured(arena: Arena, coalition: Sequence[str], change: Change = honest) -> list[dict[str, int]]:
    """A basis of what the coalition computes of the honest inputs (vectors of one word)."""
    protocol = registry.load(arena.name)
    levers: set[Lever] = {("x", name, 0) for name in arena.contributors}

    def words(moved: Lever | None) -> list[int]:
        vectors = {name: vector + np.uint64(moved == ("x", name, 0)) for name, vector in arena.vectors.items()}

        def make(runs: Mapping[str, Any], coins: Coins) -> dict[str, Any]:
            return {
                name: protocol.role(runs[name], arena.setting, vectors.get(name), Levers(name, moved, levers))
                for name in arena.seats
            }

        fight = replace(arena, make=make, vectors=vectors).fight(coalition, change)
        blobs = [blob for name in coalition for blob in fight.ledger.received.get(name, []) if len(blob) == 8]
        return [int.from_bytes(blob, "little") for blob in blobs]

    base = words(None)
    forms: list[Form] = [{} for _ in base]
    for lever in sorted(levers):
        if lever[1] in coalition:
            continue
        moved = words(lever)
        assert len(moved) == len(base)
        for form, new, old in zip(forms, moved, base, strict=True):
            step = (new - old + 2**63) % 2**64 - 2**63
            if step:
                form[("x", lever[1]) if lever[0] == "x" else lever] = step
    unknown: Callable[[Any], bool] = lambda atom: False  # noqa: E731
    return _functionals(forms, unknown)
