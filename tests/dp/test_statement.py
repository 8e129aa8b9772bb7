"""The privacy statement: no gap is allowed, all forms say the same, and the registry's shape is kept."""

from __future__ import annotations

import json
import os
from dataclasses import fields, replace
from datetime import date
from typing import Any

import pytest

from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement, _number
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


@pytest.mark.parametrize("name", [item.name for item in fields(PrivacyStatement) if item.name != "rho"])
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
    [{"epsilon": float("inf")}, {"epsilon": 0.0}, {"delta": 1.0}, {"model": "Cloud"}, {"codebook": "abc"}, {"format": "x/2"}],
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
    assert "factor of at most 1.65" in STATEMENT.text


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
