"""The protocols for rows as arenas, small enough to be fought in thousands of times, and the search over them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adversary.arena import Arena, Fight, sums
from adversary.deviations import Deviation, chosen_keys, copies, systematic
from adversary.names import MASKED_KEYS, MAXIMUM, SUM_SETUP
from adversary.refits import REFITS
from blindbayes.crypto.coins import Coins
from blindbayes.protocols.core import Role, Run

RISTRETTO = {"scheme": "ristretto"}
PAILLIER = {"key_bits": 512, "toy_keys": True}
NAMES = ("alfa", "bravo", "charlie", "delta", "echo", "foxtrot", "golf")


def masked(sites: Sequence[str], quorum: int | None = None) -> Arena:
    return sums("masked_sum", sites, quorum=quorum)


def oblivious(sites: Sequence[str], quorum: int | None = None) -> Arena:
    return sums("oblivious_sum", sites, quorum=quorum, **RISTRETTO)


def chain(sites: Sequence[str]) -> Arena:
    return sums("chain_sum", sites, **PAILLIER)


def largest(sites: Sequence[str]) -> Arena:
    """The maximum of the contributors' numbers: every digit is a sum."""
    sites = tuple(sites)
    numbers = {name: 1 + at for at, name in enumerate(sites)}

    def make(runs: Mapping[str, Run], coins: Coins) -> dict[str, Role[Any]]:
        roles: dict[str, Role[Any]] = {
            name: MAXIMUM.contributor(runs[name], sites, numbers[name], 2, coins.derive(name)) for name in sites
        }
        return {**roles, "miner": MAXIMUM.miner(runs["miner"], sites, 2, coins.derive("miner"))}

    setting = SUM_SETUP(sites, 1, bound=1, options=RISTRETTO)
    refit = REFITS["oblivious_sum"]
    least = _everybody(len(sites))
    return Arena(
        "maximum", sites, (*sites, "miner"), "miner", make, {}, 1, least, refit=refit, setting=setting, purpose=("maximum",)
    )


def _everybody(count: int) -> Any:
    return lambda colluders: max(1, count - colluders)


SMALL = {
    "masked_sum": masked(NAMES[:3]),
    "oblivious_sum": oblivious(NAMES[:3]),
    "chain_sum": chain(NAMES[:3]),
    "maximum": largest(NAMES[:3]),
    "oblivious_sum with standing keys": sums("oblivious_sum", NAMES[:3], keys="standing", **RISTRETTO),
    "ring_sum": sums("ring_sum", NAMES[:3]),
}
LARGER = {
    "masked_sum with a quorum": masked(NAMES[:4], 3),
    "masked_sum of five": masked(NAMES[:5], 4),
    "oblivious_sum with a quorum": oblivious(NAMES[:4], 3),
    "oblivious_sum with standing keys and a quorum": sums("oblivious_sum", NAMES[:4], quorum=3, keys="standing", **RISTRETTO),
    "chain_sum of four": chain(NAMES[:4]),
    "ring_sum of five": sums("ring_sum", NAMES[:5]),
}


def coalitions(arena: Arena) -> Iterator[tuple[str, ...]]:
    """Each contributor, the reader, and the reader with one contributor."""
    for name in arena.contributors:
        yield (name,)
    if arena.reader is not None:
        yield (arena.reader,)
        for name in arena.contributors:
            yield (arena.reader, name)


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    arena: str
    coalition: tuple[str, ...]
    deviation: str
    words: str

    def __str__(self) -> str:
        return f"{self.arena}: {self.words}\n    by: {self.deviation}"


def deviations(arena: Arena, coalition: Sequence[str], *, every: int = 1) -> Iterator[Deviation]:
    """All that the kit knows; of the changed fields, one in `every`."""
    yield from itertools.islice(systematic(arena, coalition), 0, None, every)
    if arena.name != "ring_sum":
        yield from chosen_keys(arena, coalition, to_each=every == 1)


def search(title: str, arena: Arena, coalition: Collection[str], tries: Iterator[Deviation]) -> Iterator[Finding]:
    """Fight with each deviation and say what went wrong."""
    for name, change in tries:
        fight: Fight = arena.fight(tuple(coalition), change)
        for words in fight.judge():
            yield Finding(title, tuple(coalition), name, words)


def copied(name: str, size: int, colluders: int, *, orders: int) -> Iterator[Finding]:
    """All colluders show copies of honest keys, for several orders of the roster and all places of the colluders."""
    make, which, reader = {
        "masked_sum": (lambda sites: masked(sites, min(size, 2 * size // 3 + 1)), MASKED_KEYS[0], "server"),
        "oblivious_sum": (oblivious, "key", "miner"),
    }[name]
    coins = Coins.seeded(bytes(31) + b"o")
    for at in range(orders):
        sites = list(NAMES[:size])
        if at:
            coins.shuffle(sites)
        arena = make(sites)
        for members in itertools.combinations(sites, colluders):
            title = f"{name} of {size}, {colluders} colluders, order {' '.join(sites)}"
            yield from search(title, arena, (reader, *members), copies(arena, (reader, *members), which))


def last_coalitions(arena: Arena) -> Iterator[tuple[str, ...]]:
    """The last contributor, the reader, and both: for the short form."""
    last = arena.contributors[-1]
    yield (last,)
    if arena.reader is not None:
        yield (arena.reader,)
        yield (arena.reader, last)


def everything(*, full: bool = False) -> Iterator[Finding]:
    """The whole search; `full` adds larger rosters, every place of the colluder, and more orders."""
    for title, arena in (SMALL | LARGER if full else SMALL).items():
        for coalition in coalitions(arena) if full else last_coalitions(arena):
            yield from search(title, arena, coalition, deviations(arena, coalition))
    for name in ("masked_sum", "oblivious_sum"):
        for size, colluders in ((3, 1), (4, 1), (5, 2), (6, 2), (7, 3)) if full else ((3, 1), (5, 2)):
            yield from copied(name, size, colluders, orders=2 if full and size < 6 else 1)
