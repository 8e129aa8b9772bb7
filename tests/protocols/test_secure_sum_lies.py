"""masked_sum: a frame, a contributor or a server that lies, at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import IntegrityError, PeerLost, PeerProtocolError, ProtocolError
from blindbayes.protocols.memory import Drop, Duplicate, Outcome, Replace, Swap, Tamper, Vanish, run_in_memory
from blindbayes.protocols.secure_sum import graph, keys, messages
from blindbayes.wire.transcript import Keep, SentMessage
from support.masked import SENDS_VECTOR, degree, masked, require_sum, start

CLEAN_VECTORS, CLEAN = masked(3, 2, [], keep=Keep.FRAMES)
UNSEEN = (messages.MaskedVectorSent, messages.TotalPublished)  # any content is possible: see SPEC, lying contributor and server


def require_clean_end(outcome: Outcome, *parties: str) -> None:
    assert isinstance(outcome.error, ProtocolError)
    assert set(outcome.error.suspects) & set(parties)
    assert set(outcome.opened.values()) == {()}


@pytest.mark.parametrize("entry", CLEAN.transcript.entries, ids=lambda entry: f"{entry.index}-{entry.kind.__name__}")
def test_a_frame_that_is_cut_long_or_of_another_kind_names_its_sender(entry: SentMessage) -> None:
    other = next(each.frame for each in CLEAN.transcript.entries if each.kind is not entry.kind)
    assert other is not None
    for change in (lambda frame: frame[:-1], lambda frame: frame + b"\0", lambda frame: other, lambda frame: b"\1\xc1"):
        _, outcome = masked(3, 2, [Tamper(entry.index, change)])
        assert isinstance(outcome.error, PeerProtocolError)
        assert outcome.error.party == entry.sender
        if entry.kind is not messages.TotalPublished:
            assert set(outcome.opened.values()) == {()}


@pytest.mark.parametrize("entry", CLEAN.transcript.entries, ids=lambda entry: f"{entry.index}-{entry.kind.__name__}")
def test_a_flipped_bit_is_caught(entry: SentMessage) -> None:
    """In every message whose content the protocol itself can check. (On the wire the envelope catches all of them.)"""
    if entry.kind in UNSEEN:
        return
    for place in range(0, 8 * entry.size, 97):

        def flip(frame: bytes, place: int = place) -> bytes:
            changed = bytearray(frame)
            changed[place // 8] ^= 1 << place % 8
            return bytes(changed)

        vectors, outcome = masked(3, 2, [Tamper(entry.index, flip)])
        if outcome.error is None:  # a share that was not needed, or the secret of a mask with somebody who was not lost
            assert entry.kind in (messages.SharesGiven, messages.SharesDealt)
            require_sum(vectors, outcome, set(vectors))
        else:
            require_clean_end(outcome, *vectors, "server")


@pytest.mark.parametrize("entry", CLEAN.transcript.entries, ids=lambda entry: f"{entry.index}-{entry.kind.__name__}")
def test_a_message_from_another_run_is_caught(entry: SentMessage) -> None:
    if entry.kind in UNSEEN:
        return
    old = masked(3, 2, [], run_id="an earlier run", seed=bytes(32), keep=Keep.FRAMES)[1].transcript.entries[entry.index]
    assert old.kind is entry.kind
    assert old.frame is not None
    vectors, outcome = masked(3, 2, [Tamper(entry.index, lambda frame: old.frame or b"")])
    if outcome.error is None:
        assert entry.kind is messages.SharesGiven
        require_sum(vectors, outcome, set(vectors))
    else:
        require_clean_end(outcome, *vectors, "server")


@pytest.mark.parametrize("kind", [Drop, Duplicate, Swap])
def test_a_message_lost_doubled_or_late(kind: Any) -> None:
    for entry in CLEAN.transcript.entries:
        vectors, outcome = masked(3, 2, [kind(entry.index)])
        if outcome.error is None:
            included = set(outcome.outputs["server"].included)
            require_sum(vectors, outcome, included)
            assert len(included) >= 2
        else:
            assert isinstance(outcome.error, PeerLost | PeerProtocolError)
            assert outcome.error.party in (entry.sender, entry.to)


def changed(**fields: Any) -> Callable[[Any], Any]:
    return lambda message: msgspec.structs.replace(
        message, **{name: make(getattr(message, name)) for name, make in fields.items()}
    )


WORDS = np.zeros(4, np.uint64)
BY_CONTRIBUTOR = [
    (messages.KeysAdvertised, changed(public=lambda old: old[:-1]), PeerProtocolError),
    (messages.KeysAdvertised, changed(public=lambda old: bytes(32)), PeerProtocolError),
    (messages.KeysAdvertised, changed(signature=lambda old: bytes(64)), IntegrityError),
    (messages.KeysAdvertised, changed(signature=lambda old: b""), IntegrityError),
    (messages.KeysAdvertised, changed(encapsulated=lambda old: b""), IntegrityError),
    (messages.KeysAdvertised, changed(encapsulated=lambda old: bytes(len(old))), IntegrityError),
    (messages.SharesDealt, changed(boxes=lambda old: old[:-1]), PeerProtocolError),
    (messages.SharesDealt, changed(boxes=lambda old: bytes(len(old))), IntegrityError),
    (messages.SharesDealt, changed(boxes=lambda old: old[88:] + old[:88]), IntegrityError),
    (messages.MaskedVectorSent, changed(vector_masked=lambda old: WORDS), PeerProtocolError),
    (messages.MaskedVectorSent, changed(vector_masked=lambda old: old[:-1]), PeerProtocolError),
    (messages.SurvivorsEchoed, changed(tags=lambda old: old + b"x"), PeerProtocolError),
    (messages.SharesGiven, changed(shares=lambda old: old[36:]), PeerProtocolError),
]


@pytest.mark.parametrize(("kind", "lie", "error"), BY_CONTRIBUTOR)
def test_a_lying_contributor_is_named(kind: Any, lie: Any, error: type[ProtocolError]) -> None:
    _, outcome = masked(3, 2, [Replace(lambda entry: entry.kind is kind and entry.sender == "site1", lie)])
    assert isinstance(outcome.error, error)
    require_clean_end(outcome, "site1")


@pytest.mark.parametrize("liar", [0, 1, 2])
def test_whoever_gives_a_wrong_share_is_a_suspect_beside_its_owner_only_if_there_is_a_spare_one(liar: int) -> None:
    """The owner may have dealt it wrong: naming the giver alone would let an owner accuse an honest holder."""

    def spoil(message: Any) -> Any:
        shares = bytearray(message.shares)
        for at in range(0, len(shares), keys.SHARE_BYTES):
            shares[at] ^= 1
        return msgspec.structs.replace(message, shares=bytes(shares))

    fault = Replace(lambda entry: entry.kind is messages.SharesGiven and entry.sender == f"site{liar}", spoil)
    for lost in ([], [Vanish("site4", SENDS_VECTOR)]):
        _, outcome = masked(5, 3, [fault, *lost])
        assert isinstance(outcome.error, IntegrityError)
        assert len(outcome.error.suspects) <= 2
        require_clean_end(outcome, f"site{liar}")


BY_SERVER = [
    (messages.KeysListed, changed(neighbours=lambda old: (0, 0)), PeerProtocolError),
    (messages.KeysListed, changed(neighbours=lambda old: (1, 0)), PeerProtocolError),
    (messages.KeysListed, changed(neighbours=lambda old: (0, 9)), PeerProtocolError),
    (messages.KeysListed, changed(advertised=lambda old: old[:1]), PeerProtocolError),
    (messages.KeysListed, changed(advertised=lambda old: old[::-1]), IntegrityError),
    (messages.KeysListed, changed(encapsulated=lambda old: b""), PeerProtocolError),
    (messages.KeysListed, changed(encapsulated=lambda old: old[:-1]), PeerProtocolError),
    (messages.KeysListed, changed(encapsulated=lambda old: old[:-1] + bytes([old[-1] ^ 1])), IntegrityError),
    (messages.SharesPassedOn, changed(boxes=lambda old: old[:-1]), PeerProtocolError),
    (messages.SharesPassedOn, changed(neighbours=lambda old: old[:1]), PeerProtocolError),
    (messages.SurvivorsNamed, changed(survivors=lambda old: b"\3"), IntegrityError),
    (messages.SurvivorsNamed, changed(signature=lambda old: bytes(64)), IntegrityError),
    (messages.EchoesPassedOn, changed(tags=lambda old: bytes(len(old))), IntegrityError),
    (messages.EchoesPassedOn, changed(neighbours=lambda old: (), tags=lambda old: b""), PeerProtocolError),
    (messages.SurvivorsNamed, changed(roster=lambda old: bytes(32)), PeerProtocolError),
    (messages.EchoesPassedOn, changed(neighbours=lambda old: (2, 7)), PeerProtocolError),
]


@pytest.mark.parametrize(("kind", "lie", "error"), BY_SERVER)
def test_a_lying_server_is_caught(kind: Any, lie: Any, error: type[ProtocolError]) -> None:
    _, outcome = masked(3, 2, [Replace(lambda entry: entry.kind is kind and entry.to == "site2", lie)])
    assert outcome.failed == "site2" or kind is messages.KeysListed  # whoever opens a box first that was sealed with other keys
    assert isinstance(outcome.error, error)
    require_clean_end(outcome, "server")


def renamed(message: Any, terms: keys.MaskedSumSetup, flags: bytes) -> messages.SurvivorsNamed:
    """Other survivors, rightly signed by the server."""
    return messages.SurvivorsNamed(flags, message.roster, terms.sign(b"survivors", message.roster + flags))


@pytest.mark.parametrize("dropped", [{2}, {3}, {2, 3}, {0, 3}])
def test_a_server_that_names_different_survivors_to_different_parties_is_caught(dropped: set[int]) -> None:
    """Rightly signed, so only the echoes can tell."""
    for told in range(5):
        if told in dropped:
            continue
        roles, terms, _ = start(5, 3)
        flags = graph.pack_bits([index not in dropped for index in range(5)])
        here = f"site{told}"
        fault = Replace(
            lambda entry, here=here: entry.kind is messages.SurvivorsNamed and entry.to == here,
            lambda message, terms=terms, flags=flags: renamed(message, terms, flags),
        )
        outcome = run_in_memory(roles, faults=[fault], check=False)
        assert isinstance(outcome.error, IntegrityError | PeerProtocolError)
        assert set(outcome.opened.values()) == {()}
        assert not any(
            entry.kind is messages.SharesGiven and entry.sender == f"site{told}" for entry in outcome.transcript.entries
        )


@pytest.mark.parametrize(
    "flags", [b"\x03", b"\x1e", b"\xff", b"\x1f\x00", b""], ids=["few", "not me", "padding", "long", "empty"]
)
def test_survivors_that_do_not_fit_are_refused(flags: bytes) -> None:
    roles, terms, _ = start(5, 3)
    fault = Replace(
        lambda entry: entry.kind is messages.SurvivorsNamed and entry.to == "site0",
        lambda message: renamed(message, terms, flags),
    )
    outcome = run_in_memory(roles, faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert (outcome.failed, outcome.error.party) == ("site0", "server")
    assert set(outcome.opened.values()) == {()}


def test_a_neighbourhood_without_the_quorum_is_refused_on_a_sparse_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """All neighbours survive, so no threshold is missed: only the count of all survivors shows that the sum is of few."""
    monkeypatch.setattr(graph, "PRIVACY_BITS", 0)
    with degree(8):
        roles, terms, _ = start(40, 30, corrupt=0.0)
    near = {7, *graph.neighbours_of("0" * 64, "run", 40, terms.plan, 7)}
    flags = graph.pack_bits([index in near for index in range(40)])
    fault = Replace(
        lambda entry: entry.kind is messages.SurvivorsNamed and entry.to == "site7",
        lambda message: renamed(message, terms, flags),
    )
    outcome = run_in_memory(roles, faults=[fault], check=False)
    assert len(near) == 9
    assert isinstance(outcome.error, PeerProtocolError)
    assert "the named survivors do not fit the study" in str(outcome.error)
    assert (outcome.failed, outcome.error.party) == ("site7", "server")
    assert set(outcome.opened.values()) == {()}


def test_keys_that_the_server_made_up_are_refused() -> None:
    mine = AgreementKey.generate(Coins.seeded(bytes(32))).public

    def swap(message: Any) -> Any:
        forged = msgspec.structs.replace(message.advertised[0], public=mine)
        return msgspec.structs.replace(message, advertised=(forged, *message.advertised[1:]))

    _, outcome = masked(3, 2, [Replace(lambda entry: entry.kind is messages.KeysListed and entry.to == "site1", swap)])
    assert isinstance(outcome.error, IntegrityError)
    require_clean_end(outcome, "server")


def test_keys_are_fresh_in_every_run() -> None:
    def advertised(seed: bytes) -> set[bytes]:
        _, outcome = masked(3, 2, [], seed=seed, keep=Keep.FRAMES)
        return {entry.frame or b"" for entry in outcome.transcript.entries if entry.kind is messages.KeysAdvertised}

    assert not advertised(bytes(32)) & advertised(bytes(31) + b"1")


def test_a_share_of_only_one_secret_per_dealer_is_ever_given() -> None:
    """Whatever vanishes, nobody's answer holds more than one share per dealer: counted in bytes."""
    for moment in range(11):
        _, outcome = masked(4, 3, [Vanish("site1", moment)], keep=Keep.FRAMES)
        for entry in outcome.transcript.entries:
            if entry.kind is messages.SharesGiven:
                dealers = 3 if moment <= 2 else 4
                assert entry.size - keys.SHARE_BYTES * dealers < 40


def test_a_lost_party_that_sealed_other_secrets_does_not_spoil_the_total() -> None:
    """The masks that it leaves behind are removed by the secrets that it sealed: its neighbours' checks show another one."""
    lie = Replace(
        lambda entry: entry.kind is messages.SharesDealt and entry.sender == "site4",
        changed(secrets=lambda old: bytes([old[0] ^ 1]) + old[1:]),
    )
    _, outcome = masked(5, 3, [lie, Vanish("site4", SENDS_VECTOR)])
    assert isinstance(outcome.error, IntegrityError)
    require_clean_end(outcome, "site4")
