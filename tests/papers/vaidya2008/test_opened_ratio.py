"""opened_ratio: probabilities exact to their bits, opened as coarsely as the study says, counts never."""

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import blindbayes_papers.vaidya2008.opened_ratio as package
from blindbayes import Limits, RowStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, PrivacyError, ProtocolError
from blindbayes.protocols.memory import Drop, Replace, Tamper, local_runs, run_in_memory
from blindbayes.protocols.shared_rows.messages import MaskSent, VectorMasked
from blindbayes.protocols.two_party import garbled
from blindbayes.statistics import CodedRows, Layout, count_block
from blindbayes.statistics.parameters import estimate
from blindbayes.wire.transcript import Keep
from blindbayes_papers.vaidya2008.opened_ratio.messages import RatiosGarbled, RatiosTold
from blindbayes_papers.vaidya2008.opened_ratio.roles import (
    PrivateRatioSetup,
    coarse_bits,
    contributor,
    first_party,
    plain_ratios,
    second_party,
)
from support.shared_rows import MIXED, NAMES, mixed
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])
BOOK = Codebook("y", ("a", "b", "c"), (Categorical("v", ("0", "1")), Numeric("x", 0, 9, bins=3, optional=True)), max_rows=10**6)


def vectors(rows=60, names=NAMES, book=BOOK):
    rng = np.random.default_rng(4)
    found, total = {}, None
    for name in names:
        block = CodedRows(rng.integers(0, 3, rows), {"v": rng.integers(0, 2, rows), "x": rng.integers(-1, 3, rows)}, rows)
        statistics = count_block(Layout(book), block)
        found[name] = statistics.words
        total = statistics if total is None else total + statistics
    return found, total


def roles(ratios, own, names=NAMES, seed=""):
    runs = local_runs(names, coins=coins("run"))
    made = {name: contributor(runs[name], ratios, own[name], names[0], names[-1], coins(name + seed)) for name in names[1:-1]}
    made[names[0]] = first_party(runs[names[0]], ratios, own[names[0]], names[-1], coins("first" + seed))
    made[names[-1]] = second_party(runs[names[-1]], ratios, own[names[-1]], names[0], coins("last" + seed))
    return made


def expected(total, fraction, alpha=1.0):
    """floor(2^f p) of every cell, in the layout's order, in exact arithmetic."""
    a = Fraction(alpha)
    counts = [int(value) for value in total.class_counts]
    found = [(value << fraction) // sum(counts) for value in counts]
    for table in total.counts.values():
        for row in table:
            whole = sum(int(value) for value in row) + a * len(row)
            found.extend(int((int(value) + a) * 2**fraction / whole) for value in row)
    return found


# -- opened -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [5, 16])
def test_means_and_deviations_are_opened_to_their_bits(fraction):
    _, own, total = mixed()
    ratios = PrivateRatioSetup(MIXED, "fine", fraction)
    outcome = run_in_memory(roles(ratios, {name: ratios.vector(each) for name, each in own.items()}))
    found = np.array(outcome.outputs["north"][-12:], dtype=float).reshape(4, 3) / 2**fraction
    plain = estimate(total)
    for at, name in ((0, "z"), (2, "w")):
        feature, term = MIXED.feature(name), plain.terms[name]
        width = feature.high - feature.low
        for opened, exact in (
            (found[at], (term.mean - feature.low) / width),
            (found[at + 1], 2 * np.sqrt(term.variance) / width),
        ):
            assert ((opened <= exact + 1e-9) & (exact < opened + 2.0**-fraction + 1e-9)).all(), name


def test_noisy_sums_outside_what_values_can_have_are_held_to_it():
    """A sum above n times the width counts as that; a square below what the sum asks for gives deviation 0; and so on."""
    ratios = PrivateRatioSetup(MIXED, "noisy", 10, noise_bound=1000)
    at = {group.kind + group.feature.name: group.start for group in ratios.layout.groups if group.feature is not None}
    _, _, total = mixed()
    words = ratios.vector(total)
    for changed, lane, value in (
        ({at["sumz"]: 10**6}, -12, 1 << 10),  # mean: at the top
        ({at["sumz"]: -(10**4)}, -12, 0),
        ({at["squarez"]: 0}, -9, 0),  # deviation
        ({at["squarez"]: 10**7}, -9, 1 << 10),
    ):
        own = words.copy()
        for place, number in changed.items():
            own[place] = np.array(number, dtype=np.int64).view(np.uint64)
        assert plain_ratios(own, ratios)[0][lane] == value


@pytest.mark.parametrize("alpha", [1.0, 0.5, 3.0])
def test_coarse_probabilities_are_opened_to_everybody(alpha):
    own, total = vectors(rows=120)
    smallest = min(int(table.sum(axis=1).min()) for table in total.counts.values())
    ratios = PrivateRatioSetup(BOOK, "coarse", fraction=coarse_bits(64), minimum=64, alpha=alpha)
    assert smallest >= 64
    outcome = run_in_memory(roles(ratios, own))
    for name in NAMES:
        assert outcome.outputs[name] == expected(total, ratios.fraction, alpha)
        assert list(outcome.opened[name]) == SPEC["opened"]
    assert outcome.cost.messages == eval(SPEC["messages"], {}, {"n": len(NAMES)})
    assert outcome.cost.rounds == eval(SPEC["rounds"], {}, {"n": len(NAMES)})


def test_a_class_below_the_minimum_stops_everything():
    own, total = vectors(rows=10)
    minimum = int(total.class_counts.min()) + 1
    for reached in (minimum - 1, minimum):
        ratios = PrivateRatioSetup(BOOK, "fine", fraction=8, minimum=reached)
        outcome = run_in_memory(roles(ratios, own), check=False)
        if reached == minimum:
            assert isinstance(outcome.error, PrivacyError)
            assert all("probabilities_and_counts" not in opened for opened in outcome.opened.values())
        else:
            assert outcome.error is None
            assert outcome.outputs["north"] == expected(total, 8)


def test_openings_that_would_open_the_counts_are_refused_unless_chosen():
    assert [coarse_bits(minimum) for minimum in (0, 1, 8, 15, 16, 1000, 1024)] == [0, 0, 1, 1, 2, 7, 8]
    with pytest.raises(PrivacyError, match="open the counts"):
        PrivateRatioSetup(BOOK, "coarse", fraction=9, minimum=1024)
    assert PrivateRatioSetup(BOOK, "fine", fraction=16).label == "probabilities_and_counts"
    with pytest.raises(ConfigError, match="62 bits"):
        PrivateRatioSetup(Codebook("y", ("a", "b"), (Numeric("x", 0, 10**6, 0.1),), max_rows=10**8), "fine")
    with pytest.raises(ConfigError):
        PrivateRatioSetup(BOOK, "fine", fraction=60)
    with pytest.raises(ConfigError):
        PrivateRatioSetup(BOOK, "fine", alpha=0)


def candidates(opened, fraction, cells, largest):
    """Class sizes n for which counts exist that give all the opened probabilities of one feature of one class."""
    found = []
    for n in range(1, largest):
        whole = n + cells
        counts = []
        for value in opened:
            low = -(-value * whole // 2**fraction) - 1  # smallest c with floor(2^f (c + 1) / whole) = value
            counts.append([c for c in (low, low + 1) if c >= 0 and ((c + 1) << fraction) // whole == value])
        if all(counts):
            sums = {0}
            for options in counts:
                sums = {total + option for total in sums for option in options}
            if n in sums:
                found.append(n)
    return found


def test_why_fine_probabilities_open_the_counts():
    """Four probabilities of a class of 200 to 300 rows: at 16 bits n is all but fixed; at the coarse width many n fit."""
    counts = [97, 41, 63, 52]
    n = sum(counts)
    fine = [((count + 1) << 16) // (n + 4) for count in counts]
    assert n in candidates(fine, 16, 4, 400)
    assert len(candidates(fine, 16, 4, 400)) <= 3
    coarse = [((count + 1) << coarse_bits(n)) // (n + 4) for count in counts]
    assert len(candidates(coarse, coarse_bits(n), 4, 400)) > 50


def test_noisy_counts_below_zero_count_as_zero():
    own, total = vectors()
    noise = np.zeros(total.layout.size, dtype=np.int64)
    noise[3] = -(10**5)  # a cell far below zero
    own["north"] = own["north"] + noise.view(np.uint64)
    ratios = PrivateRatioSetup(BOOK, "noisy", fraction=12)
    outcome = run_in_memory(roles(ratios, own))
    assert outcome.opened["south"] == ("minimum_reached", "noisy_probabilities")
    whole = sum((words for words in own.values()), np.zeros_like(own["first"]))
    assert outcome.outputs["south"] == plain_ratios(whole, ratios)[0]
    row = [0, int(total.counts["v"][0][1])]
    assert outcome.outputs["south"][3:5] == [((count + 1) << 12) // (sum(row) + 2) for count in row]


def test_vectors_do_not_stand_in_the_transcript_and_masks_are_fresh():
    own, _ = vectors(rows=5000)
    outcome = run_in_memory(roles(PrivateRatioSetup(BOOK, "fine"), own), keep=Keep.FRAMES)
    secrets = [int(word).to_bytes(8, "little") for vector in own.values() for word in vector if word > 2**8]
    for entry in outcome.transcript.entries:
        if entry.kind in (MaskSent, VectorMasked):
            assert not any(secret in entry.frame for secret in secrets)
    sent = [entry.frame for entry in outcome.transcript.entries if entry.kind is MaskSent]
    assert len(set(sent)) == len(sent) == 2


def test_broken_messages_end_in_a_typed_error():
    own, _ = vectors(rows=20)
    ratios = PrivateRatioSetup(BOOK, "fine", fraction=6)
    count = run_in_memory(roles(ratios, own)).cost.messages
    for index in range(count):
        for fault in (Drop(index), Tamper(index, lambda frame: frame[:-9])):
            outcome = run_in_memory(roles(ratios, own), faults=[fault], check=False)
            assert isinstance(outcome.error, ProtocolError) or outcome.lost
    for kind, change in (
        (MaskSent, lambda m: MaskSent(m.key[:-1])),
        (VectorMasked, lambda m: VectorMasked(m.vector[:-1])),
        (RatiosGarbled, lambda m: RatiosGarbled(m.mark, m.tables[:-4], m.tags, m.last)),
        (RatiosTold, lambda m: RatiosTold(m.ratios[:-1])),
        (RatiosTold, lambda m: RatiosTold(m.ratios + np.uint64(1 << 63))),
    ):
        with pytest.raises(ProtocolError):
            run_in_memory(roles(ratios, own), faults=[Replace(lambda e, kind=kind: e.kind is kind, change)])
    spoil = Replace(lambda e: e.kind is RatiosGarbled, lambda m: RatiosGarbled(m.mark, m.tables ^ np.uint64(2), m.tags, m.last))
    with pytest.raises(IntegrityError):
        run_in_memory(roles(ratios, own), faults=[spoil])


def test_large_tables_travel_in_pieces(monkeypatch):
    own, total = vectors(rows=20)
    ratios = PrivateRatioSetup(BOOK, "fine", fraction=6)
    whole = run_in_memory(roles(ratios, own))
    monkeypatch.setattr(garbled, "PIECE_WORDS", 1000)
    cut = run_in_memory(roles(ratios, own))
    assert cut.outputs["north"] == whole.outputs["north"] == expected(total, 6)
    assert cut.cost.messages > whole.cost.messages


def test_own_mistakes_are_local_errors():
    own, _ = vectors()
    own["first"] = own["first"][:-1]
    with pytest.raises(LocalProtocolError):
        run_in_memory(roles(PrivateRatioSetup(BOOK, "fine"), own))


# -- over tables -----------------------------------------------------------------------------------------------------------


def tables(parties=3, rows=300):
    rng = np.random.default_rng(8)
    frames = {}
    for at in range(parties):
        label = rng.choice(["a", "b", "c"], rows)
        value = np.where(rng.random(rows) < 0.8, (label == "b").astype(int), rng.integers(0, 2, rows))
        frames[f"p{at}"] = pd.DataFrame({"v": value.astype(str), "x": rng.integers(0, 10, rows), "y": label})
    return frames


def simulate(frames, *, coins=None, **options):
    return RowStudy(BOOK, protocol="opened_ratio", options=options, limits=Limits(min_parties=2)).simulate(frames, coins=coins)


def test_coarse_probabilities_over_tables_and_what_the_statement_says():
    frames = tables()
    result = simulate(frames, opening="coarse", fraction=coarse_bits(256), minimum=256, coins=coins("t"))
    assert result.model.parameters_.terms["v"].log_prob.shape == (3, 2)
    assert {leak.opened for leak in result.leakage.values()} == {("minimum_reached", "probabilities")}
    fine = simulate(frames, opening="fine", fraction=16, coins=coins("t"))
    assert "opens the counts" in fine.statement
    assert "opens the counts" not in result.statement
    with pytest.raises(PrivacyError, match="third party"):
        simulate(tables(2), opening="fine", fraction=16)
    with pytest.raises(PrivacyError, match="minimum"):
        simulate(frames, opening="coarse", fraction=5, minimum=10**4)
