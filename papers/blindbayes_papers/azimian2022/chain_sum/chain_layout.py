"""Layout of the chain: its order and the graph of the masks, both from the digest of the signed roster."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from blindbayes.crypto import prg
from blindbayes.errors import ConfigError
from blindbayes.protocols.registry import SumSetup

COMPLETE_UP_TO = 32
SPARSE_NEIGHBOURS = 8


def neighbours_of(setting: SumSetup, wanted: int | None) -> int:
    """Mask neighbours of each contributor: everybody in small runs, `wanted` or 8 in larger ones."""
    others = len(setting.contributors) - 1
    if wanted is None:
        wanted = others if len(setting.contributors) <= COMPLETE_UP_TO else SPARSE_NEIGHBOURS
    if wanted >= others:
        return others
    if wanted < 2 or wanted % 2:
        raise ConfigError("neighbours: an even number of at least 2, or at least the number of other contributors")
    return wanted


class ChainLayout:
    """Positions of `contributors`. Uniform given the digest, up to ties of 64-bit words.

    The chain is one random permutation. The masks lie on a second one, closed to a circle, where each contributor is joined
    to the `neighbours` nearest ones: a regular graph that stays connected until `neighbours` parties are taken out.
    """

    def __init__(self, digest: bytes, contributors: tuple[str, ...], neighbours: int) -> None:
        self.contributors = contributors
        self._neighbours = neighbours
        self._index = {name: index for index, name in enumerate(contributors)}
        size = len(contributors)
        words = prg.expand(prg.derive_key(digest, "chain plan"), 2 * size)
        self._order: list[int] = np.argsort(words[:size], kind="stable").tolist()
        self._circle: list[int] = np.argsort(words[size:], kind="stable").tolist()

    @property
    def order(self) -> tuple[str, ...]:
        """The chain, first to last."""
        return tuple(self.contributors[index] for index in self._order)

    @property
    def complete(self) -> bool:
        """Return whether everybody shares a mask with everybody."""
        return self._neighbours >= len(self.contributors) - 1

    def index(self, name: str) -> int:
        """Place in the setting."""
        return self._index[name]

    def previous(self, name: str) -> str | None:
        """Return who sends the link to `name`; None for the first."""
        at = self._order.index(self._index[name])
        return None if at == 0 else self.contributors[self._order[at - 1]]

    def following(self, name: str) -> str | None:
        """Return whom `name` sends its link to; None for the last, who sends it to the builder."""
        at = self._order.index(self._index[name])
        return None if at == len(self.contributors) - 1 else self.contributors[self._order[at + 1]]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return whom `name` shares a mask with, in the setting's order."""
        if self.complete:
            return tuple(other for other in self.contributors if other != name)
        at = self._circle.index(self._index[name])
        reach, size = self._neighbours // 2, len(self.contributors)
        places = [self._circle[(at + step) % size] for step in range(-reach, reach + 1) if step]
        return tuple(self.contributors[index] for index in sorted(places))

    def peers(self, name: str) -> tuple[str, ...]:
        """Everybody whose key `name` uses: mask neighbours and both hops, in the setting's order."""
        return self._sorted({*self.neighbours(name), self.previous(name), self.following(name)})

    def checked(self, name: str) -> tuple[str, ...]:
        """Return whose signed keys `name` checks before it uses them: mask neighbours and the next hop, in the setting's order.

        The previous hop's key needs no check: with a false one, `name` cannot unseal the link that this hop signed.
        """
        return self._sorted({*self.neighbours(name), self.following(name)})

    def _sorted(self, wanted: set[str | None]) -> tuple[str, ...]:
        return tuple(sorted((name for name in wanted if name is not None), key=self._index.__getitem__))

    def exposed(self, corrupt: Collection[str]) -> set[frozenset[str]]:
        """The sets of honest contributors whose *sums* the builder learns together with `corrupt`: exactly these.

        They are the connected components of the honest contributors, joined by masks and by adjacency in the chain.
        """
        honest = [name for name in self.contributors if name not in corrupt]
        group = {name: name for name in honest}

        def find(name: str) -> str:
            while group[name] != name:
                name = group[name]
            return name

        for name in honest:
            for other in (*self.neighbours(name), self.following(name)):
                if other is not None and other in group:
                    group[find(name)] = find(other)
        return {frozenset(name for name in honest if find(name) == root) for root in map(find, honest)}
