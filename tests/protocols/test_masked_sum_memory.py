"""A simulated masked sum of many parties holds little for each."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from unittest import mock

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import CIPHERTEXT_BYTES, HybridKey
from blindbayes.protocols import registry
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.wire.transcript import Keep
from support.masked import degree

NEIGHBOURS = 100


def decapsulated(key: HybridKey, publics: Mapping[str, bytes], *_: object) -> list[bytes]:
    """A secret of each pair, of the right size and at no cost: of memory it takes the same."""
    return [bytes(map(int.__xor__, key.public[:32], public[:32])) for public in publics.values()]


def encapsulated(key: HybridKey, publics: Mapping[str, bytes], coins: Coins) -> list[tuple[bytes, bytes]]:
    drawn = coins.bytes(CIPHERTEXT_BYTES * len(publics))
    packed = [drawn[at : at + CIPHERTEXT_BYTES] for at in range(0, len(drawn), CIPHERTEXT_BYTES)]
    return list(zip(decapsulated(key, publics), packed, strict=True))


def peak_of(parties: int) -> int:
    """Return the most bytes that a run takes at once, with 100 neighbours for each party."""
    coins = Coins.seeded(bytes(32))
    names = tuple(f"p{at}" for at in range(parties))
    setting = registry.SumSetup(names, 10, parties - parties // 20)
    protocol = registry.load("masked_sum")
    runs = local_runs(protocol.roster(setting), coins=coins)
    vectors = {name: np.ones(10, np.uint64) for name in names}
    tracemalloc.start()
    try:
        with degree(NEIGHBOURS):
            roles = registry.simulate_roles(protocol, runs, setting, vectors, coins)
        with mock.patch.multiple(HybridKey, encapsulate_many=encapsulated, decapsulate_many=decapsulated):
            outcome = run_in_memory(roles, keep=Keep.COUNTS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.outputs["server"].words.tolist() == [parties] * 10
    return peak


def test_a_party_takes_little_more_than_twice_its_largest_message() -> None:
    advertised = NEIGHBOURS // 2 * CIPHERTEXT_BYTES  # which the server collects from all parties
    peak_of(110)  # fills caches
    each = (peak_of(180) - peak_of(110)) / 70
    assert each < 2.5 * advertised
