"""Membership as parties join and leave: the number of parties that each believes in, and with which of them it shares keys.

Both are public and follow from the list of joins and leaves alone, so every party computes the same.

`Views` are the paper's u values (Huai 2015, Algorithm 1, after Li and Cao 2013): party k sets its noise as if there were u_k
parties, with u_k in (n/2, n], so that the noise is enough and at most doubled, while a join or leave changes the values of at
most two others. The paper leaves open what happens when a holder of the largest value leaves; this reading keeps the
invariant (SCIENCE notes; proved by enumeration in the tests).

`Groups` is the key graph: interleaved groups on a ring. Parties stand in segments; consecutive segments form a group, so each
party is in two groups (three segments) and each group shares a segment with the next. Any two parties of a group share a key.
A join or leave changes the keys of at most `max_rekeyed(width)` others, whatever the number of parties. A coalition isolates
some honest parties only if it contains at least two whole segments, hence at least 2 * width parties; up to three
segments the graph is complete and no coalition isolates anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from blindbayes.errors import ConfigError

DEFAULT_WIDTH = 16


def max_rekeyed(width: int) -> int:
    """Return how many parties, besides the one that joins or leaves, may change keys: four full segments."""
    return 4 * (2 * width - 1)


def pattern(n: int) -> list[int]:
    """The values of n parties, sorted: each of n//2 + 1 .. n twice, the least only once if n is odd."""
    values = [value for value in range(n // 2 + 1, n + 1) for _ in range(2)]
    return values[1:] if n % 2 else values


class Views:
    """The u values. `of[name]` lies in (n/2, n]."""

    def __init__(self, parties: Sequence[str]) -> None:
        if len(set(parties)) != len(parties):
            raise ConfigError("a party stands twice in the roster")
        self.of: dict[str, int] = dict(zip(parties, pattern(len(parties)), strict=True))

    @classmethod
    def after(cls, founders: Sequence[str], steps: Iterable[tuple[str, bool]]) -> Views:
        """The values after these left (False) or came (True)."""
        views = cls(founders)
        for name, came in steps:
            (views.join if came else views.leave)(name)
        return views

    def join(self, name: str) -> set[str]:
        """Add a party; who hears a new value, itself included."""
        if name in self.of:
            raise ConfigError("the party is in the roster already")
        n = len(self.of) + 1
        self.of[name] = n
        smallest = min(self.of, key=lambda party: self.of[party])  # the first in roster order, if several
        self.of[smallest] = n
        return {name, smallest}

    def leave(self, name: str) -> set[str]:
        """Remove a party; who hears a new value."""
        if name not in self.of:
            raise ConfigError("the party is not in the roster")
        value = self.of.pop(name)
        n = len(self.of)
        top = [party for party, view in self.of.items() if view == n + 1]  # no longer allowed
        if not top:  # the last party left
            return set()
        self.of[top[0]] = n // 2 + 1
        if value != n + 1:  # both holders of n + 1 are still here: the second takes over the leaver's value
            self.of[top[1]] = value
        return set(top)


class Groups:
    """The key graph. `width` is the least number of parties in a segment; a segment has fewer than twice as many."""

    def __init__(self, parties: Sequence[str], width: int = DEFAULT_WIDTH) -> None:
        if width < 2:
            raise ConfigError("a segment has at least two parties")
        if len(set(parties)) != len(parties):
            raise ConfigError("a party stands twice in the roster")
        self.width = width
        count = max(1, -(-len(parties) // (2 * width - 1)), 2 * len(parties) // (3 * width))
        cuts = [at * len(parties) // count for at in range(count + 1)]
        self.segments: list[list[str]] = [list(parties[low:high]) for low, high in pairwise(cuts)]

    @classmethod
    def after(cls, founders: Sequence[str], steps: Iterable[tuple[str, bool]], width: int = DEFAULT_WIDTH) -> Groups:
        """The graph after these left (False) or came (True): only neighbourhoods of theirs have other keys."""
        groups = cls(founders, width)
        for name, came in steps:
            (groups.join if came else groups.leave)(name)
        return groups

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody, in ring order."""
        return tuple(name for segment in self.segments for name in segment)

    @property
    def is_complete(self) -> bool:
        """Return whether everybody shares a key with everybody."""
        return len(self.segments) <= 3

    def segment_of(self, name: str) -> int:
        """The number of the party's segment."""
        for at, segment in enumerate(self.segments):
            if name in segment:
                return at
        raise ConfigError("the party is not in the roster")

    def around(self, segment: int) -> tuple[str, ...]:
        """The parties of a segment and of the two beside it: those who share keys with its members."""
        count = len(self.segments)
        if count <= 3:
            return self.parties
        return tuple(name for at in (segment - 1, segment, segment + 1) for name in self.segments[at % count])

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """Parties with the same `around`, by its number: the segments, or everybody while the graph is complete."""
        return (self.parties,) if len(self.segments) <= 3 else tuple(map(tuple, self.segments))

    def held_by(self, name: str) -> tuple[int, ...]:
        """The blocks that the party is around of."""
        count = len(self.segments)
        if count <= 3:
            return (0,)
        at = self.segment_of(name)
        return tuple(sorted(((at - 1) % count, at, (at + 1) % count)))

    def neighbours(self, name: str) -> tuple[str, ...]:
        """With whom the party shares a key."""
        return tuple(other for other in self.around(self.segment_of(name)) if other != name)

    def tolerance(self) -> int:
        """Any coalition of up to this many contributors (and the miner) leaves the honest connected."""
        if len(self.segments) <= 3:
            return max(len(self.parties) - 2, 0)
        smallest, next_least = sorted(len(segment) for segment in self.segments)[:2]
        return smallest + next_least - 1

    def isolation_chance(self, corrupt: float) -> float:
        """Bound on the chance that a coalition of that fraction, placed at random, contains two whole segments."""
        if len(self.segments) <= 3:
            return 0.0
        whole = [corrupt ** len(segment) for segment in self.segments]  # drawing without repetition only makes it less likely
        return min(1.0, (sum(whole) ** 2 - sum(chance**2 for chance in whole)) / 2)

    def join(self, name: str) -> set[str]:
        """Put a party into the smallest segment; whose keys change, besides its own."""
        if any(name in segment for segment in self.segments):
            raise ConfigError("the party is in the roster already")
        before = self._links()
        at = min(range(len(self.segments)), key=lambda number: len(self.segments[number]))
        segment = self.segments[at]
        segment.append(name)
        if len(segment) == 2 * self.width:
            self.segments[at : at + 1] = [segment[: self.width], segment[self.width :]]
        return self._changed(before) - {name}

    def leave(self, name: str) -> set[str]:
        """Remove a party; whose keys change."""
        at = self.segment_of(name)
        before = self._links()
        segment = self.segments[at]
        segment.remove(name)
        if len(segment) < self.width and len(self.segments) > 1:
            count = len(self.segments)
            rich = max((at + 1) % count, (at - 1) % count, key=lambda number: len(self.segments[number]))
            if len(self.segments[rich]) > self.width:  # borrow one
                segment.append(self.segments[rich].pop())
            else:  # both neighbours are at their least: merge with one, 2 * width - 1 together
                segment.extend(self.segments[rich])
                del self.segments[rich]
        return self._changed(before) - {name}

    def _links(self) -> dict[str, frozenset[str]]:
        links: dict[str, frozenset[str]] = {}
        for at, segment in enumerate(self.segments):
            links.update(dict.fromkeys(segment, frozenset(self.around(at))))
        return links

    def _changed(self, before: dict[str, frozenset[str]]) -> set[str]:
        after = self._links()
        return {name for name in before.keys() & after.keys() if before[name] != after[name]}
