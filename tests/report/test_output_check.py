"""Checks of outputs: the rules for statistics and the published schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from blindbayes.codebook import Numeric
from blindbayes.data.table import count_table
from blindbayes.report.output_check import OutputRule, check_dominance, check_floor, schema, worst
from blindbayes.statistics import Statistics
from support.rare_values import BOOK, tables


def test_the_checks_of_statistics() -> None:
    statistics = count_table(tables(rare=0)["north"], BOOK)
    assert check_floor(statistics).result == "pass"
    assert check_floor(count_table(tables()["north"], BOOK)).result == "fail"
    feature = BOOK.feature("x")
    assert isinstance(feature, Numeric)
    assert check_dominance([]) is None
    for values, total, result in ((100, 0, "pass"), (3, 0, "review"), (3, 3 * feature.code_low, "review"), (0, 0, "pass")):
        found = check_dominance([(feature, values, total)])
        assert isinstance(found, OutputRule)
        assert found.result == result
    assert worst(()) == "pass"
    assert worst(("pass", "review")) == "review"
    assert isinstance(statistics, Statistics)


def test_the_published_schema_is_the_one_that_is_shipped() -> None:
    published = Path(__file__).parents[2] / "docs" / "disclosure.schema.json"
    assert json.loads(published.read_text()) == schema()
    jsonschema.Draft202012Validator.check_schema(schema())
