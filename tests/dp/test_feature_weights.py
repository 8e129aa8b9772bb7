"""Weights of features by a noisy gradient: what a row moves, what it costs, and what it is good for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from audits.releases import WEIGHED_BOOK, audit_weights, coded
from blindbayes import Categorical, Codebook, NaiveBayes, PrivateNaiveBayes
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import records, statistics_of
from blindbayes.dp.noise.knorm_histograms import Classwise
from blindbayes.dp.release.feature_weights import GRID, FeatureWeights, Gradient, weighed
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.statistics import CodedRows, Layout, Statistics
from blindbayes.statistics.parameters import Histogram, Parameters, estimate

COINS = Coins.seeded(b"\x0d" * 32)
SPACE = records(WEIGHED_BOOK)


def model(seed: int, rows: int = 30) -> Parameters:
    chosen = [SPACE[at] for at in np.random.default_rng(seed).integers(len(SPACE), size=rows)]
    return estimate(Statistics(Layout(WEIGHED_BOOK), statistics_of(WEIGHED_BOOK, chosen)), alpha=0.01)


def repeated(rows: int) -> tuple[pa.Table, Codebook]:
    """One weak feature twelve times, and two better ones: Naive Bayes listens to the twelve."""
    rng = np.random.default_rng(5)
    label = rng.random(rows) < 0.5
    weak = np.where(label ^ (rng.random(rows) < 0.35), "p", "q")
    good = {f"g{at}": np.where(label ^ (rng.random(rows) < 0.25), "p", "q") for at in range(2)}
    columns = {**{f"u{at}": weak for at in range(12)}, **good}
    features = tuple(Categorical(name, ("p", "q")) for name in columns)
    return pa.table({**columns, "y": np.where(label, "b", "a")}), Codebook("y", ("a", "b"), features, max_rows=10**6)


@pytest.mark.parametrize("seed", range(6))
def test_no_row_moves_the_gradient_beyond_its_bounds(seed: int) -> None:
    gradient = Gradient(model(seed), Fraction(1), 1)
    for record in SPACE:
        moved = np.abs(gradient.sums(coded(WEIGHED_BOOK, [record])))
        assert (moved <= gradient.bounds).all()
    unknown = CodedRows(np.array([-1]), {"u": np.array([0]), "v": np.array([2])}, 1)
    assert gradient.sums(unknown) == [0] * len(gradient.bounds)


def test_rows_add_up_to_the_gradient_one_by_one() -> None:
    gradient = Gradient(model(1), Fraction(1), 1)
    table = [SPACE[at] for at in np.random.default_rng(3).integers(len(SPACE), size=997)]
    alone = np.sum([gradient.sums(coded(WEIGHED_BOOK, [record])) for record in table], axis=0)
    assert gradient.sums(coded(WEIGHED_BOOK, table)) == alone.tolist()


def test_the_gradient_is_that_of_the_log_likelihood() -> None:
    parameters, step = model(2, 500), 1e-5
    gradient = Gradient(parameters, Fraction(1), 1)
    rows = coded(WEIGHED_BOOK, [SPACE[at] for at in np.random.default_rng(4).integers(len(SPACE), size=400)])

    def likelihood(shifts: np.ndarray) -> float:
        scores = weighed(parameters, [0.7, 0.7], shifts).joint_log_likelihood(rows)
        scores -= np.logaddexp.reduce(scores, axis=1)[:, None]
        return float(scores[np.arange(400), rows.known_labels].sum())

    for at, found in enumerate(gradient.sums(rows)[2:]):
        ahead, behind = (likelihood(sign * step * np.eye(3)[at]) for sign in (1, -1))
        assert found / GRID == pytest.approx((ahead - behind) / (2 * step), abs=1.0)  # rounding of 400 rows


def test_weights_keep_probabilities_and_the_meaning_of_scores() -> None:
    parameters = model(3, 300)
    rows = coded(WEIGHED_BOOK, [record for record in SPACE if None not in record[1]])
    found = weighed(parameters, [0.3, 1.4])
    for term in found.terms.values():
        assert isinstance(term, Histogram)
        assert np.exp(term.log_prob).sum(axis=1) == pytest.approx(1)
    parts = [parameters.score(name, parameters.terms[name], rows.columns[name]) for name in ("u", "v")]
    meant = parameters.log_prior + 0.3 * parts[0] + 1.4 * parts[1]
    got = found.joint_log_likelihood(rows)
    assert got[:, 1:] - got[:, :1] == pytest.approx(meant[:, 1:] - meant[:, :1])
    assert weighed(parameters, [0.0, 0.0]).log_prior == pytest.approx(parameters.log_prior)


def test_the_audit_finds_no_fault_in_weights() -> None:
    assert [check.name for check in audit_weights(COINS, 1, draws=30_000) if not check.passed] == []


class _Half(Gradient):
    """A fault: a row is thought to add half of what it may."""

    @property
    def bounds(self) -> list[int]:
        return [most // 2 for most in super().bounds]


class _Each(Gradient):
    """A fault: every number gets all of epsilon for itself, as if rows moved one alone."""

    @property
    def noise(self) -> Classwise:  # type: ignore[override]
        own = super().noise
        return Classwise(own.parts, own.epsilon * len(own.parts), own.rows_per_unit)


class _Wide(Gradient):
    """A fault: evidence is not held."""

    @property
    def tables(self) -> list[tuple[np.ndarray, np.ndarray, float]]:  # type: ignore[override]
        return [(away, np.rint(away / worth), worth) for away, _, worth in super().tables]


@pytest.mark.parametrize("fault", [_Half, _Each, _Wide])
def test_the_audit_sees_planted_faults_in_weights(fault: type[Gradient]) -> None:
    assert any(not check.passed and not check.control for check in audit_weights(COINS, 1, draws=6000, gradient=fault))


def test_features_that_repeat_each_other_get_less_weight() -> None:
    table, book = repeated(8000)
    rows, labels = table.drop_columns(["y"]), np.array(table["y"])
    plain = (NaiveBayes(book).fit(table).predict(rows) == labels).mean()
    private = PrivateNaiveBayes(book, epsilon=3.0, expected_rows=8000).fit(table)
    assert plain < 0.68  # the twelve copies outvote the rest
    assert (private.predict(rows) == labels).mean() > plain + 0.06
    assert private.privacy_["stages"]["weights of features"] == pytest.approx(0.45, rel=0.5)
    assert any("weights of their own" in reason for reason in private.privacy_["reasons"])


def test_weights_are_paid_for_and_left_out_where_rows_are_few() -> None:
    book = repeated(50)[1]
    assert plan_fit(book, epsilon=1.0, rows=400, select_model=True).stages(400).weights is None
    plan = plan_fit(book, epsilon=1.0, rows=9000, select_model=True)
    found = plan.stages(9000).weights
    assert found is not None
    assert "weights of features" in plan.describe()["stages"]
    assert plan_fit(book, epsilon=1.0, rows=9000).stages(9000).weights is None  # no rows at hand
    nothing = CodedRows(np.zeros(0, dtype=np.int64), {name: np.zeros(0, dtype=np.int64) for name in book.names}, 0)
    flat = Parameters(book, np.log([0.5, 0.5]), {name: Histogram(np.log(np.full((2, 2), 0.5))) for name in book.names})
    assert FeatureWeights(Fraction(1), 1, 9000).models(flat, nothing, COINS) == []


@pytest.mark.parametrize(("rows", "released"), [(700, 0), (20_000, 6)])
def test_of_many_classes_and_few_rows_only_the_class_counts_are_released(rows: int, released: int) -> None:
    """Noise for features once hid which of twenty classes was the largest, and predictions fell far below it."""
    labels = tuple(f"c{at}" for at in range(20))
    book = Codebook("y", labels, tuple(Categorical(f"u{at}", ("p", "q")) for at in range(6)), max_rows=10**6)
    rng = np.random.default_rng(1)
    share = 1 / np.arange(1, 21)
    label = np.array(labels)[rng.choice(20, rows, p=share / share.sum())]
    table = pa.table({**{name: rng.choice(["p", "q"], rows) for name in book.names}, "y": label})
    for _ in range(3):
        model = PrivateNaiveBayes(book, epsilon=0.1, expected_rows=rows).fit(table)
        assert sum(fact["released_as"] == "cells" for fact in model.privacy_["features"].values()) == released
        if not released:
            assert set(model.predict(table.drop_columns(["y"]))) == {"c0"}
