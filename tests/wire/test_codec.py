"""The codec: what goes in comes out, and any other bytes are the peer's fault."""

from __future__ import annotations

import contextlib
from typing import ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import wire
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.wire import VERSION, Big, Message, Trust, U64Array, decode, encode


class EverythingSent(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.CLEAR
    flag: bool
    number: int
    text: str
    blob: bytes
    words: U64Array
    big: Big
    many: tuple[int, ...]
    bigs: tuple[Big, ...]
    table: dict[str, bytes]


class OtherSent(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.MASKED
    number: int


def message(**changes: object) -> EverythingSent:
    fields: dict[str, object] = {
        "flag": True,
        "number": -(2**63),
        "text": "é☃",
        "blob": b"\0\xff",
        "words": np.array([0, 1, 2**64 - 1], dtype=np.uint64),
        "big": Big(2**4000 + 1),
        "many": (1, 2, 2**63),
        "bigs": (Big(0), Big(2**200)),
        "table": {"a": b"1"},
    }
    return EverythingSent(**{**fields, **changes})  # type: ignore[arg-type]


def same(one: EverythingSent, two: EverythingSent) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(two, name)) if name == "words" else getattr(one, name) == getattr(two, name)
        for name in one.__struct_fields__
    )


@settings(max_examples=100, deadline=None)
@given(
    flag=st.booleans(),
    number=st.integers(-(2**63), 2**64 - 1),
    text=st.text(st.characters(exclude_categories=("Cs",))),
    blob=st.binary(),
    words=st.lists(st.integers(0, 2**64 - 1)).map(lambda items: np.array(items, dtype=np.uint64)),
    big=st.integers(0, 2**600).map(Big),
    bigs=st.lists(st.integers(0, 2**100).map(Big)).map(tuple),
    table=st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), st.binary()),
)
def test_messages_round_trip(**fields: object) -> None:
    sent = message(**fields)
    received = decode(encode(sent), EverythingSent)
    assert same(sent, received)
    assert encode(received) == encode(sent)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_message_or_the_peers_error(frame: bytes) -> None:
    for kind in (EverythingSent, OtherSent):
        for candidate in (frame, bytes([VERSION]) + frame):
            with contextlib.suppress(PeerProtocolError):
                assert isinstance(decode(candidate, kind), kind)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mangled_frame_is_a_message_or_the_peers_error(data: st.DataObject) -> None:
    frame = bytearray(encode(message()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frame) - 1))
        action = data.draw(st.sampled_from(["set", "cut", "insert"]))
        if action == "set":
            frame[at] = data.draw(st.integers(0, 255))
        elif action == "cut":
            del frame[at : at + data.draw(st.integers(1, 8))]
            frame = frame or bytearray([VERSION])
        else:
            frame[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    with contextlib.suppress(PeerProtocolError):
        assert isinstance(decode(bytes(frame), EverythingSent), EverythingSent)


def packed(fields: dict[str, object]) -> bytes:
    return bytes([VERSION]) + msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "unknown version"),
        (bytes([VERSION + 1]) + encode(OtherSent(1))[1:], "unknown version"),
        (encode(OtherSent(1))[:-1], "well-formed"),
        (encode(OtherSent(1)) + b"\0", "well-formed"),
        (encode(message()), "well-formed"),
        (packed({"type": "OtherSent", "number": 1, "more": 2}), "well-formed"),
        (packed({"type": "OtherSent"}), "well-formed"),
        (packed({"number": 1}), "well-formed"),
        (packed({"number": 1, "type": "OtherSent"}), "well-formed"),
        (bytes([VERSION]) + b"\x83\xa4type\xa9OtherSent\xa6number\x01\xa6number\x02", "well-formed"),
        (bytes([VERSION]) + b"\x82\xa4type\xa9OtherSent\xa4type\xa9OtherSent", "well-formed"),
        (packed({"type": "OtherSent", "number": "1"}), "well-formed"),
        (packed({"type": "OtherSent", "number": 1.0}), "well-formed"),
        (packed({"type": "OtherSent", "number": None}), "well-formed"),
        (bytes([VERSION]) + b"\x91" * 50_000, "well-formed"),
        (bytes([VERSION]) + b"\x82\xa4type\xa9OtherSent\xa6number\xdd\xff\xff\xff\xff", "well-formed"),
        (bytes([VERSION]) + b"\xdf\xff\xff\xff\xff", "well-formed"),
    ],
    ids=["empty", "version", "short", "trailing", "another kind", "unknown field", "field missing", "no tag", "tag last",
         "field twice", "tag twice", "text for number", "float for number", "null", "deep", "announces 4 billion items",
         "announces 4 billion fields"],
)  # fmt: skip
def test_a_frame_that_is_not_the_expected_kind_is_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(PeerProtocolError, match=f"south: .*{reason}") as caught:
        decode(frame, OtherSent, sender="south")
    assert caught.value.party == "south"


def test_an_oversize_frame_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = encode(message(blob=bytes(1000)))
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", len(frame) - 1)
    with pytest.raises(PeerProtocolError, match="size limit"):
        decode(frame, EverythingSent)
    with pytest.raises(LocalProtocolError, match="frame limit"):
        encode(message(blob=bytes(1000)))
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", len(frame))
    assert isinstance(decode(frame, EverythingSent), EverythingSent)


@pytest.mark.parametrize("size", [1, 7, 9])
def test_words_come_in_eights(size: int) -> None:
    fields = msgspec.msgpack.decode(encode(message())[1:])
    with pytest.raises(PeerProtocolError):
        decode(packed({**fields, "words": bytes(size)}), EverythingSent)


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2**64},
        {"big": Big(-1)},
        {"bigs": (Big(1), Big(-5))},
        {"words": np.zeros(2, dtype=np.int64)},
        {"words": np.zeros((2, 2), dtype=np.uint64)},
        {"blob": object()},
        {"text": "\ud800"},
        {"many": (2**70,)},
    ],
)
def test_what_cannot_be_sent_is_our_own_error(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        encode(message(**changes))


def test_no_field_shows_in_repr_or_error() -> None:
    assert "CANARY" not in repr(message(text="CANARY"))
    assert "CANARY" not in str(message(text="CANARY"))
    with pytest.raises(PeerProtocolError) as caught:
        decode(encode(message(text="CANARY")), OtherSent)
    assert "CANARY" not in str(caught.value)


def test_messages_of_many_fields_keep_their_opening() -> None:
    wide = msgspec.defstruct("WideSent", [(f"field{at}", int) for at in range(20)], bases=(Message,), frozen=True)
    sent = wide(*range(20))
    assert decode(encode(sent), wide) == sent


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        OtherSent(1).number = 2  # type: ignore[misc]
