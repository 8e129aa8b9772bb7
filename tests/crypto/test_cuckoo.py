"""Cuckoo hashing: three distinct bins, a placement whenever there is one, and the bound on failure computed."""

import numpy as np
import pytest
from scipy.special import gammaln

from blindbayes.crypto.psi.cuckoo import MIN_ITEMS, bin_count, bins_of, distinct_triples, fixed_words, place
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import LocalProtocolError
from support.two_party import coins


def items(count, name="items"):
    return coins(name).words(2 * count).reshape(count, 2)


def log2_failure(size, bins):
    """The first-moment bound of the module's docstring, in bits."""
    k = np.arange(4, size + 1, dtype=np.float64)
    z = np.exp(np.linspace(np.log(1e-3), np.log(8), 2000))
    least = np.full(len(k), np.inf)
    for base, log in zip(np.log(np.expm1(z) - z), np.log(z), strict=True):
        least = np.minimum(least, (k - 1) * base - 3 * k * log)

    def choose(n, r):
        return gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)

    terms = choose(size, k) + choose(bins, k - 1) + gammaln(3 * k + 1) + least
    terms -= k * np.log(float(bins) * (bins - 1) * (bins - 2))
    top = terms.max()
    return (top + np.log(np.exp(terms - top).sum())) / np.log(2)


@pytest.mark.parametrize("size", [MIN_ITEMS, 5000, 3 * MIN_ITEMS])
def test_failure_is_below_two_to_the_minus_forty(size):
    assert log2_failure(size, bin_count(size)) < -48
    assert log2_failure(size, int(1.25 * size)) > -40  # the bound can fail: with fewer bins it does not hold


def test_every_item_lies_in_one_of_its_three_distinct_bins():
    for count, size in ((0, MIN_ITEMS), (1, MIN_ITEMS), (MIN_ITEMS, MIN_ITEMS), (20_000, 20_000)):
        bins = bin_count(size)
        three = bins_of(b"session", items(count), bins)
        assert (np.sort(three, axis=1)[:, :-1] < np.sort(three, axis=1)[:, 1:]).all()
        assert ((three >= 0) & (three < bins)).all()
        table = place(three, bins, coins("walk"))
        held = table[table >= 0]
        assert sorted(held.tolist()) == list(range(count))
        where = np.flatnonzero(table >= 0)
        assert (three[held] == where[:, None]).any(axis=1).all()


def test_a_tight_placement_is_found_by_augmenting_paths():
    """Items i, i+1, i+2 over as many bins as items: only whole cycles of moves help; five items on four bins have none."""
    count = 300
    ring = (np.arange(count)[:, None] + np.arange(3)) % count
    assert sorted(place(ring, count, coins("ring")).tolist()) == list(range(count))
    crowded = np.array([[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]])
    with pytest.raises(LocalProtocolError, match="new run"):
        place(crowded, 10, coins("crowd"))


def test_triples_are_uniform_over_distinct_positions():
    """Chi-square over the 60 ordered triples of 5 positions, 60,000 draws: alpha below 1e-7 at 140; a biased draw fails."""
    words = coins("uniform").words(3 * 60_000).reshape(-1, 3)

    def statistic(found):
        _, counts = np.unique(found @ np.array([25, 5, 1]), return_counts=True)
        assert len(counts) == 60
        return ((counts - 1000.0) ** 2 / 1000).sum()

    assert statistic(distinct_triples(words, 5)) < 140
    biased = words.copy()
    biased[:3000, 0] = 0
    assert statistic(distinct_triples(biased, 5)) > 140


def test_bins_depend_on_the_session_and_not_on_the_place():
    own = items(100)
    assert np.array_equal(bins_of(b"a", own, 640)[::-1], bins_of(b"a", own[::-1], 640))
    assert not np.array_equal(bins_of(b"a", own, 640), bins_of(b"b", own, 640))
    words = fixed_words(TweakedHash(b"a"), own, 5)
    assert words.shape == (100, 5)
    assert len(np.unique(words)) == 500


def test_too_few_items_are_refused():
    with pytest.raises(LocalProtocolError, match="pad"):
        bin_count(MIN_ITEMS - 1)
