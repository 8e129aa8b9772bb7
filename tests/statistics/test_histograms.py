"""Fine cells joined into about equally full ones."""

from __future__ import annotations

import numpy as np

from blindbayes.statistics.histograms import joined


def test_joined_cells_cover_the_fine_ones_and_are_about_equally_full() -> None:
    mass = np.random.default_rng(1).random(200)
    edges = joined(mass.tolist(), 10)
    assert (edges[0], edges[-1]) == (0, 200)
    assert list(edges) == sorted({*edges})
    shares = np.add.reduceat(mass, edges[:-1]) / mass.sum()
    assert len(shares) == 10
    assert (abs(shares - 0.1) <= mass.max() / mass.sum()).all()  # an edge is at most half a fine cell off, at either end


def test_a_cell_that_holds_most_stands_alone() -> None:
    assert {4, 5} <= {*joined([1.0, 1, 1, 1, 60, 1, 1, 1], 4)}


def test_there_are_no_more_cells_than_fine_ones() -> None:
    assert joined([1.0, 1.0], 20) == (0, 1, 2)
