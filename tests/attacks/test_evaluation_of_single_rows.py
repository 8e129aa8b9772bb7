"""What one party can read of a single row from evaluations, which open counts of all rows.

Score bins that are so narrow that a row is alone in its own: the bin gives the row's features. Totals of labelled instances
in shares, opened twice: without one instance, the difference is its class.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Candidate, Categorical, Codebook, ColumnStudy, Estimation, Privacy, RowStudy
from blindbayes.datasets import hospitals
from blindbayes.disclosure.history import History
from blindbayes.disclosure.policy import Policy, require_totals
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import evaluation
from blindbayes.statistics.evaluation import bins_of
from support.disclosure import STUDY, records

# -- narrow bins -----------------------------------------------------------------------------------------------------------


def read_off(bins: int) -> tuple[int, int]:
    """Return how many of the held-out rows show all their features by their score bin, and how many there are."""
    data = hospitals(400)
    features = tuple(each for each in data.codebook.features if isinstance(each, Categorical))
    book = Codebook(data.codebook.target, data.codebook.classes, features, max_rows=10_000)
    tables = {name: table.select([*book.names, book.target]) for name, table in data.tables.items()}
    study = RowStudy(book, estimation=Estimation(held_out=0.25))
    trained = study.simulate(tables)
    possible = pd.DataFrame(itertools.product(*(each.values for each in features)), columns=book.names)
    scores = trained.model.predict_log_proba(possible)
    fitting = np.bincount(bins_of(scores[:, 1] - scores[:, 0], bins), minlength=bins)
    opened = RowStudy(book, estimation=Estimation(held_out=0.25, score_bins=bins)).evaluate(trained, tables).evaluation
    return int(opened.scores[1][:, fitting == 1].sum()), opened.rows


def test_score_bins_are_too_wide_to_show_the_features_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_off(24)[0] == 0
    monkeypatch.setattr(evaluation, "MAX_BINS", 1000)
    monkeypatch.setattr("blindbayes.study.tasks.evaluation.EvaluationTask.require_wide_bins", lambda *_: None)
    shown, rows = read_off(1000)
    assert shown > rows / 2  # why there is a limit
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="score_bins"):
        Estimation(held_out=0.25, score_bins=1000)


def test_a_site_with_few_rows_for_its_score_bins_refuses() -> None:
    tables = {name: table.slice(0, 40) for name, table in hospitals(400).tables.items()}
    book = hospitals(400).codebook
    study = RowStudy(book, estimation=Estimation(held_out=0.25, score_bins=100))
    trained = study.simulate(tables)
    with pytest.raises(PrivacyError, match="fewer than one row for four score bins"):
        study.evaluate(trained, tables)
    study.replace(estimation=Estimation(held_out=0.25, score_bins=10)).evaluate(trained, tables)
    private = study.replace(privacy=Privacy(epsilon=1.0))
    private.evaluate(private.simulate(tables), tables)


def test_many_candidates_are_refused() -> None:
    """Each opens a table of scores of its own; those of all subsets of features would be the whole table of the rows."""
    tables = {name: table.slice(0, 100) for name, table in hospitals(400).tables.items()}
    candidates = tuple(Candidate(alpha=1.0 + at) for at in range(12))
    study = RowStudy(hospitals(400).codebook, estimation=Estimation(folds=3, candidates=candidates))
    with pytest.raises(PrivacyError, match="fewer than one row for four score bins"):
        study.cross_validate(tables)
    with pytest.raises(ConfigError, match="at most 20"):
        Estimation(folds=3, candidates=tuple(Candidate(alpha=1.0 + at) for at in range(21)))


# -- totals in shares ------------------------------------------------------------------------------------------------------

BOOK = Codebook("y", ("well", "ill"), (Categorical("u", ("0", "1")), Categorical("v", ("0", "1"))), max_rows=1000)


def held(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {"clinic": frame[["y", "u"]], "lab": frame[["v"]]}


def test_the_difference_of_two_totals_is_a_class_which_is_why_a_site_opens_them_once(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    y, u = generator.integers(0, 2, (2, 240))
    frame = pd.DataFrame({"y": np.array(["well", "ill"])[y], "u": u.astype(str), "v": y.astype(str)})
    model = ColumnStudy(BOOK, options={"queries": 1000}).simulate(held(frame[:200])).model
    test = frame[200:].reset_index(drop=True)

    def totals(of: pd.DataFrame) -> Any:
        return model.evaluate(held(of)).evaluation.confusion

    for at in (0, 1):
        moved = totals(test) - totals(test.drop(index=at))
        assert BOOK.classes[int(moved.sum(axis=1).argmax())] == test["y"][at]

    history: History = records(tmp_path).history
    facts = {"study": STUDY, "instances": 40}
    history.audit.append("classifying", run="aa" * 16, model="m", **facts)  # a classification, or totals for this site alone
    assert not history.has_evaluated("m", "rows", but="bb" * 16)
    history.audit.append("classifying", run="bb" * 16, model="m", labelled="rows", **facts)
    assert not history.has_evaluated("m", "rows", but="bb" * 16)  # after a crash
    assert history.has_evaluated("m", "rows", but="cc" * 16)  # the other site may bring other attributes of one instance
    assert history.has_evaluated("another", "fewer rows", but="cc" * 16)
    assert not history.has_evaluated("another", "rows", but="cc" * 16)


def test_policy_decides_whether_others_learn_totals_of_a_sites_classes() -> None:
    allowed = Policy(exact_sums=True)
    require_totals(allowed, 10, again=False)
    for policy in (Policy(), Policy(exact_sums=True, min_cell_of_sums=5)):
        with pytest.raises(PrivacyError, match="exact sum of this site's classes"):
            require_totals(policy, 1000, again=False)
    with pytest.raises(PrivacyError, match="fewer rows"):
        require_totals(allowed, 9, again=False)
    with pytest.raises(PrivacyError, match="the difference of two"):
        require_totals(allowed, 1000, again=True)
    require_totals(Policy(exact_sums=True, changed_data=True), 1000, again=True)
