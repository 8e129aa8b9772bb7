"""`disclosure.json`: valid by the published schema for every kind of run, and the statuses that its checks give."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from blindbayes import Estimation, Limits, NaiveBayes, Privacy, PrivateNaiveBayes, RowStudy
from blindbayes.disclosure.policy import Policy, require_checked
from blindbayes.errors import PrivacyError
from blindbayes.report.output_check import schema
from support.rare_values import BOOK, tables


def checked(result: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.files()["disclosure.json"])
    jsonschema.validate(document, schema(), jsonschema.Draft202012Validator)
    return document


def results(document: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["result"] for check in document["outputs"][0]["checks"]}


def test_small_cells_of_an_exact_sum_fail_and_name_who_agreed() -> None:
    document = checked(RowStudy(BOOK).simulate(tables()))
    assert document["status"] == "fail"
    assert results(document)["floor"] == "fail"
    assert document["outputs"][0]["exception"]["granted_by"] == ["north", "south", "west"]
    assert "one_set" in {rule["name"] for rule in document["rules"]}


def test_a_floor_passes_and_says_how_many_cells_are_suppressed() -> None:
    document = checked(RowStudy(BOOK, limits=Limits(min_cell=10)).simulate(tables()))
    assert results(document) == {"floor": "pass", "recomputation": "pass", "dominance": "pass", "differencing": "review"}
    assert document["risk_appetite"]["frequency"] == 10
    assert document["outputs"][0]["exception"] is None
    first = document["outputs"][0]["checks"][0]["summary"]
    assert first.split()[0] != "0"


def test_noise_is_checked_by_its_budget() -> None:
    document = checked(RowStudy(BOOK, privacy=Privacy(epsilon=1.0)).simulate(tables()))
    assert results(document) == {"floor": "pass", "budget": "pass"}
    assert document["status"] == "pass"


def test_a_release_of_one_table_has_it_too(tmp_path: Any) -> None:
    frame = tables()["north"]
    for at, model in enumerate((NaiveBayes(BOOK), PrivateNaiveBayes(BOOK, epsilon=1.0))):
        folder = model.fit(frame.drop(columns="y"), frame["y"]).release(tmp_path / str(at))
        document = json.loads((folder / "disclosure.json").read_text())
        jsonschema.validate(document, schema(), jsonschema.Draft202012Validator)
        assert document["status"] == ("fail", "pass")[at]


def test_an_evaluation_with_small_cells_fails_as_a_training_does() -> None:
    study = RowStudy(BOOK, estimation=Estimation(held_out=0.3))
    document = checked(study.evaluate(study.simulate(tables()), tables()))
    assert results(document) == {"floor": "fail", "differencing": "review"}
    assert document["outputs"][0]["output_type"] == "evaluation"
    assert document["outputs"][0]["exception"]["granted_by"] == ["north", "south", "west"]
    few = RowStudy(BOOK, estimation=Estimation(held_out=0.5, score_bins=2))
    assert results(checked(few.evaluate(few.simulate(tables()), tables())))["floor"] == "pass"


def test_a_policy_can_refuse_what_failed() -> None:
    require_checked(Policy(), "fail")
    require_checked(Policy(failed_outputs=False), "review")
    with pytest.raises(PrivacyError, match="failed_outputs"):
        require_checked(Policy(failed_outputs=False), "fail")
