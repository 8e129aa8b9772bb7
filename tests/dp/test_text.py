"""Private text: what a document can change is bounded by construction, and the noise is calibrated to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from audits.releases import SHORT_BOOK, TEXT_BOOK, PlannedTables, audit_plan_loss, audit_plan_sensitivity
from blindbayes import Codebook, ConfigError, Limits, NaiveBayes, Privacy, PrivacyError, PrivateNaiveBayes, RowStudy, Text
from blindbayes.crypto.coins import Coins
from blindbayes.data.table import count_table
from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
from blindbayes.dp.audit.empirical import Check
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.distributed.plausibility import require_possible
from blindbayes.dp.noise import mechanisms
from blindbayes.dp.release.planner import plan_release
from blindbayes.errors import DataError
from blindbayes.statistics import Bags
from blindbayes_papers.sensitivity_audit import audit_sensitivity
from support.mechanisms import fit_by

WORDS = ("free", "offer", "win", "meeting", "minutes", "agenda")
NOISES = ["discrete_laplace", "discrete_gaussian"]


def coins(label: str) -> Coins:
    return Coins.seeded(label.encode().ljust(32, b"."))


def failures(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if not check.passed]


def book(model: str = "multinomial", most: int | None = 6, **more: Any) -> Codebook:
    return Codebook("class", ("ham", "spam"), (Text("body", WORDS, model=model, max_words=most, **more),), max_rows=10**5)


def mails(rows: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    spam = rng.random(rows) < 0.5
    shares = np.array([[1, 1, 1, 5, 5, 5], [5, 5, 5, 1, 1, 1]]) / 18
    bodies = [" ".join(rng.choice(WORDS, 6, p=shares[int(label)])) for label in spam]
    return pd.DataFrame({"body": bodies, "class": np.where(spam, "spam", "ham")})


@pytest.mark.parametrize("name", NOISES)
def test_what_a_document_changes_is_its_bound_and_no_more(name: str) -> None:
    plan = plan_release(TEXT_BOOK, epsilon=1, delta=1e-6, mechanism=name, rows=10**6)
    checks = list(audit_plan_sensitivity(plan))
    assert failures(checks) == []
    assert all(check.measured == check.claimed for check in checks)  # the bound is reached
    if name == "discrete_laplace":
        assert failures(audit_sensitivity(PlannedTables(plan))) == []


@pytest.mark.parametrize("name", NOISES)
def test_text_releases_pass_and_their_control_is_refuted(name: str) -> None:
    plan = plan_release(SHORT_BOOK, epsilon=1, delta=1e-6, mechanism=name, rows=10**6)
    checks = failures(audit_plan_loss(plan, coins(name), 20_000))
    assert [check for check in checks if not check.control] == []
    if name == "discrete_laplace":
        assert checks == []  # what zCDP leaves unused, a fifth less noise may still pay for


def test_a_document_that_is_not_clipped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bags, "counting", lambda self, feature: self)
    plan = plan_release(TEXT_BOOK, epsilon=1, mechanism="discrete_laplace", rows=10**6)
    assert failures(audit_plan_sensitivity(plan))
    assert failures(audit_sensitivity(PlannedTables(plan)))


def test_words_are_not_rounded_on_the_way_to_the_grid() -> None:
    """Ten words of a document with bound 10: rounded one by one on a grid of 2^20, they would move it by more than 2^20."""
    shape = Sensitivity((SensitivityBlock("n", 1), SensitivityBlock("words", 30, 10, spread=True)))
    made = mechanisms.make("discrete_laplace", shape, 1)
    assert made.step % 10 == 0
    rounded = [-(-word * made.step * 2 // 10 + 1) // 2 for word in (0, 1)]
    assert 10 * abs(rounded[1] - rounded[0]) <= made.reach
    assert mechanisms.FINE % 10 != 0  # the usual grid would


def test_without_a_bound_there_is_no_private_release() -> None:
    with pytest.raises(PrivacyError, match="declare max_words"):
        PrivateNaiveBayes(book(most=None), epsilon=1.0).fit(mails(50))
    study = RowStudy(book(most=None), privacy=Privacy(epsilon=1.0))
    with pytest.raises(PrivacyError, match="declare max_words"):
        study.simulate({name: mails(30) for name in "abc"})


def test_mechanisms_without_a_form_for_text_say_so() -> None:
    with pytest.raises(ConfigError, match="text"):
        fit_by("knorm", PrivateNaiveBayes(book(), epsilon=1.0), mails(50))


@pytest.mark.parametrize("model", ["multinomial", "bernoulli", "complement"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_private_filter_learns(model: str, delta: float) -> None:
    frame = mails(3000)
    fitted = PrivateNaiveBayes(book(model), epsilon=2.0, delta=delta, expected_rows=3000).fit(frame)
    assert (fitted.predict(frame[["body"]]) == frame["class"]).mean() > 0.9
    assert fitted.privacy_["features"]["body"]["released_as"] == "words"
    assert fitted.statement_.epsilon == 2.0
    low, high = fitted.explain(frame[["body"]][:4]).interval("spam")
    assert (low <= high).all()
    assert np.isfinite([low, high]).all()


def test_words_that_count_once_need_less_gaussian_noise() -> None:
    noise = {
        model: plan_release(book(model, 100), epsilon=1, delta=1e-6, mechanism="discrete_gaussian", rows=10**4).deviations[-1]
        * (100 if model == "multinomial" else 10)
        for model in ("multinomial", "bernoulli")
    }
    assert noise["bernoulli"] < noise["multinomial"] / 5


@pytest.mark.parametrize("value", [0.5, -3, np.nan, np.inf, 1e300])
def test_no_value_of_a_private_matrix_is_an_error(value: float) -> None:
    X = sp.csr_array(np.array([[0, value, 0, 0, 0, 2.0], [1.0, 0, 0, 0, 0, 0]]))
    fitted = PrivateNaiveBayes(book(), epsilon=1.0)
    block = fitted._private_block(X, ["ham", "spam"], book())
    assert block.bags["body"].times.sum() <= 6 + 1


def test_intervals_hold_what_the_table_gives_without_noise() -> None:
    """In 90 of 100 releases: of 60 words and releases at least 45, up to a chance below one in a thousand."""
    frame = mails(2000)
    exact = NaiveBayes(book()).fit(frame).feature_log_prob_["body"]
    held = []
    for _ in range(10):
        fitted = PrivateNaiveBayes(book(), epsilon=1.0, expected_rows=2000).fit(frame)
        interval = fitted._noise_interval()
        assert interval is not None
        drawn = interval.words["body"](np.arange(6))
        ends = np.quantile(drawn[:, 1] - drawn[:, 0], [0.05, 0.95], axis=0)
        held += ((ends[0] <= exact[1] - exact[0]) & (exact[1] - exact[0] <= ends[1])).tolist()
    assert sum(held) >= 45


def test_a_noisy_total_with_words_that_nobody_wrote_is_refused() -> None:
    plan = NoisySum.make(book(), epsilon=2.0, honest=2, parties=3, rows=1000)
    total = np.zeros(plan.length, dtype=np.int64)
    require_possible(plan, total, shares=3)
    total[-1] = -(10**6)
    with pytest.raises(DataError, match="further below 0 than noise explains"):
        require_possible(plan, total, shares=3)
    total[-1] = 10**9
    with pytest.raises(DataError, match="more than the study's max_rows documents"):
        require_possible(plan, total, shares=3)


def test_providers_release_a_private_filter_together() -> None:
    frame = mails(3000)
    parts = {name: frame[at::3] for at, name in enumerate("abc")}
    result = RowStudy(book(), privacy=Privacy(epsilon=4.0, expected_rows=3000), limits=Limits(min_cell=20)).simulate(parts)
    assert (result.model.predict(frame[["body"]]) == frame["class"]).mean() > 0.9
    told = result.model.explain(frame[["body"]][:2]).interval("spam")
    assert (told[0] <= told[1]).all()


def test_the_statement_of_a_noisy_sum_is_true_of_a_document_too() -> None:
    """It said that one record moves at most one cell in each table."""
    plan = NoisySum.make(book(most=6), epsilon=1.0, honest=2, parties=3)
    less, more = (
        plan.vector(count_table(pd.DataFrame({"class": "ham", "body": texts}), plan.codebook))
        for texts in (["win"], ["win", "free offer win win"])
    )
    moved = np.split(np.abs(more - less), np.cumsum([2 * item.cells for item in plan.tables.items])[:-1])
    assert max(np.count_nonzero(each) for each in moved) == 3
    assert all(each.sum() <= item.bound for each, item in zip(moved, plan.tables.items, strict=True))
    words = plan.statement(trust="all", composition="one").text
    assert "one cell" not in words
    assert "all cells together (1 for counts of values; for a text, the number of its words that count)" in words
