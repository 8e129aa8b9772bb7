"""Specifications and what is concluded from them."""

from __future__ import annotations

from typing import Any

import pytest

from blindbayes.errors import ConfigError
from blindbayes.protocols.registry import SumSetup, coalition_of
from blindbayes.report.leakage import describe_label, follows_from_sum
from blindbayes.report.spec import protocols, read_spec


@pytest.mark.parametrize("name", protocols())
def test_every_protocol_says_who_learns_what(name: str) -> None:
    spec = read_spec(name)
    assert spec.paragraph("Who learns what")
    assert all(describe_label(label) for label in spec.opened)


def test_an_unknown_protocol_is_named() -> None:
    for name in ("nonsense", "../core"):
        with pytest.raises(ConfigError, match="masked_sum"):
            read_spec(name)


def setting(contributors: int, quorum: int | None = None, *, noisy: bool = False, **options: Any) -> SumSetup:
    return SumSetup(tuple(f"p{at}" for at in range(contributors)), 1, quorum, noisy, options=options)


def test_coalitions_are_those_of_the_specifications() -> None:
    at = [
        coalition_of("masked_sum", setting(5, 4)),
        coalition_of("ring_sum", setting(5)),
        coalition_of("chain_sum", setting(5)),
    ]
    at.append(coalition_of("oblivious_sum", setting(5, 4, scheme="joye_libert")))
    assert [(found.passive, found.active) for found in at if found] == [(3, 2), (3, 3), (4, 4), (3, 2)]
    ring = coalition_of("ring_sum", setting(9, rings=1))
    assert ring is not None
    assert ring.passive == 1
    sparse = coalition_of("masked_sum", setting(200, 180))
    assert sparse is not None
    assert sparse.passive == 20
    chain = coalition_of("chain_sum", setting(100, neighbours=16))
    assert chain is not None
    assert (chain.passive, chain.active) == (15, -1)
    assert coalition_of("reference", setting(5)) is None


def test_what_follows_changes_with_the_number_of_parties_and_with_noise() -> None:
    five = " ".join(follows_from_sum("masked_sum", setting(5, 4), 5))
    assert "up to 3 contributors" in five
    assert "up to 2 contributors" in five
    assert "sum of the other 4" in five
    ten = " ".join(follows_from_sum("masked_sum", setting(10, 7), 9))
    assert "up to 6 contributors" in ten
    assert "sum of the other 8" in ten
    noisy = " ".join(follows_from_sum("masked_sum", setting(5, 4, noisy=True), 5))
    assert "exact" not in noisy
    assert "privacy statement" in noisy
    assert follows_from_sum("ring_sum", setting(3), 3)[0].startswith("A contributor alone, even if")
    assert "Up to 3 contributors" in follows_from_sum("ring_sum", setting(9), 9)[0]
    assert "even if it deviates" in follows_from_sum("ring_sum", setting(3), 3)[0]
    large = " ".join(follows_from_sum("masked_sum", setting(200, 180, noisy=True), 200))
    assert "sums over parts of the other contributors" in large
    assert "neighbourhood" not in five
    assert "claims to protect nothing" in follows_from_sum("reference", setting(3), 3)[0]
