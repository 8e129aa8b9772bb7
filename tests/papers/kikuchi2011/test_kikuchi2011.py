"""The reproduction of Kikuchi et al. 2011: schemes are right, its figures follow from its formulas, the page is whole."""

import csv
import itertools
import math

import pytest

from blindbayes_papers import PAPERS, reproduce
from blindbayes_papers.kikuchi2011.formulas import (
    DENSITY,
    PAPER,
    PAPER_MILLISECONDS,
    PAPER_SFE1,
    PAPER_SFE2,
    Operations,
    crossover,
    paper_sfe,
    paper_times,
)
from blindbayes_papers.kikuchi2011.measure import changed_classes, items, paper_key
from blindbayes_papers.kikuchi2011.schemes import Polynomials, polynomial_intersection, scalar_product
from support.two_party import coins


@pytest.fixture(scope="module")
def key():
    return paper_key(coins("key"))


@pytest.mark.parametrize(("mine", "theirs"), [((0, 12), (8, 20)), ((0, 5), (5, 9)), ((3, 9), (3, 9)), ((0, 1), (0, 1))])
def test_polynomials_find_the_intersection(key, mine, theirs):
    found = polynomial_intersection(key, items(*mine), items(*theirs), coins("fnp"))
    assert found == len(set(items(*mine)) & set(items(*theirs)))


def test_bins_of_polynomials_do_not_overflow():
    for count in (2, 100, 1000):
        plan = Polynomials.plan(count)
        assert plan.bins * plan.degree >= count
        assert plan.degree < 15


def test_scalar_product_gives_shares(key):
    mine, theirs = [1, 0, 1, 1, 0], [1, 1, 1, 0, 0]
    first, second = scalar_product(key, mine, theirs, coins("product"))
    assert (first + second) % key.public.n == 2
    assert first != 2


def test_the_papers_own_figures():
    """Table 4's times are its fits at 10 bits; N* follows from them, in either unit that the paper may mean."""
    assert paper_sfe("sums", 10) == pytest.approx(PAPER_SFE1, abs=0.01)
    assert paper_sfe("products", 10) == pytest.approx(PAPER_SFE2, abs=0.4)
    assert crossover(PAPER, PAPER_SFE1, PAPER_SFE2) == pytest.approx(18.5, abs=0.1)
    assert crossover(PAPER_MILLISECONDS, PAPER_SFE1, PAPER_SFE2) == pytest.approx(19_917, abs=5)
    assert DENSITY == 0.03
    for unit in (PAPER, PAPER_MILLISECONDS):  # the formulas cross there
        scalar, distorted = paper_times(unit, crossover(unit, PAPER_SFE1, PAPER_SFE2))
        assert scalar == pytest.approx(distorted)
    assert crossover(Operations(0.001, 0.001, 1.0), 1, 2) == math.inf


def test_thinning_changes_classes_less_often_the_larger_they_are():
    """About one in five at 20 rows per class and one in fifty at 20,000; 300 draws each, standard errors of 2.3% and 0.8%."""
    small, large = (changed_classes(3, rows, 300) for rows in (20, 20_000))
    assert 0.02 < small < 0.5
    assert large < small - 0.05


@pytest.mark.slow
def test_the_page_is_whole(tmp_path):
    pytest.importorskip("matplotlib")
    assert "kikuchi2011" in PAPERS
    page = reproduce("kikuchi2011", tmp_path, quick=True)
    text = page.read_text()
    for part in (
        "Table 3",
        "Table 4",
        "Table 5",
        "Crossover",
        "Figure 2",
        "Figure 3",
        "joined_sums",
        "polynomials",
        "0.03",
        "How often the class",
    ):
        assert part in text
    for name in ("figure2.png", "figure3.png", "posterior.png"):
        assert (tmp_path / name).stat().st_size > 10_000
        assert f'<img src="{name}"' in text
    with (tmp_path / "scaling.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    with (tmp_path / "measured.csv").open() as file:
        run = {row["scheme"] for row in csv.DictReader(file)}
    assert run == {"scalar", "polynomial", "distorted_prime", "distorted", "joined"}
    last = rows[-1]
    assert last["joined"] == last["all_joined"] < last["all_distorted"] / 20
    assert last["distorted"] < last["polynomial"]
    assert last["distorted"] < last["scalar_printed"]
    assert last["scalar"] < last["scalar_printed"]
    for before, after in itertools.pairwise(rows[-3:]):  # constants do not matter there
        assert after["scalar"] / before["scalar"] == pytest.approx(10, rel=0.01)
    with (tmp_path / "comparisons.csv").open() as file:
        gates = {(row["kind"], int(row["bits"])): int(row["and_gates"]) for row in csv.DictReader(file)}
    assert gates["products", 16] / gates["products", 4] < 30  # quadratic, not exponential
