"""Timings for Kikuchi et al. 2011 on this machine: CPU seconds of both parties, each message really encoded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.protocols.core import Role
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.joined import connect
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.private_join.sums.inputs import Entries
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND, JoinedSumsSetup, LabelShares, RowShares
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes_papers.kikuchi2011 import distorted_intersection
from blindbayes_papers.kikuchi2011.distorted_intersection import comparison
from blindbayes_papers.kikuchi2011.distorted_intersection.comparison import ComparisonSetup, Kind
from blindbayes_papers.kikuchi2011.distorted_intersection.roles import ThinningSetup
from blindbayes_papers.kikuchi2011.schemes import (
    Encrypted,
    count_roots,
    encrypt_polynomials,
    evaluate_polynomials,
    scalar_product,
)
from blindbayes_papers.kikuchi2011.set_intersection import RISTRETTO, CommutingGroup
from blindbayes_papers.primitives.paillier import PrivateKey, generate_keypair

PAPER_KEY_BITS = 1024  # the paper's |n^2| = 2048
PARTIES = ("alice", "bob")


@dataclass(frozen=True, slots=True)
class Operations:
    """Seconds per operation: Paillier encryption and decryption, and one power in the group."""

    encrypt: float
    decrypt: float
    power: float


def items(first: int, last: int) -> list[bytes]:
    """Made-up identifiers."""
    return [b"user %09d" % at for at in range(first, last)]


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def paper_key(coins: Coins) -> PrivateKey:
    """A key of the paper's size, too small for use."""
    return generate_keypair(PAPER_KEY_BITS, coins, toy_keys=True)


def paillier_seconds(key: PrivateKey, coins: Coins, repeat: int = 50) -> tuple[float, float, float]:
    """One encryption as the paper has it (r^N modulo N^2), one with the tables of a fixed base, one decryption."""
    public = key.public
    public.encrypt(1, coins)  # makes the tables
    made = [public.encrypt(at, coins) for at in range(repeat)]
    printed = timed(lambda: [public.rerandomise(public.encrypt_with(at, 1), coins) for at in range(repeat)]) / repeat
    tables = timed(lambda: [public.encrypt(at, coins) for at in range(repeat)]) / repeat
    decrypt = timed(lambda: [key.decrypt(one) for one in made]) / repeat
    return printed, tables, decrypt


def power_seconds(group: CommutingGroup, coins: Coins, repeat: int = 50) -> float:
    """One power of a hashed element in a group."""
    secret, element = group.secret(coins), group.hash(b"item")
    return timed(lambda: [group.power(secret, element) for _ in range(repeat)]) / repeat


def link(coins: Coins) -> tuple[OtSender, OtReceiver]:
    """Transfers from Alice to Bob, set up."""
    runs = local_runs(PARTIES, coins=coins, signed=False)
    outcome = run_in_memory(
        {
            "alice": transfer.ot_sender(runs["alice"], "bob", coins.derive("keeper")),
            "bob": transfer.ot_receiver(runs["bob"], "alice", coins.derive("planter")),
        }
    )
    return outcome.outputs["alice"], outcome.outputs["bob"]


def comparison_seconds(
    kind: Kind, bits: int, ready: tuple[OtSender, OtReceiver], coins: Coins, repeat: int
) -> tuple[float, float]:
    """Mean CPU seconds of Alice and of Bob for one comparison of two shared values of `bits` bits."""
    shape = ComparisonSetup(kind, 2, bits, bits)
    alice = bob = 0.0
    for at in range(repeat):
        runs = local_runs(PARTIES, run_id=f"{kind} {bits} {at}", coins=coins, signed=False)
        mine, theirs = [coins.bits(bits), coins.bits(bits)], [coins.bits(bits), coins.bits(bits)]
        outcome = run_in_memory(
            {
                "alice": comparison.alice(runs["alice"], "bob", mine, shape, ready[0], coins.derive(f"a {at}")),
                "bob": comparison.bob(runs["bob"], "alice", theirs, shape, ready[1], coins.derive(f"b {at}")),
            }
        )
        joined = [a + b if kind == "sums" else a * b for a, b in zip(mine, theirs, strict=True)]
        if outcome.outputs["alice"] != joined.index(max(joined)):
            raise AssertionError("the comparison found another winner")
        alice += outcome.cost.parties["alice"].seconds
        bob += outcome.cost.parties["bob"].seconds
    return alice / repeat, bob / repeat


def distorted_seconds(count: int, coins: Coins, group: CommutingGroup = RISTRETTO) -> float:
    """One distorted intersection of two sets of `count`, half in common."""
    runs = local_runs(PARTIES, coins=coins, signed=False)
    mine, theirs = items(0, count), items(count // 2, count // 2 + count)
    return timed(
        lambda: run_in_memory(
            {
                "alice": distorted_intersection.alice(runs["alice"], "bob", mine, coins.derive("a"), group=group),
                "bob": distorted_intersection.bob(runs["bob"], "alice", theirs, coins.derive("b"), group=group),
            }
        )
    )


def per_identifier(count: int = 300) -> float:
    """CPU seconds of both parties per identifier of one of the two sets, on ristretto255."""
    return distorted_seconds(count, Coins.system()) / (2 * count)


def scalar_seconds(key: PrivateKey, count: int, coins: Coins) -> float:
    """One scalar product of two vectors of `count` bits."""
    mine, theirs = [at % 2 for at in range(count)], [int(at % 3 == 0) for at in range(count)]
    shares: list[int] = []
    seconds = timed(lambda: shares.extend(scalar_product(key, mine, theirs, coins)))
    if sum(shares) % key.public.n != sum(a * b for a, b in zip(mine, theirs, strict=True)):
        raise AssertionError("the shares do not add up")
    return seconds


def polynomial_seconds(key: PrivateKey, count: int, coins: Coins) -> tuple[float, float]:
    """One intersection by polynomials of two sets of `count`, half in common: for Alice's polynomials, and for Bob's values of
    them with their decryption."""
    mine, theirs = items(0, count), items(count // 2, count // 2 + count)
    made: list[Encrypted] = []
    sizes: list[int] = []
    first = timed(lambda: made.append(encrypt_polynomials(key, mine, coins)))
    second = timed(lambda: sizes.append(count_roots(key, mine, evaluate_polynomials(key.public, made[0], theirs, coins))))
    if sizes != [count - count // 2]:
        raise AssertionError("the intersection has another size")
    return first, second


def changed_classes(attributes: int, rows: int, trials: int, seed: int = 2011) -> float:
    """Return how often thinned sizes give another class than the true ones.

    Two classes have `rows` rows each, and the values of an instance random frequencies in both. The factors are
    those of the protocol, one run per (attribute, class).
    """
    rng = np.random.default_rng(seed)
    changed = 0
    for _ in range(trials):
        sizes = rng.binomial(rows, rng.beta(2, 2, (2, attributes)))
        exact = [comparison.alice_factor(own) for own in sizes.tolist()]
        samples = rng.integers(1, rows, (2, attributes))
        seen = rng.binomial(sizes, samples / rows)
        scores = []
        for own, row in zip(seen.tolist(), samples.tolist(), strict=True):
            thinnings = [ThinningSetup(rows, one) for one in row]
            scores.append(comparison.alice_factor(own) * comparison.bob_factor(thinnings, rows))
        changed += (exact[0] < exact[1]) != (scores[0] < scores[1])
    return changed / trials


def joined_seconds(count: int, values: int, classes: int, coins: Coins) -> float:
    """All value x class counts over two sets of `count` in one run of joined_sums, transfers included."""
    words = -(-values // max(1, 64 // max(1, count.bit_length())))
    mine = coins.words(2 * 2 * count).reshape(-1, 2)
    half = count // 2
    rows = Entries(mine[:count], np.ones((count, words), dtype=np.uint64))
    hot = np.zeros((count, classes), dtype=np.uint64)
    hot[np.arange(count), np.arange(count) % classes] = 1
    labels = Entries(mine[half : half + count], hot)
    shape = JoinedSumsSetup(max(MIN_BOUND, count), max(MIN_BOUND, count), words, classes)
    runs = local_runs(PARTIES, coins=coins, signed=False)

    def alice() -> Role[RowShares]:
        links = yield from connect(runs["alice"], "bob", coins.derive("k"))
        return (yield from joined_sums.row_holder(runs["alice"], "bob", shape, rows, links.both, coins.derive("r")))

    def bob() -> Role[LabelShares]:
        links = yield from connect(runs["bob"], "alice", coins.derive("p"))
        return (yield from joined_sums.label_holder(runs["bob"], "alice", shape, labels, links.both, coins.derive("l")))

    total: list[RowShares | LabelShares] = []
    seconds = timed(lambda: total.extend(run_in_memory({"alice": alice(), "bob": bob()}).outputs.values()))
    if int((total[0].sums + total[1].sums).sum()) != (count - half) * words:
        raise AssertionError("the shares do not add up")
    return seconds
