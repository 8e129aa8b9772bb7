"""Algorithm 3 as printed shows Alice how far Bob thinned his set; ours does not. An Alice that deviates reads the matching."""

from __future__ import annotations

import numpy as np
import pytest

import blindbayes_papers.kikuchi2011.distorted_intersection as distorted
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from blindbayes_papers.kikuchi2011 import set_intersection as exact
from blindbayes_papers.kikuchi2011.attacks import PrintedGroup, kept_share, read_matching
from blindbayes_papers.kikuchi2011.distorted_intersection import entropy, posterior
from blindbayes_papers.kikuchi2011.set_intersection.groups import SAFE_PRIME, SafePrime
from blindbayes_papers.kikuchi2011.set_intersection.messages import ItemsLocked
from support.two_party import coins

ITEMS = 60


def estimated(group: SafePrime, number: int) -> tuple[float, float]:
    """s_B / n_B as Alice estimates it from the frames she received, and as it is."""
    runs = local_runs(["alice", "bob"], coins=coins("run"))
    mine, theirs = ([b"item %d" % at for at in range(first, first + ITEMS)] for first in (0, 36))
    roles = {
        "alice": distorted.alice(runs["alice"], "bob", mine, coins(f"a{number}"), group=group),
        "bob": distorted.bob(runs["bob"], "alice", theirs, coins(f"b{number}"), group=group),
    }
    outcome = run_in_memory(roles, keep=Keep.FRAMES)
    assert outcome.error is None
    (sent,) = {entry.frame for entry in outcome.transcript.entries if entry.to == "alice" and entry.kind is ItemsLocked}
    elements = decode(sent, ItemsLocked).elements
    cut = [elements[at : at + group.size] for at in range(0, len(elements), group.size)]
    return kept_share(cut, group.modulus), outcome.outputs["bob"].sample_size / ITEMS


def test_the_printed_dummies_show_the_share_that_was_kept_and_ours_do_not() -> None:
    """The estimate from 60 items has a standard error of at most .13, and the coins are fixed."""
    printed = np.array([estimated(PrintedGroup(), number) for number in range(4)])
    assert np.abs(printed[:, 0] - printed[:, 1]).max() < 0.35
    assert np.corrcoef(printed.T)[0, 1] > 0.8
    ours = np.array([estimated(SAFE_PRIME, number) for number in range(2)])
    assert (ours[:, 0] == 1).all()
    assert ours[:, 1].min() < 0.9


def test_a_known_share_leaves_few_bits_about_the_size_of_the_intersection() -> None:
    """What the attack buys: the posterior of SPEC.md with and without p."""
    assert entropy(posterior(20, 100, bob_items=100)) > 5.5
    assert entropy(posterior(20, 100, keep=0.5)) < 5


@pytest.mark.parametrize("proofs", [False, True])
def test_an_alice_with_a_power_for_each_item_reads_which_of_them_bob_has(proofs: bool) -> None:
    """As SPEC.md says, and no proof of Bob's prevents it; an Alice that follows learns the number alone."""
    runs = local_runs(["alice", "bob"], coins=coins("run"))
    mine, theirs = ([b"item %d" % at for at in numbers] for numbers in ((7, 1, 9, 2, 4), (2, 3, 4, 5, 6, 7)))
    roles = {
        "alice": read_matching(runs["alice"], "bob", mine, coins("a"), proofs=proofs),
        "bob": exact.bob(runs["bob"], "alice", theirs, coins("b"), proofs=proofs),
    }
    outcome = run_in_memory(roles)
    assert outcome.error is None
    assert outcome.outputs["alice"] == (0, 3, 4)  # items 7, 2 and 4
    roles = {
        "alice": exact.alice(runs["alice"], "bob", mine, coins("a"), proofs=proofs),
        "bob": exact.bob(runs["bob"], "alice", theirs, coins("b"), proofs=proofs),
    }
    honest = run_in_memory(roles).outputs["alice"]
    assert (honest.size, honest.matching) == (3, None)


def test_of_a_thinned_set_she_reads_who_was_kept() -> None:
    runs = local_runs(["alice", "bob"], coins=coins("run"))
    mine, theirs = ([b"item %d" % at for at in range(first, first + 20)] for first in (0, 4))
    roles = {
        "alice": read_matching(runs["alice"], "bob", mine, coins("a"), thinned=True),
        "bob": distorted.bob(runs["bob"], "alice", theirs, coins("b")),
    }
    outcome = run_in_memory(roles)
    assert outcome.error is None
    kept = outcome.outputs["alice"]
    assert 0 < len(kept) < 16
    assert set(kept) <= set(range(4, 20))
