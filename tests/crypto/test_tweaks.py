"""The tweakable hash against its definition, and tweaks that are never used twice."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from blindbayes.crypto.tweaks import Domain, TweakedHash, column_sums, turned
from blindbayes.errors import LocalProtocolError

BLOCKS = np.random.default_rng(4).integers(0, 2**63, (6, 2)).astype(np.uint64)


def permuted(session: bytes, block: bytes) -> bytes:
    key = hashlib.sha256(b"blindbayes tmmo v1" + session).digest()[:16]
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def xor(one: bytes, two: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("domain", list(Domain))
def test_the_hash_is_that_of_its_definition(domain: Domain) -> None:
    """H(x, i) = P(P(x) ^ i) ^ P(x), where the tweak is index and domain."""
    tweaked = TweakedHash(b"session").run(BLOCKS, domain, first=9)
    for at, block in enumerate(BLOCKS):
        inner = permuted(b"session", block.tobytes())
        tweak = (9 + at).to_bytes(8, "little") + int(domain).to_bytes(8, "little")
        assert tweaked[at].tobytes() == xor(permuted(b"session", xor(inner, tweak)), inner)


def test_no_tweak_is_reserved_twice_and_they_end() -> None:
    session = TweakedHash(b"session")
    assert [session.reserve(Domain.GATE, 5), session.reserve(Domain.GATE, 2), session.reserve(Domain.TREE, 1)] == [0, 5, 0]
    session.reserve(Domain.GATE, 2**63 - 7)
    with pytest.raises(LocalProtocolError, match="exhausted"):
        session.reserve(Domain.GATE, 1)


def test_sessions_and_blocks_of_a_session_have_their_own_hash() -> None:
    hashes = [TweakedHash(b"a"), TweakedHash(b"b"), TweakedHash.for_block(b"a", 0), TweakedHash.for_block(b"a", 1)]
    assert len({each.run(BLOCKS, Domain.GATE, 0).tobytes() for each in hashes}) == len(hashes)


def test_blocks_are_turned_and_columns_added_as_numpy_does() -> None:
    rows = np.arange(2 * 70 * 3, dtype=np.uint64).reshape(70, 3, 2) * np.uint64(2**57 + 1)
    assert (turned(rows) == rows.transpose(1, 0, 2)).all()
    flat = rows.reshape(70, 6)
    assert (column_sums(flat) == flat.sum(axis=0, dtype=np.uint64)).all()
