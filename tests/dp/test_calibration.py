"""The small table of the chosen model: what a row moves, and probabilities that mean something."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from audits.releases import audit_calibration, spent_by
from blindbayes import Categorical, Codebook, Numeric, PrivateNaiveBayes
from blindbayes.codebook import Feature
from blindbayes.crypto.coins import Coins
from blindbayes.dp.release.calibration import AnswerTable, CalibrationTable
from blindbayes.dp.release.evidence import to_one
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.dp.release.stumps import lean
from blindbayes.statistics import CodedRows
from blindbayes.statistics.parameters import Histogram, Parameters

COINS = Coins.seeded(b"\x0d" * 32)
BOOK = Codebook("y", ("a", "b"), (Numeric("x", 0, 100, optional=True), Categorical("u", ("p", "q", "r"))), max_rows=10**6)
PLAN = plan_fit(BOOK, epsilon=1, rows=100)
TABLE = CalibrationTable(Fraction(1), 1)


def some_rows(count: int, seed: int = 1) -> CodedRows:
    rng = np.random.default_rng(seed)
    columns = {each.name: rng.integers(-1 if each.optional else 0, each.size, count) for each in PLAN.codebook.features}
    labels = (columns["x"] > 50).astype(np.int64)
    return CodedRows(np.where(rng.random(count) < 0.2, 1 - labels, labels), columns, count)


def split_model(sure: float = 1.0) -> Parameters:
    """One class for numbers up to the middle, the other above."""
    book = PLAN.codebook
    terms = {each.name: Histogram(np.full((2, each.size), -np.log(each.size))) for each in book.features}
    model = Parameters(book, np.log(np.array([0.5, 0.5])), dict(terms))
    return lean(model, "x", np.arange(book.feature("x").size) > 50, 1, sure)


@pytest.mark.parametrize("table", [TABLE, AnswerTable(Fraction(1), 1)])
def test_a_row_moves_one_cell_of_a_calibration_table(table: CalibrationTable) -> None:
    rows, model = some_rows(200), split_model()
    total = table.counts(model, rows)
    alone = [table.counts(model, rows.take(np.array([at]))) for at in range(200)]
    assert all(each.sum() == 1 for each in alone)
    assert (sum(alone) == total).all()
    unknown = CodedRows(np.full(200, -1), rows.columns, 200)
    assert table.counts(model, unknown).sum() == 0


def probabilities(model: Parameters, rows: CodedRows) -> Any:
    scores = model.joint_log_likelihood(rows)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def test_a_temperature_changes_no_answer_and_mends_a_model_that_is_too_sure() -> None:
    rng, rows = np.random.default_rng(3), some_rows(5000)
    model = split_model(9.0)
    labels = np.where(rng.random(5000) < 0.3, 1, 0) ^ model.joint_log_likelihood(rows).argmax(axis=1)
    rows = CodedRows(labels, rows.columns, rows.rows)  # right for seven in ten, and sure of much more
    after = TABLE.temper(model, TABLE.release(TABLE.counts(model, rows), COINS))
    assert (after.joint_log_likelihood(rows).argmax(axis=1) == model.joint_log_likelihood(rows).argmax(axis=1)).all()
    inside = rows.columns["x"] > 50  # of the others the model says nothing
    assert probabilities(model, rows)[inside].max(axis=1).mean() > 0.95
    assert probabilities(after, rows)[inside].max(axis=1).mean() == pytest.approx(0.7, abs=0.08)


@pytest.mark.parametrize("noisy_for", [Fraction(1), Fraction(1, 100)])
@pytest.mark.parametrize("missing", [0, 1])
def test_an_answer_table_changes_no_answer_and_says_how_often_each_is_right(missing: int, noisy_for: Fraction) -> None:
    """Right for eight in ten on one side, for six in ten on the other; at a hundredth noise hides all of it."""
    rng, rows = np.random.default_rng(5), some_rows(6000)
    below = np.arange(PLAN.codebook.feature("x").size) <= 50
    model = lean(split_model(4.0), "x", below, 0, 4.0)
    model = replace(model, log_prior=to_one(model.log_prior + np.where(np.arange(2) == missing, 0.5, 0)))
    before = model.joint_log_likelihood(rows).argmax(axis=1)
    wrong = rng.random(rows.rows) < np.where(before == 1, 0.2, 0.4)
    rows = CodedRows(np.where(wrong, 1 - before, before), rows.columns, rows.rows)
    table = AnswerTable(noisy_for, 1)
    released = table.release(table.counts(model, rows), COINS)
    sizes = np.bincount(rows.known_labels, minlength=2).astype(float)
    after = table.explain(model, table.estimate(model, released, sizes, 1.0, rows.rows))
    assert (after.joint_log_likelihood(rows).argmax(axis=1) == before).all()
    sure = probabilities(after, rows).max(axis=1)
    present = rows.columns["x"] >= 0
    if noisy_for == 1:
        assert sure[present & (before == 1)].mean() == pytest.approx(0.8, abs=0.02)
        assert sure[present & (before == 0)].mean() == pytest.approx(0.6, abs=0.02)


def test_rows_without_a_value_keep_their_answer_whatever_the_answer_table_holds() -> None:
    """Nearly all rows got the other answer, surely; of the few with this one half are right."""
    model = lean(split_model(4.0), "x", np.arange(PLAN.codebook.feature("x").size) <= 50, 0, 4.0)
    for absent, counts in ((0, [[5.0, 5.0], [10.0, 990.0]]), (1, [[990.0, 10.0], [5.0, 5.0]])):
        leaning = replace(model, log_prior=to_one(np.where(np.arange(2) == absent, 0.5, 0.0)))
        after = AnswerTable(Fraction(1), 1).explain(leaning, np.array(counts))
        rows = some_rows(600)
        assert (rows.columns["x"] < 0).any()
        before = leaning.joint_log_likelihood(rows).argmax(axis=1)
        assert (after.joint_log_likelihood(rows).argmax(axis=1) == before).all()


def test_a_declared_number_of_rows_is_believed_until_an_answer_table_contradicts_it() -> None:
    table = AnswerTable(Fraction(1, 100), 1)  # noise of 283 in the sum of four cells
    assert table.total(np.array([[200, 100], [100, 100]]), 100) == pytest.approx(100, abs=2)
    assert table.total(np.array([[4000, 2000], [1000, 1000]]), 100) == pytest.approx(8000, rel=0.01)


@pytest.mark.parametrize("lean_to", [None, 1])
def test_an_answer_table_counts_every_row_of_a_model_that_is_in_two_minds(lean_to: int | None) -> None:
    """Classes are tied, and other features add noise in the last bit."""
    book, rows, table = PLAN.codebook, some_rows(300), AnswerTable(Fraction(1), 1)
    rng = np.random.default_rng(7)
    bits = {each.name: rng.normal(0, 1e-15, (2, each.size)) - np.log(each.size) for each in book.features}
    model = Parameters(book, np.log(np.array([0.5, 0.5])), {name: Histogram(log) for name, log in bits.items()})
    if lean_to is not None:
        model = lean(model, "x", np.arange(book.feature("x").size) > 50, lean_to, 1.0)
    assert table.counts(model, rows).sum() == 300
    assert table.counts(model, rows).shape == (len(table.answers(model)), 2)


@pytest.mark.parametrize("table", [CalibrationTable, AnswerTable])
def test_the_audit_finds_no_fault_in_calibration(table: type[CalibrationTable]) -> None:
    assert [check.name for check in audit_calibration(COINS, 1, draws=30_000, table=table) if not check.passed] == []


class _Twice(CalibrationTable):
    """A fault: a row counts in two cells."""

    def counts(self, *given: Any) -> Any:
        counts = super().counts(*given)
        return counts + np.roll(counts, 1)


class _Quiet(CalibrationTable):
    """A fault: too little noise, by half."""

    @property
    def scale(self) -> Fraction:
        return super().scale / 2


class _AnswersTwice(AnswerTable):
    """A fault: a row counts for both answers."""

    def counts(self, *given: Any) -> Any:
        counts = super().counts(*given)
        return counts + np.roll(counts, 1, axis=0)


@pytest.mark.parametrize("fault", [_Twice, _Quiet, _AnswersTwice])
def test_the_audit_sees_planted_faults_in_calibration(fault: type[CalibrationTable]) -> None:
    assert any(not check.passed and not check.control for check in audit_calibration(COINS, 1, draws=10_000, table=fault))


@pytest.mark.parametrize("rows", [None, 20, 200, 1000, 5000, 10**5])
@pytest.mark.parametrize("people", [1, 3])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_every_path_is_paid_for_out_of_the_price(rows: int | None, people: int, classes: int, delta: float) -> None:
    features: tuple[Feature, ...] = tuple(Numeric(f"x{at}", 0, 100) for at in range(14))
    book = Codebook("y", tuple("abcdefgh"[:classes]), features, max_rows=10**6)
    plan = plan_fit(book, epsilon=1.0, delta=delta, rows=rows, rows_per_unit=people, select_model=True)
    assert spent_by(plan, COINS) == plan.epsilon
    if rows is not None and plan.stages(rows).rules_alone:
        assert plan.price.delta == 0  # nothing is released that needs one


def test_probabilities_of_a_private_model_are_about_as_often_right() -> None:
    """1,500 rows at 0.2, nine in ten right by one cut: twelve features of noise beside it once made a model too sure."""
    rng = np.random.default_rng(3)
    columns = {f"x{at}": rng.integers(0, 101, 1500) for at in range(12)}
    label = (columns["x3"] > 50) ^ (rng.random(1500) < 0.1)
    table = pa.table({**columns, "y": np.where(label, "b", "a")})
    book = Codebook("y", ("a", "b"), tuple(Numeric(name, 0, 100) for name in columns), max_rows=10**6)
    gaps = []
    for _ in range(6):
        model = PrivateNaiveBayes(book, epsilon=0.2, expected_rows=1500).fit(table)
        assert "calibration" in model.privacy_["stages"]
        rows = table.drop_columns(["y"])
        right = (model.predict(rows) == np.array(table["y"])).mean()
        gaps.append(model.predict_proba(rows).max(axis=1).mean() - right)
    assert abs(np.mean(gaps)) < 0.12
