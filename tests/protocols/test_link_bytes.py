"""How much a role may send over a link."""

from __future__ import annotations

from typing import Any

import pytest

from blindbayes.protocols import registry
from blindbayes.protocols.formula import value_of
from support.protocols import READY, SMALL, small_vectors
from support.sums import names, run_sum


@pytest.mark.parametrize(
    ("protocol", "parties", "length", "quorum", "options"),
    [
        *((protocol, parties, length, None, {}) for protocol in READY for parties, length in ((3, 1), (5, 300))),
        ("masked_sum", 20, 6, 14, {}),
        ("masked_sum", 70, 6, 60, {}),
        ("ring_sum", 9, 100, None, {"rings": 4}),
        ("oblivious_sum", 5, 40, 4, {}),
        ("oblivious_sum", 5, 40, 4, {"scheme": "joye_libert"}),
        ("oblivious_sum", 5, 40, None, {"keys": "dealer"}),
        pytest.param("oblivious_sum", 20, 40, 14, {}, marks=pytest.mark.slow),
        pytest.param("chain_sum", 20, 300, None, {}, marks=pytest.mark.slow),
    ],
)
def test_an_honest_role_says_no_more_than_a_link_lets_through(
    protocol: str, parties: int, length: int, quorum: int | None, options: dict[str, Any]
) -> None:
    """A site ends a run in which a peer sends more than `bytes_per_link`; honest ones stay below half of it."""
    sites = names(parties)
    outcome = run_sum(protocol, small_vectors(sites, length), bound=SMALL, quorum=quorum, options=options)
    said: dict[tuple[str, str], int] = {}
    for entry in outcome.transcript.entries:
        said[entry.sender, entry.to] = said.get((entry.sender, entry.to), 0) + entry.size
    most = value_of(registry.spec(protocol)["bytes_per_link"], {"n": parties, "words": length})
    assert 2 * max(said.values()) <= most
