"""Codebooks: the hash, the file, and every rule."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.codebook import IdPart, IdRecipe, Origin, json_schema
from blindbayes.data import check
from blindbayes.errors import BlindbayesError, ConfigError, DataError
from support.codebooks import FULL

FULL_SHA256 = "dbd9488b23bcb44ca0629405b6ea0d473f6637a4417813c686da34a1175b7ca5"
CANONICAL_SMALL = (
    b'{"classes":["a"],"features":[{"high":1.5,"kind":"numeric","low":0.0,"name":"\xc3\xa9"}],'
    b'"format":"blindbayes.codebook/1","target":"y"}'
)


def test_the_hash_of_a_known_codebook_never_changes() -> None:
    """Pinned: a change here breaks every study that was agreed by phone."""
    assert FULL.sha256 == FULL_SHA256


def test_the_canonical_form_is_sorted_json_without_spaces_and_defaults() -> None:
    assert Codebook("y", ("a",), (Numeric("é", 0, 1.5),)).canonical() == CANONICAL_SMALL
    spelled_out = Codebook("y", ("a",), (Numeric("é", 0, 1.5, 1.0, optional=False, unit=""),), max_rows=10**9, missing=())
    assert spelled_out.canonical() == CANONICAL_SMALL


def test_the_hash_does_not_depend_on_how_a_number_or_list_is_written() -> None:
    one = Codebook("y", ("a", "b"), (Numeric("x", 0, 10, 1), Categorical("k", ("u",))), variance_floor=1)
    two = Codebook("y", ["a", "b"], [Numeric("x", -0.0, 10.0, 1.0), Categorical("k", ["u"])], variance_floor=1.0)
    assert (one.sha256, one, hash(one)) == (two.sha256, two, hash(two))


@pytest.mark.parametrize(
    "change",
    [
        {"target": "result"},
        {"classes": ("yes", "no")},
        {"max_rows": 10**6 + 1},
        {"expected_rows": 1000},
        {"missing": ()},
        {"variance_floor": 0.25},
        {"identifier": None},
        {"provenance": "public frame"},
        {"features": FULL.features[::-1]},
        {"features": (msgspec.structs.replace(FULL.features[1], high=121.0), *FULL.features[1:][1:], FULL.features[0])},
    ],
)
def test_the_hash_depends_on_every_fact(change: dict[str, Any]) -> None:
    assert msgspec.structs.replace(FULL, **change).sha256 != FULL.sha256


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_codebook_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        FULL.to_toml(tmp_path / "no such folder" / "codebook.toml")
    assert list(tmp_path.iterdir()) == []


GOOD = """
target = "y"
classes = ["a", "b"]
[[features]]
kind = "numeric"
name = "age"
low = 0
high = 120
[[features]]
kind = "categorical"
name = "sex"
values = ["f", "m"]
"""

BROKEN = {
    "broken TOML": (GOOD.replace('"y"', '"y'), "not valid TOML"),
    "no features": ('target = "y"\nclasses = ["a"]\nfeatures = []', "at least one feature"),
    "unknown field": (GOOD.replace("low = 0", "low = 0\nmin = 0"), r"feature 'age'|unknown field `min`"),
    "unknown top field": ("colour = 1\n" + GOOD, "unknown field `colour`"),
    "unknown kind": (GOOD.replace('"numeric"', '"number"'), "feature 'age'"),
    "wrong type": (GOOD.replace("low = 0", 'low = "0"'), "feature 'age'"),
    "number as value": (GOOD.replace('["f", "m"]', "[1, 2]"), "feature 'sex'"),
    "missing field": (GOOD.replace("low = 0", ""), "feature 'age'|low"),
    "other format": ('format = "blindbayes.codebook/2"\n' + GOOD, "format"),
    "no target": (GOOD.replace('target = "y"', ""), "target"),
    "infinite bound": (GOOD.replace("low = 0", "low = -inf"), "feature 'age': low must be a finite"),
    "huge bound": (GOOD.replace("low = 0", "low = -1" + "0" * 400), "feature 'age'"),
    "nan precision": (GOOD.replace("high = 120", "high = 120\nprecision = nan"), "feature 'age': precision"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_an_error_that_names_the_place(case: str, tmp_path: Path) -> None:
    text, message = BROKEN[case]
    path = tmp_path / "codebook.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        Codebook.from_toml(path)


def test_files_that_cannot_be_read_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Codebook.from_toml(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b'target = "\xff"')
    with pytest.raises(ConfigError, match="UTF-8"):
        Codebook.from_toml(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Codebook.from_toml(tmp_path)


# -- every rule --------------------------------------------------------------------------------------------------------

K = (Categorical("k", ("u",)),)
RULES = {
    "empty name": (lambda: Categorical("", ("a",)), "1 to 256 characters"),
    "long name": (lambda: Categorical("n" * 257, ("a",)), "1 to 256 characters"),
    "control character in a name": (lambda: Categorical("a\nb", ("a",)), "control characters"),
    "surrogate in a name": (lambda: Categorical("a\ud800", ("a",)), "control characters"),
    "name of another type": (lambda: Categorical(7, ("a",)), "1 to 256 characters"),
    "no values": (lambda: Categorical("k", ()), "feature 'k': values must list at least one"),
    "values as one text": (lambda: Categorical("k", "abc"), "feature 'k': values must be a list"),
    "values as numbers": (lambda: Categorical("k", (1, 2)), "feature 'k': values must be a list of strings"),
    "value twice": (lambda: Categorical("k", ("a", "a")), "feature 'k': label in values 'a' occurs twice"),
    "empty value": (lambda: Categorical("k", ("a", "")), "feature 'k': values holds the empty text"),
    "control character in a value": (lambda: Categorical("k", ("a\0",)), "feature 'k'.*control characters"),
    "label of no value": (lambda: Categorical("k", ("a",), labels={"b": "bee"}), "feature 'k': labels has 'b'"),
    "value and marker": (lambda: Categorical("k", ("a", "?"), missing=("?",)), "feature 'k'.*both a value and a missing"),
    "low above high": (lambda: Numeric("x", 2, 1), "feature 'x': low is above high"),
    "infinite": (lambda: Numeric("x", 0, math.inf), "feature 'x': high must be a finite"),
    "not a number": (lambda: Numeric("x", "0", 1), "feature 'x': low must be a finite"),
    "enormous integer": (lambda: Numeric("x", 0, 10**400), "feature 'x': high must be a finite"),
    "no square": (lambda: Numeric("x", 0, 1e200, 1e190), "feature 'x'.*no square"),
    "zero precision": (lambda: Numeric("x", 0, 1, 0), "feature 'x': precision must be positive"),
    "odd precision": (lambda: Numeric("x", 0, 1, 0.3), "feature 'x': precision must be a whole number or one over"),
    "too fine": (lambda: Numeric("x", 0, 1e9, 1e-9), "feature 'x': too many grid points"),
    "too far out": (lambda: Numeric("x", 2.0**52, 2.0**52 + 4), "feature 'x': too many grid points"),
    "no bins": (lambda: Numeric("x", 0, 9, bins=0), "feature 'x': bins must be between 1"),
    "more bins than points": (lambda: Numeric("x", 0, 9, bins=11), "feature 'x': bins must be between 1"),
    "half a bin": (lambda: Numeric("x", 0, 9, bins=2.5), "feature 'x': bins must be between 1"),
    "bins on a fine grid": (lambda: Numeric("x", 0, 2.0**44, bins=2**10), "feature 'x': too many grid points for bins"),
    "control character in a marker": (lambda: Numeric("x", 0, 1, missing=("\t",)), "feature 'x'.*control characters"),
    "no classes": (lambda: Codebook("y", (), K), "class column 'y': classes must list"),
    "class twice": (lambda: Codebook("y", ("a", "a"), K), "class column 'y'.*twice"),
    "empty class": (lambda: Codebook("y", ("",), K), "class column 'y'.*empty text"),
    "no features": (lambda: Codebook("y", ("a",), ()), "at least one feature"),
    "features of another type": (lambda: Codebook("y", ("a",), ("k",)), "a Categorical, a Numeric or a Text"),
    "feature twice": (lambda: Codebook("y", ("a",), K + K), "name 'k' occurs twice"),
    "feature named as the class": (lambda: Codebook("k", ("a",), K), "name 'k' occurs twice"),
    "names that differ in case": (lambda: Codebook("K", ("a",), K), "'K' and 'k' differ only in case"),
    "names of the same characters": (lambda: Codebook("\uff4b", ("a",), K), "differ only in case, or in forms"),
    "names that differ in a joiner": (lambda: Codebook("k\u200c", ("a",), K), "differ only in case, or in forms"),
    "no rows": (lambda: Codebook("y", ("a",), K, max_rows=0), "max_rows"),
    "too many rows": (lambda: Codebook("y", ("a",), K, max_rows=2**48 + 1), "max_rows"),
    "rows as a float": (lambda: Codebook("y", ("a",), K, max_rows=1e6), "max_rows"),
    "no floor": (lambda: Codebook("y", ("a",), K, variance_floor=0), "variance_floor"),
    "infinite floor": (lambda: Codebook("y", ("a",), K, variance_floor=math.inf), "variance_floor"),
    "marker of the codebook among values": (lambda: Codebook("y", ("a",), K, missing=("u",)), "feature 'k': 'u' is a value"),
    "empty recipe": (lambda: IdRecipe(()), "at least one column"),
    "column twice in a recipe": (lambda: IdRecipe((IdPart("a"), IdPart("a"))), "identifier: column 'a' occurs twice"),
    "phone without region": (lambda: IdPart("a", "phone"), "identifier column 'a'.*region"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_held_with_an_error_that_names_place_and_fix(rule: str) -> None:
    build, message = RULES[rule]
    with pytest.raises(ConfigError, match=message):
        build()


def test_a_feature_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="no feature 'weight'"):
        FULL.feature("weight")


# -- the grid ----------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    precision=st.sampled_from([1, 0.5, 0.1, 0.01, 1e-3, 1e-6, 3, 10, 1 / 3, 2**-20]),
    low=st.floats(-1e5, 1e5),
    steps=st.integers(0, 10**6),
    at=st.integers(0, 10**6),
)
def test_grid_points_are_fixed_points_of_the_grid(precision: float, low: float, steps: int, at: int) -> None:
    feature = Numeric("x", low, low + steps * precision, precision)
    point = feature.grid_low + min(at, feature.width - 1)
    assert feature.grid(point / feature.scale) == point
    assert feature.code_low <= point - feature.centre <= feature.code_high
    assert feature.code_low <= 0 <= feature.code_high
    assert feature.code_high + feature.code_low in (0, 1)


def test_every_bin_gets_its_share_of_grid_points() -> None:
    feature = Numeric("x", 0, 99, bins=7)
    cells = [feature.bin_of(code) for code in range(feature.code_low, feature.code_high + 1)]
    sizes = [cells.count(cell) for cell in range(7)]
    assert cells == sorted(cells)
    assert sum(sizes) == 100
    assert max(sizes) - min(sizes) <= 1


# -- builders ----------------------------------------------------------------------------------------------------------


def test_a_public_frame_gives_categories_bounds_and_labels() -> None:
    frame = pd.DataFrame(
        {
            "sex": ["m", "f", None, "?"],
            "flag": [True, False, True, True],
            "age": [30, 41, -9, 55],
            "dose": [0.25, 1.5, np.nan, 0.75],
            "y": [1, 0, 1, 1],
        }
    )
    codebook = Codebook.from_frame(frame, "y", missing=("?", "-9"))
    assert codebook.classes == ("0", "1")
    assert codebook.provenance == "public frame"
    assert codebook.feature("sex") == Categorical("sex", ("f", "m"), optional=True)
    assert codebook.feature("flag") == Categorical("flag", ("false", "true"))
    assert codebook.feature("age") == Numeric("age", 30, 55, optional=True)
    assert codebook.feature("dose") == Numeric("dose", 0.25, 1.5, 0.01, optional=True)
    assert check(frame, codebook).ok


def test_a_frame_always_fits_the_codebook_made_from_it() -> None:
    generator = np.random.default_rng(3)
    for scale in (1e-12, 1e-3, 1.0, 1e6, 1e12, 1e100):
        frame = pd.DataFrame({"x": generator.normal(0, scale, 50), "w": generator.integers(-5, 5, 50), "y": ["a", "b"] * 25})
        codebook = Codebook.from_frame(frame, "y", bins=4)
        assert check(frame, codebook).ok
        assert all(feature.bins == 4 for feature in codebook.features)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"x": [1]}), "class column 'y' is missing"),
        (pd.DataFrame({"x": [], "y": []}), "empty"),
        (pd.DataFrame({"x": [np.inf, 1], "y": [1, 2]}), "column 'x' holds infinity"),
        (pd.DataFrame({"x": [1e200, 1], "y": [1, 2]}), "column 'x' holds numbers too large"),
        (pd.DataFrame({"x": [None, None], "y": [1, 2]}), "column 'x' holds no value"),
        (pd.DataFrame({"x": [np.nan, np.nan], "y": [1, 2]}), "column 'x' holds no value"),
        (pd.DataFrame({"x": [1, 2], "y": [0.5, 1.5]}), "column 'y': fractional"),
        (pd.DataFrame({"x": pd.to_datetime(["2020-01-01", "2020-01-02"]), "y": [1, 2]}), "column 'x' has a type"),
        (pd.DataFrame([[1, 2, 3]], columns=["x", "x", "y"]), "column 'x' occurs twice"),
        (pa.table([[1], [2], [3]], names=["x", "x", "y"]), "column 'x' occurs twice"),
    ],
)
def test_a_frame_no_codebook_can_be_made_of_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Codebook.from_frame(frame, "y")


def test_a_data_dictionary_gives_a_codebook(tmp_path: Path) -> None:
    path = tmp_path / "columns.csv"
    path.write_text(
        "Name,Kind,Values,Low,High,Precision,Bins,Optional,Missing,Unit\n"
        "sex,categorical,f|m,,,,,yes,?|x,\n"
        "age,numeric,,0,120,1,,no,,years\n"
        "dose,,,0,10,0.5,5,,,mg\n"
        "outcome,,no|yes,,,,,,,\n",
        encoding="utf-8",
    )
    codebook = Codebook.from_dictionary(path, "outcome", {"max_rows": 1000})
    assert codebook == Codebook(
        "outcome",
        ("no", "yes"),
        (
            Categorical("sex", ("f", "m"), optional=True, missing=("?", "x")),
            Numeric("age", 0, 120, 1, unit="years"),
            Numeric("dose", 0, 10, 0.5, bins=5, unit="mg"),
        ),
        max_rows=1000,
        provenance="data dictionary",
        origin=Origin("dictionary", "blindbayes.dictionary/1", hashlib.sha256(path.read_bytes()).hexdigest()),
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"name": "x", "low": 0, "high": 1}], "describes no column 'y', which --target names"),
        ([{"name": "", "low": 0}, {"name": "y", "values": "a|b"}], "row 1: has no name"),
        ([{"name": "y"}], "'y' is the class column: which labels"),
        ([{"name": "x", "low": "zero", "high": 1}, {"name": "y", "values": "a"}], "row 1, field 'x': low is not a number"),
        (
            [{"name": "x", "low": 0, "high": 1, "bins": "many"}, {"name": "y", "values": "a"}],
            "row 1, field 'x': bins is not a number",
        ),
        (
            [{"name": "x", "kind": "ordinal", "low": 0}, {"name": "y", "values": "a"}],
            "field 'x': kind must be one of categorical, numeric, text, date, identifier",
        ),
        ([{"name": "x", "low": 0}, {"name": "y", "values": "a"}], "high"),
    ],
)
def test_a_data_dictionary_that_says_too_little_is_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Codebook.from_dictionary(rows, "y")


def test_a_data_dictionary_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Codebook.from_dictionary(tmp_path / "absent.csv", "y")
    (tmp_path / "latin.csv").write_bytes(b"name\n\xff\n")
    with pytest.raises(BlindbayesError):
        Codebook.from_dictionary(tmp_path / "latin.csv", "y")


# -- the schema --------------------------------------------------------------------------------------------------------


def test_the_published_schema_is_the_schema() -> None:
    published = Path(__file__).parents[2] / "docs" / "codebook.schema.json"
    assert json.loads(published.read_text(encoding="utf-8")) == json.loads(json.dumps(json_schema()))


def test_the_schema_accepts_codebooks_and_refuses_others() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.Draft202012Validator.check_schema(json_schema())
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(FULL.to_dict())
    assert validator.is_valid(json.loads(FULL.canonical()))
    assert not validator.is_valid({**FULL.to_dict(), "colour": 1})
    assert not validator.is_valid({**FULL.to_dict(), "classes": "no"})
    assert not validator.is_valid({key: value for key, value in FULL.to_dict().items() if key != "target"})


def test_every_reference_in_the_schema_resolves() -> None:
    schema = json_schema()

    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            return [node["$ref"], *references(list(node.values()))] if "$ref" in node else references(list(node.values()))
        return [found for item in node for found in references(item)] if isinstance(node, list) else []

    assert {reference.removeprefix("#/$defs/") for reference in references(schema)} == set(schema["$defs"])
    assert set(schema["$defs"]["Codebook"]["properties"]) == set(Codebook.__struct_fields__)


def test_a_data_dictionary_may_name_cut_points_scales_and_the_category_for_the_rest() -> None:
    rows = [
        {"name": "y", "values": "a|b"},
        {"name": "balance", "low": -10, "high": 1000, "edges": "0|500"},
        {"name": "age", "low": 0, "high": 120, "bins": "18|65"},  # cut points where people write them
        {"name": "crp", "low": 0, "high": 1000, "scale": "log"},
        {"name": "job", "values": "cook|clerk|rest", "other": "rest"},
    ]
    book = Codebook.from_dictionary(rows, "y", {"max_rows": 1000})
    assert [getattr(each, "edges", None) for each in book.features] == [(0.0, 500.0), (18.0, 65.0), (), None]
    assert [getattr(each, "spacing", None) for each in book.features] == ["linear", "linear", "log", None]
    assert book.feature("job").other == "rest"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="field 'balance': edges is not a number"):
        Codebook.from_dictionary([rows[0], {**rows[1], "edges": "0|x"}], "y", {"max_rows": 10})
