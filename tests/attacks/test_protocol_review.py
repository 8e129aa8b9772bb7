"""Attacks on the sums and on the site agents that once went through, or nearly did. Each test is one attack."""

from __future__ import annotations

import pytest

from blindbayes.errors import PeerProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.protocol import registry
from blindbayes.protocol.core import Send
from blindbayes.protocol.oblivious_sum.messages import KeyAnnounced, RosterNamed, SharesSealed
from blindbayes.runtime.memory import local_runs

SEED = bytes(range(32))


def test_a_miner_cannot_make_a_contributor_deal_twice_under_the_same_keys() -> None:
    """The same roster named twice would seal two sets of shares under one key and nonce: the forbidden use of AES-GCM."""
    names = ("a", "b", "c", "d")
    protocol = registry.load("oblivious_sum")
    setting = registry.Setting(names, 2, 3, bound=100, options={"scheme": "ristretto"})
    coins = Coins.seeded(SEED)
    runs = local_runs(protocol.roster(setting), run_id="run", coins=coins.derive("identities"))
    vector = coins.words(2) >> 60
    roles = {name: protocol.role(runs[name], setting, vector, coins.derive(name)) for name in names}
    announced: dict[str, KeyAnnounced] = {}
    for name, role in roles.items():
        effect = next(role)
        assert isinstance(effect, Send) and isinstance(effect.message, KeyAnnounced)
        announced[name] = effect.message
    others = [announced[name] for name in names if name != "a"]
    roster = RosterNamed(
        names, announced["d"].public, tuple(k.public for k in others), tuple(k.signature for k in others), (), False
    )
    next(roles["a"])
    first = roles["a"].send(roster)
    assert isinstance(first, Send) and isinstance(first.message, SharesSealed)
    next(roles["a"])
    with pytest.raises(PeerProtocolError, match="roster"):
        roles["a"].send(roster)
