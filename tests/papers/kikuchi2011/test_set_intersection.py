"""The paper's protocols: intersection by commutative encryption, thinned intersection, comparisons, and what Alice learns."""

import tomllib
from collections import Counter
from pathlib import Path

import gmpy2
import numpy as np
import pytest
from scipy.stats import binom

import blindbayes_papers.kikuchi2011.distorted_intersection as distorted
import blindbayes_papers.kikuchi2011.set_intersection as plain
from blindbayes.errors import DataError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.wire.transcript import Keep
from blindbayes_papers.kikuchi2011.distorted_intersection import ThinningSetup, comparison, entropy, error, posterior
from blindbayes_papers.kikuchi2011.distorted_intersection.comparison import ComparisonSetup, alice_factor, bob_factor, factors
from blindbayes_papers.kikuchi2011.set_intersection import RISTRETTO, SAFE_PRIME
from blindbayes_papers.kikuchi2011.set_intersection.messages import ItemsLocked, ItemsLockedTwice
from support.two_party import anew, coins, transfer_pair


def spec(package):
    return tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])


def items(first, last):
    return [b"canary %d" % at for at in range(first, last)]


def roles(package, mine, theirs, name="", **options):
    runs = local_runs(["alice", "bob"], coins=coins("run"))
    return {
        "alice": package.alice(runs["alice"], "bob", mine, coins("a" + name), **options),
        "bob": package.bob(runs["bob"], "alice", theirs, coins("b" + name), **options),
    }


class Counting:
    """A group that counts its powers."""

    def __init__(self, group):
        self.group, self.powers, self.name, self.size = group, 0, group.name, group.size

    def power(self, secret, element):
        self.powers += 1
        return self.group.power(secret, element)

    def __getattr__(self, name):
        return getattr(self.group, name)


@pytest.mark.parametrize("group", [RISTRETTO, SAFE_PRIME], ids=lambda group: group.name)
@pytest.mark.parametrize(("mine", "theirs"), [((0, 8), (5, 20)), ((0, 3), (3, 6)), ((0, 5), (0, 5)), ((0, 0), (0, 4))])
def test_alice_learns_the_size_and_the_cost_is_that_of_the_spec(group, mine, theirs):
    counting = Counting(group)
    outcome = run_in_memory(roles(plain, items(*mine), items(*theirs), group=counting), keep=Keep.FRAMES)
    size = len(set(items(*mine)) & set(items(*theirs)))
    assert outcome.outputs["alice"].size == size
    assert outcome.outputs["alice"].matching is None
    known = {"n_alice": mine[1] - mine[0], "n_bob": theirs[1] - theirs[0]}
    assert outcome.opened == {"alice": tuple(spec(plain)["opened"]), "bob": ()}
    assert counting.powers == eval(spec(plain)["exponentiations"], {}, known)
    assert (outcome.cost.rounds, outcome.cost.messages) == (int(spec(plain)["rounds"]), int(spec(plain)["messages"]))
    whole = b"".join(entry.frame for entry in outcome.transcript.entries)
    assert b"canary" not in whole
    assert not any(group.hash(item) in whole for item in items(*theirs))


def test_the_matching_is_learned_only_where_the_study_reveals_it():
    outcome = run_in_memory(roles(plain, items(0, 10), items(7, 30), matching=True))
    assert outcome.outputs["alice"].matching == (7, 8, 9)
    assert outcome.opened["alice"] == tuple(spec(plain)["opened_with_matching"])


@pytest.mark.parametrize("matching", [False, True])
def test_bobs_shuffle_hides_which_items_match(matching):
    """The order in which Alice's items come back: hers, if the matching is revealed; otherwise, over 60 runs, many others."""

    class Logging(Counting):
        def power(self, secret, element):
            made.append(super().power(secret, element))
            return made[-1]

    orders = Counter()
    for number in range(60):
        made = []
        options = {"matching": matching, "group": Logging(RISTRETTO)}
        outcome = run_in_memory(roles(plain, items(0, 4), items(3, 6), str(number), **options), keep=Keep.FRAMES)
        back = next(entry.frame for entry in outcome.transcript.entries if entry.kind is ItemsLockedTwice)
        places = [(back.find(element), at) for at, element in enumerate(made) if element in back]
        assert len(places) == 4 + 1  # all four come back; the one that Bob has too is made again by Alice
        orders[
            tuple(at for _, at in sorted(set(places), key=lambda pair: pair[0]) if at < max(pair[1] for pair in places))
        ] += 1
    assert (len(orders) == 1) == matching


def test_bad_elements_are_refused():
    for bad in (bytes(32), b"\xff" * 32, b"x" * 31):
        fault = Replace(lambda entry: entry.kind is ItemsLocked and entry.sender == "bob", lambda _, bad=bad: ItemsLocked(bad))
        outcome = run_in_memory(roles(plain, items(0, 3), items(0, 3)), faults=[fault], check=False)
        assert isinstance(outcome.error, PeerProtocolError)
        assert outcome.error.party == "bob"
    twice = Replace(lambda entry: entry.kind is ItemsLocked, lambda message: ItemsLocked(message.elements[:32] * 2))
    outcome = run_in_memory(roles(plain, items(0, 3), items(0, 3)), faults=[twice], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    with pytest.raises(DataError, match="twice"):
        run_in_memory(roles(plain, items(0, 3) * 2, items(0, 3)))
    with pytest.raises(PeerProtocolError):
        SAFE_PRIME.require((SAFE_PRIME._p - 1).__int__().to_bytes(256, "big"), "bob")  # not a square


def test_the_safe_prime_is_one():
    assert gmpy2.is_prime(SAFE_PRIME._p, 30)
    assert gmpy2.is_prime(SAFE_PRIME._q, 30)


# -- thinning ----------------------------------------------------------------------------------------------------------------


def test_thinned_size_follows_the_binomial_law():
    """The sum of s_A over 60 runs lies within six standard deviations of that of z p, alpha = 2e-9; unthinned it would not."""
    total, mean, variance, most = 0, 0.0, 0.0, 0
    for number in range(60):
        outcome = run_in_memory(roles(distorted, items(0, 12), items(2, 16), str(number)))
        bob = outcome.outputs["bob"]
        assert bob.items == 14
        assert 1 <= bob.sample_size < 14
        rate = bob.sample_size / bob.items
        total, mean, variance = total + outcome.outputs["alice"], mean + 10 * rate, variance + 10 * rate * (1 - rate)
        most = max(most, outcome.outputs["alice"])
        assert outcome.opened == {"alice": tuple(spec(distorted)["opened"]), "bob": ()}
    assert abs(total - mean) < 6 * variance**0.5
    assert abs(600 - mean) > 6 * variance**0.5
    assert most <= 10


@pytest.mark.parametrize("group", [RISTRETTO, SAFE_PRIME], ids=lambda group: group.name)
def test_dummies_look_like_items(group):
    counting = Counting(group)
    outcome = run_in_memory(roles(distorted, items(0, 4), items(0, 9), group=counting), keep=Keep.FRAMES)
    assert counting.powers == eval(spec(distorted)["exponentiations"], {}, {"n_alice": 4, "n_bob": 9})
    assert (outcome.cost.rounds, outcome.cost.messages) == (int(spec(distorted)["rounds"]), int(spec(distorted)["messages"]))
    if group is SAFE_PRIME:
        drawn = [int.from_bytes(group.draw(coins(f"dummy {at}")), "big") for at in range(20)]
        assert all(gmpy2.legendre(value, group._p) == 1 for value in drawn)
        integers = [1 + coins(f"integer {at}").below(int(group._p) - 1) for at in range(20)]  # the paper's r_i
        assert any(gmpy2.legendre(value, group._p) == -1 for value in integers)


def test_posterior_is_bayes_rule_over_the_binomial():
    found = posterior(3, 20, keep=0.4)
    brute = np.array([binom.pmf(3, z, 0.4) for z in range(21)])
    assert np.allclose(found, brute / brute.sum(), atol=1e-12)
    unknown = posterior(3, 20, bob_items=10)
    brute = np.array([np.mean([binom.pmf(3, z, kept / 10) for kept in range(1, 10)]) for z in range(21)])
    assert np.allclose(unknown, brute / brute.sum(), atol=1e-12)
    assert found[:3].sum() == 0
    assert entropy(found) < entropy(unknown) < np.log2(21)
    assert entropy(np.full(8, 1 / 8)) == pytest.approx(3)
    assert error(100, 0.5) == pytest.approx(10)
    for wrong in ({}, {"keep": 0.5, "bob_items": 3}, {"keep": 1.0}, {"bob_items": 1}):
        with pytest.raises(ValueError, match=r"."):
            posterior(3, 20, **wrong)


# -- comparisons -------------------------------------------------------------------------------------------------------------

KEEPER, PLANTER = transfer_pair()


def compare(shape, mine, theirs):
    runs = local_runs(["alice", "bob"], coins=coins("run"))
    outcome = run_in_memory(
        {
            "alice": comparison.alice(runs["alice"], "bob", mine, shape, anew(KEEPER), coins("a")),
            "bob": comparison.bob(runs["bob"], "alice", theirs, shape, anew(PLANTER), coins("b")),
        }
    )
    assert outcome.outputs["alice"] == outcome.outputs["bob"]
    assert set(outcome.opened.values()) == {tuple(spec(distorted)["opened_by_comparison"])}
    return outcome.outputs["alice"]


@pytest.mark.parametrize("kind", ["sums", "products"])
@pytest.mark.parametrize("values", [2, 3, 5])
def test_the_largest_shared_value_wins(kind, values):
    source = np.random.default_rng(values)
    for bits in (1, 8, 16):
        mine, theirs = ([int(value) for value in source.integers(0, 1 << bits, values)] for _ in range(2))
        joined = [a + b if kind == "sums" else a * b for a, b in zip(mine, theirs, strict=True)]
        assert compare(ComparisonSetup(kind, values, bits, bits), mine, theirs) == joined.index(max(joined))
    top = (1 << 16) - 1
    assert compare(ComparisonSetup(kind, 2, 16, 16), [top, top], [top - 1, top]) == 1  # no overflow at the top


def test_shares_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="width"):
        compare(ComparisonSetup("sums", 2, 4, 4), [16, 0], [0, 0])
    with pytest.raises(LocalProtocolError):
        ComparisonSetup("sums", 1, 4, 4)
    assert ComparisonSetup("products", 2, 16, 16).gates() > ComparisonSetup("sums", 2, 16, 16).gates()


def test_a_class_from_thinned_sizes_over_two_attributes():
    """Class 1 has far more matches for both values: the comparison of products finds it, whatever Bob kept."""
    kept = [[ThinningSetup(40, 20), ThinningSetup(40, 10)], [ThinningSetup(50, 25), ThinningSetup(50, 40)]]
    sizes = [[1, 0], [12, 24]]
    shape = factors(2, 2, 30, 60)
    mine, theirs = [alice_factor(own) for own in sizes], [bob_factor(own, 60) for own in kept]
    expected = [40 * (2 / 20) * (1 / 10), 50 * (13 / 25) * (25 / 40)]
    assert [a * b / 2 ** comparison.scale_bits(2, 60) for a, b in zip(mine, theirs, strict=True)] == pytest.approx(
        expected, rel=1e-4
    )
    assert compare(shape, mine, theirs) == 1
    with pytest.raises(DataError):
        bob_factor(kept[0], 39)


def test_end_to_end_with_fresh_transfers():
    runs = local_runs(["alice", "bob"], coins=coins("run"))
    shape = factors(1, 2, 20, 20)

    def first():
        ot_sender = yield from transfer.ot_sender(runs["alice"], "bob", coins("k"))
        sizes = []
        for number in range(2):
            sizes.append((yield from distorted.alice(runs["alice"], "bob", items(0, 15), coins(f"a{number}"))))
        return (
            yield from comparison.alice(
                runs["alice"], "bob", [alice_factor([size]) for size in sizes], shape, ot_sender, coins("a")
            )
        )

    def second():
        ot_receiver = yield from transfer.ot_receiver(runs["bob"], "alice", coins("p"))
        kept = []
        for number, own in enumerate((items(14, 30), items(0, 15))):
            kept.append((yield from distorted.bob(runs["bob"], "alice", own, coins(f"b{number}"))))
        return (
            yield from comparison.bob(
                runs["bob"], "alice", [bob_factor([one], 20) for one in kept], shape, ot_receiver, coins("b")
            )
        )

    outcome = run_in_memory({"alice": first(), "bob": second()})
    assert outcome.outputs["alice"] == outcome.outputs["bob"] == 1
    assert outcome.opened["alice"] == ("thinned_size", "thinned_size", "winner")
