"""Agreement, signatures, sealing, streams and Shamir shares: known answers and refusals."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.crypto import aead, kernels, prg, shamir, signatures
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import IntegrityError

SEED = bytes(range(32))


def test_agreement_is_x25519() -> None:
    """RFC 7748, section 6.1: Bob's keys, and the point that he shares with Alice, under the hash."""
    bob = AgreementKey(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    alice = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    point = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    low, high = sorted((alice, bob.public))
    assert bob.agree(alice) == hashlib.blake2b(point + low + high, digest_size=32, person=b"blindbayes x1").digest()


def test_both_ends_agree() -> None:
    one, other, third = (AgreementKey.generate(Coins.seeded(bytes([at]) * 32)) for at in range(3))
    assert one.agree(other.public) == other.agree(one.public)
    assert one.agree(other.public) != one.agree(third.public)


SMALL_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


@pytest.mark.parametrize("public", [*SMALL_ORDER, b"", bytes(31), bytes(33)])
def test_agreement_refuses_keys_without_a_secret(public: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        AgreementKey(SEED).agree(public, party="b")
    assert caught.value.party == "b"


def test_secrets_do_not_show() -> None:
    key = AgreementKey(SEED)
    assert "redacted" in repr(key)
    assert "redacted" in repr(signatures.SigningKey(SEED))
    with pytest.raises(ValueError):
        AgreementKey(bytes(31))
    with pytest.raises(ValueError):
        signatures.SigningKey(bytes(31))


def test_signatures_are_ed25519() -> None:
    """RFC 8032, section 7.1, test 2."""
    key = signatures.SigningKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    expected = (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert key.sign(b"\x72").hex() == expected
    signatures.verify(key.public, b"\x72", bytes.fromhex(expected))


def test_a_changed_signature_payload_or_key_raises() -> None:
    key, other = signatures.SigningKey(SEED), signatures.SigningKey(bytes(32))
    good = key.sign(b"payload")
    bad = [(other.public, b"payload", good), (key.public, b"payloax", good), (key.public, b"payload", good[:-1] + b"\0")]
    for public, payload, signature in [*bad, (key.public, b"payload", b""), (b"", b"payload", good)]:
        with pytest.raises(IntegrityError) as caught:
            signatures.verify(public, payload, signature, party="a")
        assert caught.value.party == "a"


def test_sealing_binds_key_nonce_and_context() -> None:
    sealed = aead.seal(SEED, b"secret", associated=b"slot", nonce=3)
    assert aead.unseal(SEED, sealed, associated=b"slot", nonce=3) == b"secret"
    assert len(sealed) == 6 + aead.TAG_BYTES
    for key, box, associated, nonce in [
        (bytes(32), sealed, b"slot", 3),
        (SEED, sealed, b"other", 3),
        (SEED, sealed, b"slot", 4),
        (SEED, sealed[:-1], b"slot", 3),
        (SEED, b"", b"slot", 3),
    ]:
        with pytest.raises(IntegrityError):
            aead.unseal(key, box, associated=associated, nonce=nonce)


def test_sealing_is_aes_256_gcm() -> None:
    """McGrew and Viega, test case 14: zero key, zero nonce, one zero block."""
    sealed = aead.seal(bytes(32), bytes(16), associated=b"")
    assert sealed.hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"


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


# -- shares ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=70), st.data())
def test_any_threshold_of_shares_gives_the_secret(secret: bytes, data: st.DataObject) -> None:
    holders = data.draw(st.lists(st.integers(1, shamir.MAX_POINT), min_size=1, max_size=12, unique=True))
    threshold = data.draw(st.integers(1, len(holders)))
    shares = shamir.split(secret, holders, threshold, Coins.seeded(SEED))
    chosen = data.draw(st.permutations(range(len(holders))))[:threshold]
    weights = shamir.lagrange([holders[at] for at in chosen])
    assert shamir.combine(weights, shares[chosen], len(secret)) == secret


def test_several_secrets_are_shared_at_once() -> None:
    secrets = [bytes(32), SEED, b"\xff" * 32]
    shares = shamir.split_many(secrets, [4, 9, 65_520, 7], 3, Coins.seeded(SEED))
    assert shares.shape == (4, 3, shamir.limb_count(32))
    weights = shamir.lagrange([9, 65_520, 7])
    assert [shamir.combine(weights, shares[1:, at], 32) for at in range(3)] == secrets


@pytest.mark.parametrize("how", ["auto", "off"])
def test_one_share_too_few_says_nothing(how: str) -> None:
    """Threshold 2: over all coefficients, a share takes every value of the field once, whatever the secret."""
    field = np.arange(shamir.PRIME)

    class Every:
        """For each secret, whose two limbs have a polynomial each, the next element of the field."""

        def read(self, size: int) -> bytes:
            return np.repeat(field, 2).astype("<u2").tobytes() + bytes(size - 4 * shamir.PRIME)

    with kernels.using(how):
        for limb in (0, 1, 2**15 - 1):
            for point in (1, 2, 40_000, shamir.MAX_POINT):
                secrets = [limb.to_bytes(2, "little")] * shamir.PRIME
                shares = shamir.split_many(secrets, [point, 3], 2, Coins(Every(), None))
                assert np.array_equal(np.sort(shares[0, :, 0]), field)


def test_coefficients_are_uniform_in_the_field() -> None:
    drawn = shamir.uniform(400_000, Coins.seeded(SEED))
    assert drawn.min() >= 0
    assert drawn.max() < shamir.PRIME
    seen = np.bincount(drawn * 100 // shamir.PRIME, minlength=100)
    statistic = float(((seen - 4000.0) ** 2 / 4000.0).sum())
    assert 40 < statistic < 180  # chi-square, 99 degrees of freedom: alpha below 1e-6 on either side


def test_bad_points_and_thresholds_are_refused() -> None:
    coins = Coins.seeded(SEED)
    for points, threshold in [([0, 1], 1), ([1, 1], 1), ([shamir.PRIME], 1), ([1, 2], 3), ([1, 2], 0)]:
        with pytest.raises(ValueError):
            shamir.split(b"x", points, threshold, coins)


def test_wrong_shapes_and_impossible_secrets_are_refused() -> None:
    coins = Coins.seeded(SEED)
    shares = shamir.split(SEED, [1, 2, 3], 2, coins)
    weights = shamir.lagrange([1, 2])
    with pytest.raises(IntegrityError):
        shamir.combine(weights, shares, 32)
    with pytest.raises(IntegrityError):
        shamir.combine(weights, shares[:2, :5], 32)
    caught = 0
    for change in range(1, 400):
        wrong = shares[:2].copy()
        wrong[0, -1] = (int(wrong[0, -1]) + change) % shamir.PRIME  # the top limb has one bit in use
        with pytest.raises(IntegrityError):
            shamir.combine(weights, wrong, 32)
        caught += 1
    assert caught == 399
