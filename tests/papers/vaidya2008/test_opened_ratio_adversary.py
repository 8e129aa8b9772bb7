"""opened_ratio: contributors that deviate, and what two computing parties read together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from adversary.arena import Arena
from adversary.deviations import systematic
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import expand
from blindbayes.protocols.core import Role, Run
from blindbayes_papers.vaidya2008.opened_ratio.roles import PrivateRatioSetup, contributor, first_party, second_party

BOOK = Codebook("c", ("a", "b"), (Categorical("x", ("p", "q")),), max_rows=1000)
RATIOS = PrivateRatioSetup(BOOK, opening="fine", fraction=8)
SITES = ("first", "second", "charlie", "delta")
VECTORS = {name: np.array([3, 4, 1, 2, 2, 2], np.uint64) + np.uint64(at) for at, name in enumerate(SITES)}


def ratio_arena() -> Arena:
    def make(runs: Mapping[str, Run], coins: Coins) -> dict[str, Role[Any]]:
        roles: dict[str, Role[Any]] = {
            name: contributor(runs[name], RATIOS, VECTORS[name], "first", "second", coins.derive(name)) for name in SITES[2:]
        }
        roles["first"] = first_party(runs["first"], RATIOS, VECTORS["first"], "second", coins.derive("first"))
        roles["second"] = second_party(runs["second"], RATIOS, VECTORS["second"], "first", coins.derive("second"))
        return roles

    return Arena("opened_ratio", SITES, SITES, None, make, VECTORS, 6, lambda colluders: 1)


def test_a_contributor_that_deviates_is_named_or_only_spoils_the_result() -> None:
    arena = ratio_arena()
    for title, change in systematic(arena, ("charlie",)):
        assert arena.fight(("charlie",), change).judge() == [], title


def test_the_two_computing_parties_together_read_every_contributor_and_one_of_them_none() -> None:
    arena = ratio_arena()
    fight = arena.fight(("first", "second"))
    for name in ("charlie", "delta"):
        key = fight.heard["MaskSent"][name].key
        masked = fight.heard["VectorMasked"][name].vector
        assert np.array_equal(masked + expand(key, 6), VECTORS[name])  # as the page says
    assert "MaskSent" not in arena.fight(("second",)).heard
    assert "VectorMasked" not in arena.fight(("first",)).heard


@pytest.mark.slow
@pytest.mark.parametrize("seat", ["first", "second"])
def test_a_computing_party_that_deviates_ends_in_an_error_that_names_it_or_spoils_the_result(seat: str) -> None:
    """Nothing is claimed about what it learns; but nobody honest is accused, and no bug shows."""
    arena = ratio_arena()
    for title, change in systematic(arena, (seat,)):
        assert arena.fight((seat,), change).judge() == [], title
