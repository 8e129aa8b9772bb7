"""Figures of an evaluation by site: what the cells give, and what they do not show."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from blindbayes.errors import DataError, PrivacyError
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.site_figures import FIGURES, MIN_SITES, SiteCells, SiteDetail

SITES = ("east", "islands", "lakes", "north", "south", "west")
CLASSES = ("no", "yes")


def evaluation(confusion: tuple[int, int, int, int]) -> Evaluation:
    return Evaluation.from_confusion(CLASSES, np.array(confusion))


OWN = [
    evaluation(each) for each in ((40, 10, 5, 45), (30, 5, 20, 30), (11, 2, 3, 1), (90, 0, 0, 10), (7, 3, 1, 9), (50, 9, 9, 50))
]


def total_of(cells: SiteCells, own: list[Evaluation]) -> np.ndarray:
    return np.sum([cells.cells(site, each) for site, each in zip(cells.sites, own, strict=True)], axis=0)


@pytest.mark.parametrize("detail", ["spread", "each"])
def test_mean_and_standard_deviation_are_those_of_the_sites_figures(detail: SiteDetail) -> None:
    cells = SiteCells(detail, SITES)
    figures = cells.open(total_of(cells, OWN))
    assert figures is not None
    for name in FIGURES:
        rounded = [round(100 * getattr(each, name)) / 100 for each in OWN]
        assert figures.spread[name] == pytest.approx((np.mean(rounded), np.std(rounded)), abs=1e-12)
    shown = {
        site: {name: round(100 * getattr(each, name)) / 100 for name in FIGURES} for site, each in zip(SITES, OWN, strict=True)
    }
    assert figures.each == (shown if detail == "each" else {})
    assert "each" in figures.to_dict() or detail == "spread"


def test_the_spread_does_not_show_which_site_has_which_figure() -> None:
    cells = SiteCells("spread", SITES)
    totals = {total_of(cells, list(order)).tobytes() for order in itertools.permutations(OWN)}
    assert len(totals) == 1


def test_a_figure_does_not_show_how_many_rows_are_behind_it() -> None:
    cells = SiteCells("each", SITES)
    few, many = evaluation((4, 1, 1, 4)), evaluation((400, 100, 100, 400))
    assert np.array_equal(cells.cells("north", few), cells.cells("north", many))


def determined(others: int, lowest: int) -> float:
    """The fraction of lists of others' figures (without names) that follow from their sum and their sum of squares."""
    lists: Counter[tuple[int, int]] = Counter()
    for values in itertools.combinations_with_replacement(range(lowest, 101), others):
        lists[sum(values), sum(each**2 for each in values)] += 1
    return sum(count == 1 for count in lists.values()) / lists.total()


def test_why_the_spread_needs_six_sites() -> None:
    """Brute force over all figures of the other sites: what one site can compute from the spread and its own figure."""
    assert determined(2, 60) == 1
    assert determined(3, 60) == pytest.approx(0.61, abs=0.005)
    assert determined(4, 60) == pytest.approx(0.085, abs=0.005)
    assert determined(5, 80) == pytest.approx(0.04, abs=0.005)
    assert SiteCells("spread", SITES[:-1]).unsafe
    assert not SiteCells("spread", SITES).unsafe
    assert len(SITES) == MIN_SITES
    assert not SiteCells("each", SITES[:3]).unsafe


@pytest.mark.parametrize(
    "total",
    [[-1, 0, 0, 0], [601, 80, 60_201, 6400], [480, 480, 38_399, 38_400], [480, 480, 48_001, 38_400]],
    ids=["negative", "above 1", "negative variance", "squares too large"],
)
def test_sums_of_no_figures_are_refused(total: list[int]) -> None:
    with pytest.raises(DataError, match="no figures"):
        SiteCells("spread", SITES).open(np.array(total))
    with pytest.raises(DataError, match="outside 0 to 1"):
        SiteCells("each", SITES[:2]).open(np.array([101, *total[1:]]))


def test_a_site_without_rows_has_no_figures() -> None:
    with pytest.raises(PrivacyError, match="holds out no rows"):
        SiteCells("spread", SITES).cells("north", evaluation((0, 0, 0, 0)))
    assert SiteCells("none", SITES).cells("north", evaluation((0, 0, 0, 0))).size == 0
    assert SiteCells("none", SITES).open(np.zeros(0)) is None
