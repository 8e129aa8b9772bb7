"""Versioned, length-limited encoding of every message. No pickle anywhere.

A message is a frozen `Message` (a msgspec struct) with plain fields: bool, int (64 bits), str, bytes, tuples and dicts of
them, `U64Array` (an array of 64-bit words) and `Big` (an integer of any size). A frame is one version byte, then MessagePack
of the tagged struct. Decoding takes the one expected kind: an unknown field, another kind, a wrong type, an oversize
frame or one with too many items is refused.
"""

from blindbayes.wire.codec import (
    MAX_FRAME_BYTES,
    VERSION,
    Big,
    ClearMessage,
    EncryptedMessage,
    KeyMessage,
    MaskedMessage,
    Message,
    NoisyMessage,
    ShareMessage,
    Trust,
    U64Array,
    decode,
    encode,
)

__all__ = [
    "MAX_FRAME_BYTES",
    "VERSION",
    "Big",
    "ClearMessage",
    "EncryptedMessage",
    "KeyMessage",
    "MaskedMessage",
    "Message",
    "NoisyMessage",
    "ShareMessage",
    "Trust",
    "U64Array",
    "decode",
    "encode",
]
