"""Private fits of `NaiveBayes` pay from the ledger, whatever scikit-learn does with the estimator."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from audits.releases import audit_score
from blindbayes import Codebook, NaiveBayes, PrivateNaiveBayes
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.audit.empirical import audit_estimator, worst_pairs
from blindbayes.dp.release.forecast import noisy_accuracy
from blindbayes.errors import DataError, LedgerError, PrivacyError

BOOK = Codebook("y", ("a", "b"), (Categorical("u", ("p", "q")), Numeric("x", 1000, 1001, precision=0.25)), max_rows=1000)
ROWS = np.array([["p", 1000.25], ["q", 1000.75]] * 20, dtype=object)
LABELS = np.array(["a", "b"] * 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "site.ledger"
    Ledger.create(target, epsilon=1)
    return target


def model(path: Any, epsilon: float) -> NaiveBayes:
    return PrivateNaiveBayes(BOOK, epsilon=epsilon, expected_rows=40, ledger=path)


def test_a_fit_is_charged_before_it_is_released(path: Path) -> None:
    fitted = model(path, 0.6).fit(ROWS, LABELS)
    charge = Ledger(path).entries()[-1]
    assert charge.kind == "charge"
    assert (charge.fields["epsilon"], charge.fields["codebook"]) == ("0.6", BOOK.sha256)
    assert charge.fields["mechanism"] == fitted.privacy_["mechanism"]
    other = model(path, 0.6)
    with pytest.raises(PrivacyError, match="budget exceeded"):
        other.fit(ROWS, LABELS)
    assert not hasattr(other, "parameters_")


def test_a_fit_that_fails_before_the_release_costs_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(DataError):  # of the columns; no value of a row is an error under epsilon
        model(path, 0.1).fit(pd.DataFrame({"other": [1.0]}), np.array(["a"]))
    with pytest.raises(TypeError, match="sample_weight"):  # weights would multiply what one row can change
        model(path, 0.1).fit(ROWS, LABELS, sample_weight=np.ones(40))  # type: ignore[call-arg]
    assert path.read_bytes() == before


def test_no_ledger_at_the_path_means_no_model(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="ledger init"):
        model(tmp_path / "absent", 0.1).fit(ROWS, LABELS)


def test_clone_and_cross_validation_pay_for_every_fold(path: Path) -> None:
    scores = cross_val_score(clone(model(path, 0.15).set_params(score_epsilon=0.05)), ROWS, LABELS, cv=5, error_score="raise")
    assert Ledger(path).balance().basic_epsilon == 1  # five fits and five scores
    assert ((scores >= 0) & (scores <= 1)).all()
    with pytest.raises(PrivacyError):
        clone(model(path, 0.2)).fit(ROWS, LABELS)


def test_grid_search_on_two_processes_pays_for_every_fit(path: Path) -> None:
    private = model(str(path), 0.091).set_params(score_epsilon=0.01)
    GridSearchCV(private, {"alpha": [0.5, 1.0, 2.0]}, cv=3, n_jobs=2).fit(ROWS, LABELS)
    assert Ledger(path).balance().charges == 19  # nine fits, their scores, and the refit
    assert Ledger(path).balance().left == 0
    Ledger(path).verify()


def test_an_exact_score_of_private_rows_is_refused_under_a_ledger(path: Path) -> None:
    """Folds paid for their fits, and their exact accuracies came back unpaid."""
    fitted = model(path, 0.1).fit(ROWS, LABELS)
    with pytest.raises(PrivacyError, match="private_forecast"):
        fitted.score(ROWS, LABELS)
    with pytest.raises(PrivacyError, match="score_epsilon"):
        cross_val_score(model(path, 0.1), ROWS, LABELS, cv=2, error_score="raise")
    before = Ledger(path).balance().basic_epsilon
    paid = fitted.set_params(score_epsilon=0.2)
    assert 0 <= paid.score(ROWS, LABELS) <= 1
    assert Ledger(path).balance().basic_epsilon - before == Fraction(1, 5)


def test_a_score_has_the_noise_that_it_pays_for() -> None:
    """A row is a right answer or a wrong one: either number has noise of scale 1 / epsilon."""
    coins = Coins.seeded(bytes(32))
    scores = np.array([noisy_accuracy(500, 1000, 0.5, 1, coins) for _ in range(4000)])
    # The share of a half has variance (1/4 + 1/4) 2 * 2^2 / 1000^2.
    assert scores.mean() == pytest.approx(0.5, abs=0.001)
    assert scores.std() == pytest.approx(2 / 1000, rel=0.05)


def test_the_audit_finds_no_fault_in_paid_scores() -> None:
    checks = list(audit_score(Coins.seeded(bytes(32)), 1, draws=30_000))
    assert [check.name for check in checks if not check.passed] == []
    assert any(check.control for check in checks)


@pytest.mark.slow
def test_the_audit_does_not_refute_private_fits() -> None:
    checks = list(
        audit_estimator(
            lambda: PrivateNaiveBayes(BOOK, epsilon=1.0, expected_rows=40), worst_pairs(BOOK), epsilon=1.0, draws=500
        )
    )
    assert [check for check in checks if not check.passed] == []
