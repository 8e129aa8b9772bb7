"""Paillier: against the textbook, against fixed vectors, against python-paillier; what is refused; what is not shown."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import pathlib
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PeerProtocolError
from blindbayes_papers.primitives.paillier import PrivateKey, PublicKey, generate_keypair

VECTORS = json.loads((pathlib.Path(__file__).parent / "vectors" / "paillier.json").read_text())


def coins(number: int = 1) -> Coins:
    return Coins.seeded(number.to_bytes(32, "big"))


TOY = generate_keypair(256, coins(), toy_keys=True)
VECTOR_KEY = PrivateKey(int(VECTORS["p"], 16), int(VECTORS["q"], 16))


def textbook_decrypt(private: PrivateKey, c: int) -> int:
    """Paillier 1999 with lambda = lcm(p-1, q-1), in plain Python."""
    p, q = int(private._p), int(private._q)
    n = p * q
    lam = math.lcm(p - 1, q - 1)
    return (pow(int(c), lam, n * n) - 1) // n * pow(lam, -1, n) % n


# -- correctness -----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(-(2**300), 2**300), st.integers(-(2**300), 2**300), st.integers(-(2**70), 2**70), st.integers(0, 2**32))
def test_the_homomorphisms_hold_modulo_n(a: int, b: int, k: int, seed: int) -> None:
    public, n, toss = TOY.public, int(TOY.public.n), coins(seed)
    c, d = public.encrypt(a, toss), TOY.encrypt(b, toss)
    assert TOY.decrypt(c) == textbook_decrypt(TOY, c) == a % n
    assert TOY.decrypt(public.add(c, d)) == (a + b) % n
    assert TOY.decrypt(public.add_plain(c, b)) == (a + b) % n
    assert TOY.decrypt(public.multiply(c, k)) == a * k % n
    for fresh in (public.rerandomise(c, toss), TOY.rerandomise(c, toss)):
        assert fresh != c
        assert TOY.decrypt(fresh) == a % n


@pytest.mark.parametrize("m", [0, 1, -1, 2**200, -(2**200)])
def test_signed_plaintexts_come_back_signed(m: int) -> None:
    assert TOY.public.signed(TOY.decrypt(TOY.public.encrypt(m, coins()))) == m


def test_the_comb_computes_powers_of_the_hashed_base() -> None:
    public = TOY.public
    digits = public._comb.draw(coins(5))
    columns = public._comb.columns
    exponent = sum(((digit >> tooth) & 1) << (tooth * columns + at) for at, digit in enumerate(digits) for tooth in range(8))
    assert exponent.bit_length() > public.exponent_bits // 2
    assert public._comb.power(digits) == pow(int(public._base), exponent, int(public.n_squared))
    assert 8 * columns >= public.exponent_bits


def test_randomisers_are_encryptions_of_zero_that_differ() -> None:
    made = TOY.public.randomisers(50, coins(6))
    assert len(set(made)) == 50
    assert TOY.decrypt_many(made) == [0] * 50


def test_the_key_holder_and_threads_draw_the_same_values_from_the_same_coins() -> None:
    plain = TOY.public.encrypt_many(range(9), coins(2))
    assert plain == TOY.encrypt_many(range(9), coins(2))
    assert plain == TOY.encrypt_many(range(9), coins(2), threads=3)
    assert plain == TOY.public.encrypt_many(range(9), coins(2), threads=2)
    assert TOY.decrypt_many(plain, threads=4) == list(range(9))
    assert TOY.public.rerandomise(plain[0], coins(3)) == TOY.rerandomise(plain[0], coins(3))


# -- fixed vectors ---------------------------------------------------------------------------------------------------


def test_known_answers() -> None:
    """2,048-bit vectors with fixed coins; made once, each checked here by the textbook formula before it is compared."""
    public = VECTOR_KEY.public
    for case in VECTORS["encrypt"]:
        m, expected = int(case["m"]), int(case["c"], 16)
        assert textbook_decrypt(VECTOR_KEY, expected) == m % int(public.n)
        assert public.encrypt(m, Coins.seeded(bytes.fromhex(case["seed"]))) == expected
        assert VECTOR_KEY.encrypt(m, Coins.seeded(bytes.fromhex(case["seed"]))) == expected
        assert VECTOR_KEY.decrypt(expected) == m % int(public.n)
    made = generate_keypair(2048, Coins.seeded(bytes.fromhex(VECTORS["seed"])))
    assert made.public == public


def require_phe() -> None:
    if importlib.util.find_spec("phe") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("python-paillier (phe) is the oracle of this test and is not installed")
        pytest.skip("python-paillier (phe) is not installed")


def test_python_paillier_agrees() -> None:
    require_phe()
    from phe import paillier

    public, n = VECTOR_KEY.public, int(VECTOR_KEY.public.n)
    theirs = paillier.PaillierPublicKey(n)
    theirs_private = paillier.PaillierPrivateKey(theirs, int(VECTOR_KEY._p), int(VECTOR_KEY._q))
    for m in (0, 1, 2**1000 + 12345, n - 1):
        assert theirs_private.raw_decrypt(int(public.encrypt(m, coins(m % 1000)))) == m
        assert VECTOR_KEY.decrypt(theirs.raw_encrypt(m)) == m
    mixed = public.add(theirs.raw_encrypt(20), public.encrypt(22, coins()))
    assert theirs_private.raw_decrypt(int(public.rerandomise(mixed, coins()))) == 42


# -- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_generated_keys_have_the_size_asked_for_and_the_structure_promised(bits: int) -> None:
    for number in range(5):
        private = generate_keypair(bits, coins(number), toy_keys=True)
        p, q = int(private._p), int(private._q)
        assert private.public.bits == bits
        assert p % 4 == q % 4 == 3
        assert math.gcd(p - 1, q - 1) == 2
        assert math.gcd(p * q, (p - 1) * (q - 1)) == 1


def test_toy_sizes_need_the_flag() -> None:
    for make in (lambda: generate_keypair(1024, coins()), lambda: PublicKey(int(TOY.public.n))):
        with pytest.raises(ConfigError):
            make()
    with pytest.raises(ConfigError):
        PrivateKey(int(TOY._p), int(TOY._q))
    with pytest.raises(ConfigError):
        generate_keypair(32, coins(), toy_keys=True)
    with pytest.raises(ConfigError):
        generate_keypair(2049, coins())


def next_prime(value: int) -> int:
    import gmpy2

    return int(gmpy2.next_prime(value))


@pytest.mark.parametrize(
    ("p", "q", "why"),
    [
        (next_prime(3 << 126), next_prime(next_prime(3 << 126)), "too close"),
        (next_prime(3 << 126), next_prime(3 << 126), "too close"),
        (next_prime(3 << 126) - 1, next_prime((3 << 126) + (1 << 125)), "not prime"),
        (next_prime(3 << 126), next_prime(3 << 130), "same size"),
        (next_prime(1 << 127), next_prime((1 << 127) + (1 << 125)), "fill the modulus"),
    ],
)
def test_a_private_key_refuses_bad_primes(p: int, q: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        PrivateKey(p, q, toy_keys=True)


@pytest.mark.parametrize(
    "n",
    [
        int(TOY.public.n) + 1,  # even
        next_prime(1 << 255),  # prime
        next_prime(3 << 126) ** 2,  # a square
        3 * next_prime(1 << 253),  # a small factor
        0,
        1,
        -int(TOY.public.n),
    ],
)
def test_a_receiver_refuses_a_bad_modulus(n: int) -> None:
    with pytest.raises(ConfigError):
        PublicKey(n, toy_keys=True)
    if n > 0:
        with pytest.raises(PeerProtocolError) as caught:
            PublicKey.from_bytes(n.to_bytes(33, "big").lstrip(b"\0"), toy_keys=True, party="mallory")
        assert caught.value.party == "mallory"


@pytest.mark.parametrize("data", [b"", b"\0" + bytes(range(1, 65)), b"\xff" * 5000])
def test_a_receiver_refuses_a_malformed_key(data: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        PublicKey.from_bytes(data, toy_keys=True)


def test_a_public_key_travels() -> None:
    assert PublicKey.from_bytes(TOY.public.to_bytes(), toy_keys=True) == TOY.public


# -- ciphertexts from others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [0, int(TOY.public.n_squared), int(TOY.public.n_squared) + 5, int(TOY._p), int(TOY.public.n) * 3, -1]
)
def test_what_is_no_ciphertext_is_refused(bad: int) -> None:
    with pytest.raises(PeerProtocolError) as caught:
        TOY.decrypt(bad, party="mallory")
    assert caught.value.party == "mallory"
    with pytest.raises(PeerProtocolError):
        TOY.decrypt_many([TOY.encrypt(1, coins()), bad])


def test_packed_ciphertexts_are_checked_for_length_and_ring() -> None:
    public = TOY.public
    some = public.encrypt_many([1, 2, 3], coins())
    data = public.pack_ciphertexts(some)
    assert public.unpack_ciphertexts(data, 3) == some
    for bad in (data[:-1], data + b"\0", b"", data[: public.ciphertext_bytes] + bytes(2 * public.ciphertext_bytes)):
        with pytest.raises(PeerProtocolError):
            public.unpack_ciphertexts(bad, 3)


# -- what is not shown -----------------------------------------------------------------------------------------------


def test_a_private_key_shows_and_copies_nothing() -> None:
    shown = repr(TOY) + str(TOY)
    assert "redacted" in shown
    for secret in (TOY._p, TOY._q):
        assert str(int(secret)) not in shown
        assert f"{int(secret):x}" not in shown
    for copier in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copier(TOY)


def test_a_ciphertext_is_a_bare_integer_and_reading_it_changes_nothing() -> None:
    c = TOY.encrypt(3, coins())
    before = int(c)
    TOY.public.pack_ciphertexts([c])
    TOY.decrypt(c)
    TOY.public.add(c, c)
    assert int(c) == before


def test_rerandomising_leaves_no_trace_even_for_the_key_holder() -> None:
    """The randomness of the result is uniform: over a tiny modulus, every N-th residue comes up equally often."""
    private = generate_keypair(64, coins(9), toy_keys=True)
    n = int(private.public.n)
    start = private.public.encrypt(5, coins())
    toss = coins(10)
    # The Jacobi symbol of a short-exponent randomiser is always 1; of a uniform one it is 1 half of the time.
    import gmpy2

    def symbols(make: object) -> int:
        return sum(gmpy2.jacobi(int(make()) % n, n) == 1 for _ in range(400))  # type: ignore[operator]

    assert symbols(lambda: private.public.encrypt(5, toss)) == 400
    assert 130 < symbols(lambda: private.public.rerandomise(start, toss)) < 270  # mean 200, 7 standard deviations: alpha 1e-11
