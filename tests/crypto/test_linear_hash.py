"""The hash of consistency checks: linear, under a key of its own per message, and masked."""

from __future__ import annotations

import numpy as np

from blindbayes.crypto.linear_hash import HASH_BYTES, LinearHash, digest

RANDOM = np.random.default_rng(3)


def rows(number: int, width: int) -> np.ndarray:
    return RANDOM.integers(0, 256, (number, width + HASH_BYTES), dtype=np.uint8)


def test_the_hash_of_a_difference_is_the_difference_of_hashes() -> None:
    for width in (16, 40, 4096):
        one, two = rows(5, width), rows(5, width)
        check = LinearHash(b"session", 0, rows(1, 16))
        assert (check.masked(one ^ two) == check.masked(one) ^ check.masked(two)).all()
        assert not check.masked(np.zeros_like(one)).any()


def test_a_changed_bit_shows_and_the_mask_hides_the_rest() -> None:
    sent, plain = rows(1, 16), rows(3, 64)
    check = LinearHash(b"session", 0, sent)
    changed = plain.copy()
    changed[1, 7] ^= 1
    assert (check.masked(changed) != check.masked(plain)).any(axis=1).tolist() == [False, True, False]
    assert digest(check.masked(changed)) != digest(check.masked(plain))
    masks = rows(3, 0)
    masked = plain.copy()
    masked[:, 64:] ^= masks
    assert (check.masked(masked) == check.masked(plain) ^ masks).all()


def test_another_message_session_or_index_is_another_key() -> None:
    sent, plain = rows(1, 16), rows(1, 64)
    keys = [LinearHash(b"a", 0, sent), LinearHash(b"b", 0, sent), LinearHash(b"a", 1, sent), LinearHash(b"a", 0, sent ^ 1)]
    assert len({check.masked(plain).tobytes() for check in keys}) == len(keys)
