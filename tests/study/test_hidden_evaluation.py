"""Evaluation over a hidden join: the totals of the SQL left join in clear, and nothing else is opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from blindbayes.errors import ConfigError, DataError
from blindbayes.protocols.link_bytes import hidden as link_limit
from blindbayes.study.tasks.scoring import HiddenScoring, open_keyed
from study.simulation.test_hidden_scoring import BOOK, draw, in_clear, make

TEST = draw(260, 150, seed=7, duplicates=3)


@pytest.fixture(scope="module")
def trained() -> Any:
    frames = draw(300, 180)
    return {how: make(join=how).simulate(frames).model for how in ("inner", "left")}


@pytest.mark.parametrize("how", ["inner", "left"])
def test_totals_are_those_of_the_join_in_clear_and_nothing_else_is_opened(trained: Any, how: str) -> None:
    model = trained[how]
    result = model.evaluate(TEST, to="bank")
    predicted, clear = in_clear(model, TEST, "bank", "everybody")
    counted = np.array([each is not None for each in predicted])  # of several rows of an identifier the first
    truth = np.array(TEST["bank"]["y"].to_pylist())
    assert clear.all()
    expected = metrics.confusion_matrix(truth[counted], predicted[counted].astype(str), labels=list(BOOK.classes))
    assert result.evaluation.confusion.tolist() == expected.tolist()
    assert result.labels is None
    assert result.leakage["bank"].opened == ("class_totals",)
    assert result.leakage["telecom"].opened == ()
    assert "no person's class" in result.statement
    assert not any("a class for everybody" in line for line in result.report.follows)


def test_a_helper_sees_the_same_whatever_the_classes_are(trained: Any) -> None:
    """Lengths and kinds of its messages do not depend on true classes, nor on how many people there are."""
    model = trained["left"]
    fewer = {**TEST, "bank": TEST["bank"].slice(0, 40)}
    shapes = []
    for frames in (TEST, fewer):
        result = model.evaluate(frames, to="bank")
        shapes.append((result.cost.messages, result.cost.rounds, result.cost.bytes))
    assert shapes[0][:2] == shapes[1][:2]
    assert abs(shapes[0][2] - shapes[1][2]) < 200  # marks take 1 to 9 bytes


def test_traffic_stays_below_the_limit_of_a_link(trained: Any) -> None:
    model = trained["left"]
    part = HiddenScoring(model.shares["bank"], open_keyed(model.shares["bank"], TEST["bank"]), "bank", tally=True)
    assert model.evaluate(TEST, to="bank").cost.bytes < link_limit(part.hidden)


def test_what_cannot_be_evaluated_is_refused(trained: Any) -> None:
    model = trained["inner"]
    with pytest.raises(ConfigError, match="whom bank knows, to it alone"):
        model.evaluate(TEST, to="telecom")
    with pytest.raises(DataError, match="needs the class of every row"):
        model.evaluate({**TEST, "bank": TEST["bank"].drop_columns(["y"])}, to="bank")
    with pytest.raises(ConfigError, match="one table per party"):
        model.evaluate({"bank": TEST["bank"]}, to="bank")


def test_instances_in_one_order_are_evaluated_as_before(trained: Any) -> None:
    bank, telecom = (TEST[name].drop_columns(["id"]).slice(0, 50) for name in ("bank", "telecom"))
    result = trained["inner"].evaluate({"bank": bank, "telecom": telecom})
    assert result.evaluation.rows == 50
    assert {label for leak in result.leakage.values() for label in leak.opened} == {"class_totals"}
