"""Cells of a frame and their codes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, NaiveBayes
from blindbayes.data import count
from blindbayes.errors import DataError


@settings(max_examples=7, deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.integers(-3, 12), st.booleans(), st.sampled_from(["0", "07", " 7", "7", "true", "True", "x"])),
        min_size=1,
    )
)
def test_mixed_objects_match_by_their_plain_text(values: list[object]) -> None:
    codebook = Codebook("y", ("a",), (Categorical("k", ("7", "0", "true", "x"), optional=True),))
    frame = pd.DataFrame({"k": pd.Series(values, dtype=object), "y": "a"})
    plain = [None if v is None else {"True": "true", "False": "false"}.get(str(v), str(v)) for v in values]
    known = all(text is None or text in ("7", "0", "true", "x") for text in plain)
    if not known:
        for attempt in (lambda: count(frame, codebook), lambda: NaiveBayes(codebook).fit(frame)):
            with pytest.raises(DataError, match="feature 'k'"):
                attempt()
        return
    expected = [[plain.count(value) for value in ("7", "0", "true", "x")]]
    assert count(frame, codebook).counts["k"].tolist() == expected
    assert NaiveBayes(codebook).fit(frame).statistics_.counts["k"].tolist() == expected


def test_one_row_at_a_time_scores_as_all_at_once() -> None:
    """Gaussian features are scored by a table or by a formula, in pieces of any size: the bits are the same."""
    generator = np.random.default_rng(21)
    frame = pd.DataFrame(
        {
            "x": generator.integers(0, 40, 3000),
            "z": np.round(generator.normal(0, 50, 3000), 3),
            "k": generator.choice(["u", "v"], 3000),
            "y": generator.choice(["a", "b", "c"], 3000),
        }
    )
    model = NaiveBayes(Codebook.from_frame(frame, "y")).fit(frame)
    X = frame.drop(columns="y")
    whole = model.predict_joint_log_proba(X)
    assert math.isfinite(whole.sum())
    for size in (1, 7, 39, 41, 2999):
        pieces = [model.predict_joint_log_proba(X[at : at + size]) for at in range(0, 3000 if size > 1 else 50, size)]
        joined = np.vstack(pieces)
        assert joined.tobytes() == whole[: len(joined)].tobytes()
