"""Shamir shares: known answers and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.crypto import kernels, shamir
from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError

SEED = bytes(range(32))


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
