"""Checks of outputs: the rules for statistics and the published schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data.table import count_table
from blindbayes.report.output_check import OutputRule, check_dominance, check_floor, schema, worst
from blindbayes.statistics import Statistics

BOOK = Codebook("y", ("a", "b"), (Categorical("f", ("u", "v", "w")), Numeric("x", 0, 100)), max_rows=10_000)


def tables(rare: int = 2) -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(1)
    made = {}
    for name in ("north", "south", "west"):
        f = generator.choice(["u", "v"], 200).astype(object)
        f[:rare] = "w"
        made[name] = pd.DataFrame({"y": generator.choice(["a", "b"], 200), "f": f, "x": generator.integers(0, 100, 200)})
    return made


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
