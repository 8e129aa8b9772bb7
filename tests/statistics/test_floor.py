"""The floor under the cells of an exact sum: the rule by brute force over every table of toy size."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics import floor as rule_of
from blindbayes.statistics.floor import Ask, Combination, Margin, impute, open_table, values_of
from blindbayes.statistics.recomputed import recompute
from support.floors import floored


def answer(question, words):
    values = values_of(question.sums, words)
    if isinstance(question, Ask):
        return (values >= np.array(question.low, np.uint64)) & (values <= np.array(question.high, np.uint64))
    return values


def view_of(rule, words):
    """Return everything that anybody sees of a rule: all bits and all opened values."""
    seen, given = [], None
    while True:
        try:
            question = rule.send(given)
        except StopIteration:
            return tuple(seen)
        given = answer(question, words)
        seen.append(tuple(given.tolist()))


def tables_by_view(cells, floor, total, *, missing=False):
    """Return every margin of that many cells and rows, by what is seen of it."""
    by_view = defaultdict(list)
    for cuts in itertools.combinations(range(total + cells - 1), cells - 1):
        counts = np.diff([-1, *cuts, total + cells - 1]) - 1
        margin = Margin.make(total, [Combination((at,)) for at in range(cells)], floor, missing=missing)
        rule = rule_of._open_margins([margin], floor)
        by_view[view_of(rule, counts.astype(np.uint64))].append((tuple(counts.tolist()), margin))
    return by_view


def determined(by_view, floor):
    """Count cells of 1 to floor - 1 rows that have one value in all tables with the same view."""
    wrong = 0
    for tables in by_view.values():
        for at in range(len(tables[0][0])):
            values = {counts[at] for counts, _ in tables}
            wrong += len(values) == 1 and 0 < min(values) < floor
    return wrong


SIZES = [
    (2, 3, 6),
    (2, 3, 9),
    (2, 5, 13),
    (3, 3, 9),
    (3, 3, 10),
    (3, 3, 14),
    (4, 3, 12),
    (4, 3, 13),
    (3, 4, 12),
    (3, 4, 17),
    (3, 5, 16),
]


@pytest.mark.parametrize(("cells", "floor", "total"), SIZES)
@pytest.mark.parametrize("missing", [False, True])
def test_no_small_cell_is_determined_by_what_is_seen_of_a_margin(cells, floor, total, missing):
    by_view = tables_by_view(cells, floor, total, missing=missing)
    assert determined(by_view, floor) == 0
    for tables in by_view.values():  # the theorem: every assignment of the small cells, but for all zeros
        margin = tables[0][1]
        if not margin.pool or any(len(block) > 1 for block in margin.cells):
            continue
        small = {tuple(counts[at] for at in margin.small) for counts, _ in tables}
        assert len(small) == floor ** len(margin.small) - 1


@pytest.mark.parametrize(("cells", "floor", "total"), [(2, 3, 5), (3, 3, 7), (4, 3, 9), (3, 4, 9)])
def test_neighbouring_cells_are_joined_where_a_margin_is_too_small(cells, floor, total):
    assert determined(tables_by_view(cells, floor, total), floor) == 0


def test_a_rule_that_stops_a_pool_too_early_is_caught(monkeypatch):
    original = rule_of._add_complements

    def hasty(pending, floor):
        for each in pending:
            each.pool.append(each.complements[0])
        yield from ()

    monkeypatch.setattr(rule_of, "_add_complements", hasty)
    assert determined(tables_by_view(3, 3, 9), 3) > 0
    monkeypatch.setattr(rule_of, "_add_complements", original)
    assert determined(tables_by_view(3, 3, 9), 3) == 0


BOOK = Codebook(target="y", classes=("a", "b"), features=(Categorical("f", ("u", "v"), optional=True),), max_rows=100)


def toy(book, first, second):
    """Return the statistics of two classes from the cells of one optional feature: u, v and missing of each."""
    words = [sum(first), sum(second), *first[:2], *second[:2]]
    return Statistics(Layout(book), np.array(words))


def test_no_cell_of_a_whole_table_is_determined():
    floor, total, by_view = 3, 12, defaultdict(list)
    for cuts in itertools.combinations(range(total + 5), 5):
        cells = (np.diff([-1, *cuts, total + 5]) - 1).tolist()
        statistics = toy(BOOK, cells[:3], cells[3:])
        by_view[view_of(open_table(statistics.layout, floor), statistics.words)].append((*cells, *statistics.class_counts))
    assert len(by_view) > 100
    for tables in by_view.values():
        for column in zip(*tables, strict=True):
            assert len(set(column)) > 1 or column[0] == 0 or column[0] >= floor


RICH = Codebook(
    target="y",
    classes=("a", "b", "c"),
    features=(
        Categorical("f", ("t", "u", "v")),
        Numeric("x", 0, 100, optional=True),
        Numeric("z", 0, 10),
        Numeric("wide", 0, 2**31, optional=False),
    ),
    max_rows=10**6,
)


def rich(counts, rows=None, present=None):
    layout = Layout(RICH)
    vector = np.zeros(layout.size, dtype=layout.dtype)
    counts = np.array(counts)
    rows = counts.sum(axis=1) if rows is None else rows

    def put(kind, name, values):
        vector[layout.slice(layout.require(kind, name))] = np.array(values, dtype=object).reshape(-1)

    put("class_count", None, rows)
    put("count", "f", counts)
    put("n", "x", rows if present is None else present)
    put("sum", "x", [-3, -2, -1])
    put("square", "x", [31, 22, 11])
    put("sum", "z", [5, 6, 7])
    put("square", "z", [51, 62, 73])
    put("sum", "wide", [2**40, -(2**41), 5])
    put("square", "wide", [2**70, 2**71, 2**65])
    return Statistics(layout, vector)


def test_without_small_cells_everything_is_opened_and_imputed_as_it_is():
    statistics = rich([(50, 60, 70), (30, 0, 40), (20, 10, 10)])
    table = floored(statistics, 10)
    assert table.suppressed == 0
    assert impute(table) == statistics


def test_sums_of_few_values_are_suppressed_with_their_number():
    table = floored(rich([(50, 60, 70), (30, 10, 40), (20, 10, 10)], present=[180, 76, 40]), 10)
    assert (1, "x") not in table.moments  # four are missing
    assert {(0, "x"), (2, "x"), (1, "z")} <= set(table.moments)
    hidden = [line for line in table.cells if line["feature"] == "x" and line["class"] == "b"]
    assert {line["count"] for line in hidden} == {"suppressed"}
    assert "0" not in {str(line["count"]) for line in hidden}


def test_a_class_below_the_floor_is_opened_with_another_one():
    table = floored(rich([(50, 60, 70), (3, 0, 1), (20, 10, 10)]), 10)
    assert [line["count"] for line in table.cells if line["kind"] == "class_count"] == ["suppressed", "suppressed", 40]
    assert table.groups == ((2,), (0, 1))
    assert table.rows == (40, 184)
    assert not any(each.is_determined for each in recompute(table))
    made = impute(table)
    assert made.class_counts.tolist() == [179, 5, 40]
    assert (made.counts["f"].sum(axis=1) == made.class_counts).all()


def test_an_empty_class_is_no_secret():
    table = floored(rich([(50, 60, 70), (0, 0, 0), (20, 10, 10)]), 10)
    assert table.rows == (180, 0, 40)
    assert table.suppressed == 0


def test_too_few_rows_open_nothing_and_too_small_a_floor_is_refused():
    with pytest.raises(PrivacyError, match="fewer than 20 rows"):
        floored(rich([(5, 1, 1), (1, 1, 1), (1, 1, 1)]), 10)
    with pytest.raises(ConfigError, match="at least 3"):
        floored(rich([(50, 60, 70)] * 3), 2)


def counts_of(moments, numbers, rows):
    """Return how many rows may have each number, for every way to have these moments."""
    ways = itertools.product(range(rows + 1), repeat=len(numbers))
    found = np.array([each for each in ways if sum(each) == rows])
    powers = np.array([[each, each * each] for each in numbers])
    return found[(found @ powers == moments).all(axis=1)]


@pytest.mark.parametrize("numbers", [2, 3, 4])
def test_a_number_whose_moments_are_its_cells_is_refused(numbers):
    """With four numbers most cells are not determined, with three all are."""
    some = counts_of((3 * 1 + 3 * 2, 3 * 1 + 3 * 4), range(numbers), 12)
    book = Codebook("y", ("a", "b"), (Numeric("x", 0, numbers - 1),), max_rows=100)
    if numbers == 4:
        assert len(some) > 1
        rule_of.require_floor(Layout(book), 3)
        return
    assert len(some) <= 1
    with pytest.raises(ConfigError, match="possible numbers"):
        rule_of.require_floor(Layout(book), 3)


def test_answers_that_call_every_cell_small_are_refused():
    """A referee can say so of a margin whose total is public and large."""
    margin = Margin.make(20, [Combination((at,)) for at in range(2)], 5)
    rule = rule_of._open_margins([margin], 5)
    rule.send(None)
    rule.send(np.array([True, True]))
    with pytest.raises(DataError, match="every cell is small"):
        rule.send(np.array([False]))


def test_cells_that_do_not_add_up_are_refused():
    with pytest.raises(DataError, match="do not add up"):
        floored(rich([(50, 60, 70), (30, 10, 40), (20, 10, 10)], rows=np.array([120, 80, 40])), 10)
