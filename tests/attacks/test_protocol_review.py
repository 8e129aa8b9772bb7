"""Attacks on the sums and on the site agents that once went through, or nearly did. Each test is one attack."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from blindbayes.errors import PeerProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.protocol import registry
from blindbayes.protocol.core import Send
from blindbayes.protocol.masked_sum.messages import MaskedVectorSent
from blindbayes.protocol.oblivious_sum.messages import CorrectionsSent, KeyAnnounced, ModulusDealt, RosterNamed, SharesSealed
from blindbayes.runtime.memory import local_runs
from blindbayes.wire import Message, decode
from blindbayes.wire.codec import _opening
from blindbayes.wire.items import has_few_items

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
        assert isinstance(effect, Send)
        assert isinstance(effect.message, KeyAnnounced)
        announced[name] = effect.message
    others = [announced[name] for name in names if name != "a"]
    roster = RosterNamed(
        names, announced["d"].public, tuple(k.public for k in others), tuple(k.signature for k in others), (), False
    )
    next(roles["a"])
    first = roles["a"].send(roster)
    assert isinstance(first, Send)
    assert isinstance(first.message, SharesSealed)
    next(roles["a"])
    with pytest.raises(PeerProtocolError, match="roster"):
        roles["a"].send(roster)


@pytest.mark.parametrize("filler", [b"\x90", b"\x80", b"\x00", b"\xc4\x00", b"\x91\xc4\x00"])
@pytest.mark.parametrize(
    ("kind", "name"), [(MaskedVectorSent, "vector_masked"), (ModulusDealt, "modulus"), (CorrectionsSent, "elements")]
)
def test_a_frame_cannot_unfold_into_far_more_memory_than_it_has_bytes(kind: type[Message], name: str, filler: bytes) -> None:
    """Empty lists took 66 bytes of memory for each byte on the wire: 4 GB for one frame within the limit."""
    count = 1_200_000
    frame = _opening(kind) + msgspec.msgpack.encode(name) + b"\xdd" + count.to_bytes(4, "big") + filler * count
    tracemalloc.start()
    try:
        with pytest.raises(PeerProtocolError):
            decode(frame, kind)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_many_small_containers_count_together() -> None:
    row = b"\xdc" + (1000).to_bytes(2, "big") + b"\x90" * 1000
    packed = memoryview(b"\xdc" + (1000).to_bytes(2, "big") + row * 1000)
    assert not has_few_items(packed, 1_001_000)
    assert has_few_items(packed, 1_001_001)


def test_counting_items_agrees_with_the_decoder() -> None:
    """Whatever msgspec reads, the count reads to its end, with the right number of items."""
    values: list[object] = [None, True, -1, 2**63, 1.5, "x" * 40, "y" * 300, b"z" * 70_000, [1, [2, []]], {"a": {"b": [1]}}]
    values += [list(range(70_000)), {str(number): number for number in range(70_000)}, ["s" * 31, -33, 128, 65_536, 2**40]]
    for value in values:
        items = _count(value)
        packed = memoryview(msgspec.msgpack.encode(value))
        assert has_few_items(packed, items)
        assert items == 1 or not has_few_items(packed, items - 1)
        assert not has_few_items(packed[:-1], items)


def _count(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    if isinstance(value, dict):
        return 1 + sum(1 + _count(item) for item in value.values())
    return 1
