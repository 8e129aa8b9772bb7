"""Evaluation of models in shares: the totals that combining the shares gives, and nothing of a single instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from blindbayes import Categorical, Codebook, ColumnStudy, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, ConfigError, DataError
from blindbayes.protocols import link_bytes


def book(classes: tuple[str, ...]) -> Codebook:
    features = (Categorical("a", ("u", "v", "w")), Categorical("b", ("u", "v", "w")), Numeric("x", 0, 100, bins=5))
    return Codebook("y", classes, features, max_rows=10_000)


def draw(classes: tuple[str, ...], rows: int, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    y = generator.integers(0, len(classes), rows)
    values = np.array(["u", "v", "w"])
    a, b = (values[np.where(generator.random(rows) < 0.6, y % 3, generator.integers(0, 3, rows))] for _ in range(2))
    x = np.clip(generator.normal(20 + 15 * y, 20, rows), 0, 100).astype(int)
    return pd.DataFrame({"a": a, "b": b, "x": x, "y": np.array(classes)[y]})


def held(frame: pd.DataFrame, parties: int) -> dict[str, pd.DataFrame]:
    if parties == 2:
        return {"clinic": frame[["y", "x"]], "lab": frame[["a", "b"]]}
    return {"clinic": frame[["y"]], "lab": frame[["a", "b"]], "insurer": frame[["x"]]}


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("classes", [("no", "yes"), ("a", "b", "c"), tuple("abcdefg"), tuple("abcdefghijklmnopqr")], ids=len)
def test_the_totals_are_those_of_the_combined_shares(parties: int, classes: tuple[str, ...]) -> None:
    training, test = draw(classes, 400, 1), draw(classes, 150, 2)
    study = ColumnStudy(book(classes), options={"queries": 1000})
    model = study.simulate(held(training, parties), coins=Coins.seeded(bytes(32))).model
    predicted = model.combine().predict(test[["a", "b", "x"]])
    result = model.evaluate(held(test, parties), coins=Coins.seeded(bytes([1]) * 32))
    assert result.labels is None
    assert result.evaluation is not None
    expected = metrics.confusion_matrix(test["y"], predicted, labels=list(classes))
    assert result.evaluation.confusion.tolist() == expected.tolist()
    assert {label for leak in result.leakage.values() for label in leak.opened} == {"class_totals"}
    assert result.cost.bytes < link_bytes.classification(model.columns, len(test), tally=True)
    assert "evaluation.json" in result.files()
    assert "classes.csv" not in result.files()
    assert f"{result.evaluation.accuracy:.4f}" in result.files()["evaluation.md"].decode()


def test_the_query_budget_is_charged_as_for_a_classification() -> None:
    classes = ("no", "yes")
    study = ColumnStudy(book(classes), options={"queries": 200})
    model = study.simulate(held(draw(classes, 200, 1), 2)).model
    model.evaluate(held(draw(classes, 150, 2), 2))
    with pytest.raises(BlindbayesError, match="quer"):
        model.evaluate(held(draw(classes, 51, 3), 2))


@pytest.mark.parametrize("reveal_to", ["clinic", "lab"])
def test_only_the_named_party_learns_the_totals_and_audits_go_on(reveal_to: str) -> None:
    classes, test = ("no", "yes"), draw(("no", "yes"), 60, 2)
    options: dict[str, Any] = {"audit_rate": 0.25, "queries": 10_000}
    study = ColumnStudy(book(classes), reveal_to=reveal_to, options=options)
    model = study.simulate(held(draw(classes, 300, 1), 2)).model
    result = model.evaluate(held(test, 2))
    expected = metrics.confusion_matrix(test["y"], model.combine().predict(test[["a", "b", "x"]]), labels=list(classes))
    assert result.evaluation is not None
    assert result.evaluation.confusion.tolist() == expected.tolist()
    assert result.leakage[reveal_to].opened == ("class_totals",)


def test_without_the_classes_or_with_compare_all_it_is_refused() -> None:
    classes, test = ("no", "yes"), draw(("no", "yes"), 20, 2)
    model = ColumnStudy(book(classes)).simulate(held(draw(classes, 200, 1), 2)).model
    with pytest.raises(DataError, match="clinic alone brings the class"):
        model.evaluate({"clinic": test[["x"]], "lab": test[["a", "b"]]})
    together = ColumnStudy(book(classes), options={"compare_all": True}).simulate(held(draw(classes, 200, 1), 3)).model
    with pytest.raises(ConfigError, match="compare_all"):
        together.evaluate(held(test, 3))
