"""Versioned, length-limited encoding of messages.

A message is a frozen `Message` (a msgspec struct) with fields of type bool, int (64 bits), str, bytes, tuples and dicts of
them, `U64Array` (an array of 64-bit words) and `Big` (an integer of any size). A frame is a version byte followed by
MessagePack of the tagged struct. The receiver states the expected kind: another kind, an unknown field, a wrong type, an
oversize frame and one with too many items are refused.
"""

from __future__ import annotations

import enum
import functools
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.io import typed
from blindbayes.wire.items import MAX_ITEMS, has_few_items

VERSION = 1
MAX_FRAME_BYTES = 64 * 1024 * 1024
MALFORMED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Everything that a decoder raises for bytes of a peer; text that is not UTF-8 is a ValueError."""
U64Array = npt.NDArray[np.uint64]


class Big(int):
    """A non-negative integer of any size; plain `int` fields are limited to 64 bits."""


class Trust(enum.Enum):
    """The receiver's view of a message; leak reports are made from it."""

    CLEAR = "clear"  # public or meant for the receiver in clear
    MASKED = "masked"  # uniform to the receiver unless masks are removed
    ENCRYPTED = "encrypted"  # ciphertext under a key the receiver does not hold, or holds by design
    SHARE = "share"  # one share of a secret
    NOISY = "noisy"  # carries differential privacy noise
    KEY = "key"  # a public key, commitment, signature or other protocol material


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Base of every message. Subclass one of the kinds below, and name messages as past facts; `repr` shows no field."""

    trust: ClassVar[Trust]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<redacted>)"


class Marked(Message, frozen=True):
    """A message of a session between two parties; `protocols.core.mark` computes its mark, `receive_marked` checks it."""

    mark: int


class ClearMessage(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.CLEAR


class MaskedMessage(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.MASKED


class EncryptedMessage(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.ENCRYPTED


class ShareMessage(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.SHARE


class NoisyMessage(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.NOISY


class KeyMessage(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.KEY


M = TypeVar("M", bound=Message)


def _to_wire(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint64 or value.ndim != 1:
            raise LocalProtocolError("arrays on the wire must be one-dimensional and of 64-bit words")
        return np.ascontiguousarray(value.astype("<u8", copy=False)).view(np.uint8).data
    raise LocalProtocolError(f"a field of type {type(value).__name__} cannot be sent")


def _pieces(value: Any) -> list[Any]:
    """Encode a field; an array as the MessagePack header of its bytes and the array itself, uncopied."""
    if not isinstance(value, np.ndarray):
        return [_ENCODER.encode(_pack_big(value))]
    words = _to_wire(value)
    size = words.nbytes
    if size < 1 << 8:
        return [b"\xc4" + size.to_bytes(1, "big"), words]
    return [b"\xc5" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xc6" + size.to_bytes(4, "big"), words]


def _from_wire(kind: type, value: Any) -> Any:
    if kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray:
        if not isinstance(value, bytes) or len(value) % 8:
            raise ValueError("words expected")
        return np.frombuffer(value, dtype="<u8").astype(np.uint64, copy=False)
    if kind is Big:
        if not isinstance(value, bytes):
            raise ValueError("integer bytes expected")
        return Big(int.from_bytes(value, "little"))
    raise ValueError("unknown field type")


def _pack_big(value: Any) -> Any:
    """Pack `Big` to bytes, before msgspec sees it as an `int`."""
    if isinstance(value, Big):
        if value < 0:
            raise LocalProtocolError("a Big on the wire must not be negative")
        return int(value).to_bytes((int(value).bit_length() + 7) // 8, "little")
    if isinstance(value, tuple):
        return tuple(_pack_big(item) for item in value)
    if isinstance(value, dict):
        return {key: _pack_big(item) for key, item in value.items()}
    return value


def encode(message: Message) -> bytes:
    pieces = [opening_of(type(message))]  # joined once: an array is copied once, into the frame
    try:
        for name in message.__struct_fields__:
            pieces += [_ENCODER.encode(name), *_pieces(getattr(message, name))]
        frame = b"".join(pieces)
    except (OverflowError, TypeError, UnicodeEncodeError) as cause:
        raise LocalProtocolError(f"a {type(message).__name__} cannot be sent: {type(cause).__name__}") from None
    if len(frame) > MAX_FRAME_BYTES:
        raise LocalProtocolError(f"a {type(message).__name__} of {len(frame)} bytes is over the frame limit")
    if len(frame) > MAX_ITEMS and not has_few_items(memoryview(frame)[1:]):
        raise LocalProtocolError(f"a {type(message).__name__} has more than {MAX_ITEMS} items; pack them into bytes")
    return frame


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_wire)
_DECODERS: dict[type[Message], Any] = {}


@functools.cache
def opening_of(kind: type[Message]) -> bytes:
    """Return the first bytes of every frame of a kind: version, number of fields, tag.

    They are compared since msgspec accepts structs without a tag, and with a field twice.
    """
    fields = len(kind.__struct_fields__) + 1
    size = bytes([0x80 | fields]) if fields < 16 else b"\xde" + fields.to_bytes(2, "big")
    return bytes([VERSION]) + size + msgspec.msgpack.encode({"type": kind.__name__})[1:]


def decode(frame: bytes, kind: type[M], *, sender: str | None = None) -> M:
    """Return the message in a frame, or raise `PeerProtocolError` if it is not a well-formed message of `kind`."""
    if len(frame) > MAX_FRAME_BYTES:
        raise PeerProtocolError("the frame is over the size limit", party=sender)
    if not frame or frame[0] != VERSION:
        raise PeerProtocolError("the frame has an unknown version", party=sender)
    if kind not in _DECODERS:
        _DECODERS[kind] = typed.decoder(kind, _from_wire)
    if not frame.startswith(opening_of(kind)):
        raise PeerProtocolError(f"the frame is not a well-formed {kind.__name__}", party=sender)
    if len(frame) > MAX_ITEMS and not has_few_items(memoryview(frame)[1:]):  # a shorter frame cannot have more items
        raise PeerProtocolError(f"the frame is not a well-formed {kind.__name__}", party=sender)
    try:
        message: M = _DECODERS[kind].decode(memoryview(frame)[1:])
    except MALFORMED as cause:
        raise PeerProtocolError(f"the frame is not a well-formed {kind.__name__}", party=sender) from cause
    return message
