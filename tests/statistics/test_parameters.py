"""Parameters from statistics, against the formulas."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, ConfigError, DataError, Numeric
from blindbayes.data import count_table
from blindbayes.statistics import Statistics
from blindbayes.statistics.parameters import Gaussian, Histogram, estimate

BOOK = Codebook("y", ("no", "yes"), (Categorical("k", ("u", "v")), Numeric("x", 0, 10, 0.5)), max_rows=100)
ROWS = pa.table({"y": ["no"] * 3 + ["yes"], "k": ["u", "u", "v", "v"], "x": [1.0, 2.0, 6.0, 4.0]})


def test_estimates_are_those_of_the_formulas() -> None:
    made = estimate(count_table(ROWS, BOOK), alpha=0.5, var_smoothing=0.0)
    assert np.exp(made.log_prior) == pytest.approx([0.75, 0.25])
    cells, number = made.terms["k"], made.terms["x"]
    assert isinstance(cells, Histogram)
    assert isinstance(number, Gaussian)
    assert np.exp(cells.log_prob) == pytest.approx(np.array([[2.5 / 4, 1.5 / 4], [0.5 / 2, 1.5 / 2]]))
    assert number.mean == pytest.approx([3.0, 4.0])
    assert number.variance[0] == pytest.approx(np.var([1, 2, 6]))


def test_smoothing_adds_its_part_of_the_largest_variance() -> None:
    plain, smoothed = (estimate(count_table(ROWS, BOOK), var_smoothing=part).terms["x"] for part in (0.0, 0.1))
    assert isinstance(plain, Gaussian)
    assert isinstance(smoothed, Gaussian)
    assert smoothed.variance[0] - plain.variance[0] == pytest.approx(0.1 * np.var([1, 2, 6, 4]))
    assert smoothed.variance[1] == pytest.approx(0.1 * np.var([1, 2, 6, 4]))
    assert plain.variance[1] == pytest.approx(0.5**2 / 12)  # of one value: that of a step of the grid


def test_the_unbiased_variance_is_a_choice() -> None:
    term = estimate(count_table(ROWS, BOOK), var_smoothing=0.0, divisor="n-1").terms["x"]
    assert isinstance(term, Gaussian)
    assert term.variance[0] == pytest.approx(np.var([1, 2, 6], ddof=1))


def test_what_gives_no_model_is_refused() -> None:
    for alpha in (0, -1, math.nan, "1"):
        with pytest.raises(ConfigError, match="alpha"):
            estimate(count_table(ROWS, BOOK), alpha=alpha)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least one row"):
        estimate(Statistics.zero(BOOK))
