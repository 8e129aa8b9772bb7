"""The last choice, which rows make with noise: how far a model is believed."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from click.testing import CliRunner

from audits.releases import audit_choices, spent_by
from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes
from blindbayes.cli.commands.plan import command
from blindbayes.crypto.coins import Coins
from blindbayes.dp.release.constants import HEAD_START, LIKELY_SCALE, MENDING_SHARES
from blindbayes.dp.release.evidence import tempered
from blindbayes.dp.release.forecast import forecast, plan_fits, private_forecast
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.dp.release.selection import ModelSelection, permute_and_flip
from blindbayes.dp.release.stumps import Candidates
from blindbayes.errors import ConfigError
from blindbayes.naive_bayes import private as estimators
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block

COINS = Coins.seeded(b"\x0b" * 32)
SCALES = (1.0, LIKELY_SCALE, LIKELY_SCALE / 2, 0.0)


def many(features: int, values: str = "pq") -> Codebook:
    return Codebook("y", ("a", "b"), tuple(Categorical(f"u{at}", tuple(values)) for at in range(features)), max_rows=10**6)


def repeated(rows: int, copies: int) -> pa.Table:
    """A rare class, and one weak feature that stands there many times: Naive Bayes believes every copy."""
    rng = np.random.default_rng(5)
    rare = rng.random(rows) < 0.2
    told = np.where(rng.random(rows) < np.where(rare, 0.6, 0.4), "p", "q")
    return pa.table({**{f"u{at}": told for at in range(copies)}, "y": np.where(rare, "b", "a")})


def test_the_law_of_a_choice_is_that_of_the_largest_score_with_exponential_noise() -> None:
    scores, rate, draws = [9, 8, 5], Fraction(1, 2), 40_000
    found = np.bincount(permute_and_flip(COINS, scores, rate, draws), minlength=3) / draws
    noise = np.random.default_rng(1).exponential(2.0, (draws, 3))
    expected = np.bincount((np.array(scores) + noise).argmax(axis=1), minlength=3) / draws
    assert found == pytest.approx(expected, abs=4 * math.sqrt(0.5 / draws))
    exact = math.exp(-0.5)  # of two candidates the worse one wins if it is asked first and its coin shows heads
    assert (permute_and_flip(COINS, [8, 7], rate, draws) == 1).mean() == pytest.approx(exact / 2, abs=0.01)


def test_the_audit_finds_no_fault_in_choices() -> None:
    assert [check.name for check in audit_choices(COINS, 1, draws=30_000) if not check.passed] == []


class _Doubled(ModelSelection):
    """A fault: every row counts twice in a score."""

    def candidates(self, parameters: Any, rows: CodedRows) -> list[Candidates]:
        return [replace(each, scores=2 * each.scores) for each in super().candidates(parameters, rows)]


class _Gain(ModelSelection):
    """A fault: what a model gains over the largest class, which a row may lower."""

    def candidates(self, parameters: Any, rows: CodedRows) -> list[Candidates]:
        largest = int(np.bincount(rows.known_labels).max())
        return [replace(each, scores=each.scores - largest) for each in super().candidates(parameters, rows)]


class _Twice(ModelSelection):
    """A fault: the choice is twice as sure as it may be."""

    @property
    def rate(self) -> Fraction:
        return 2 * super().rate


@pytest.mark.parametrize("fault", [_Doubled, _Gain, _Twice])
def test_the_audit_sees_planted_faults_in_choices(fault: type[ModelSelection]) -> None:
    assert any(not check.passed and not check.control for check in audit_choices(COINS, 1, draws=6000, choice=fault))


@pytest.mark.parametrize("rows", [None, 300, 5000, 10**6])
@pytest.mark.parametrize("people", [1, 3])
def test_choices_are_paid_for_out_of_the_price(rows: int | None, people: int) -> None:
    plan = plan_fit(many(40), epsilon=0.7, rows=rows, rows_per_unit=people, select_model=True)
    assert spent_by(plan, COINS) == plan.epsilon
    if rows == 5000:
        choice = plan.stages(rows).model_selection
        assert choice is not None
        assert choice.rows_per_unit == people


def test_a_model_below_the_largest_class_is_not_believed() -> None:
    table, book = repeated(6000, 12), many(12)
    plain = NaiveBayes(book).fit(table)
    rows, labels = table.drop_columns(["y"]), np.array(table["y"])
    largest = (labels == "a").mean()
    assert (plain.predict(rows) == labels).mean() < largest - 0.1  # twelve times the same evidence
    model = PrivateNaiveBayes(book, epsilon=1.0, expected_rows=6000).fit(table)
    assert (model.predict(rows) == labels).mean() > largest - 0.01
    assert model.privacy_["stages"]["last choice"] == pytest.approx(float(MENDING_SHARES[0]))
    choice = next(stage for stage in model.statement_.stages if stage.name == "last choice")
    assert (choice.mechanism, float(choice.epsilon)) == ("permute_and_flip", float(MENDING_SHARES[0]))
    assert any("by how many rows are right then" in reason for reason in model.privacy_["reasons"])


def test_there_is_no_last_choice_for_a_large_file_or_weights(tmp_path: Any) -> None:
    table, book = repeated(3000, 4), many(4)
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    large = PrivateNaiveBayes(book, epsilon=1.0, expected_rows=10**7).fit(tmp_path / "t.csv")
    read = PrivateNaiveBayes(book, epsilon=1.0, expected_rows=3000).fit(tmp_path / "t.csv")
    assert read.privacy_["stages"]["last choice"] == pytest.approx(0.3)
    weighed = PrivateNaiveBayes(book, epsilon=1.0, expected_rows=3000, class_weight="balanced").fit(table)
    assert all("last choice" not in model.privacy_["stages"] for model in (large, weighed))
    plan = plan_fit(book, epsilon=1.0, rows=3000, select_model=True)
    layout = Layout(plan.codebook)
    with pytest.raises(ConfigError, match="needs the rows"):
        plan.fit(Statistics(layout, np.zeros(layout.size, dtype=object)), None, COINS)


def test_rows_of_a_file_that_nobody_declared_are_read_again_where_the_noisy_count_says_so(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, book = repeated(6000, 12), many(12)
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    rows, labels = table.drop_columns(["y"]), np.array(table["y"])
    model = PrivateNaiveBayes(book, epsilon=1.0).fit(tmp_path / "t.csv")
    assert model.privacy_["stages"]["last choice"] == pytest.approx(float(MENDING_SHARES[0]))  # by a noisy count of the rows
    assert (model.predict(rows) == labels).mean() > (labels == "a").mean() - 0.01
    assert sum(model.privacy_["stages"].values()) < 1  # the rest is the release's
    monkeypatch.setattr(estimators, "MAX_READ", 1000)
    monkeypatch.setattr(estimators, "read_block", lambda *_, **__: pytest.fail("a large file is not read again"))
    large = PrivateNaiveBayes(book, epsilon=1.0).fit(tmp_path / "t.csv")
    assert "last choice" not in large.privacy_["stages"]
    assert any("too many to read again" in reason for reason in large.privacy_["reasons"])


@pytest.mark.parametrize("declared", [6000, None])
def test_forecasts_are_of_the_release_that_a_fit_makes(declared: int | None, tmp_path: Any) -> None:
    """Twelve times the same evidence: a model below the largest class, unless its last choice is made."""
    table, book = repeated(6000, 12), many(12)
    block = PrivateNaiveBayes(book, epsilon=1.0)._private_block(table, None, book)
    largest = float((np.array(table["y"]) == "a").mean())
    found = forecast(plan_fits(book, (1.0,), rows=declared), block, repetitions=3, coins=COINS)
    assert found.not_private is not None
    assert found.not_private < largest - 0.1
    assert found.lines[0].mean > largest - 0.02
    assert found.rows == (declared or 4200)
    planned = private_forecast(book, epsilons=(1.0,), rows=declared)
    assert planned.run(block, COINS).lines[0].mean > largest - 0.05
    assert planned.price.epsilon == 1
    fitted = plan_fit(book, epsilon=1, delta=0.0, rows=declared, rows_per_unit=1, select_model=True)
    if declared is None:
        assert planned.plans == (fitted,)
    else:  # the part that it trains on
        assert planned.plans[0].stages(4200).model_selection == fitted.stages(4200).model_selection  # type: ignore[union-attr]
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    book.to_toml(tmp_path / "b.toml")
    size = [] if declared is None else ["--expected-rows", str(declared)]
    files = ["--codebook", str(tmp_path / "b.toml"), "--proxy", str(tmp_path / "t.csv")]
    asked = [*files, "--epsilon", "1", "--repetitions", "2", "--json", *size]
    shown = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert json.loads(shown.stdout)["lines"][0]["mean"] > largest - 0.02


def test_a_forecast_plans_for_the_rows_that_the_codebook_declares() -> None:
    book = msgspec.structs.replace(many(12), expected_rows=3000)
    planned = private_forecast(book, epsilons=(1.0,))
    assert planned.plans[0].rows == 2100
    block = PrivateNaiveBayes(many(12), epsilon=1.0)._private_block(repeated(400, 12), None, many(12))
    assert forecast(plan_fits(book, (1.0,)), block, repetitions=1, coins=COINS).rows == 3000


def test_less_evidence_is_a_model_like_any_other_and_none_is_the_largest_class() -> None:
    model = NaiveBayes(many(3)).fit(repeated(500, 3))
    for scale in SCALES:
        found = tempered(model.parameters_, scale)
        for term in found.terms.values():
            assert np.exp(term.log_prob).sum(axis=1) == pytest.approx(1)  # type: ignore[union-attr]
    assert all(np.ptp(term.log_prob, axis=0) == pytest.approx(0) for term in found.terms.values())  # type: ignore[union-attr]
    assert replace(found, terms={}).log_prior.argmax() == 0


def test_a_row_more_raises_the_score_of_every_model_by_at_most_one() -> None:
    book, table = many(3), repeated(400, 3)
    model = NaiveBayes(book).fit(table)
    block = PrivateNaiveBayes(book, epsilon=1.0)._private_block(table, None, book)
    models = [tempered(model.parameters_, scale) for scale in SCALES]
    choice = ModelSelection(Fraction(1), 1)
    before = choice.scores(models, block.take(np.arange(399)))
    after = choice.scores(models, block)
    assert all(late - early in (0, 1) for late, early in zip(after, before, strict=True))
    assert count_block(Layout(book), block).class_counts.sum() == 400


def test_of_models_that_are_right_as_often_the_whole_one_is_chosen_most() -> None:
    book, table = many(3), repeated(400, 3)
    model = NaiveBayes(book).fit(table)
    nobody = PrivateNaiveBayes(book, epsilon=1.0)._private_block(table, None, book).take(np.arange(0))
    choice = ModelSelection(Fraction(1, 10), 1)
    told = [choice.choose(model.parameters_, nobody, COINS)[1] for _ in range(400)]
    chances = [told.count(f"{scale:.0%} of the evidence") / 400 for scale in SCALES]
    noise = np.random.default_rng(1).exponential(1.0, (40_000, 4)) + np.array([HEAD_START, 0, 0, 0])
    assert chances == pytest.approx(np.bincount(noise.argmax(axis=1)) / 40_000, abs=0.09)


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [{"expected_rows": 32_561}, {}, {"expected_rows": 32_561, "delta": 1e-6}])
def test_a_private_fit_of_a_table_like_adult_takes_no_more_than_25_ms_above_the_plain_one(privacy: dict[str, Any]) -> None:
    rng, rows = np.random.default_rng(1), 32_561
    values = {f"c{at}": size for at, size in enumerate((9, 16, 7, 15, 6, 5, 2, 42))}
    bounds = {"age": (17, 90), "weight": (12_285, 1_484_705), "gain": (0, 99_999), "hours": (1, 99)}
    columns = {name: rng.integers(0, size, rows).astype(str) for name, size in values.items()}
    columns |= {name: rng.integers(low, high + 1, rows) for name, (low, high) in bounds.items()}
    table = pa.table({**columns, "y": np.where(rng.random(rows) < 0.24, "b", "a")})
    features = [Categorical(name, tuple(map(str, range(size)))) for name, size in values.items()]
    book = Codebook("y", ("a", "b"), (*features, *(Numeric(name, *both) for name, both in bounds.items())), max_rows=10**6)
    spent: list[list[float]] = []
    for _ in range(9):  # in turns: the machine may have other work
        spent.append([])
        for model in (NaiveBayes(book), PrivateNaiveBayes(book, epsilon=1.0, **privacy)):
            before = time.process_time()
            model.fit(table)
            spent[-1].append(time.process_time() - before)
    plain, private = np.median(spent, axis=0)
    assert private - plain < 0.025
