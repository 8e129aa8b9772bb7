"""The printed encryption of Huai 2015 falls; Joye-Libert with a composite modulus and unique labels does not."""

from __future__ import annotations

from functools import lru_cache

import pytest

from blindbayes.crypto.coins import Coins
from blindbayes_papers.huai2015 import attacks


def coins(label: str) -> Coins:
    return Coins.seeded(bytes(32)).derive(label)


@lru_cache
def outcome() -> dict[tuple[str, str], attacks.Attack]:
    made = attacks.run_attacks(coins("attacks"), prime_bits=1024, our_bits=1024, toy_keys=True)
    return {(one.attack, "ours" if one.scheme == "ours" else "printed"): one for one in made}


NAMES = (
    "known plaintext",
    "no known plaintext",
    "repeated label",
    "quadratic residue",
    "dictionary, one known plaintext",
    "dictionary, nothing known",
    "zero",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_scheme_falls_and_ours_does_not(name: str) -> None:
    printed, ours = outcome()[name, "printed"], outcome()[name, "ours"]
    assert printed.read == printed.tried
    if name == "quadratic residue":
        # The better of two sequences of 40 coin tosses: 36 or more have chance below 2 * 1e-7.
        assert ours.read < 36
    else:
        assert ours.read == 0


def test_every_attack_was_run() -> None:
    assert set(outcome()) == {(name, scheme) for name in NAMES for scheme in ("printed", "ours")}


def test_fifty_later_values_are_read_from_one_known_plaintext() -> None:
    stream = coins("fifty")
    target = attacks.PrintedSum(1024, stream)
    truth = [stream.below(10**6) for _ in range(51)]
    seen = [target.encrypt(x, at) for at, x in enumerate(truth)]
    assert attacks.with_known_plaintext(target.modulus, seen[0], truth[0], seen[1:]) == truth[1:]


def test_a_label_used_twice_would_open_ours_too() -> None:
    """The attack has power: it is the unique label that stops it, so the product never uses one twice."""
    target = attacks.Ours(1024, coins("twice"), toy_keys=True)
    assert attacks.with_repeated_label(target.modulus, target.encrypt(700, 1), target.encrypt(300, 1)) == 400
    assert attacks.with_repeated_label(target.modulus, target.encrypt(300, 1), target.encrypt(700, 1)) == -400
    assert attacks.with_repeated_label(target.modulus, target.encrypt(700, 1), target.encrypt(300, 2)) is None


def test_the_printed_schemes_are_what_the_paper_prints() -> None:
    """They decrypt as the paper says: otherwise the attacks would break a straw man."""
    stream = coins("faithful")
    parties = [attacks.PrintedSum(256, coins("same prime")) for _ in range(3)]
    p, square = parties[0].modulus, parties[0].square
    keys = [stream.bits(512) for _ in parties]
    for party, key in zip(parties, keys, strict=True):
        party._key = key
    values = [stream.below(1000) for _ in parties]
    total = pow(parties[0].hash(9), -sum(keys), square)
    for party, value in zip(parties, values, strict=True):
        total = total * party.encrypt(value, 9)[0] % square
    assert (total - 1) // p % p == sum(values)


def test_products_alone_give_every_count() -> None:
    truth = [[3, 5, 0], [4, 4], [0, 1, 7]]

    def product(query: tuple[int, ...]) -> int:
        return truth[0][query[0]] * truth[1][query[1]] * truth[2][query[2]]

    found, asked = attacks.counts_from_products(product, (3, 2, 3), 8)
    assert found == truth
    assert asked < 18
