"""Models by rule: few rows tell which of many simple models is right most often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from audits.releases import spent_by
from blindbayes import Categorical, Codebook, Numeric, PrivateNaiveBayes
from blindbayes.crypto.coins import Coins
from blindbayes.dp.release.constants import RULES_SIGNAL, STAGE_SHARE
from blindbayes.dp.release.private_fit import MAX_RULES_SIGNAL, plan_fit
from blindbayes.dp.release.stumps import Candidates, all_sides, constants, lean, rules, splits
from blindbayes.statistics import CodedRows
from blindbayes.statistics.parameters import Histogram, Parameters

COINS = Coins.seeded(b"\x0c" * 32)
BOOK = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Numeric("x", 0, 1000),
        Numeric("gap", -5, 5, optional=True),
        Categorical("u", ("p", "q")),
        Categorical("v", tuple(map(str, range(20))), optional=True),
        Numeric("binned", 0, 100, bins=5),
    ),
    max_rows=10**6,
)
PLAN = plan_fit(BOOK, epsilon=1, rows=100)


def made_up(rows: int, seed: int = 1) -> CodedRows:
    """Codes of the cells that the plan counts in, with gaps; the class follows from x and from whether there is a gap."""
    rng = np.random.default_rng(seed)
    columns = {}
    for feature in PLAN.codebook.features:
        codes = rng.integers(0, feature.size, rows)
        columns[feature.name] = np.where(rng.random(rows) < 0.3, -1, codes) if feature.optional else codes
    x, gap = columns["x"] / PLAN.codebook.feature("x").size, columns["gap"] < 0
    return CodedRows(np.where(gap, 2, (x > 0.6).astype(np.int64)), columns, rows)


def flat(classes: int = 3) -> Parameters:
    """A model that says nothing."""
    terms = {each.name: Histogram(np.full((classes, each.size), -np.log(each.size))) for each in PLAN.codebook.features}
    return Parameters(PLAN.codebook, np.full(classes, -np.log(classes)), terms)


def uneven(seed: int = 2) -> Parameters:
    """Any model, with tables that add up to one."""
    rng = np.random.default_rng(seed)
    level = flat()
    raw = {name: term.log_prob + rng.normal(0, 0.4, term.log_prob.shape) for name, term in level.terms.items()}  # type: ignore[union-attr]
    terms = {name: Histogram(log - np.log(np.exp(log).sum(axis=1, keepdims=True))) for name, log in raw.items()}
    return Parameters(PLAN.codebook, np.log(np.array([0.5, 0.2, 0.3])), terms)


SIDES = all_sides(BOOK, PLAN.codebook)


def right(model: Parameters, rows: CodedRows) -> int:
    return int((model.joint_log_likelihood(rows).argmax(axis=1) == rows.labels).sum())


def adds_up(model: Parameters) -> bool:
    tables = [np.exp(term.log_prob).sum(axis=1) for term in model.terms.values()]  # type: ignore[union-attr]
    return bool(np.allclose(np.concatenate([np.exp(model.log_prior).sum()[None], *tables]), 1))


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: constants(flat(), rows.known_labels),
        lambda rows: splits(flat(), rows, SIDES),
        lambda rows: splits(uneven(), rows, SIDES),
        lambda rows: rules(uneven(), rows, SIDES, "some"),
    ],
)
def test_a_score_is_the_number_of_rows_that_the_model_gets_right(made: Any) -> None:
    """Of all kinds of features, with gaps and without."""
    rows = made_up(300)
    found: Candidates = made(rows)
    assert len(found.scores) > 2
    for at in np.unique(np.linspace(0, len(found.scores) - 1, 150).astype(int)):
        model, _ = found.model(int(at))
        assert adds_up(model)
        assert right(model, rows) == found.scores[at]


def test_a_rule_changes_nothing_but_the_rows_on_its_side() -> None:
    rows, model = made_up(400), uneven()
    cells = np.arange(PLAN.codebook.feature("x").size) < 50
    after = lean(model, "x", cells, 1, 1.5).joint_log_likelihood(rows)
    change = after - model.joint_log_likelihood(rows)
    relative = change - change[:, :1]
    inside = rows.columns["x"] < 50
    assert relative[inside] == pytest.approx(np.array([0, 1.5, 0]) * np.ones((inside.sum(), 1)))
    assert relative[~inside] == pytest.approx(0, abs=1e-9)


def test_sides_are_cuts_of_numbers_and_values_of_categories() -> None:
    by_name = {each.feature: each for each in SIDES}
    assert set(by_name) == {"x", "gap", "u", "v", "binned"}
    assert len(by_name["binned"].ranges) == 2 * 4
    assert len(by_name["u"].ranges) == 2  # a value, and the other one
    assert len(by_name["v"].ranges) == 2 * 8  # neighbours together
    width = PLAN.codebook.feature("x").size
    for each, size in ((by_name["x"], width), (by_name["v"], 20)):
        counts = np.arange(size) ** 2
        sums = each.sums(counts)
        assert [int(counts[each.cells(at, size)].sum()) for at in range(len(each.ranges))] == sums.tolist()


def two_classes(features: int) -> Codebook:
    return Codebook("y", ("a", "b"), tuple(Numeric(f"x{at}", 0, 100) for at in range(features)), max_rows=10**6)


def one_that_tells(rows: int, features: int) -> pa.Table:
    """Of many numbers one says the class, nine times in ten."""
    rng = np.random.default_rng(3)
    columns = {f"x{at}": rng.integers(0, 101, rows) for at in range(features)}
    label = (columns["x3"] > 50) ^ (rng.random(rows) < 0.1)
    return pa.table({**columns, "y": np.where(label, "b", "a")})


@pytest.mark.parametrize("declared", [600, None])
def test_few_rows_find_the_one_feature_that_tells(declared: int | None) -> None:
    """600 rows at 0.2: noise in a table of twenty numbers is larger than the table, and a choice among them is sure."""
    table, book = one_that_tells(600, 20), two_classes(20)
    rows, labels = table.drop_columns(["y"]), np.array(table["y"])
    model = PrivateNaiveBayes(book, epsilon=0.2, expected_rows=declared).fit(table)
    assert (model.predict(rows) == labels).mean() > 0.8
    assert any("'x3' alone" in reason for reason in model.privacy_["reasons"])
    assert all(fact["released_as"] == "nothing" for fact in model.privacy_["features"].values())


@pytest.mark.parametrize("rows", [None, 50, 200, 1000, 5000, 10**5])
@pytest.mark.parametrize("people", [1, 3])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_rules_are_paid_for_out_of_the_price(rows: int | None, people: int, classes: int, delta: float) -> None:
    book = replace_classes(two_classes(14), classes)
    plan = plan_fit(book, epsilon=1.0, delta=delta, rows=rows, rows_per_unit=people, select_model=True)
    assert spent_by(plan, COINS) == plan.epsilon
    if rows is not None and plan.stages(rows).rules_alone:
        assert plan.price.delta == 0  # nothing was released that needs one
        assert plan.describe()["stages"] == {
            "last choice": pytest.approx(float(1 - 2 * STAGE_SHARE)),
            "calibration": pytest.approx(float(STAGE_SHARE * (2 - STAGE_SHARE))),  # the rest for class counts
        }
    if rows is not None and (choice := plan.stages(rows).model_selection) is not None:
        assert choice.rate * people == choice.epsilon


def replace_classes(book: Codebook, classes: int) -> Codebook:
    return Codebook(book.target, tuple("abcdefgh"[:classes]), book.features, max_rows=book.max_rows)


def test_a_plan_says_when_rules_take_the_place_of_tables_and_when_they_mend_them() -> None:
    book = two_classes(5)

    def plan(rows: int, **more: Any) -> Any:
        return plan_fit(book, epsilon=1.0, rows=rows, **{"select_model": True, **more})

    assert plan(RULES_SIGNAL - 1).stages(RULES_SIGNAL - 1).rules_alone
    assert not plan(RULES_SIGNAL).stages(RULES_SIGNAL).rules_alone
    assert "rule" in str(plan(100))
    assert plan(1000).stages(1000).model_selection.sides
    assert not plan(MAX_RULES_SIGNAL).stages(MAX_RULES_SIGNAL).model_selection.sides
    assert not plan(100, select_model=False).stages(100).rules_alone  # rows are not at hand, or weigh otherwise


def test_an_empty_table_has_a_model_by_rule_like_any_other() -> None:
    empty = one_that_tells(5, 4).slice(0, 0)
    model = PrivateNaiveBayes(two_classes(4), epsilon=1.0, expected_rows=100).fit(empty)
    assert set(model.predict(one_that_tells(50, 4).drop_columns(["y"]))) <= {"a", "b"}
