"""opened_ratio, `coarse`: a party whose vector is no table passed the minimum alone, and read small counts of the others.

Found by a reviewer: a class count of 10,000 reached the minimum for everybody, and cells far below zero, which counted as zero,
left the others' handful to be divided by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.errors import PrivacyError
from blindbayes.protocols.memory import Outcome, local_runs, run_in_memory
from blindbayes.wire import U64Array
from blindbayes_papers.vaidya2008.opened_ratio.roles import (
    PrivateRatioSetup,
    coarse_bits,
    contributor,
    first_party,
    plain_ratios,
    second_party,
)

NAMES, MINIMUM = ("north", "mallory", "south"), 64
BOOK = Codebook("class", ("ill", "well"), (Categorical("hiv", ("yes", "no")),), max_rows=100_000)
LACKING = Codebook("class", ("ill", "well"), (Categorical("hiv", ("yes", "no"), optional=True),), max_rows=100_000)
AGES = Codebook("class", ("ill", "well"), (Numeric("age", 0, 99, optional=True),), max_rows=100_000)


def words(*numbers: int) -> U64Array:
    """Class counts, then class by class the values."""
    return np.array(numbers, dtype=np.int64).view(np.uint64)


def setup(book: Codebook, opening: Any = "coarse") -> PrivateRatioSetup:
    return PrivateRatioSetup(book, opening, coarse_bits(MINIMUM), MINIMUM)


def play(vectors: dict[str, U64Array], ratios: PrivateRatioSetup) -> Outcome:
    coins = Coins.seeded(bytes(32))
    runs = local_runs(NAMES, run_id="run", coins=coins.derive("identities"))
    first, middle, last = NAMES
    roles = {
        first: first_party(runs[first], ratios, vectors[first], last, coins.derive(first)),
        middle: contributor(runs[middle], ratios, vectors[middle], first, last, coins.derive(middle)),
        last: second_party(runs[last], ratios, vectors[last], first, coins.derive(last)),
    }
    return run_in_memory(roles, check=False)


@pytest.mark.parametrize("positive", [0, 1, 2])
@pytest.mark.parametrize("book", [BOOK, LACKING], ids=["always there", "may be missing"])
def test_a_vector_that_is_no_table_opens_no_small_count(book: Codebook, positive: int) -> None:
    others = {"north": words(positive + 2, 40, positive, 2, 0, 40), "south": words(3, 31, 0, 3, 1, 30)}
    evil = words(10_000, 10_000, 0, -50_000, 0, 0)
    outcome = play(others | {"mallory": evil}, setup(book))
    assert isinstance(outcome.error, PrivacyError)
    assert all(opened.get("probabilities") is None for opened in map(dict.fromkeys, outcome.opened.values()))
    fair = play(others | {"mallory": words(60, 61, 1, 59, 1, 60)}, setup(book))
    assert fair.error is None
    assert fair.outputs["mallory"] == plain_ratios(sum(others.values()) + words(60, 61, 1, 59, 1, 60), setup(book))[0]


@pytest.mark.parametrize(
    ("book", "totals"),
    [
        (BOOK, (100, 100, 50, 50, 100, 1)),  # more values than rows
        (BOOK, (100, 100, 50, 50, 99, 0)),  # fewer
        (BOOK, (100, 100, 101, -1, 50, 50)),  # as many with one below zero, and
        (BOOK, (100, 100, 100, -1, 50, 50)),  # as many without it
        (LACKING, (100, 100, 10, 50, 50, 50)),  # fewer than the minimum have a value
        (LACKING, (100, 100, 60, 41, 50, 50)),  # more have one than there are rows
        (AGES, (100, 100, 63, 100, 0, 0, 0, 0)),  # numbers alike: how many have one, then sums and squares
        (AGES, (100, 100, 100, 101, 0, 0, 0, 0)),
        (AGES, (100, 100, 100, 100, -1, 0, 0, 0)),
    ],
)
def test_totals_of_no_table_and_too_few_values_do_not_reach_the_minimum(book: Codebook, totals: tuple[int, ...]) -> None:
    assert not plain_ratios(words(*totals), setup(book))[1]
    assert plain_ratios(words(*totals), setup(book, "fine"))[1]  # where the counts are opened, nothing is left to hide


def test_totals_of_a_table_reach_it() -> None:
    for book, totals in (
        (BOOK, (64, 100, 64, 0, 1, 99)),
        (LACKING, (100, 100, 1, 63, 100, 0)),
        (AGES, (100, 64, 64, 64, 99, 0, 99, 0)),
    ):
        assert plain_ratios(words(*totals), setup(book))[1]
