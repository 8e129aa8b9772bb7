"""Whole fits at a claimed epsilon of 1: the exact loss of every stage between a table and the same with one hostile record.

The losses are those of the declared laws on the exact inputs of both tables, so that nothing depends on how often it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from blindbayes import Categorical, Codebook, Numeric, PrivateNaiveBayes
from blindbayes.crypto.coins import Coins
from blindbayes.dp.release.calibration import CalibrationTable
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.private_fit import FitPlan, plan_fit
from blindbayes.dp.release.selection import ModelSelection
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.statistics.parameters import Parameters

Record = tuple[Any, Any, Any, Any]
HOSTILE: tuple[Record, ...] = (
    (None, None, None, "a"),
    ("NaN", "unlisted", 99, "a"),
    (50, "p", 0, "b"),
    (1e9, "q", -1e9, "c"),
    (float("nan"), "r", 2, "unlisted"),
    (3, "p", 1, None),
    ("", 7, "?", "a"),
    (100, "r", 5, "b"),
)
TABLES: tuple[list[Record], ...] = (
    [],
    [(10, "p", 0, "a")],
    [(10 * at % 100, "pqr"[at % 3], at % 10 - 5, "ab"[at % 2]) for at in range(12)],
    [(5, "p", 1, "a")] * 9,
)


def book_of(classes: int) -> Codebook:
    features = (Numeric("x", 0, 100, optional=True), Categorical("u", ("p", "q", "r")), Numeric("z", -5, 5, 0.5))
    return Codebook("y", tuple("abc"[:classes]), features, max_rows=10**6)


def read(records: Sequence[Record], plan: FitPlan) -> CodedRows:
    """Rows as a fit reads them."""
    frame = pd.DataFrame([*records, HOSTILE[0]], columns=["x", "u", "z", "y"]).astype(object)
    rows = PrivateNaiveBayes(plan.declared, epsilon=1.0)._private_block(frame, None, plan.codebook)
    return rows.take(np.arange(rows.rows - 1))  # without the one that gives an empty frame its types


def law_of_choice(scores: npt.NDArray[np.int64], rate: float) -> npt.NDArray[np.float64]:
    """P(each is selected): the largest of score + E, E exponential with this rate, integrated over the winner's excess."""
    excess = np.linspace(0, 45, 20_001) / rate
    values, kind, count = np.unique(scores, return_inverse=True, return_counts=True)
    above = np.exp(-rate * (scores.max() + excess - values[:, None]))
    below = np.log1p(-np.minimum(above, 1 - 1e-15))
    won = rate * above * np.exp((count[:, None] * below).sum(axis=0) - below)
    chance = np.trapezoid(won, excess, axis=1)[kind]
    return np.asarray(chance / chance.sum())


def moved(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    return float(np.abs(np.asarray(one - other, dtype=np.float64)).sum())


class Fit:
    """One fit of a table, and the loss of each of its stages if a record is added."""

    def __init__(self, plan: FitPlan, records: Sequence[Record]) -> None:
        coins = Coins.seeded(b"\x11" * 32)
        self.plan, self.records, self.rows = plan, records, read(records, plan)
        self.statistics = self.count(self.rows)
        self.noisy = plan.release(self.statistics, coins)
        self.stages = plan.stages(self.noisy.plan.planned_rows)
        self.model = self.chosen = fit_parameters(self.noisy)
        if self.stages.model_selection is not None:
            self.chosen, _ = self.stages.model_selection.choose(self.model, self.rows, coins)

    def count(self, rows: CodedRows) -> Statistics:
        return count_block(Layout(self.plan.codebook), rows)

    def losses(self, record: Record) -> dict[str, float]:
        rows = read([*self.records, record], self.plan)
        statistics, last = self.count(rows), self.noisy.plan
        pairs = zip(last.items, last.tables(statistics), last.tables(self.statistics), strict=True)
        found = {"tables": float(last.epsilon) * max(moved(new, old) / item.bound for item, new, old in pairs)}
        counts = moved(statistics.class_counts, self.statistics.class_counts)
        found["class counts"] = float(self.plan.class_epsilon) * counts
        for stage in last.stages:
            if stage.name == "first look":
                look = self.plan.look(last.planned_rows, frozenset(self.plan.declared.names))
                assert look is not None
                tables = zip(look.tables(statistics), look.tables(self.statistics), strict=True)
                found["first look"] = float(stage.epsilon) * max(moved(new, old) for new, old in tables)
        if (choice := self.stages.model_selection) is not None:
            laws = [law_of_choice(self.scores(choice, each), float(choice.rate)) for each in (self.rows, rows)]
            found["last choice"] = float(np.abs(np.log(laws[0] / laws[1])).max())
        if (calibration := self.stages.calibration) is not None:
            table = calibration.suited(self.chosen)
            found["calibration"] = moved(table.counts(self.chosen, rows), table.counts(self.chosen, self.rows)) / float(
                table.scale
            )
        return found

    def scores(self, choice: ModelSelection, rows: CodedRows) -> npt.NDArray[np.int64]:
        return np.concatenate([each.scores for each in choice.candidates(self.model, rows)])


def largest(classes: int, rows: int | None) -> float:
    plan = plan_fit(book_of(classes), epsilon=1.0, rows=rows, select_model=True)
    return max(sum(fit.losses(record).values()) for fit in (Fit(plan, table) for table in TABLES) for record in HOSTILE)


@pytest.mark.parametrize("rows", [None, 20, 400, 4000])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_no_record_costs_more_than_the_claim_over_all_stages_of_a_fit(classes: int, rows: int | None) -> None:
    assert 0.85 < largest(classes, rows) <= 1 + 1e-6


def _twice(counts: Any) -> Any:
    def faulty(self: CalibrationTable, model: Parameters, rows: CodedRows) -> Any:
        found = counts(self, model, rows)
        return found + np.roll(found, 1)

    return faulty


def _doubled(candidates: Any) -> Any:
    def faulty(self: ModelSelection, model: Parameters, rows: CodedRows) -> Any:
        return [replace(each, scores=2 * each.scores) for each in candidates(self, model, rows)]

    return faulty


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [(CalibrationTable, "counts", _twice), (ModelSelection, "candidates", _doubled)],
)
def test_planted_faults_in_a_stage_show_in_the_loss_of_the_fit(
    where: type, name: str, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, fault(getattr(where, name)))
    assert largest(3 if where is CalibrationTable else 2, 20) > 1


def test_a_stage_that_spends_more_than_its_part_shows_in_the_loss_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CalibrationTable, "scale", property(lambda self: self.rows_per_unit / self.epsilon / 4))
    assert largest(3, 20) > 1
