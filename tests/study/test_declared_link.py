"""A study's declared link decides how two parties compare: the same at both, in the study's hash, with the same classes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Study
from blindbayes.cli import main
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError
from blindbayes.protocol.columns import ColumnsSetup
from blindbayes.protocol.shared_argmax.costs import DeclaredLink, costs
from blindbayes.scheme.aligned import columns_of
from support.argmax import Setup, with_classes
from support.columns import MIXED

BOOK = Codebook(
    "y", ("a", "b", "c"), (Categorical("v", ("p", "q")), Categorical("w", ("p", "q")), Numeric("x", 0, 9)), variance_floor=1.0
)
NARROW, BROAD = {"latency_ms": 5, "bandwidth_mbit": 1}, {"latency_ms": 80, "bandwidth_mbit": 1000}


def table(rows: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    drawn = {"id": [f"p{at}" for at in range(rows)], "v": rng.choice(["p", "q"], rows), "w": rng.choice(["p", "q"], rows)}
    return pd.DataFrame({**drawn, "x": rng.integers(0, 9, rows).astype(float), "y": rng.choice(list("abc"), rows)})


def classified(options: dict[str, Any], held: dict[str, list[str]], rows: int = 80, **fields: Any) -> Any:
    frame, key = table(rows), ["id"] if "key" in fields else []
    study = Study(BOOK, partition="columns", options=options, **fields)
    joint = study.simulate({name: frame[[*key, *own, *(["y"] if name == "bank" else [])]] for name, own in held.items()})
    asked = {name: table(60, 2)[own] for name, own in held.items()}
    return joint, joint.model.classify(asked)


TWO, THREE = {"bank": ["v"], "shop": ["w", "x"]}, {"bank": ["v"], "shop": ["w"], "club": ["x"]}
JOIN = {"key": "id", "aligned": False, "duplicates": "first"}
FORMS: dict[str, tuple[dict[str, list[str]], dict[str, Any]]] = {
    "two": (TWO, {}),
    "nothing but the class at one": ({"bank": [], "shop": ["v", "w", "x"]}, {}),
    "three": (THREE, {}),
    "one learns": (THREE, {"reveal_to": "club"}),
    "noise": (TWO, {"epsilon": 8.0}),
    "inner join": (TWO, JOIN),
}


SLOW = ("nothing but the class at one", "three", "noise")


@pytest.mark.parametrize("form", [pytest.param(form, marks=[pytest.mark.slow] if form in SLOW else []) for form in FORMS])
def test_a_narrow_link_gives_the_same_classes_in_fewer_bytes(form: str) -> None:
    held, fields = FORMS[form]
    exact = "epsilon" not in fields  # noise is drawn anew
    (_, usual), (joint, narrow) = (classified(options, held, **fields) for options in (BROAD, NARROW))
    if exact:
        assert narrow.labels.tolist() == usual.labels.tolist()
    assert narrow.cost.bytes < 0.6 * usual.cost.bytes
    seen = {kind for leak in narrow.leakage.values() for kind in leak.received}
    assert "LevelCompared" in seen
    assert "ArgmaxGarbled" not in seen
    assert {label for leak in narrow.leakage.values() for label in leak.opened} == {"class"}
    assert "not noticed" in joint.statement


@pytest.mark.slow
def test_the_left_join_of_three_compares_by_transfers_too() -> None:
    joint, narrow = classified({**NARROW, "join": "left"}, THREE, **JOIN)
    _, usual = classified({"join": "left"}, THREE, **JOIN)
    assert narrow.labels.tolist() == usual.labels.tolist()
    assert narrow.cost.bytes < usual.cost.bytes
    assert joint.model.columns.link == DeclaredLink("auto", 5, 1)


def test_the_link_is_part_of_what_is_agreed_and_kept() -> None:
    hashes = {
        Study(BOOK, partition="columns", options=options).sha256 for options in ({}, NARROW, BROAD, {"comparison": "garbled"})
    }
    assert len(hashes) == 4
    setup = ColumnsSetup(BOOK, 10, {"bank": ("v",), "shop": ("w", "x")}, ("bank",), link=DeclaredLink("auto", 5, 1))
    assert columns_of(json.loads(json.dumps(setup.to_dict()))) == setup
    assert "link" not in ColumnsSetup(BOOK, 10, setup.owners, ("bank",)).to_dict()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"latency_ms": 5}, "both options"),
        ({"bandwidth_mbit": 5}, "both options"),
        ({"latency_ms": -1, "bandwidth_mbit": 5}, "round trip"),
        ({"latency_ms": 1, "bandwidth_mbit": 0}, "above 0"),
        ({"latency_ms": float("nan"), "bandwidth_mbit": 1}, "round trip"),
        ({"latency_ms": 1, "bandwidth_mbit": float("inf")}, "above 0"),
        ({"comparison": "shouted"}, "comparison"),
        ({"comparison": "transfers", "audit_rate": 0.1}, "not audited"),
        ({"comparison": "transfers", "compare_all": True}, "between two"),
    ],
)
def test_what_is_no_link_or_cannot_be_audited_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Study(BOOK, partition="columns", options=options)


@pytest.mark.parametrize("option", [{"audit_rate": 0.2}, {"compare_all": True}])
def test_where_it_cannot_be_audited_a_narrow_link_changes_nothing(option: dict[str, Any]) -> None:
    _, found = classified({**NARROW, **option}, TWO)
    assert not any("LevelCompared" in leak.received for leak in found.leakage.values())


def test_all_batches_of_a_classification_are_compared_alike() -> None:
    setup = ColumnsSetup(BOOK, 10, {"bank": ("v",), "shop": ("w", "x")}, ("bank",), link=DeclaredLink("auto", 40, 100))
    assert setup.query(10_000).by_transfers
    assert not setup.query(1).by_transfers
    assert setup.query(1, whole=10_001).by_transfers


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("book", "holders"), [(with_classes(3), 1), (with_classes(7), 1), (MIXED, 2)])
@pytest.mark.parametrize("learners", [None, ("class",), ("attributes",)])
def test_the_model_has_the_bytes_and_rounds_of_a_run(narrow: bool, book: Codebook, holders: int, learners: Any) -> None:
    setup = Setup(book, 130, holders=("attributes", "more")[:holders], by_transfers=narrow)
    measured, modelled = setup.run(learners).cost, costs(setup.query(learners))[narrow]
    assert measured.rounds - 1 == modelled.rounds  # the run agrees on its session first
    assert 0 <= measured.bytes - modelled.bytes < 80 * measured.messages  # what names a message and its fields


def test_the_bench_says_what_each_way_costs_and_which_one_a_study_takes(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["bench", "--rows", "100", "--instances", "300", "--protocol", "class_sums"]
    main([*asked, "--json", "--latency-ms", "5", "--bandwidth-mbit", "2"])
    garbled, narrow = json.loads(capsys.readouterr().out)["compared"]
    assert (garbled["comparison"], narrow["comparison"]) == ("garbled", "transfers")
    assert narrow["bytes"] < garbled["bytes"]
    assert narrow["rounds"] > garbled["rounds"]
    assert narrow["taken"]
    assert not garbled["taken"]
    main([*asked, "--latency-ms", "400", "--bandwidth-mbit", "1000"])
    assert "300 classes over a link of 400 ms and 1000 Mbit/s" in capsys.readouterr().out
