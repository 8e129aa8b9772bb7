"""Sensitivities of `global` by enumeration: no pair of small neighbours moves the integers by more than is claimed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.dp.accounting.sensitivity import Sensitivity
from blindbayes.statistics.layout import Layout
from blindbayes_papers.sensitivity_audit import block_changes
from blindbayes_papers.zafarani2020.query import Query

CODEBOOKS = {
    "histograms": Codebook("y", ("a", "b"), (Categorical("u", ("0", "1")), Categorical("v", ("0", "1", "2"))), max_rows=100),
    "optional histograms": Codebook(
        "y", ("a", "b"), (Categorical("u", ("0", "1"), optional=True), Categorical("v", ("0", "1"))), 100
    ),
    "bins": Codebook("y", ("a", "b"), (Numeric("x", 0, 3, bins=2), Categorical("u", ("0", "1"))), max_rows=100),
    "sums": Codebook("y", ("a", "b"), (Numeric("x", 0, 3),), max_rows=100),
    "sums far from zero": Codebook("y", ("a", "b"), (Numeric("x", 1000, 1002),), max_rows=100),
    "optional sums": Codebook("y", ("a", "b"), (Numeric("x", -1, 1, optional=True),), max_rows=100),
    "mixed": Codebook("y", ("a", "b"), (Numeric("x", 0, 2), Categorical("u", ("0", "1"), optional=True)), max_rows=100),
    "constant": Codebook("y", ("a", "b"), (Numeric("x", 5, 5), Categorical("u", ("0", "1"))), max_rows=100),
}


def records(codebook: Codebook) -> list[tuple[int | None, ...]]:
    """Every record that the codebook allows: (class, then a value index, a code or None for each feature)."""
    domains: list[list[int | None]] = [list(range(len(codebook.classes)))]
    for feature in codebook.features:
        values: list[int | None]
        if isinstance(feature, Categorical):
            values = list(range(feature.size))
        else:
            values = list(range(feature.code_low, feature.code_high + 1))
        domains.append([*values, None] if feature.optional else values)
    return list(itertools.product(*domains))


def statistics(codebook: Codebook, table: list[tuple[int | None, ...]]) -> np.ndarray:
    """The statistics vector of a table, counted the slow and plain way."""
    layout = Layout(codebook)
    vector = np.zeros(layout.size, dtype=np.int64)
    for label, *values in table:
        by_name = dict(zip(codebook.names, values, strict=True))
        for group in layout.groups:
            at = group.start + label * group.columns
            if group.feature is None:
                vector[at] += 1
                continue
            value = by_name[group.feature.name]
            if value is None:
                continue
            if group.kind == "count":
                column = value if isinstance(group.feature, Categorical) else group.feature.bin_of(value)
                vector[at + column] += 1
            else:
                vector[at] += {"n": 1, "sum": value, "square": value * value}[group.kind]
    return vector


def is_within(claimed: Sensitivity, difference: np.ndarray) -> bool:
    """Whether two neighbours can differ like that."""
    bounds = [claimed.rows_per_unit * block.bound for block in claimed.blocks]
    return all(change <= bound for change, bound in zip(block_changes(claimed, difference), bounds, strict=True))


@pytest.mark.parametrize("name", CODEBOOKS)
def test_every_pair_of_small_neighbours_stays_within_the_bounds(name: str) -> None:
    codebook = CODEBOOKS[name]
    query = Query(codebook)
    space = records(codebook)
    largest = [0] * len(query.sensitivity.blocks)
    for size in range(3):
        for table in itertools.combinations_with_replacement(space, size):
            before = query.apply(statistics(codebook, list(table)))
            for record in space:
                after = query.apply(statistics(codebook, [*table, record]))
                assert is_within(query.sensitivity, after - before)
                largest = [max(pair) for pair in zip(largest, block_changes(query.sensitivity, after - before), strict=True)]
                assert np.abs(after - before).sum() <= query.sensitivity.l1
                assert np.abs(after - before).max() <= query.sensitivity.linf
                assert ((after - before) ** 2).sum() <= query.sensitivity.l2_squared
    assert largest == [block.bound for block in query.sensitivity.blocks]  # and no bound is larger than it need be


@pytest.mark.parametrize("name", CODEBOOKS)
def test_a_person_with_several_rows_stays_within_the_multiple(name: str) -> None:
    codebook = CODEBOOKS[name]
    query = Query(codebook, rows_per_unit=3)
    empty = query.apply(statistics(codebook, []))
    for rows in itertools.combinations_with_replacement(records(codebook), 3):
        assert is_within(query.sensitivity, query.apply(statistics(codebook, list(rows))) - empty)


@pytest.mark.parametrize("name", CODEBOOKS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_restore_is_the_inverse_of_apply(name: str, data: st.DataObject) -> None:
    codebook = CODEBOOKS[name]
    query = Query(codebook)
    table = data.draw(st.lists(st.sampled_from(records(codebook)), max_size=30))
    vector = statistics(codebook, table)
    assert (query.restore(query.apply(vector)) == vector).all()


def test_uncentred_sums_are_caught_by_the_enumeration() -> None:
    """The planted bug: sums counted from zero, claimed at the sensitivity of centred ones."""
    codebook = CODEBOOKS["sums far from zero"]
    claimed = Query(codebook).sensitivity
    group = Layout(codebook).find("sum", "x")
    assert group is not None

    def uncentred(table: list[tuple[int | None, ...]]) -> np.ndarray:
        right = Query(codebook).apply(statistics(codebook, table))
        counts = statistics(codebook, table)[:2]
        right[2:4] = statistics(codebook, table)[Layout(codebook).slice(group)] + 1001 * counts
        return right

    for record in records(codebook):
        assert not is_within(claimed, uncentred([record]) - uncentred([]))


def test_wide_moments_stay_exact() -> None:
    codebook = Codebook("y", ("a",), (Numeric("x", -(2**40), 2**40),), max_rows=10**9)
    query = Query(codebook)
    n, z = 10**9, 2**40
    vector = np.array([n, n * z, n * z * z], dtype=object)
    assert query.restore(query.apply(vector)).tolist() == vector.tolist()
