"""The store: right values for its keys, noise for others, the same look whatever the keys, and the bound on small cores."""

import numpy as np
import pytest
from scipy.special import gammaln

from blindbayes.crypto.psi import okvs
from blindbayes.crypto.psi.cuckoo import distinct_triples
from blindbayes.crypto.psi.okvs import DENSE, MAX_LEFT, MIN_KEYS, Places, cells, decode, encode, places
from blindbayes.errors import LocalProtocolError
from support.two_party import coins


def made(count, width=2, name="store"):
    source = coins(name)
    keys, values = source.words(2 * count).reshape(count, 2), source.words(width * count).reshape(count, width)
    return keys, values


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_store_gives_the_values_of_its_keys_and_noise_for_others(width):
    keys, values = made(MIN_KEYS, width)
    size = cells(MIN_KEYS)
    table = encode(places(b"s", keys, size), values, size, coins("fill"))
    assert table.shape == (size, width)
    assert np.array_equal(decode(table, places(b"s", keys, size)), values)
    others, _ = made(MIN_KEYS, width, "others")
    noise = decode(table, places(b"s", others, size))
    assert len(np.unique(noise)) == noise.size
    assert not np.array_equal(decode(table, places(b"t", keys, size)), values)


def test_keys_of_a_core_are_solved_in_the_dense_cells():
    """Keys that share all three cells never peel: dense cells carry them, up to the limit."""
    keys, values = made(MIN_KEYS)
    size = cells(MIN_KEYS)
    at = places(b"s", keys, size)
    for shared in (2, MAX_LEFT):
        sparse = at.sparse.copy()
        sparse[:shared] = sparse[0]
        crowded = Places(sparse, at.dense)
        assert np.array_equal(decode(encode(crowded, values, size, coins("fill")), crowded), values)
    sparse = at.sparse.copy()
    sparse[: MAX_LEFT + 1] = sparse[0]
    with pytest.raises(LocalProtocolError, match="new run"):
        encode(Places(sparse, at.dense), values, size, coins("fill"))


def test_equal_keys_are_refused():
    keys, values = made(MIN_KEYS)
    keys[1] = keys[0]
    size = cells(MIN_KEYS)
    with pytest.raises(LocalProtocolError):
        encode(places(b"s", keys, size), values, size, coins("fill"))


def test_cells_look_uniform_whether_a_key_fixes_them_or_not():
    """Mean bit within six standard deviations of 1/2, alpha = 2e-9, in the dense cells, in all cells, and in those that no key
    reads; a table whose free cells stay 0 fails."""
    keys, values = made(MIN_KEYS)
    size = cells(MIN_KEYS)
    at = places(b"s", keys, size)
    table = encode(at, values, size, coins("fill"))
    unread = np.ones(size, dtype=bool)
    unread[at.sparse.reshape(-1)] = False
    unread[:DENSE] = False

    def score(part):
        bits = np.unpackbits(np.ascontiguousarray(part).view(np.uint8))
        return abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size)

    assert max(score(table[:DENSE]), score(table), score(table[unread])) < 6
    assert score(np.zeros_like(table[unread])) > 6


W = np.log2(3)
Z = np.exp(np.linspace(np.log(1e-3), np.log(12), 1500))


def choose(n, r):
    return gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)


def log2_cores(keys, size, k, *, largest=True):
    """The docstring's bound on the expected number of cores of k keys, in bits; not `largest`: of any sets of keys that do not
    peel. More than 300 numbers of cells are taken on a grid, whose gaps the sum fills with the larger neighbour."""
    s = np.unique(np.linspace(3, min(size - 1, int(1.5 * k)), 300).round())
    least = np.min(s[:, None] * np.log(np.expm1(Z) - Z) - 3 * k * np.log(Z), axis=1)
    terms = choose(keys, k) + choose(size, s) + gammaln(3 * k + 1) + least - k * np.log(float(size) * (size - 1) * (size - 2))
    if largest:
        inside = s * (s - 1) * (s - 2) / (float(size) * (size - 1) * (size - 2))
        terms += (keys - k) * np.log1p(-inside)
    gap = np.diff(s).max(initial=1)
    top = terms.max()
    return float((top + np.log(2 * gap * np.exp(terms - top).sum())) / np.log(2))


@pytest.mark.parametrize("keys", [MIN_KEYS, 10 * MIN_KEYS])
def test_cores_above_the_limit_are_rarer_than_two_to_the_minus_eighty(keys):
    size = cells(keys) - DENSE
    small = [log2_cores(keys, size, k) for k in range(MAX_LEFT + 1, 130)]
    assert np.log2(np.exp2(small).sum()) < -80
    large = np.unique(np.geomspace(130, keys, 80).round())
    assert max(log2_cores(keys, size, k) for k in large) + np.log2(keys) < -140
    # The bound can fail: closer to the threshold, and without the argument that no other key lies inside.
    assert max(log2_cores(keys, int(1.33 * keys), k) for k in large) > 0
    assert max(log2_cores(keys, size, k, largest=False) for k in large) > 0


def test_dependent_masks_of_small_cores_are_rarer_than_two_to_the_minus_seventy():
    size = cells(MIN_KEYS) - DENSE
    each = [log2_cores(MIN_KEYS, size, k) + k - DENSE for k in range(2, MAX_LEFT + 1)]
    assert np.log2(np.exp2(each).sum()) < -70
    assert log2_cores(MIN_KEYS, size, 2) > -20  # cores of two keys do occur: without dense cells the store would fail often


def cores(keys, size, times, name):
    """How many keys are left by peeling, for random stores."""
    source = coins(name)
    return np.array(
        [len(okvs._peel(distinct_triples(source.words(3 * keys).reshape(keys, 3), size), size)[1]) for _ in range(times)]
    )


def test_small_cores_come_no_more_often_than_the_bound_says():
    """150 keys, where cores of two can be seen: expected C(150, 2) / C(217, 3) = 0.0067 a store, 27 in 4,000; Poisson with
    that mean passes 65 with probability below 1e-9, and falls below 6 with probability below 1e-6."""
    keys, times = 150, 4000
    size = okvs._RATE * keys // 100
    left = cores(keys, size, times, "small cores")
    assert 6 <= (left == 2).sum() <= 65
    assert (left == 2).sum() <= 1.5 * times * 2 ** log2_cores(keys, size, 2)


def test_whether_a_store_fails_is_the_sessions_doing_and_not_the_keys():
    """With too few cells a store of the same keys fails under some sessions and not under others, equally often for two sets of
    keys: 60 sessions each at about one half; a difference of 30 has probability below 1e-7. So a new session is all that a
    repetition needs, and that it is needed says nothing of the keys."""
    size = int(1.222 * MIN_KEYS)

    def failures(name):
        keys, _ = made(MIN_KEYS, name=name)
        spots = (places(b"session %d" % at, keys, size + DENSE).sparse - DENSE for at in range(60))
        return sum(len(okvs._peel(sparse, size)[1]) > MAX_LEFT for sparse in spots)

    first, second = failures("some keys"), failures("other keys")
    assert 5 < first < 55
    assert abs(first - second) < 30


def law(keys, rate):
    """Raghuraman and Rindal's fit: log2 of the chance of a large core, at most 0."""
    slope = 2 ** (0.555 * np.log2(keys) + 0.093 * W**3 - 1.01 * W**2 + 2.925 * W - 0.133)
    return min(0.0, 9.2 - slope * (rate - 1.223))


def test_large_cores_follow_the_measured_law_where_they_can_be_seen():
    """At the smallest size, near the threshold: mostly a large core at 1.20 cells per key, and at 1.24 (law: below 2^-6.8)
    rarely one; Poisson with mean 60 * 2^-6.8 = 0.54 passes 8 with probability below 1e-8."""
    assert (cores(MIN_KEYS, int(1.20 * MIN_KEYS), 20, "dense") > MAX_LEFT).mean() > 0.5
    assert law(MIN_KEYS, 1.24) < -6.7
    assert (cores(MIN_KEYS, int(1.24 * MIN_KEYS), 60, "sparse") > MAX_LEFT).sum() <= 8
    assert law(MIN_KEYS, okvs._RATE / 100) < -200


@pytest.mark.slow
def test_the_law_of_large_cores_over_a_range():
    """Measured frequencies stay below the law plus five standard deviations, and fall by the law's slope or so."""
    seen = {}
    for rate in (1.226, 1.232, 1.235, 1.238, 1.241):
        seen[rate] = (cores(MIN_KEYS, int(rate * MIN_KEYS), 400, f"rate {rate}") > MAX_LEFT).mean()
        chance = 2 ** law(MIN_KEYS, rate)
        assert seen[rate] <= chance + 5 * np.sqrt(chance / 400)
    assert seen[1.226] > 0.2
    assert seen[1.226] > 4 * seen[1.235] > 0


def test_too_few_keys_are_refused():
    with pytest.raises(LocalProtocolError, match="pad"):
        cells(MIN_KEYS - 1)
