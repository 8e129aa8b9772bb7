"""Cross-validation over sites equals cross-validation on the pooled folds; with epsilon it is charged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blindbayes import Estimation, NaiveBayes, Privacy, RowStudy
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.split import Split, split_rows
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import ConfigError
from blindbayes.study.fields import Candidate
from blindbayes.study.simulation.site import MemorySite
from blindbayes.study.tasks.evaluation import candidate_book, evaluation_task
from study.test_study_evaluation import BOOK, TABLES

CANDIDATES = (Candidate(), Candidate(alpha=50.0), Candidate(bins=4, alpha=0.5), Candidate(features=("smoker", "age")))
STUDY = RowStudy(BOOK, estimation=Estimation(held_out=0.2, folds=3, candidates=CANDIDATES))


def folds_of(study: RowStudy) -> list[pd.DataFrame]:
    """The pooled folds, by the sites' own keys."""
    task = evaluation_task(study.task_class.agree_locally(study, {name: MemorySite(name) for name in TABLES}), None)
    folds: list[list[pd.DataFrame]] = [[] for _ in range(study.estimation.folds)]
    for name, frame in TABLES.items():
        own = task.at(MemorySite(name), "ab" * 20)
        for index, fold in enumerate(folds):
            fold.append(frame.iloc[split_rows(frame, BOOK, own.fold(index))])  # type: ignore[attr-defined]
    return [pd.concat(fold) for fold in folds]


def pooled(candidate: Candidate, folds: list[pd.DataFrame]) -> np.ndarray:
    book: Codebook = candidate_book(BOOK, candidate)
    if candidate.features:
        book = book.with_features(each for each in book.features if each.name in candidate.features)
    confusion = np.zeros((2, 2), np.int64)
    for index, test in enumerate(folds):
        rows = pd.concat([fold for at, fold in enumerate(folds) if at != index])
        model = NaiveBayes(book, alpha=candidate.alpha or 1.0).fit(rows[list(book.names)], rows["ill"])
        predicted = model.predict(test[list(book.names)])
        for at, true in enumerate(BOOK.classes):
            for to, label in enumerate(BOOK.classes):
                confusion[at, to] += int(((test["ill"] == true) & (predicted == label)).sum())
    return confusion


@pytest.mark.parametrize("protocol", ["masked_sum", "ring_sum"])
def test_every_candidate_equals_pooled_cross_validation_with_the_same_folds(protocol: str, tmp_path: Path) -> None:
    study = STUDY.replace(protocol=protocol)
    result, folds = study.cross_validate(TABLES), folds_of(study)
    for candidate, evaluation in zip(CANDIDATES, result.evaluations, strict=True):
        assert evaluation.confusion.tolist() == pooled(candidate, folds).tolist(), candidate
    assert result.best == max(zip(result.evaluations, CANDIDATES, strict=True), key=lambda each: each[0].accuracy)[1]
    assert "alpha 50" in result.table
    assert (result.save(tmp_path / "cv") / "cross_validation.json").exists()


def test_folds_are_disjoint_parts_of_the_rows_for_training() -> None:
    folds = folds_of(STUDY)
    people = [set(fold["patient"]) for fold in folds]
    assert not people[0] & people[1] | people[0] & people[2] | people[1] & people[2]
    training = [
        frame.iloc[split_rows(frame, BOOK, Split(0.2, False, MemorySite(name).split_key))] for name, frame in TABLES.items()
    ]
    assert sum(map(len, folds)) == sum(map(len, training))
    assert min(map(len, folds)) > 0.2 * sum(map(len, folds))


def test_with_epsilon_both_sums_together_cost_epsilon(tmp_path: Path) -> None:
    estimation = Estimation(folds=3, candidates=CANDIDATES[:2])
    study = RowStudy(BOOK, privacy=Privacy(epsilon=8.0), estimation=estimation)
    ledgers = {name: tmp_path / f"{name}.jsonl" for name in TABLES}
    for path in ledgers.values():
        Ledger.create(path, epsilon=8)
    result = study.cross_validate(TABLES, ledgers=ledgers, coins=Coins.seeded(bytes(32)))
    assert all(Ledger(path).balance().spent_epsilon == pytest.approx(8.0) for path in ledgers.values())
    exact = RowStudy(BOOK, estimation=estimation).cross_validate(TABLES).evaluations[0]
    assert abs(result.evaluations[0].accuracy - exact.accuracy) < 0.1
    assert result.evaluations[0].intervals is not None


def test_a_row_moves_cells_of_one_fold_and_a_fault_that_counts_it_in_two_is_seen() -> None:
    study = RowStudy(BOOK, privacy=Privacy(epsilon=8.0), estimation=Estimation(folds=3))
    task = evaluation_task(study.task_class.agree_locally(study, {name: MemorySite(name) for name in TABLES}), None)

    def vector(frame: pd.DataFrame, *, faulty: bool = False) -> np.ndarray:
        own = task.at(MemorySite("north", frame), "ab" * 20)
        if faulty:
            plain = type(own).fold
            own.fold = lambda index: dataclasses.replace(plain(own, index), held_out=False)  # type: ignore[method-assign, attr-defined]
        own.read()
        return own.vector.view(np.int64)  # type: ignore[attr-defined, no-any-return, union-attr]

    frame, touched = TABLES["north"], task.plan.noise.touched  # type: ignore[union-attr]
    for row in range(5):
        fewer = frame.drop(frame.index[row])
        assert np.count_nonzero(vector(frame) - vector(fewer)) <= touched
    assert np.count_nonzero(vector(frame, faulty=True) - vector(frame.drop(frame.index[0]), faulty=True)) > touched


def test_what_cannot_be_validated_is_refused() -> None:
    with pytest.raises(ConfigError, match="folds is 0"):
        Estimation(folds=1)
    with pytest.raises(ConfigError, match="set folds"):
        Estimation(candidates=(Candidate(),))
    with pytest.raises(ConfigError, match="no feature"):
        RowStudy(BOOK, estimation=Estimation(folds=3, candidates=(Candidate(features=("height",)),)))
    with pytest.raises(ConfigError, match="leave bins out"):
        RowStudy(BOOK, privacy=Privacy(epsilon=1.0), estimation=Estimation(folds=3, candidates=(Candidate(bins=3),)))
    with pytest.raises(ConfigError, match="has no folds"):
        RowStudy(BOOK).cross_validate(TABLES)
    with pytest.raises(ConfigError, match="not every site learns"):
        STUDY.replace(protocol="chain_sum").cross_validate(TABLES)
