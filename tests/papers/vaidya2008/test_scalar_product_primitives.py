"""Scalar product, oblivious polynomials and Naor-Pinkas transfers: the local steps."""

import itertools
import math
from fractions import Fraction

import pytest

from blindbayes.crypto import ristretto
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError
from blindbayes_papers.primitives.paillier import generate_keypair
from blindbayes_papers.vaidya2008.primitives import naor_pinkas
from blindbayes_papers.vaidya2008.primitives import polynomial as poly
from blindbayes_papers.vaidya2008.primitives import scalar_product as sp
from support.two_party import coins


@pytest.fixture(scope="module")
def key():
    return generate_keypair(512, coins("scalar product key"), toy_keys=True)


def numbers(name, count, bits):
    own = coins(name)
    return [own.bits(bits) - (1 << (bits - 1)) for _ in range(count)]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("ys", [[0, 1, 1, 0, 1], [7, 0, 7, 7, 0], [5, -3, 2, 9, -1], [0, 0, 0, 0, 0]])
def test_shares_add_up_to_the_scalar_product_over_the_integers(key, ys, grouped):
    xs = numbers("xs", 5, 40)
    own = coins("other")
    ciphertexts = key.encrypt_many(xs, coins("key holder"))
    mask = sp.draw_mask(50, own)
    sent = sp.answer(key.public, sp.combine(key.public, ciphertexts, ys, grouped=grouped), mask, own)
    share = key.public.signed(key.decrypt(sent))
    assert share - mask == sum(x * y for x, y in zip(xs, ys, strict=True))


def test_a_boolean_vector_needs_no_exponentiation(key, monkeypatch):
    ciphertexts = key.encrypt_many(range(6), coins("boolean"))
    raised = []
    monkeypatch.setattr(key.public, "multiply", lambda c, y: raised.append(y) or pow(c, y, key.public.n_squared))
    sp.combine(key.public, ciphertexts, [0, 1, 1, 0, 0, 1])
    assert raised == []
    sp.combine(key.public, ciphertexts, [0, 9, 9, 0, 0, 9])
    assert raised == [9]
    sp.combine(key.public, ciphertexts, [0, 9, 9, 0, 0, 9], grouped=False)
    assert len(raised) == 7


def test_what_is_sent_back_shows_the_key_holder_nothing_of_how_it_was_made(key):
    """The key holder knows the randomness of its own ciphertexts: without fresh randomness it would read the other's vector."""
    ciphertexts = key.encrypt_many([3, 3], coins("same"))
    bare = [sp.combine(key.public, ciphertexts, ys) for ys in ([1, 0], [0, 1])]
    assert bare == ciphertexts  # this is the leak
    sent = [sp.answer(key.public, w, 0, coins(f"answer {at}")) for at, w in enumerate(bare)]
    assert not set(sent) & set(ciphertexts)
    assert [key.decrypt(c) for c in sent] == [3, 3]


def test_vectors_of_two_lengths_and_short_keys_are_refused(key):
    with pytest.raises(LocalProtocolError):
        sp.combine(key.public, key.encrypt_many([1], coins("one")), [1, 2])
    sp.require_capacity(key.public, 512 - 67)
    with pytest.raises(ConfigError, match="too short"):
        sp.require_capacity(key.public, 512 - 66)


def test_a_masked_share_is_within_the_stated_distance_of_uniform():
    """Exact at toy size: the distance of value + mask from value' + mask is |value - value'| / number of masks."""
    for bits, extra in ((2, 3), (3, 4)):
        masks = 1 << (bits + extra)
        for one, other in itertools.product(range(1 << bits), repeat=2):
            left, right = set(range(one, one + masks)), set(range(other, other + masks))
            assert Fraction(len(left - right), masks) == Fraction(abs(one - other), masks) < Fraction(1, 1 << extra)


# -- polynomials -----------------------------------------------------------------------------------------------------------


def test_polynomials_are_evaluated_obliviously(key):
    n = int(key.public.n)
    coefficients, x = numbers("coefficients", 6, 60), -12345
    encrypted = key.encrypt_many(poly.powers(x, 5, n), coins("powers"))
    found = key.public.signed(key.decrypt(poly.evaluate(key.public, encrypted, coefficients, coins("evaluate"))))
    assert found == sum(c * x**i for i, c in enumerate(coefficients))
    with pytest.raises(LocalProtocolError):
        poly.evaluate(key.public, encrypted, coefficients[:-1], coins("short"))


def test_squares(key):
    own, x, mask = -(2**70) + 5, 2**69 + 1, 2**200 + 3
    encrypted = key.encrypt_many(poly.powers(x, 2, int(key.public.n)), coins("square"))
    found = key.decrypt(poly.evaluate(key.public, encrypted, poly.square_around(own, mask), coins("square answer")))
    assert found - mask == (own + x) ** 2


def test_shifted_polynomials():
    coefficients, modulus = [5, -2, 0, 7, 1], 10**9 + 7
    moved = poly.shifted(coefficients, -41, modulus)
    for x in range(-20, 20):
        assert (
            sum(c * x**i for i, c in enumerate(moved)) - sum(c * (x - 41) ** i for i, c in enumerate(coefficients))
        ) % modulus == 0


@pytest.mark.parametrize("degree", [1, 2, 5, 10, 20])
def test_the_taylor_polynomial_keeps_its_bound(degree):
    fraction = 30
    coefficients, scale = poly.taylor(degree, fraction), poly.scale(degree, fraction)
    worst = 0.0
    for step in range(-256, 512):
        e = step << (fraction - 10)
        value = Fraction(sum(c * e**i for i, c in enumerate(coefficients)), scale)
        worst = max(worst, abs(float(value) - math.log1p(step / 1024)))
    assert worst <= poly.taylor_error(degree) + 1e-15
    assert worst > poly.taylor_error(degree) / 4 or degree == 20  # the bound is not idle


# -- Naor-Pinkas -----------------------------------------------------------------------------------------------------------


def transferred(bits, name="np"):
    pairs = [(coins(f"{name} {at} 0").bytes(16), coins(f"{name} {at} 1").bytes(16)) for at in range(len(bits))]
    centre = ristretto.random_point(coins(name))
    choice = naor_pinkas.choose(bits, centre, b"session", coins(name + " chooser"))
    boxes = naor_pinkas.transfer(pairs, centre, choice.points, b"session", coins(name + " sender"))
    return pairs, centre, choice, boxes


def test_the_chooser_gets_what_it_chose_and_only_that():
    bits = [0, 1, 1, 0]
    pairs, _, choice, boxes = transferred(bits)
    assert choice.finish(boxes) == [pair[bit] for pair, bit in zip(pairs, bits, strict=True)]
    other = naor_pinkas.Choice(choice.session, tuple(1 - bit for bit in bits), choice.scalars, choice.points)
    assert not set(other.finish(boxes)) & {message for pair in pairs for message in pair}
    replayed = naor_pinkas.Choice(b"another session", choice.bits, choice.scalars, choice.points)
    assert not set(replayed.finish(boxes)) & {message for pair in pairs for message in pair}


def test_the_point_sent_does_not_depend_on_the_choice_in_distribution():
    """P_0 is k G or C - k G; either is uniform for uniform k: the second is the first at k' = log C - k."""
    log = ristretto.random_scalar(coins("log"))
    centre = ristretto.base_multiply(log)
    one = naor_pinkas.choose([1], centre, b"s", coins("same coins"))
    zero = naor_pinkas.choose([0], centre, b"s", coins("same coins"))
    assert ristretto.add(one.points, zero.points) == centre


def test_malformed_transfers_are_refused():
    pairs, centre, choice, boxes = transferred([0, 1], "bad")
    with pytest.raises(PeerProtocolError, match="peer"):
        choice.finish(boxes[:-1], "peer")
    with pytest.raises(PeerProtocolError):
        choice.finish(bytes(32) + boxes[32:])
    with pytest.raises(PeerProtocolError):
        naor_pinkas.choose([0], bytes(32), b"s", coins("bad centre"))
    for points in (choice.points[:-1], b"\xff" * 64, centre + choice.points[32:], bytes(64)):
        with pytest.raises(PeerProtocolError):
            naor_pinkas.transfer(pairs, centre, points, b"s", coins("bad points"))
    with pytest.raises(LocalProtocolError):
        naor_pinkas.choose([2], centre, b"s", coins("bad bit"))
