"""masked_sum: secrets encapsulated to the keys of cards, on which the pairs' keys depend beside the curve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest

from blindbayes.crypto import aead
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import HybridKey
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols import pair_keys, registry
from blindbayes.protocols.memory import Outcome, Replace, local_runs, run_in_memory
from blindbayes.protocols.secure_sum import contributor, graph, keys, messages
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.masked import masked, start
from support.sums import SEED, names


def lying(parties: int, make: Callable[[bytes], bytes]) -> Outcome:
    """A run in which site1 signs other ciphertexts than it made, and says nothing about what it then cannot open."""
    coins, setting = Coins.seeded(SEED), registry.SumSetup(names(parties), 1, parties)
    protocol = registry.load("masked_sum")
    runs = local_runs(protocol.roster(setting), coins=coins)
    terms = keys.MaskedSumSetup(runs["site1"], setting)

    def lie(message: messages.KeysAdvertised) -> messages.KeysAdvertised:
        other = make(message.encapsulated)
        signature = pair_keys.sign_keys(runs["site1"], terms.context, message.public, message.commitments, other)
        return msgspec.structs.replace(message, encapsulated=other, signature=signature)

    def silent(given: keys.MaskedSumSetup, found: Any, boxes: Any, authors: Any) -> Any:
        return shipped(given, found, boxes, authors) if given.run.me != "site1" else boxes[:, : 2 * keys.SHARE_BYTES]

    shipped = contributor._unseal
    vectors = {name: np.zeros(1, np.uint64) for name in names(parties)}
    roles = registry.simulate_roles(protocol, runs, setting, vectors, coins)
    fault = Replace(lambda entry: entry.kind is messages.KeysAdvertised and entry.sender == "site1", lie)
    with mock.patch.object(contributor, "_unseal", silent):
        return run_in_memory(roles, faults=[fault], check=False)


@pytest.mark.parametrize(("parties", "neighbours"), [(2, None), (5, None), (8, None), (30, 6)])
def test_one_of_each_pair_encapsulates_and_each_party_to_half_of_its_pairs(parties: int, neighbours: int | None) -> None:
    layout = graph.MaskGraph(neighbours or parties - 1, 2, neighbours is None, 0.0, 0.0)
    for one in range(parties):
        near = graph.neighbours_of("s", "r", parties, layout, one)
        receivers = [other for other in near if graph.is_receiver("s", "r", parties, layout, one, other)]
        assert not any(graph.is_receiver("s", "r", parties, layout, other, one) for other in receivers)
        assert all(graph.is_receiver("s", "r", parties, layout, other, one) for other in set(near) - set(receivers))
        assert len(receivers) in (len(near) // 2, (len(near) + 1) // 2)


def test_no_and_too_many_ciphertexts_are_refused_by_the_server() -> None:
    """Nobody goes without the lattice's half because one of the two left it out."""
    for make in (lambda old: b"", lambda old: old[:-1], lambda old: old + old):
        outcome = lying(3, make)
        assert isinstance(outcome.error, PeerProtocolError)
        assert (outcome.failed, outcome.error.party) == ("server", "site1")


def ciphertexts(seed: bytes) -> list[bytes]:
    """What each site of a run of five encapsulates."""
    _, outcome = masked(5, 3, [], seed=seed, keep=Keep.FRAMES)
    sent = [entry for entry in outcome.transcript.entries if entry.kind is messages.KeysAdvertised]
    return [decode(entry.frame or b"", messages.KeysAdvertised).encapsulated for entry in sent]


def test_made_up_copied_and_repeated_ciphertexts_name_their_author() -> None:
    """Of another pair, of another run, twice the same, altered: each receiver has another secret than the author."""
    other, old = ciphertexts(SEED), ciphertexts(bytes(32))
    assert len({*other, *old}) == 10
    for make in (
        bytes_of,
        lambda mine: other[0],
        lambda mine: old[1],
        lambda mine: mine[: len(mine) // 2] * 2,
        lambda mine: mine[:9] + bytes([mine[9] ^ 1]) + mine[10:],
    ):
        outcome = lying(5, make)
        assert isinstance(outcome.error, IntegrityError)
        assert outcome.failed != "site1"
        assert set(outcome.error.suspects) == {"site1", "server"}
        assert set(outcome.opened.values()) == {()}


def bytes_of(mine: bytes) -> bytes:
    return bytes(len(mine))


def test_a_card_with_a_malformed_key_names_its_site() -> None:
    _, terms, _ = start(3, 2)
    unreduced = terms.run.keys["site1"][:32] + b"\xff" * 1184
    for key in (unreduced, terms.run.keys["site1"][:-1], bytes(32) + terms.run.keys["site1"][32:]):
        card = HybridKey.generate(Coins.seeded(bytes(32)))
        run = replace(terms.run, me="site0", agreement=card, keys={**terms.run.keys, "site0": card.public, "site1": key})
        with pytest.raises(IntegrityError) as caught:
            keys.MaskedSumSetup(run, terms.setting).encapsulate(0, Coins.seeded(bytes(32)))
        assert caught.value.party == "site1"


def test_all_private_keys_of_the_curve_open_no_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that kept all messages and breaks the curve has every X25519 key, fresh ones too, and lacks the lattice's."""
    fresh: list[AgreementKey] = []

    def generate(coins: Coins) -> AgreementKey:
        fresh.append(AgreementKey(coins.bytes(32)))
        return fresh[-1]

    monkeypatch.setattr(contributor.AgreementKey, "generate", generate)
    coins, setting = Coins.seeded(SEED), registry.SumSetup(names(3), 1, 2)
    protocol = registry.load("masked_sum")
    runs = local_runs(protocol.roster(setting), coins=coins)
    vectors = {name: np.zeros(1, np.uint64) for name in names(3)}
    outcome = run_in_memory(registry.simulate_roles(protocol, runs, setting, vectors, coins), keep=Keep.FRAMES)
    seen: dict[Any, Any] = {}
    for entry in outcome.transcript.entries:
        seen[entry.kind, entry.to if entry.sender == "server" else entry.sender] = decode(entry.frame or b"", entry.kind)
    public = seen[messages.KeysAdvertised, "site1"].public
    mine = next(key for key in fresh if key.public == public)
    listed, passed = seen[messages.KeysListed, "site1"], seen[messages.SharesPassedOn, "site1"]

    def opens(card: HybridKey) -> bool:
        card.public = runs["site1"].keys["site1"]
        terms = keys.MaskedSumSetup(replace(runs["site1"], agreement=card), setting)
        vouched = terms.decapsulate(1, (0, 2), listed.encapsulated)  # of site0
        pair = terms.agree(mine, {0: listed.advertised[0]}, vouched)
        everything = dict(enumerate([seen[messages.KeysAdvertised, name] for name in names(3)]))
        _, _, from_them = terms.run_keys(pair, 1, [0], terms.roster(everything))
        box = keys.cut(passed.boxes, keys.BOX_BYTES, 2, "server")[:1]
        return aead.unseal_many(from_them, box, associated=terms.context, nonce=keys.BOX_NONCE)[1] is None

    real = runs["site1"].agreement
    assert real is not None
    assert opens(real)
    assert not opens(HybridKey(real.curve, bytes(64)))
