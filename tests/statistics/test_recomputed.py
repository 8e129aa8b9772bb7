"""Bounds of suppressed cells by linear programming."""

from __future__ import annotations

import numpy as np

from blindbayes.codebook import Categorical, Codebook
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.recomputed import recompute
from support.floors import floored

BOOK = Codebook(target="y", classes=("a", "b"), features=(Categorical("f", ("u", "v"), optional=True),), max_rows=100)


def toy(book, first, second):
    """Return the statistics of two classes from the cells of one optional feature: u, v and missing of each."""
    words = [sum(first), sum(second), *first[:2], *second[:2]]
    return Statistics(Layout(book), np.array(words))


def test_linear_programming_finds_the_bounds_that_enumeration_finds():
    statistics = toy(BOOK, (2, 30, 1), (0, 20, 9))
    table = floored(statistics, 5)
    found = {each.cells: (each.low, each.high) for each in recompute(table)}
    assert found == {((0, 0),): (0, 4), ((0, 2),): (0, 4), ((0, 1),): (25, 32)}
    assert not any(each.is_determined for each in recompute(table))


def test_linear_programming_sees_a_cell_that_a_wrong_release_determines():
    table = floored(toy(BOOK, (2, 30, 1), (0, 20, 9)), 5)
    margin = table.margins[0, "f"]
    margin.pool, margin.small, margin.values = [0], [0], {1: 30, 2: 1}
    assert [each.low for each in recompute(table) if each.is_determined] == [2]
