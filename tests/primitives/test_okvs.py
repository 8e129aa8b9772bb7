"""The store: right values for its keys, noise for others, the same look whatever the keys, and the bound on small cores."""

import numpy as np
import pytest
from scipy.special import gammaln

from blindbayes.errors import LocalProtocolError
from blindbayes.primitives import okvs
from blindbayes.primitives.okvs import DENSE, LEAST, MOST_LEFT, Places, cells, decode, encode, places
from support.two_party import coins


def made(count, width=2, name="store"):
    source = coins(name)
    keys, values = source.words(2 * count).reshape(count, 2), source.words(width * count).reshape(count, width)
    return keys, values


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_store_gives_the_values_of_its_keys_and_noise_for_others(width):
    keys, values = made(LEAST, width)
    size = cells(LEAST)
    table = encode(places(b"s", keys, size), values, size, coins("fill"))
    assert table.shape == (size, width)
    assert np.array_equal(decode(table, places(b"s", keys, size)), values)
    others, _ = made(LEAST, width, "others")
    noise = decode(table, places(b"s", others, size))
    assert len(np.unique(noise)) == noise.size
    assert not np.array_equal(decode(table, places(b"t", keys, size)), values)


def test_keys_of_a_core_are_solved_in_the_dense_cells():
    """Keys that share all three cells never peel: dense cells carry them, up to the limit."""
    keys, values = made(LEAST)
    size = cells(LEAST)
    at = places(b"s", keys, size)
    for shared in (2, MOST_LEFT):
        sparse = at.sparse.copy()
        sparse[:shared] = sparse[0]
        crowded = Places(sparse, at.dense)
        assert np.array_equal(decode(encode(crowded, values, size, coins("fill")), crowded), values)
    sparse = at.sparse.copy()
    sparse[: MOST_LEFT + 1] = sparse[0]
    with pytest.raises(LocalProtocolError, match="new run"):
        encode(Places(sparse, at.dense), values, size, coins("fill"))


def test_equal_keys_are_refused():
    keys, values = made(LEAST)
    keys[1] = keys[0]
    size = cells(LEAST)
    with pytest.raises(LocalProtocolError):
        encode(places(b"s", keys, size), values, size, coins("fill"))


def test_cells_look_uniform_whether_a_key_fixes_them_or_not():
    """Mean bit within six standard deviations of 1/2, alpha = 2e-9, in the dense cells, in all cells, and in those that no key
    reads; a table whose free cells stay 0 fails."""
    keys, values = made(LEAST)
    size = cells(LEAST)
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


def test_small_cores_above_the_limit_are_rarer_than_two_to_the_minus_eighty():
    keys, size = LEAST, cells(LEAST) - DENSE
    z = np.exp(np.linspace(np.log(1e-3), np.log(12), 2000))

    def choose(n, r):
        return gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)

    def expected(k):
        s = np.arange(3, int(1.5 * k) + 1, dtype=np.float64)
        least = np.min(s[:, None] * np.log(np.expm1(z) - z) - 3 * k * np.log(z), axis=1)
        terms = choose(keys, k) + choose(size, s) + gammaln(3 * k + 1) + least
        terms -= k * np.log(float(size) * (size - 1) * (size - 2))
        return float(np.log2(np.exp(terms).sum()))

    assert max(expected(k) for k in range(MOST_LEFT + 1, 121)) < -80
    assert expected(2) > -20  # cores of two keys do occur: without dense cells the store would fail often


def test_measured_law_of_large_cores():
    """Raghuraman and Rindal's fit at the smallest size, as the docstring uses it."""
    slope = 2 ** (0.555 * np.log2(LEAST) + 2.34)
    assert slope * (okvs._RATE / 100 - 1.223) > 100


def test_too_few_keys_are_refused():
    with pytest.raises(LocalProtocolError, match="pad"):
        cells(LEAST - 1)
