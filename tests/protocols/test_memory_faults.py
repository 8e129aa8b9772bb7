"""Faults at message after message, over every rows protocol: a typed error that names a party of the run, or the right sum.

What each protocol does in detail stands in its own tests; this suite holds all of them, and any that is added, to one rule.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from blindbayes.errors import PeerLost, PeerProtocolError, ProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.memory import Drop, Duplicate, Fault, Outcome, Swap, Tamper, Vanish
from blindbayes.wire.transcript import Keep
from support.sums import names, pooled, random_vectors, run_sum

READY = [name for name in registry.known() if hasattr(importlib.import_module(registry.known()[name]), "PROTOCOL")]
SITES = names(4)
VECTORS = {name: words % np.uint64(100) for name, words in random_vectors(SITES, 2).items()}
HEAVY = ("chain_sum", "oblivious_sum")
FEW = 3  # messages or moments looked at in protocols with big integers; of the others all (up to 200)
CLEAN: dict[str, Outcome] = {}


def run(protocol: str, *faults: Fault) -> Outcome:
    return run_sum(protocol, VECTORS, bound=1000, faults=faults, keep=Keep.FRAMES, check=False)


def clean(protocol: str) -> Outcome:
    if protocol not in CLEAN:
        CLEAN[protocol] = run(protocol)
    return CLEAN[protocol]


def spread(count: int, protocol: str) -> list[int]:
    most = FEW if protocol in HEAVY else 200
    return sorted({round(at * (count - 1) / (most - 1)) for at in range(most)}) if count > most else list(range(count))


def require_rule(protocol: str, outcome: Outcome, gone: str | None = None) -> None:
    """Whoever has a total has the right one; whoever failed names a party of the run; nobody else opened anything."""
    roster = set(registry.load(protocol).roster(registry.SumSetup(SITES, 2, bound=1000)))
    totals = {name: value for name, value in outcome.outputs.items() if value is not None}
    for total in totals.values():
        assert np.array_equal(total.words, pooled(VECTORS, total.included))
    if outcome.error is None:
        learners = registry.load(protocol).learners(registry.SumSetup(SITES, 2, bound=1000))
        assert totals or gone in learners
    else:
        assert isinstance(outcome.error, ProtocolError)
        assert outcome.error.party in roster


@pytest.mark.parametrize("protocol", READY)
def test_a_cut_frame_or_one_of_another_kind_names_its_sender(protocol: str) -> None:
    entries = clean(protocol).transcript.entries
    for index in spread(len(entries), protocol):
        entry = entries[index]
        other = next(each.frame or b"" for each in entries if each.kind is not entry.kind)
        for change in (lambda frame: frame[:-1], lambda frame, other=other: other, lambda frame: b""):
            outcome = run(protocol, Tamper(index, change))
            assert isinstance(outcome.error, PeerProtocolError), (entry.kind.__name__, index)
            assert outcome.error.party == entry.sender
            require_rule(protocol, outcome)


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        pytest.param(protocol, kind, marks=[pytest.mark.slow] if protocol in HEAVY and kind is not Drop else [])
        for protocol in READY
        for kind in (Drop, Duplicate, Swap)
    ],
)
def test_a_message_lost_doubled_or_late_breaks_no_rule(protocol: str, kind: Any) -> None:
    entries = clean(protocol).transcript.entries
    for index in spread(len(entries), protocol):
        outcome = run(protocol, kind(index))
        require_rule(protocol, outcome)
        if kind is Drop:
            assert isinstance(outcome.error, PeerLost | PeerProtocolError), (entries[index].kind.__name__, index)
            assert outcome.error.party in (entries[index].sender, entries[index].to)


@pytest.mark.parametrize("protocol", READY)
def test_whoever_vanishes_is_named_and_opens_nothing(protocol: str) -> None:
    """Without a quorum: everybody must stay to the end of what the others need."""
    for name, cost in clean(protocol).cost.parties.items():
        if protocol in HEAVY and name in SITES[1:]:
            continue
        for before in spread(cost.effects, protocol):
            outcome = run(protocol, Vanish(name, before))
            require_rule(protocol, outcome, gone=name)
            if outcome.error is not None:
                assert isinstance(outcome.error, PeerLost)
                assert outcome.error.party == name
