"""Attempts to refute the privacy claims: each of these once succeeded, or is the exact loss that an attacker would look for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Limits, RowStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.noise.exact_events import as_decimal, cost_ceiling
from blindbayes.dp.noise.knorm_histograms import Classwise
from blindbayes.dp.noise.mechanisms import DiscreteLaplace
from blindbayes.dp.release.planner import plan_release
from blindbayes.dp.release.release_plan import ReleasePlan
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.naive_bayes.estimator import NaiveBayes
from blindbayes.naive_bayes.private import PrivateNaiveBayes
from blindbayes.statistics import MISSING, CodedRows, Layout, count_block
from blindbayes.study import Study
from blindbayes.study.file import Privacy
from blindbayes.study.tasks.sum_plan import Sum
from support.mechanisms import fit_by
from support.sites import BOOK as SITES_BOOK
from support.sites import Office, bounded

BOOK = Codebook("y", ("a", "b"), (Categorical("c", ("u", "v")), Numeric("x", 0, 10, 1.0)), max_rows=1000)
MIXED = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Categorical("colour", ("r", "g", "b"), optional=True),
        Categorical("flag", ("n", "y")),
        Numeric("short", 0, 10, 0.5, optional=True),
        Numeric("wide", -3, 200_000, 1.0, optional=True),
        Numeric("full", 0, 300_000, 1.0),
        Numeric("binned", 0, 9, 1.0, bins=3, optional=True),
        Numeric("constant", 5, 5, 1.0),
    ),
    max_rows=10**6,
)


def frame(rows: int) -> tuple[pd.DataFrame, Any]:
    table = pd.DataFrame({"c": ["u", "v", "u"], "x": [1.0, 2.0, 9.0]})[:rows]
    return table, np.array(["a", "b", "b"])[:rows]


# -- an empty table is a neighbour of one with a single record --------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [None, "discrete_laplace"])
def test_an_empty_table_is_fitted_like_one_with_a_record(mechanism: str | None) -> None:
    """An error on the empty table alone told it from its neighbour with certainty, and without a charge."""
    models = [fit_by(mechanism, PrivateNaiveBayes(BOOK, epsilon=1.0), *frame(rows)) for rows in (0, 1)]
    empty, single = (model._record() for model in models)
    assert empty.label_kind == single.label_kind
    facts = [dict(record.privacy or {}) for record in (empty, single)]
    released = [dict(fact.pop("released", None) or {}) for fact in facts]
    for fact, own in zip(facts, released, strict=True):  # what is told of noisy numbers differs by chance
        fact.pop("reasons", None)
        fact.pop("features", None)
        own.pop("sized", None)
    assert facts[0] == facts[1]
    assert len({len(own.pop("tables", ())) for own in released}) == 1  # noisy numbers, which differ by chance
    assert released[0] == released[1]
    assert models[0].feature_names_in_.tolist() == models[1].feature_names_in_.tolist()


def test_an_empty_table_in_one_frame_too() -> None:
    for rows in (0, 1):
        table, labels = frame(rows)
        table["y"] = labels.astype(object)
        assert PrivateNaiveBayes(BOOK, epsilon=1.0).fit(table).label_kind_ == "text"


def test_without_epsilon_an_empty_table_is_still_refused() -> None:
    with pytest.raises(DataError, match="empty"):
        NaiveBayes(BOOK).fit(*frame(0))


# -- one row does not change how the others are read ------------------------------------------------------------------------


def test_one_whole_number_does_not_turn_truth_values_into_numbers() -> None:
    """A single label 1 among truth values made "1" of every "true": one row moved all counts."""
    book = Codebook("y", ("true", "false", "1"), BOOK.features, max_rows=10)
    X = pd.DataFrame({"c": ["u", "v", "u"], "x": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match="label type"):
        NaiveBayes(book).fit(X, np.array([True, True, 1], dtype=object))


OPTIONAL = Codebook(
    "y",
    ("a", "b"),
    (Categorical("k", ("1", "0", "true", "false", "1.0"), optional=True), Numeric("x", 0, 10, 1.0, optional=True)),
    max_rows=100,
    missing=("?", "0.0"),
)


@pytest.mark.parametrize(
    ("k", "x"),
    [
        ([1, 1, 1], [0.0, 0.0, "?"]),  # zeros were missing as numbers, and present beside a text
        ([Decimal("1.0"), Decimal("1.0"), "true"], [1.0, 2.0, 3.0]),  # "1" alone, "1.0" beside a text
        ([True, True, "?"], [1.0, 2.0, 3.0]),
    ],
)
@pytest.mark.parametrize("as_array", [False, True])
def test_a_private_fit_reads_columns_of_mixed_objects_value_by_value(k: list[Any], x: list[Any], as_array: bool) -> None:
    """Such a column was read as numbers or as text, by what a single row held: one row moved the counts of all. It was refused
    then, and the refusal told the table with that row from the one without."""

    def counted(rows: slice) -> Any:
        table = pd.DataFrame({"k": pd.Series(k, dtype=object), "x": pd.Series(x, dtype=object)})[rows]
        X: Any = table.to_numpy() if as_array else table
        model = PrivateNaiveBayes(OPTIONAL, epsilon=1.0).fit(X, ["a", "b", "a"][rows])
        return count_block(Layout(OPTIONAL), model._private_block(X, ["a", "b", "a"][rows], OPTIONAL))

    assert counted(slice(3)) - counted(slice(2)) == counted(slice(2, 3))


def test_truth_values_in_an_array_of_objects_are_truth_values() -> None:
    """They were "1" or "true" depending on whether any other column held a text."""
    array = np.array([[True, 1.0], [False, 2.0]], dtype=object)
    block = PrivateNaiveBayes(OPTIONAL, epsilon=1.0)._private_block(array, ["a", "b"], OPTIONAL)
    assert block.columns["k"].tolist() == [2, 3]


# -- cost and charge --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 7), 0.1, 0.3, 1e-3, 1, "0.7"])
def test_a_charge_is_never_below_the_loss(epsilon: Any) -> None:
    plan = plan_release(BOOK, epsilon=epsilon, mechanism="knorm")
    assert isinstance(plan.noise, Classwise)
    assert sum((group.epsilon for group in plan.noise.groups), Fraction(0)) == plan.epsilon <= as_decimal(plan.price.epsilon)
    noise = DistributedNoise.plan(touched=2, bounds=[1] * 4, epsilon=Fraction(epsilon), honest=2)
    assert noise.epsilon <= as_decimal(noise.price.epsilon)
    assert cost_ceiling(plan.epsilon) - float(plan.epsilon) <= math.ulp(float(plan.epsilon))


@pytest.mark.parametrize("kind", [np.float64, float])
def test_numpy_numbers_are_prices_like_any_other(kind: Any, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "ledger", epsilon=kind(0.1))
    model = PrivateNaiveBayes(BOOK, epsilon=kind(0.1), ledger=tmp_path / "ledger").fit(*frame(3))
    assert Ledger(tmp_path / "ledger").balance().basic_epsilon == Fraction(1, 10)
    with pytest.raises(PrivacyError):
        model.fit(*frame(3))


def test_a_site_whose_ledger_protects_persons_pays_for_all_their_records(tmp_path: Path) -> None:
    """The site charged without naming the unit: five records of a person then cost five times what the ledger held."""

    async def test() -> None:
        async with Office(tmp_path, ("north", "south", "west")) as office:
            study = office.net.make_study(SITES_BOOK, privacy=Privacy(epsilon=1.0))
            home = office.net.sites["north"].home
            home.ledger.path.unlink()
            Ledger.create(home.ledger.path, epsilon=10, unit="one person with at most 5 records")
            price = study.task.cost("north")
            assert price is not None
            home.ledger.pay(price, "a study", study.sha256, "ab" * 8)
            assert home.ledger.balance().basic_epsilon == 5 * price.spend.epsilon
            office.net.sites["south"].home.ledger.pay(price, "a study", study.sha256, "ab" * 8)

    bounded(test)


# -- a whole party ----------------------------------------------------------------------------------------------------------


def test_a_party_with_more_rows_than_declared_is_refused() -> None:
    X, labels = frame(3)
    big, small = X.assign(y=labels), X.assign(y=labels)[:1]

    def study(rows: int) -> Study:
        return RowStudy(
            BOOK,
            protocol="reference",
            privacy=Privacy(epsilon=1.0, unit="party", party_rows=rows, honest_fraction=1.0),
            limits=Limits(min_parties=2),
        )

    study(3).simulate({"p": big, "q": small, "r": small})
    with pytest.raises(PrivacyError, match="party_rows"):
        study(2).simulate({"p": big, "q": small, "r": small})
    with pytest.raises(PrivacyError, match="party_rows"):  # rows taken back move the sum as well
        study(2).simulate({"p": big[:2], "q": small, "r": small}, removed={"p": big[2:]})


def test_two_vectors_on_the_same_coins_do_not_share_their_noise() -> None:
    """Their difference was the exact change of the statistics; a replay from the same seed still gives the same vector."""
    X, labels = frame(3)
    study = RowStudy(BOOK, privacy=Privacy(epsilon=0.1, expected_rows=1000))
    planned = Sum.make(study, ("p", "q", "r"))
    table = X.assign(y=labels)
    more, fewer = (count_table(each, planned.counting) for each in (table, table[:2]))
    coins = Coins.seeded(bytes(32))
    first, second = (planned.contribution(each, coins).view(np.int64) for each in (more, fewer))
    assert np.abs(first - second).max() > 1
    replayed = planned.contribution(more, Coins.seeded(bytes(32))).view(np.int64)
    assert np.array_equal(first, replayed)


# -- the exact loss of every output, in rational numbers ----------------------------------------------------------------------


def rows_of(book: Codebook, count: int, rng: np.random.Generator) -> CodedRows:
    columns = {}
    for feature in book.features:
        if isinstance(feature, Categorical) or feature.bins is not None:
            codes = rng.integers(-1 if feature.optional else 0, feature.size, count)
        else:
            ends = [feature.code_low, feature.code_high, (feature.code_low + feature.code_high) // 2, feature.code_low + 1]
            codes = rng.choice(ends, count)
            if feature.optional:
                codes[rng.random(count) < 0.3] = MISSING
        columns[feature.name] = codes.astype(np.int64)
    return CodedRows(rng.integers(0, len(book.classes), count), columns, count)


def neighbours(book: Codebook, unit: int, rng: np.random.Generator) -> Iterator[tuple[CodedRows, CodedRows]]:
    """Tables with and without the `unit` first rows, which may be equal, of one class, or anything."""
    for turn in range(40):
        block = rows_of(book, unit + 3, rng)
        assert block.labels is not None
        if turn % 2:
            block.labels[:unit] = block.labels[0]
        if turn % 3 == 0:
            for codes in block.columns.values():
                codes[:unit] = codes[0]
        rest = CodedRows(block.labels[unit:], {name: codes[unit:] for name, codes in block.columns.items()}, 3)
        yield block, rest


def nearest(value: int, step: int, bound: int) -> int:
    return (2 * value * step + bound) // (2 * bound)


def largest_loss(plan: ReleasePlan, one: list[Any], other: list[Any]) -> Fraction:
    """max over outputs of the log-ratio: reached at an output on the side of one table, as both laws fall with a norm."""
    loss = Fraction(0)
    if isinstance(plan.noise, Classwise):
        for group in plan.noise.groups:
            for label in range(len(plan.declared.classes)):
                norm = 0
                for index in group.parts:
                    pair = list(zip(one[index][label].tolist(), other[index][label].tolist(), strict=True))
                    if plan.noise.parts[index].number:
                        (left, right), bound = pair[0], plan.items[index].bound
                        norm = max(norm, abs(nearest(left, group.step, bound) - nearest(right, group.step, bound)))
                    else:
                        moved = sorted((left - right) * group.step for left, right in pair)
                        norm = max(norm, sum(abs(each - moved[len(moved) // 2]) for each in moved))
                loss += group.rate * norm
        return loss
    assert isinstance(plan.noise, DiscreteLaplace)
    step = plan.noise.step
    for item, left, right, scale in zip(plan.items, one, other, plan.noise.scales, strict=True):
        for value, without in zip(left.ravel().tolist(), right.ravel().tolist(), strict=True):
            loss += abs(nearest(value, step, item.bound) - nearest(without, step, item.bound)) / scale
    return loss


@pytest.mark.parametrize("mechanism", ["knorm", "discrete_laplace"])
@pytest.mark.parametrize("unit", [1, 3])
@pytest.mark.parametrize("rows", [400, 10**6])
def test_no_output_tells_neighbours_apart_by_more_than_epsilon(mechanism: str, unit: int, rows: int) -> None:
    """Missing values, moments on a grid, several classes of one person: the worst output costs epsilon, no more, no less."""
    plan = plan_release(MIXED, epsilon=3.0, rows=rows, rows_per_unit=unit, mechanism=mechanism)
    assert {"cells", "moments"} <= {cut.kind for cut in plan.encodings}
    layout, rng = Layout(plan.codebook), np.random.default_rng(5)
    losses = [
        largest_loss(plan, plan.tables(count_block(layout, block)), plan.tables(count_block(layout, rest)))
        for block, rest in neighbours(plan.codebook, unit, rng)
    ]
    assert Fraction(99, 100) * plan.epsilon < max(losses) <= plan.epsilon


def test_epsilon_of_nothing_is_refused() -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf, np.float64(0)):
        with pytest.raises(ConfigError):
            PrivateNaiveBayes(BOOK, epsilon=epsilon).fit(*frame(3))
