"""The privacy statement: no gap is allowed, all forms say the same, and the registry's shape is kept."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from dataclasses import fields, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, Numeric, PrivateNaiveBayes
from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement, _number, code_digest
from blindbayes.dp.noise.mechanisms import make
from blindbayes.errors import ConfigError

FOUR = Sensitivity(tuple(SensitivityBlock(f"h{i}", 4) for i in range(4)))
PUBLIC: dict[str, Any] = {"sensitivity": FOUR, "codebook": "ab" * 32, "data_domain": "tables of this codebook"}
STATEMENT = PrivacyStatement.for_release(make("discrete_gaussian", FOUR, 0.5, 1e-6), **PUBLIC)
RECORD = Deployment(
    name="Readmission model",
    curators=("North Hospital", "South Hospital"),
    intended_use="Planning: beds",
    region="Nowhere",
    description='A classifier, "naive" Bayes.\nSecond line # not a comment',
    published=date(2026, 3, 1),
    sector="Healthcare",
    actors="Hospitals; readers of the model",
    justification="Joint release with the least noise",
    sources="https://example.org/release",
    authors=("A. Writer",),
)


@pytest.mark.parametrize(
    "name", [item.name for item in fields(PrivacyStatement) if item.name not in ("rho", "sources", "stages")]
)
@pytest.mark.parametrize("gap", ["", "  ", None])
def test_no_field_may_be_empty(name: str, gap: Any) -> None:
    with pytest.raises(ConfigError):
        replace(STATEMENT, **{name: gap})


@pytest.mark.parametrize("name", [item.name for item in fields(Deployment)])
def test_no_field_of_a_deployment_may_be_empty(name: str) -> None:
    gap: Any = () if name in ("curators", "authors") else " "
    with pytest.raises(ConfigError):
        replace(RECORD, **{name: gap})


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": float("inf")},
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"model": "Cloud"},
        {"codebook": "abc"},
        {"sources": "abc"},
        {"format": "x/2"},
    ],
)
def test_impossible_promises_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(STATEMENT, **change)


def test_the_mechanism_fills_in_what_it_knows() -> None:
    assert (STATEMENT.epsilon, STATEMENT.delta, STATEMENT.variant) == (0.5, 1e-6, "Approximate DP")
    assert STATEMENT.rho is not None
    pure = PrivacyStatement.for_release(make("discrete_laplace", FOUR, 0.5), **PUBLIC)
    assert (pure.delta, pure.rho, pure.variant) == (0.0, None, "Pure DP")
    person = Sensitivity(FOUR.blocks, rows_per_unit=7)
    statement = PrivacyStatement.for_release(
        make("discrete_laplace", person, 0.5), **{**PUBLIC, "sensitivity": "as the classwise norm says"}
    )
    assert "at most 7 records" in statement.unit


def test_text_answers_every_question() -> None:
    for item in fields(PrivacyStatement):
        value = getattr(STATEMENT, item.name)
        if isinstance(value, str) and item.name not in ("format", "model"):
            assert value in STATEMENT.text
    assert "epsilon = 0.5, delta = 1e-06" in STATEMENT.text
    assert "factor of at most 3.3 through one record, but for a chance of at most 3e-06" in STATEMENT.text
    for part in (STATEMENT.meaning, STATEMENT.substitution, STATEMENT.side_channels, *STATEMENT.stage_lines):
        assert part in STATEMENT.text


def _sentences(text: str) -> set[str]:
    return set(re.split(r"(?<=[a-z0-9)]\.) |\n", text))


CHANGES: dict[str, Any] = {
    "unit": "one person with at most 3 records",
    "adjacency": "remove",
    "epsilon": 0.75,
    "delta": 2e-6,
    "rho": 0.123,
    "stages": "other",
    "codebook": "cd" * 32,
    "sources": "ef" * 32,
    "model": "Federated",
}


def test_every_sentence_hangs_on_a_field() -> None:
    """Change one field after the other: every sentence changes with one, and every field changes one."""
    fixed = _sentences(STATEMENT.text)
    for item in fields(PrivacyStatement):
        if item.name == "format":
            continue
        change = CHANGES.get(item.name, "Something else.")
        stages = [
            {
                "name": "other",
                "mechanism": "another",
                "sampler": "dice",
                "floating_point": True,
                "timing": True,
                "rho": None,
            }
            if item.name == "stages"
            else {name: change for name in ("unit", "adjacency", "epsilon", "delta", "rho") if item.name == name}
        ]
        record = {**STATEMENT.to_dict(), **({} if item.name == "stages" else {item.name: change})}
        record["stages"] = [{**STATEMENT.stages[0].to_dict(), **stages[0]}]
        other = _sentences(PrivacyStatement.from_dict(record).text)
        assert other - _sentences(STATEMENT.text), item.name
        fixed &= other
    assert not {line for line in fixed if line and not line.startswith("#")}


def test_a_fit_by_rules_names_permute_and_flip_on_floating_point_scores() -> None:
    """S1: such a statement said "knorm" and "No floating point" while 90% of epsilon went through permute-and-flip."""
    rng = np.random.default_rng(3)
    label = rng.random(80) < 0.5
    frame = pd.DataFrame({"x": rng.normal(label * 2.0).clip(-5, 5), "y": np.where(label, "b", "a")})
    book = Codebook("y", ("a", "b"), (Numeric("x", -5, 5, 0.01),), expected_rows=80)
    statement = PrivateNaiveBayes(book, epsilon=1.0).fit(frame).statement_
    choice = next(stage for stage in statement.stages if stage.name == "last choice")
    assert (choice.mechanism, float(choice.epsilon), choice.floating_point, choice.timing) == (
        "permute_and_flip",
        0.84,
        True,
        True,
    )
    assert sum(stage.epsilon for stage in statement.stages) == 1
    assert "No floating point" not in statement.text
    assert "last choice: permute_and_flip, epsilon = 0.84" in statement.text
    assert "(84% of epsilon)" in statement.text
    assert "permute_and_flip" in json.dumps(statement.to_registry(RECORD))
    assert statement.sources == code_digest()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_bounds_on_attacks_are_those_of_the_worst_mechanism(epsilon: float, delta: float) -> None:
    """Randomised response that fails with probability delta reaches the region (Kairouz, Oh, Viswanath 2015): no slack."""
    stage = replace(STATEMENT.stages[0], epsilon=Fraction(str(epsilon)), delta=delta)
    statement = replace(STATEMENT, epsilon=epsilon, delta=delta, stages=(stage,))
    truth = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))  # answers: known in, "in", "out", known out
    lie = (1 - delta) / (1 + math.exp(epsilon))
    inside, outside = (delta, truth, lie, 0.0), (0.0, lie, truth, delta)
    assert statement.advantage == pytest.approx(sum(max(0.0, a - b) for a, b in zip(inside, outside, strict=True)), rel=1e-12)
    corners = [(sum(outside[:cut]), sum(inside[:cut])) for cut in range(5)]
    for false in (0.0, 0.001, 0.01, 0.1, 0.5, 1.0):
        best = max(
            a[1] + (b[1] - a[1]) * (false - a[0]) / (b[0] - a[0])
            for a, b in itertools.pairwise(corners)
            if a[0] <= false <= b[0] and b[0] > a[0]
        )
        assert statement.true_positives(false) == pytest.approx(best, rel=1e-9)
    for units in (1, 2, 5):
        assert statement.group(units)[0] == pytest.approx(units * epsilon)
        assert statement.group(units)[1] == pytest.approx(min(1, sum(delta * math.exp(at * epsilon) for at in range(units))))


def test_stages_must_add_up_and_protect_the_unit_of_the_release() -> None:
    half = replace(STATEMENT.stages[0], epsilon=STATEMENT.stages[0].epsilon / 2)
    for stages in ((), (half,), (replace(STATEMENT.stages[0], unit="one person"),)):
        with pytest.raises(ConfigError):
            replace(STATEMENT, stages=stages)


def test_the_published_schema_takes_statements_and_nothing_less() -> None:
    schema = json.loads((Path(__file__).parents[2] / "docs" / "statement.schema.json").read_text())
    record = json.loads(STATEMENT.to_json())
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    check.validate(record)
    assert set(schema["required"]) == set(schema["properties"]) == {item.name for item in fields(PrivacyStatement)}
    assert set(schema["properties"]["stages"]["items"]["required"]) == set(Stage.__slots__)
    for name in record:
        assert not check.is_valid({key: value for key, value in record.items() if key != name})
        assert not check.is_valid({**record, name: "" if isinstance(record[name], str) else []})
    assert not check.is_valid({**record, "extra": 1})
    assert not check.is_valid({**record, "stages": [{**record["stages"][0], "epsilon": 0}]})


def test_json_reads_back_and_refuses_gaps() -> None:
    assert PrivacyStatement.from_json(STATEMENT.to_json()) == STATEMENT
    found = json.loads(STATEMENT.to_json())
    del found["tuning"]
    for bad in (json.dumps(found), json.dumps({**found, "tuning": "t", "extra": 1}), "[]", "{"):
        with pytest.raises(ConfigError):
            PrivacyStatement.from_json(bad)


REGISTRY = {  # properties and closed lists of the registry's schema (opendp/deployments-registry-data, July 2026)
    "basic": {
        "name",
        "data_curators",
        "intended_use",
        "data_product_type",
        "data_product_region",
        "description",
        "publication_date",
        "data_product_sector",
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {"privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details"},
    "deployment_model": {
        "model_name",
        "model_name_details",
        "actors",
        "release_type",
        "release_type_details",
        "data_source_type",
        "data_source_type_details",
        "access_type",
        "access_type_details",
    },
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"sources", "notes", "registry_authors"},
}
CLOSED = {
    ("basic", "data_product_type"): {
        "Summary statistics",
        "Machine learning model",
        "Dataset",
        "Synthetic data",
        "Interactive API",
        "SQL queries",
    },
    ("dp_variant", "variant_name"): {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    ("deployment_model", "model_name"): {"Local", "Central", "Shuffle", "Federated", "Varies"},
    ("deployment_model", "release_type"): {"One release", "Many releases"},
    ("deployment_model", "data_source_type"): {"Static", "Dynamic"},
    ("deployment_model", "access_type"): {"Interactive", "Non-interactive"},
}


def test_the_record_has_the_shape_of_the_registry() -> None:
    record = STATEMENT.to_registry(RECORD)
    assert set(record) == {"url_slug", "status", "tier", "deployment"}
    assert record["url_slug"] == "readmission-model-north-hospital-south-hospital-2026"
    assert set(record["deployment"]) == set(REGISTRY)
    for section, allowed in REGISTRY.items():
        assert set(record["deployment"][section]) <= allowed
    for (section, key), values in CLOSED.items():
        assert record["deployment"][section][key] in values
    assert set(record["deployment"]["privacy_loss"]["privacy_parameters"]) == {"epsilon", "delta", "rho"}


def test_yaml_reads_back_as_the_record() -> None:
    try:
        import yaml
    except ImportError:
        assert os.environ.get("CI") != "true", "PyYAML is an oracle of the tests"
        pytest.skip("PyYAML is not installed")
    text = STATEMENT.to_yaml(RECORD)
    assert yaml.safe_load(text) == STATEMENT.to_registry(RECORD)
    assert {getattr(token, "style", None) for token in yaml.scan(text)} <= {None, '"'}  # no folded text, as the registry asks


@pytest.mark.parametrize(("value", "text"), [(1e-06, "1.0e-06"), (1.5e20, "1.5e+20"), (0.5, "0.5"), (1e22, "1.0e+22")])
def test_numbers_are_numbers_to_every_reader(value: float, text: str) -> None:
    assert _number(value) == text


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_a_ratio_of_odds_exceeds_its_bound_with_the_stated_chance_at_most(epsilon: float) -> None:
    """With the smallest delta that holds for Gaussian noise, ratios over e^epsilon are likelier than delta."""
    x, bound = np.arange(-60, 61), PrivacyStatement.odds_bound.fget  # type: ignore[attr-defined]
    for sigma in (1.0, 2.0, 4.0):
        p, q = (np.exp(-((x - at) ** 2) / (2 * sigma**2)) for at in (0, 1))
        p, q = p / p.sum(), q / q.sum()
        delta = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        factor, chance = bound(SimpleNamespace(odds=math.exp(epsilon), delta=delta))
        ratio = p / q
        assert p[ratio > math.exp(epsilon)].sum() > delta
        assert p[(ratio > factor) | (ratio < 1 / factor)].sum() <= chance
    assert bound(SimpleNamespace(odds=2.0, delta=0.0)) == (2.0, 0.0)
    assert STATEMENT.odds_bound == bound(STATEMENT)
