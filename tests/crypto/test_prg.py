"""Streams, masks and derived keys."""

from __future__ import annotations

import itertools

import numpy as np

from blindbayes.crypto import prg

SEED = bytes(range(32))


def test_the_stream_is_aes_256_in_counter_mode() -> None:
    """FIPS 197, C.3, by the counter block: the stream's first block is AES of the zero block."""
    assert prg.expand_bytes(bytes(32), 16).hex() == "dc95c078a2408989ad48a21492842087"
    words = prg.expand(SEED, 5)
    assert words.dtype == np.uint64
    assert words.tobytes() == prg.expand_bytes(SEED, 40)
    assert prg.expand(SEED, 3).tolist() == words[:3].tolist()


def test_masks_are_added_and_taken_off() -> None:
    vector = np.array([1, 2**64 - 1, 7], np.uint64)
    masked = prg.add_masks(vector, SEED + bytes(32), bytes(31) + b"1")
    assert not np.array_equal(masked, vector)
    assert np.array_equal(prg.add_masks(masked, bytes(31) + b"1", SEED + bytes(32)), vector)
    assert vector.tolist() == [1, 2**64 - 1, 7]


def test_keys_for_two_purposes_differ() -> None:
    made = {
        prg.derive_key(SEED, purpose, context) for purpose, context in itertools.product(["a", "ab", ""], [b"", b"b", b"bb"])
    }
    assert len(made) == 9
