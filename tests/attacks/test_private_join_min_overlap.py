"""A party that wants to pass `min_overlap` with a list of one person.

The number of matches lay in additive shares, so either party passed any minimum by adding to its own. It is now the output of
the circuit that finds the matches.
"""

import sys

import numpy as np
import pandas as pd
import pytest

from blindbayes import JoinStudy
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Garbler, Plain
from blindbayes.crypto.psi import cuckoo, okvs, oprf
from blindbayes.errors import IntegrityError, PeerProtocolError, PrivacyError
from blindbayes.protocols.private_join.sums import counts
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.two_party import garbled
from support.two_party import coins

TELECOM = pd.DataFrame({"id": [f"p{at}" for at in range(100)], "plan": ["s", "m"] * 50})
BANK = pd.DataFrame({"id": ["p7"], "own": ["0"], "y": ["yes"]})
BOOK = Codebook("y", ("no", "yes"), (Categorical("plan", ("s", "m")), Categorical("own", ("0", "1"))))


def train(**options):
    study = JoinStudy(BOOK, key="id", duplicates="first", options={"min_overlap": 10, **options})
    return study.simulate({"bank": BANK, "telecom": TELECOM}, coins=coins("train"))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 64, 100, 257])
def test_the_circuit_counts_ones(count):
    bits = np.frombuffer(coins(f"ones {count}").bytes(count), dtype=np.uint8) & 1
    gates = Plain()
    assert c.from_bits(c.count_ones(gates, bits)) == [int(bits.sum())]
    assert gates.and_count == count - count.bit_count()


@pytest.mark.parametrize("reveal", ["nothing", "matching"])
def test_a_list_of_one_does_not_pass(reveal):
    """Nor where both learn whom they share: there min_overlap was refused, and a model of one person told its class at once."""
    with pytest.raises(PrivacyError, match="fewer than 10"):
        train(reveal=reveal)


@pytest.mark.parametrize("liar", ["row holder", "label holder"])
def test_nobody_can_add_to_the_count(liar, monkeypatch):
    """The label holder has one label per bit, and a made-up one is noticed; more gates than the circuit has are, too."""
    genuine = counts.Count.add

    def lying(self, g, equal):
        genuine(self, g, equal)
        if liar == "row holder" and isinstance(g, Garbler):
            self.wires = c.add(g, self.wires, c.public(g, 10, len(self.wires), 1), bits=len(self.wires))
        if liar == "label holder" and not isinstance(g, Garbler):
            self.wires = self.wires ^ np.uint64(10)

    monkeypatch.setattr(counts.Count, "add", lying)
    with pytest.raises((IntegrityError, PeerProtocolError)):
        train()


@pytest.fixture
def told(monkeypatch):
    """What either party took for true about the minimum."""
    heard, read = [], counts._require_enough
    monkeypatch.setattr(counts, "_require_enough", lambda enough, least: heard.append(enough) or read(enough, least))
    return heard


def flip(monkeypatch, liar):
    """Whoever garbles may take wires for their opposites, for free, which no evaluator sees: 1 becomes 9 becomes 11."""
    genuine = joined_sums.row_holder

    def lying(run, other, shape, entries, transfers, source, *known):
        share = yield from genuine(run, other, shape, entries, transfers, source, *known)
        if run.me == liar:
            share.matches.wires[3] ^= transfers[0].delta
            share.matches.wires[1] ^= transfers[0].delta
        return share

    monkeypatch.setattr("blindbayes.protocols.private_join.sums.roles.row_holder", lying)


JOINS = {"inner, columns on both sides": {}, "left": {"join": "left"}}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("liar", ["telecom", "bank"])
def test_whoever_garbles_another_count_is_caught_before_anything_is_opened(liar, join, told, monkeypatch):
    flip(monkeypatch, liar)
    with pytest.raises(IntegrityError):
        train(**JOINS[join])
    assert told == []


@pytest.mark.parametrize("join", JOINS)
def test_whoever_garbles_another_estimate_is_caught_before_it_is_opened(join, monkeypatch):
    """In place of the noisy number it would have read as many bits of the other's list as the number has."""
    flip(monkeypatch, "telecom")
    with pytest.raises(IntegrityError):
        train(min_overlap=0, overlap_epsilon=1.0, **JOINS[join])


def test_without_the_comparison_of_both_counts_the_lie_is_believed(told, monkeypatch):
    flip(monkeypatch, "telecom")
    monkeypatch.setattr(garbled, "_proofs", lambda *given: (bytes(32), bytes(32)))
    with pytest.raises(PrivacyError, match="fewer than 10"):
        train(join="left")
    assert sorted(told) in ([False, True], [True])


@pytest.mark.parametrize("join", JOINS)
def test_one_person_asked_for_in_three_bins_counts_for_nothing(join, monkeypatch):
    genuine = joined_sums._placed

    def thrice(session, shape, entries, source):
        items, table = genuine(session, shape, entries, source)
        if len(entries) == 100:  # the telecom: each in all three bins
            items[cuckoo.bins_of(session, entries.items, shape.bins).reshape(-1)] = np.repeat(entries.items, 3, axis=0)
        return items, table

    monkeypatch.setattr(joined_sums, "_placed", thrice)
    with pytest.raises(PrivacyError, match="fewer than 10"):
        train(**JOINS[join])
    with pytest.raises(IntegrityError):  # the other count says 1
        train(min_overlap=2, **JOINS[join])


@pytest.fixture(params=["telecom", "bank"])
def other_shares(request, monkeypatch):
    """A party that takes twenty bins, in which nobody is, for matches: it turns its shares of them around."""
    by = {"telecom": "send_equal", "bank": "choose_equal"}[request.param]
    genuine = getattr(joined_sums, by)

    def turned(*given):
        shares = yield from genuine(*given)
        shares[:20] ^= 1
        return shares

    monkeypatch.setattr(joined_sums, by, turned)
    return request.param


@pytest.mark.parametrize("least", [0, 10])
def test_whoever_turns_its_shares_of_matches_around_is_caught(other_shares, least, told):
    """Neither knows the other's tag of a bin where nothing matches."""
    with pytest.raises(IntegrityError):
        train(join="left", min_overlap=least)
    assert told == []


def test_without_the_comparison_of_tags_the_made_up_matches_are_believed(other_shares, told, monkeypatch):
    def silent(*given):
        return None
        yield

    for name in ("ask_equality", "answer_equality"):
        monkeypatch.setattr(joined_sums, name, silent)
    train(join="left")
    assert told == [True, True]


@pytest.mark.parametrize("bound", [True, False], ids=["now", "before"])
def test_an_owner_whose_key_is_zeros_does_not_match_with_everybody(bound, monkeypatch):
    """Then the oblivious function has one value per bin, whatever the item; the label holder takes that for its tag, sends an
    empty store and had every row of the other's table in its sums."""
    seen, answer = [], oprf.Owner.answer
    begin = oprf.Owner.__init__

    def zeros(self, session, bits, seeds):
        begin(self, session, np.zeros_like(bits), seeds)

    def watched(self, *given):
        seen.append((self._session, answer(self, *given)))
        return seen[-1][1]

    def fill(name, shape, entries, owner, rows, secret, source):
        nothing = np.zeros((shape.bins, 2), dtype=np.uint64)
        secret[:] = oprf.hashed(seen[0][0], rows, joined_sums.bound(nothing, np.arange(shape.bins)), shape.payload_words)
        return np.zeros((okvs.cells(shape.keys), shape.payload_words), dtype=np.uint64)

    monkeypatch.setattr(oprf.Owner, "__init__", zeros)
    monkeypatch.setattr(oprf.Owner, "answer", watched)
    monkeypatch.setattr(joined_sums, "_fill", fill)
    monkeypatch.setattr(joined_sums.Coins, "bit_rows", no_choices(joined_sums.Coins.bit_rows))
    if not bound:
        monkeypatch.setattr(joined_sums, "bound", lambda items, bins: bins)
        train(join="left", min_overlap=0)
    else:
        with pytest.raises(PrivacyError, match="fewer than 10"):
            train(join="left")


def no_choices(genuine):
    """Return `bit_rows` with zeros for the label holder's row of choices; other rows are drawn elsewhere."""

    def bits_of(self, rows, columns):
        drawn_here = sys._getframe(1).f_globals["__name__"].startswith(joined_sums.__name__)
        drawn = genuine(self, rows, columns)
        return np.zeros_like(drawn) if drawn_here and (rows, columns) == (1, oprf.WIDTH) else drawn

    return bits_of


@pytest.mark.parametrize("shift", [-50, 1, 10**6])
def test_whatever_a_party_adds_to_its_noise_only_moves_the_estimate(shift, monkeypatch):
    genuine, calls = counts.noise_bits, []

    def shifted(noise, bits):
        calls.append(1)
        return genuine(noise + (shift if len(calls) == 1 else 0), bits)

    honest = train(min_overlap=0, overlap_epsilon=1e-4).overlaps["telecom"]
    monkeypatch.setattr(counts, "noise_bits", shifted)
    assert train(min_overlap=0, overlap_epsilon=1e-4).overlaps["telecom"] == honest + shift
    monkeypatch.setattr(counts, "noise_bits", genuine)
    with pytest.raises(PrivacyError, match="fewer than 10"):
        train(overlap_epsilon=1e-4)
