"""A newcomer's trial: a kind of feature that lists its values is a class in codebook/features.py, and a word in `Feature`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from blindbayes import (
    Categorical,
    Codebook,
    ColumnStudy,
    ConfigError,
    JoinStudy,
    NaiveBayes,
    Numeric,
    Privacy,
    PrivateNaiveBayes,
    RowStudy,
)


class Flag(Categorical, frozen=True, forbid_unknown_fields=True, tag="flag", tag_field="kind"):
    """Yes or no."""

    values: tuple[str, ...] = ("no", "yes")


BOOK, SAME = (
    Codebook("ill", ("n", "y"), (kind, Numeric("age", 0, 99, bins=5)), max_rows=1000)
    for kind in (Flag("smokes"), Categorical("smokes", ("no", "yes")))
)


def table(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    columns = {"smokes": rng.choice(["no", "yes"], rows), "age": rng.integers(0, 99, rows), "ill": rng.choice(["n", "y"], rows)}
    return pd.DataFrame(columns)


def test_one_table_and_its_release() -> None:
    frame = table(200)
    new, old = (NaiveBayes(book).fit(frame) for book in (BOOK, SAME))
    assert np.array_equal(new.predict_proba(frame.drop(columns="ill")), old.predict_proba(frame.drop(columns="ill")))
    assert PrivateNaiveBayes(BOOK, epsilon=1.0).fit(frame).statement_.epsilon == 1.0


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_rows_of_three_parties(epsilon: float | None) -> None:
    frame = table(120)
    parts = {name: frame[at::3] for at, name in enumerate(("a", "b", "c"))}
    result = RowStudy(BOOK, privacy=Privacy(epsilon=epsilon)).simulate(parts)
    if epsilon is None:
        assert np.array_equal(result.model.feature_log_prob_["smokes"], NaiveBayes(SAME).fit(frame).feature_log_prob_["smokes"])


def test_files_are_read_once_the_union_names_it() -> None:
    """The one line besides the class: `Feature`, which says what a file may hold."""
    with pytest.raises(ConfigError, match="Invalid value 'flag'"):
        Codebook.from_dict(BOOK.to_dict())


class Rate(Numeric, frozen=True, forbid_unknown_fields=True, tag="rate", tag_field="kind"):
    """A kind with statistics of its own: number and sum, without squares."""

    @property
    def columns(self) -> int:
        return 2


@pytest.mark.parametrize("aligned", [True, False])
def test_what_does_not_know_the_statistics_of_a_kind_refuses_it_by_name(aligned: bool) -> None:
    """As a number it would run there, and end in another model than its own."""
    book = Codebook("ill", ("n", "y"), (Rate("visits", 0, 50), Flag("smokes")), variance_floor=0.01)
    with pytest.raises(ConfigError, match=r"feature 'visits': a study over columns .* does not support statistics of its kind"):
        ColumnStudy(book) if aligned else JoinStudy(book, key="id")
