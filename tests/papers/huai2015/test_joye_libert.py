"""Aggregator-oblivious encryption: sums come out, keys recombine, wrong input is refused."""

from __future__ import annotations

import hashlib
import itertools
import math
from functools import lru_cache

import gmpy2
import pytest

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ristretto import ORDER
from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, PeerProtocolError
from blindbayes_papers.huai2015.primitives.joye_libert import DEFAULT_BITS, JoyeLibert, deal_modulus
from blindbayes_papers.huai2015.primitives.ristretto_sum import MAX_BOUND, Cells, RistrettoSum

TOY = 512
LABEL = b"round 1"


def coins(label: str = "") -> Coins:
    return Coins.seeded(bytes(range(32))).derive(label)


@lru_cache
def toy_modulus() -> int:
    return deal_modulus(TOY, coins("modulus"), toy_keys=True)


def make(name: str) -> JoyeLibert | RistrettoSum:
    return JoyeLibert(toy_modulus(), toy_keys=True) if name == "joye_libert" else RistrettoSum(5000)


both = pytest.mark.parametrize("name", ["joye_libert", "ristretto"])


@both
@pytest.mark.parametrize("parties", [1, 2, 5])
def test_the_miner_reads_the_sum(name: str, parties: int) -> None:
    scheme, stream = make(name), coins("sum")
    vectors = [[stream.below(2001) - 1000 for _ in range(30)] for _ in range(parties)]
    keys = [scheme.random_key(stream) for _ in range(parties)]
    packing = scheme.packing(30, 5000)
    sent = [scheme.encrypt(packing.pack(v), k, LABEL) for v, k in zip(vectors, keys, strict=True)]
    capability = scheme.masks(-scheme.total(keys), LABEL, packing.chunks)
    opened = packing.unpack(scheme.open(scheme.multiply([*sent, capability])))
    assert opened == [sum(column) for column in zip(*vectors, strict=True)]


@both
def test_without_one_party_nothing_opens(name: str) -> None:
    scheme, stream = make(name), coins("missing")
    keys = [scheme.random_key(stream) for _ in range(3)]
    sent = [scheme.encrypt([7], key, LABEL) for key in keys]
    capability = scheme.masks(-scheme.total(keys), LABEL, 1)
    for left_out in range(3):
        with pytest.raises(IntegrityError):
            scheme.open(scheme.multiply([*(c for at, c in enumerate(sent) if at != left_out), capability]))
    with pytest.raises(IntegrityError):  # another label
        scheme.open(scheme.multiply([*sent, scheme.masks(-scheme.total(keys), b"round 2", 1)]))


@both
def test_the_same_plaintext_looks_different_under_every_label_and_position(name: str) -> None:
    scheme = make(name)
    key = scheme.random_key(coins("labels"))
    seen = {c for label in (b"a", b"b", b"a\0") for c in scheme.encrypt([5, 5, 5], key, label)}
    assert len(seen) == 9


@both
@pytest.mark.parametrize("threshold", [1, 2, 3, 5])
def test_any_threshold_of_the_holders_recover_a_mask(name: str, threshold: int) -> None:
    scheme, stream = make(name), coins(f"threshold {threshold}")
    first, second = scheme.random_key(stream), -scheme.random_key(stream)
    secret = scheme.total([first, second])
    shares = scheme.split(secret, 5, threshold, stream, count=2)
    assert all(abs(share).bit_length() <= scheme.share_bits(5, threshold, 2) for share in shares)
    wanted = scheme.masks(secret * scheme.scale(5), LABEL, 2)
    for points in itertools.combinations(range(1, 6), threshold):
        weights = scheme.weights(points, 5)
        parts = [scheme.power(scheme.masks(shares[p - 1], LABEL, 2), w) for p, w in zip(points, weights, strict=True)]
        assert scheme.multiply(parts) == wanted


def test_fewer_shares_fit_every_secret_equally_well() -> None:
    """At toy size: for any two holders of a threshold of three there is a polynomial for every other secret, whose
    coefficients stay within the range that the honest ones are drawn from, but for an edge of measure below 2^-100."""
    scheme, stream = make("joye_libert"), coins("privacy")
    secret, other = scheme.random_key(stream), scheme.random_key(stream)
    factor = math.factorial(5)
    difference = factor * (other - secret)
    for held in itertools.combinations(range(1, 6), 2):
        # h(0) = difference, h(j) = 0 at the held points: h = difference * prod (j - X) / prod j, with integer coefficients.
        a, b = held
        assert difference % (a * b) == 0
        linear, quadratic = -difference // (a * b) * (a + b), difference // (a * b)
        spread = scheme.key_bits + 128
        assert abs(linear).bit_length() <= spread - 100
        assert abs(quadratic).bit_length() <= spread - 100
        assert all(difference + linear * j + quadratic * j * j == 0 for j in held)


def test_key_sizes_hide_statistically() -> None:
    scheme = make("joye_libert")
    assert scheme.key_bits >= 2 * scheme.bits + 128
    assert DEFAULT_BITS == 3072
    draws = [scheme.random_key(coins("size")).bit_length() for _ in range(1)]
    assert max(draws) > scheme.key_bits - 40
    pair = scheme.pair_key(hashlib.sha256(b"pair").digest())
    assert scheme.key_bits - 40 < pair.bit_length() <= scheme.key_bits
    assert RistrettoSum(1).pair_key(hashlib.sha256(b"pair").digest()) < ORDER


def test_decryption_follows_the_plaintext_size_in_one_scheme_only() -> None:
    """Joye-Libert opens a full-size plaintext; the discrete logarithm refuses what it cannot reach, beforehand."""
    scheme = make("joye_libert")
    large = (1 << (scheme.bits - 3)) - 1
    key = scheme.random_key(coins("large"))
    for value in (large, -large, 0):
        assert scheme.open(scheme.multiply([scheme.encrypt([value], key, LABEL), scheme.masks(-key, LABEL, 1)])) == [value]
    with pytest.raises(ConfigError, match="joye_libert"):
        RistrettoSum(MAX_BOUND + 1).packing(3, MAX_BOUND + 1)
    with pytest.raises(IntegrityError):
        RistrettoSum(10).open(RistrettoSum(10).encrypt([11], 0, LABEL))
    assert RistrettoSum(10).open(RistrettoSum(10).encrypt([10, -10, 0], 0, LABEL)) == [10, -10, 0]


@both
def test_random_plaintexts_tell_only_whether_anybody_is_there(name: str) -> None:
    scheme, stream = make(name), coins("zero")
    keys = [scheme.random_key(stream) for _ in range(3)]
    for present in range(4):
        values = [scheme.random_plaintext(stream) if at < present else 0 for at in range(3)]
        sent = [scheme.encrypt([value], key, LABEL) for value, key in zip(values, keys, strict=True)]
        product = scheme.multiply([*sent, scheme.masks(-scheme.total(keys), LABEL, 1)])
        assert scheme.is_zero(product) == [present == 0]


def test_bad_elements_are_refused() -> None:
    scheme = make("joye_libert")
    n = toy_modulus()
    size = scheme.element_bytes
    for wrong in (b"", bytes(size), bytes(size + 1), (n * n).to_bytes(size, "big"), n.to_bytes(size, "big"), b"\xff" * size):
        with pytest.raises(PeerProtocolError):
            scheme.require_elements([wrong], 1, party="north")
    with pytest.raises(PeerProtocolError):
        scheme.require_elements([], 1)
    scheme.require_elements(scheme.encrypt([1], 5, LABEL), 1)
    curve = RistrettoSum(10)
    for wrong in (b"", b"\xff" * 32, bytes([1]) + bytes(31)):
        with pytest.raises(PeerProtocolError):
            curve.require_elements([wrong], 1)
    curve.require_elements([ristretto.IDENTITY], 1)
    with pytest.raises(PeerProtocolError):
        Cells(1, 10).unpack([11])


def test_bad_moduli_are_refused() -> None:
    prime = int(gmpy2.next_prime(1 << 2500))
    for wrong in (toy_modulus(), prime, prime * 3, 1 << 2600, int(gmpy2.next_prime(1 << 1300)) ** 2):
        with pytest.raises(BlindbayesError):
            JoyeLibert(wrong)


def test_the_dealer_hands_out_the_modulus_alone() -> None:
    modulus = deal_modulus(TOY, coins("dealer"), toy_keys=True)
    assert isinstance(modulus, int)
    assert modulus.bit_length() == TOY
    assert not gmpy2.is_prime(modulus)
    with pytest.raises(ConfigError):
        deal_modulus(TOY, coins("dealer"))  # too short without the flag


def test_known_answer_of_the_hash_to_the_group() -> None:
    """Pins H: a change would make parties of two versions disagree."""
    point = RistrettoSum(1).base(b"label", 3)
    digest = hashlib.sha256(b"blindbayes ristretto sum v1").digest()
    data = digest + (5).to_bytes(4, "big") + b"label" + (3).to_bytes(4, "big")
    assert point == ristretto.hash_to_point(data)
    scheme = make("joye_libert")
    assert scheme.base(b"label", 3) == scheme.base(b"label", 3) != scheme.base(b"label", 4)
    assert scheme.base(b"label", 3) < toy_modulus() ** 2
