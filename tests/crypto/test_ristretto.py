"""The group: vectors of RFC 9496, and what is refused."""

import pytest

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError

MULTIPLES = [  # RFC 9496, appendix A.1
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    "94741f5d5d52755ece4f23f044ee27d5d1ea1e2bd196b462166b16152a9d0259",
]
BAD = [  # RFC 9496, appendix A.2: non-canonical field encodings, a negative one, and a non-square
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
]


def test_multiples_of_the_generator_match_the_rfc():
    for factor, expected in enumerate(MULTIPLES, start=1):
        assert ristretto.base_multiply(factor.to_bytes(32, "little")).hex() == expected


def test_multiplication_adds_exponents():
    coins = Coins.seeded(bytes(32))
    a, b = ristretto.random_scalar(coins), ristretto.random_scalar(coins)
    assert ristretto.multiply(a, ristretto.base_multiply(b)) == ristretto.multiply(b, ristretto.base_multiply(a))
    point, other = ristretto.random_point(coins), ristretto.hash_to_point(b"x")
    assert ristretto.subtract(ristretto.add(point, other), other) == point


@pytest.mark.parametrize("encoded", [bytes.fromhex(text) for text in BAD] + [bytes(32), b"", bytes(31), bytes(33)])
def test_a_bad_point_is_refused_and_names_the_party(encoded):
    with pytest.raises(PeerProtocolError) as caught:
        ristretto.require_point(encoded, "mallory")
    assert caught.value.party == "mallory"
    assert encoded.hex() not in str(caught.value) or not encoded


@pytest.mark.parametrize("encoded", [bytes.fromhex(MULTIPLES[0]), ristretto.IDENTITY])
def test_a_point_with_the_highest_bit_set_is_refused(encoded):
    """libsodium up to 1.0.18 takes it for the same point: a second encoding, of the identity too."""
    assert ristretto.is_point(encoded)
    with pytest.raises(PeerProtocolError):
        ristretto.require_point(encoded[:-1] + bytes([encoded[-1] | 0x80]), "mallory")


def test_good_points_pass():
    for text in MULTIPLES:
        assert ristretto.require_point(bytes.fromhex(text)).hex() == text
