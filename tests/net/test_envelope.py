"""The end-to-end envelope: sessions agree, and nothing altered, moved or replayed opens."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.net.envelope import MAX_ENVELOPE_BYTES, EnvelopePair, Offer, Sealed, Session, fresh_key, pack, unpack
from blindbayes.net.identity import Identity

COINS = Coins.system()
NORTH, SOUTH, EVIL = (Identity.generate(name) for name in ("north", "south", "evil"))
STUDY, RUN = "ab" * 32, "run-1"


def pair(me: Identity = NORTH, peer: Identity = SOUTH, study: str = STUDY, run_id: str = RUN) -> EnvelopePair:
    return EnvelopePair(study, run_id, me.name, peer.name, peer.card.identity, me.signing)


def sessions() -> tuple[Session, Session]:
    north, south = pair(NORTH, SOUTH), pair(SOUTH, NORTH)
    north_key, south_key = fresh_key(COINS), fresh_key(COINS)
    return north.agree(north_key, south.offer(south_key)), south.agree(south_key, north.offer(north_key))


def opened(session: Session, raw: bytes) -> bytes:
    frame = unpack(raw)
    assert isinstance(frame, Sealed)
    return session.open(frame)


def test_two_offers_make_one_session_and_both_prove_who_they_are() -> None:
    north, south = sessions()
    assert north.id == south.id
    south.require_proof(north.proof(b"head"), b"head")
    north.require_proof(south.proof(b"head"), b"head")
    with pytest.raises(IntegrityError):
        north.require_proof(north.proof(b"head"), b"head")  # a reflected proof
    with pytest.raises(IntegrityError):
        south.require_proof(north.proof(b"head"), b"other")
    assert opened(south, north.seal("MaskedVectorSent", b"one", index=0)) == b"one"
    assert opened(south, north.seal("MaskedVectorSent", b"two", index=1)) == b"two"
    assert opened(north, south.seal("ack", b"three")) == b"three"


@pytest.mark.parametrize("other", [{"study": "cd" * 32}, {"run_id": "run-2"}, {"peer": EVIL}])
def test_an_offer_counts_for_its_study_run_and_pair_only(other: dict[str, object]) -> None:
    offer = pair(SOUTH, NORTH).offer(fresh_key(COINS))
    with pytest.raises(IntegrityError):
        pair(NORTH, **other).require_offer(offer)  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [{"study": "cd" * 32}, {"run_id": "run-2"}])
def test_an_offer_that_is_relabelled_for_another_study_or_run_is_refused(other: dict[str, str]) -> None:
    offer = msgspec.structs.replace(pair(SOUTH, NORTH).offer(fresh_key(COINS)), **other)
    with pytest.raises(IntegrityError):
        pair(NORTH, **other).require_offer(offer)


def test_an_offer_by_another_identity_is_refused() -> None:
    forged = EnvelopePair(STUDY, RUN, "south", "north", NORTH.card.identity, EVIL.signing).offer(fresh_key(COINS))
    with pytest.raises(IntegrityError) as caught:
        pair().require_offer(forged)
    assert caught.value.party == "south"


def test_a_relay_that_swaps_keys_is_noticed() -> None:
    south_offer = pair(SOUTH, NORTH).offer(fresh_key(COINS))
    swapped = msgspec.structs.replace(south_offer, ephemeral=fresh_key(COINS).public)
    with pytest.raises(IntegrityError):
        pair().agree(fresh_key(COINS), swapped)


def test_the_end_of_a_run_is_signed_for_its_pair_run_and_code() -> None:
    ended = pair(SOUTH, NORTH).ended(7)
    assert pair().require_word(ended) == ((7, -1), "")
    assert pair().require_word(pair(SOUTH, NORTH).ended(10 | 3 << 8)) == ((10, 2), "")
    assert unpack(pack(ended)) == ended
    for changed in ({"code": 0}, {"run_id": "run-2"}, {"sender": "evil"}, {"signature": bytes(64)}):
        with pytest.raises(IntegrityError):
            pair().require_word(msgspec.structs.replace(ended, **changed))
    with pytest.raises(IntegrityError):
        pair().require_word(pair(EVIL, NORTH).ended(7))


def test_a_refusal_is_signed_for_its_pair_run_and_reason_and_shown_in_plain_signs() -> None:
    word = pair(SOUTH, NORTH).refused("no\x1b[31m" + "x" * 1000)
    assert unpack(pack(word)) == word
    (code, about), reason = pair().require_word(word)
    assert (code, about) == (4, -1)
    assert reason.isprintable()
    assert len(reason) < 320
    for changed in ({"reason": "yes"}, {"run_id": "run-2"}, {"sender": "evil"}, {"signature": bytes(64)}):
        with pytest.raises(IntegrityError):
            pair().require_word(msgspec.structs.replace(word, **changed))


def test_a_low_order_key_is_refused() -> None:
    south = pair(SOUTH, NORTH)
    weak = bytes(32)
    offer = Offer(STUDY, RUN, "south", "north", weak, SOUTH.signing.sign(south._offer_bytes("south", weak)))
    with pytest.raises(IntegrityError):
        pair().agree(fresh_key(COINS), offer)


@pytest.mark.parametrize("field", ["receiver", "counter", "step", "index", "part", "parts", "body", "session"])
def test_every_field_of_a_sealed_frame_is_authenticated(field: str) -> None:
    north, south = sessions()
    frame = unpack(north.seal("MaskedVectorSent", b"payload", index=3, part=1, parts=4))
    assert isinstance(frame, Sealed)
    value = getattr(frame, field)
    value = bytes(value) if isinstance(value, memoryview) else value
    changed = value + 1 if isinstance(value, int) else value[:-1] + (b"\x00" if isinstance(value, bytes) else "x")
    if changed == value:
        changed = value[:-1] + b"\x01"
    with pytest.raises(IntegrityError) as caught:
        south.open(msgspec.structs.replace(frame, **{field: changed}))
    assert caught.value.party == "north"
    assert south.open(frame) == b"payload"  # the true frame still opens


def test_a_frame_opens_once_in_order_and_only_at_its_receiver() -> None:
    north, south = sessions()
    first, second, third = north.seal("A", b"1"), north.seal("A", b"2"), north.seal("A", b"3")
    assert opened(south, first) == b"1"
    assert opened(south, first) is None  # a copy
    assert not south.gapped
    assert opened(south, third) == b"3"  # the second was lost on the way
    assert south.gapped
    assert opened(south, second) is None  # too late
    with pytest.raises(IntegrityError):
        opened(north, second)  # reflected


def test_another_session_of_the_same_run_does_not_open_it() -> None:
    north, _ = sessions()
    _, south = sessions()
    with pytest.raises(IntegrityError):
        opened(south, north.seal("A", b"1"))


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_frame_or_a_peer_error(raw: bytes) -> None:
    for candidate in (raw, b"\x01" + raw):
        with contextlib.suppress(PeerProtocolError):
            unpack(candidate)


@given(st.integers(0, 200), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_never_opens(at: int, value: int) -> None:
    north, south = sessions()
    raw = bytearray(north.seal("MaskedVectorSent", bytes(64), index=3))
    if at >= len(raw) or raw[at] == value:
        return
    raw[at] = value
    try:
        frame = unpack(bytes(raw))
        assert isinstance(frame, Sealed)
    except (PeerProtocolError, AssertionError):
        return
    if frame.run_id != RUN:  # a frame of another run never reaches this session
        return
    with pytest.raises(IntegrityError):
        south.open(frame)


def test_oversize_is_refused_before_decoding() -> None:
    with pytest.raises(PeerProtocolError, match="size limit"):
        unpack(b"\x01" + bytes(MAX_ENVELOPE_BYTES))


def test_nothing_secret_stands_in_a_repr() -> None:
    north, _ = sessions()
    frame = unpack(north.seal("A", b"canary-payload"))
    for shown in (repr(north), repr(frame), repr(north.pair)):
        assert "canary" not in shown
        assert NORTH.signing._secret.hex() not in shown
    assert unpack(pack(pair().offer(fresh_key(COINS))))


def test_only_the_first_frame_of_a_session_brings_a_secret_and_it_must_be_the_peers() -> None:
    north, south = sessions()
    first, second = unpack(north.seal("confirm", b"one")), unpack(north.seal("beat", b"two"))
    assert isinstance(first, Sealed)
    assert isinstance(second, Sealed)
    assert (len(first.encapsulated), second.encapsulated) == (1088, b"")
    for other in (b"", bytes(1088), first.encapsulated[:-1] + b"x"):
        with pytest.raises(IntegrityError):
            south.open(msgspec.structs.replace(first, encapsulated=other))
    with pytest.raises(IntegrityError):
        south.open(second)
    assert south.open(first) == b"one"
    assert south.open(second) == b"two"
