"""Formulas, specifications and what is concluded from them; the weight of evidence; the diagram."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.errors import ConfigError
from blindbayes.protocols.formula import value_of
from blindbayes.protocols.registry import SumSetup, coalition_of
from blindbayes.report.leakage import Flow, describe_label, follows_from_sum
from blindbayes.report.page import sequence_diagram
from blindbayes.report.plots import evidence_plot, priors_plot
from blindbayes.report.spec import protocols, read_spec
from blindbayes.report.weight_of_evidence import MAX_RANGES, weights


@pytest.mark.parametrize(
    ("formula", "value"),
    [("2*q - n - 1", 2), ("q - 1 if n <= 64 and not k else 7", 3), ("max(-(-n // 3), 1)", 2), ("int(0.1*n)", 0), ("-q", -4)],
)
def test_formulas_are_arithmetic(formula: str, value: int) -> None:
    assert value_of(formula, {"n": 5, "q": 4, "k": 0}) == value


@pytest.mark.parametrize("formula", ["__import__('os')", "n.real", "[1][0]", "n ** 9", "'a'", "missing", "lambda: 1", "1 +"])
def test_nothing_else_is_a_formula(formula: str) -> None:
    with pytest.raises(ConfigError, match=r"SPEC\.md"):
        value_of(formula, {"n": 5})


@pytest.mark.parametrize("name", protocols())
def test_every_protocol_says_who_learns_what(name: str) -> None:
    spec = read_spec(name)
    assert spec.paragraph("Who learns what")
    assert all(describe_label(label) for label in spec.opened)


def test_a_kind_of_feature_that_is_not_explained_is_refused_by_name() -> None:
    model = NaiveBayes(Codebook("c", ("a", "b"), (Categorical("v", ("x", "y")),), max_rows=9))
    known = model.fit(pa.table({"v": ["x", "y"], "c": ["a", "b"]})).parameters_
    with pytest.raises(ConfigError, match="'v' of kind Categorical"):
        weights(replace(known, terms={"v": object()}))  # type: ignore[dict-item]


def test_an_unknown_protocol_is_named() -> None:
    for name in ("nonsense", "../core"):
        with pytest.raises(ConfigError, match="masked_sum"):
            read_spec(name)


def setting(contributors: int, quorum: int | None = None, *, noisy: bool = False, **options: Any) -> SumSetup:
    return SumSetup(tuple(f"p{at}" for at in range(contributors)), 1, quorum, noisy, options=options)


def test_coalitions_are_those_of_the_specifications() -> None:
    at = [
        coalition_of("masked_sum", setting(5, 4)),
        coalition_of("ring_sum", setting(5)),
        coalition_of("chain_sum", setting(5)),
    ]
    at.append(coalition_of("oblivious_sum", setting(5, 4, scheme="joye_libert")))
    assert [(found.passive, found.active) for found in at if found] == [(3, 2), (3, 3), (4, 4), (3, 2)]
    ring = coalition_of("ring_sum", setting(9, rings=1))
    assert ring is not None
    assert ring.passive == 1
    sparse = coalition_of("masked_sum", setting(200, 180))
    assert sparse is not None
    assert sparse.passive == 20
    chain = coalition_of("chain_sum", setting(100, neighbours=16))
    assert chain is not None
    assert (chain.passive, chain.active) == (15, -1)
    assert coalition_of("reference", setting(5)) is None


def test_what_follows_changes_with_the_number_of_parties_and_with_noise() -> None:
    five = " ".join(follows_from_sum("masked_sum", setting(5, 4), 5))
    assert "up to 3 contributors" in five
    assert "up to 2 contributors" in five
    assert "sum of the other 4" in five
    ten = " ".join(follows_from_sum("masked_sum", setting(10, 7), 9))
    assert "up to 6 contributors" in ten
    assert "sum of the other 8" in ten
    noisy = " ".join(follows_from_sum("masked_sum", setting(5, 4, noisy=True), 5))
    assert "exact" not in noisy
    assert "privacy statement" in noisy
    assert follows_from_sum("ring_sum", setting(3), 3)[0].startswith("A contributor alone, even if")
    assert "Up to 3 contributors" in follows_from_sum("ring_sum", setting(9), 9)[0]
    assert "even if it deviates" in follows_from_sum("ring_sum", setting(3), 3)[0]
    large = " ".join(follows_from_sum("masked_sum", setting(200, 180, noisy=True), 200))
    assert "sums over parts of the other contributors" in large
    assert "neighbourhood" not in five
    assert "claims to protect nothing" in follows_from_sum("reference", setting(3), 3)[0]


BOOK = Codebook(
    "class",
    ("a", "b"),
    (Categorical("colour", ("red", "blue")), Numeric("age", 0, 100, 1, bins=50), Numeric("level", 0, 10, 0.5, bins=4)),
)


def model() -> NaiveBayes:
    rng = np.random.default_rng(5)
    labels = rng.choice(["a", "b"], 400)
    columns = {
        "colour": np.where(rng.random(400) < np.where(labels == "a", 0.8, 0.3), "red", "blue"),
        "age": np.clip(np.rint(rng.normal(np.where(labels == "a", 30, 60), 15)), 0, 100),
        "level": rng.integers(0, 21, 400) / 2,
    }
    return NaiveBayes(BOOK).fit(pa.table(columns), labels)


def test_the_weight_of_evidence_is_the_log_ratio() -> None:
    fitted = model()
    red = next(weight for weight in weights(fitted._record().parameters) if weight.value == "red")
    table = fitted.feature_log_prob_["colour"]
    assert red.values[0] - red.values[1] == pytest.approx(table[0, 0] - table[1, 0], abs=1e-12)
    assert red.values.sum() == pytest.approx(0, abs=1e-12)


def test_fine_cells_are_shown_in_ranges_that_cover_the_grid() -> None:
    parameters = model()._record().parameters
    ages = weights(parameters, "age")
    assert len(ages) == MAX_RANGES
    assert ages[0].value.startswith("0 to")
    assert ages[-1].value.endswith("100")
    table = parameters.terms["age"].log_prob
    merged = np.log(np.exp(table[:, :5]).sum(axis=1))  # 50 cells in 12 ranges: the first two have five
    assert ages[0].values[0] - ages[0].values[1] == pytest.approx(merged[0] - merged[1], abs=1e-12)
    assert [weight.value for weight in weights(parameters, "level")] == ["0 to 2.5", "3 to 5", "5.5 to 7.5", "8 to 10"]
    for weight in weights(parameters, "level"):
        low, high = (float(part) for part in weight.value.split(" to "))
        feature = BOOK.feature("level")
        cells = {feature.bin_of(feature.grid(value) - feature.centre) for value in (low, high)}
        assert cells == {weight.at}


def test_plots_are_drawings_with_every_class() -> None:
    parameters = model()._record().parameters
    for plot in (priors_plot(parameters), evidence_plot(parameters)):
        assert plot.startswith("<svg")
        assert all(f">{label}<" in plot for label in parameters.codebook.classes)
    assert len(re.findall(r"colour: ", evidence_plot(parameters))) == 2


def test_the_diagram_draws_arrows_that_were_sent_and_no_others() -> None:
    ring = Flow(1, "Passed", "masked", (("a", "b"), ("b", "c"), ("c", "a")), 3, 30)
    assert sequence_diagram((ring,)).count("<path") == 3
    many = tuple((f"p{at}", "server") for at in range(40))
    drawn = sequence_diagram((Flow(1, "Sent", "clear", many, 40, 400),))
    assert drawn.count("<path") == 1
    assert "40 others" in drawn


def test_a_run_of_many_steps_is_drawn_by_kind() -> None:
    flows = tuple(Flow(at, f"Block{at % 2}", "masked", (("a", "b"),), 1, 10) for at in range(100))
    drawn = sequence_diagram(flows)
    assert drawn.count("<path") == 2
    assert drawn.count("(50, 500 bytes)") == 2
