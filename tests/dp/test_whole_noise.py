"""Noise that every party brings whole: what is added, what one row moves, how far it reaches, and when it is taken."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blindbayes import Limits, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.noise.knorm_histograms import Classwise, ReleasePart
from blindbayes.errors import ConfigError
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.study.tasks.sum_plan import Sum

BOOK = Codebook(
    "c",
    ("a", "b"),
    (Categorical("x", ("u", "v")), Categorical("y", ("u", "v", "w"), optional=True), Categorical("z", ("p", "q", "r"))),
    max_rows=1000,
)


def planned(parties: int = 2, honest: int = 1, book: Codebook = BOOK, **more: object) -> NoisySum:
    return NoisySum.make(book, epsilon=1.0, honest=honest, parties=parties, rows=400, **more)  # type: ignore[arg-type]


def whole(plan: NoisySum) -> WholeNoise:
    assert isinstance(plan.noise, WholeNoise)
    return plan.noise


def row(label: int, *codes: int) -> CodedRows:
    columns = {name: np.array([code]) for name, code in zip(BOOK.names, codes, strict=True)}
    return CodedRows(np.array([label]), columns, 1)


def counted(plan: NoisySum, *rows: CodedRows) -> Statistics:
    total = Statistics.zero(plan.codebook)
    for each in rows:
        total = total + count_block(Layout(plan.codebook), each)
    return total


def test_the_vector_of_one_party_is_a_central_release_of_its_counts() -> None:
    """The same coins give the same noisy tables, so that what is proved and audited of one holds for the other."""
    plan, seed = planned(), bytes(range(32))
    own = counted(plan, *(row(at % 2, at % 2, at % 4 - 1, at % 3) for at in range(50)))
    vector = plan.vector(own) + whole(plan).share(Coins.seeded(seed))
    central = plan.tables.release(own, Coins.seeded(seed)).tables
    for mine, theirs in zip(whole(plan).tables(vector), central, strict=True):
        assert np.allclose(mine, theirs, rtol=0, atol=1e-12)


def test_one_row_moves_one_class_by_a_step_of_the_norm_and_some_row_does() -> None:
    plan = planned()
    noise, zero = whole(plan), plan.vector(counted(plan))
    largest = [0.0] * len(noise.blocks)
    for label, *codes in product((0, 1), (0, 1), (-1, 0, 1, 2), (0, 1, 2)):
        moved, at = plan.vector(counted(plan, row(label, *codes))) - zero, 0
        for index, block in enumerate(noise.blocks):
            words = moved[at : at + 2 * block.columns].reshape(2, block.columns)
            at += words.size
            assert not words[1 - label].any()
            points = words[label] if block.number else np.append(words[label], 0)  # a representative of the coset
            norm = abs(points[0]) if block.number else np.abs(points - np.sort(points)[(len(points) - 1) // 2]).sum()
            largest[index] = max(largest[index], float(norm / block.step))
    assert largest == [1.0] * len(noise.blocks)


@pytest.mark.parametrize("sizes", [(2,), (3,), (4, 2)])
def test_the_tail_bounds_the_exact_law(sizes: tuple[int, ...]) -> None:
    """The norm of the law by counting the points of every norm: P(norm > tail(p)) is at most p, and not by far less."""
    parts = tuple(ReleasePart(f"x{size}", size) for size in sizes)
    noise = WholeNoise(Classwise(parts, Fraction(1)), 1, "record")
    group = noise.law_of_one.groups[-1]
    rate, reach = float(group.rate), round(400 / float(group.rate))
    radius = np.arange(reach)

    def points(size: int) -> np.ndarray:
        """Points of norm at most k: `low` coordinates below the lower median, `high` above it."""
        below, total = -(-size // 2) - 1, np.zeros(reach)
        for low, high in product(range(below + 1), range(size - below)):
            ways = math.factorial(size) / math.factorial(low) / math.factorial(high) / math.factorial(size - low - high)
            falling = np.ones(reach)
            for at in range(low + high):
                falling *= np.maximum(radius - at, 0) / (at + 1)
            total += ways * falling
        return total

    log = sum(np.log(points(noise.law_of_one.parts[at].size)) for at in group.parts)
    ball = np.exp(log - rate * radius - (log - rate * radius).max())
    mass = ball - np.concatenate([[0.0], ball[:-1]]) * math.exp(-rate)  # e^-rk (|B_k| - |B_(k-1)|)
    for chance in (1e-3, 1e-9):
        bound = noise.tail(chance, 1, group.parts[0])
        assert mass[bound + 1 :].sum() <= chance * mass.sum()
        assert mass[round(bound / 2) :].sum() > chance**2 * mass.sum()


def test_a_unit_of_several_rows_and_several_parties_widen_the_noise() -> None:
    plan = planned(unit=PrivacyUnit("person", 3))
    noise = whole(plan)
    assert (noise.reach, noise.protects) == (3, "one person with at most 3 records")
    assert noise.price.unit == noise.protects
    one, four = noise.deviations(1), noise.deviations(4)
    assert four == pytest.approx([2 * value for value in one])
    with pytest.raises(ConfigError, match="same unit"):
        WholeNoise.plan(replace(plan.tables, rows_per_unit=1), PrivacyUnit("person", 3))


def test_the_noise_of_an_opened_sum_has_the_stated_deviation() -> None:
    plan = planned(parties=3, honest=2)
    noise, tries = whole(plan), 1500
    drawn = np.sum([noise.repeated(tries).share(Coins.seeded(bytes([at]) * 32)).reshape(tries, -1) for at in range(3)], axis=0)
    tables = [noise.tables(words) for words in drawn]
    for at, deviation in enumerate(noise.deviations(3)):
        measured = np.array([table[at] for table in tables]).std()
        assert measured == pytest.approx(deviation, rel=0.08)


def test_the_kind_of_noise_with_less_of_it_is_taken() -> None:
    """Shares cost what their honest parties lack: less and less with more parties. Whole noise grows with their number."""
    assert isinstance(planned(2, 1).noise, WholeNoise)
    assert isinstance(planned(3, 2).noise, WholeNoise)
    assert isinstance(planned(30, 25).noise, DistributedNoise)
    assert isinstance(planned(2, 1, law=DistributedNoise).noise, DistributedNoise)
    two, hidden = (
        Sum.make(RowStudy(BOOK, privacy=Privacy(epsilon=1.0), limits=Limits(min_parties=2, min_cell=least)), ("a", "b")).noise
        for least in (0, 5)
    )
    assert isinstance(two, WholeNoise)
    assert isinstance(hidden, DistributedNoise)  # centred histograms have no small counts
    ages = Codebook("c", ("a", "b"), tuple(Numeric(f"x{at}", 0, 100) for at in range(3)), max_rows=10**6)
    fine = NoisySum.make(ages, epsilon=8.0, honest=2, parties=3, rows=10**5)
    assert isinstance(fine.noise, DistributedNoise)  # of many cells a K-norm has hardly less noise than shares


def test_a_total_with_whole_noise_is_no_base_of_a_sum_in_shares(tmp_path: Path) -> None:
    """Their words mean different things. It is refused before anybody pays."""
    rows = pd.DataFrame({"x": ["u", "v"] * 40, "y": ["u", "v", "v", "w"] * 20, "z": ["p", "q", "r", "r"] * 20})
    rows["c"] = ["a", "b", "b", "b"] * 20
    study = RowStudy(BOOK, privacy=Privacy(epsilon=1.0), limits=Limits(min_parties=2))
    few, many = ("p0", "p1"), tuple(f"p{at}" for at in range(12))
    base = study.simulate(dict.fromkeys(few, rows))
    ledgers = {name: tmp_path / name for name in many}
    for path in ledgers.values():
        Ledger.create(path, epsilon=5)
    assert isinstance(Sum.make(study, many).noise, DistributedNoise)
    with pytest.raises(ConfigError, match="planned otherwise"):
        study.simulate(dict.fromkeys(many, rows), base=base, ledgers=ledgers)
    assert not any(Ledger(path).balance().spent_epsilon for path in ledgers.values())
    assert study.simulate(dict.fromkeys(few, rows), base=base).runs == 2
