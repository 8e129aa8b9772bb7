"""Sealed notices: nothing for a relay, nothing but our errors from garbled ones."""

from __future__ import annotations

import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, PeerProtocolError
from blindbayes.net.envelope import Notice, unpack
from blindbayes.net.identity import Identity
from blindbayes.net.notices import Heard, Invitation, Standing, open_notice, seal_notice


def test_a_relay_reads_nothing_of_a_notice() -> None:
    north, south = Identity.generate("north"), Identity.generate("south")
    raw = seal_notice(north, south.card, Invitation("canary-4711"), Coins.seeded(bytes(32)))
    assert b"canary" not in raw
    notice = unpack(raw)
    assert isinstance(notice, Notice)
    assert "canary" not in repr(notice)
    assert open_notice(south, north.card, notice) == Invitation("canary-4711")


def test_garbled_notices_raise_nothing_but_our_errors() -> None:
    north, south = Identity.generate("north"), Identity.generate("south")
    coins, refused = Coins.seeded(bytes(32)), 0
    for content in (Invitation("text"), Standing("0" * 64, "0" * 64, "refused", "why", 3), Heard("0" * 64, -1)):
        raw = seal_notice(north, south.card, content, coins)
        for place in range(len(raw)):
            garbled = bytearray(raw)
            garbled[place] ^= 1 + coins.below(255)
            try:
                notice = unpack(bytes(garbled), sender="north")
                assert isinstance(notice, Notice)
                open_notice(south, north.card, notice)
            except (BlindbayesError, AssertionError):
                refused += 1
                continue
            pytest.fail("a changed notice was accepted")
    assert refused > 300


@pytest.mark.parametrize("reason", ["x" * 301, "x" * 100_000])
def test_a_reason_has_three_hundred_characters(reason: str) -> None:
    north, south = Identity.generate("north"), Identity.generate("south")
    notice = unpack(seal_notice(north, south.card, Standing("0" * 64, "0" * 64, "refused", reason, 3), Coins.system()))
    assert isinstance(notice, Notice)
    with pytest.raises(PeerProtocolError, match="not well formed"):
        open_notice(south, north.card, notice)
