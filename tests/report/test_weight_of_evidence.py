"""The weight of evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes
from blindbayes.errors import ConfigError
from blindbayes.report.weight_of_evidence import MAX_RANGES, weights
from support.two_classes import BOOK, model


def test_a_kind_of_feature_that_is_not_explained_is_refused_by_name() -> None:
    model = NaiveBayes(Codebook("c", ("a", "b"), (Categorical("v", ("x", "y")),), max_rows=9))
    known = model.fit(pa.table({"v": ["x", "y"], "c": ["a", "b"]})).parameters_
    with pytest.raises(ConfigError, match="'v' of kind Categorical"):
        weights(replace(known, terms={"v": object()}))  # type: ignore[dict-item]


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
