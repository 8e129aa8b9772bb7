"""Numbers of a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from blindbayes.data.values import as_numpy


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3]),
        pa.array([1, 2, 3])[1:],
        pa.array([True, False])[1:],
        pa.array([], pa.float64()),
        pa.array([1.5, None, 2], pa.float32())[1:],
        pa.nulls(2, pa.int8()),
        pa.array([0, 2**64 - 1], pa.uint64()),
    ],
    ids=str,
)
def test_numbers_of_arrow_are_those_that_arrow_gives(column: pa.Array) -> None:
    assert np.array_equal(as_numpy(column), column.to_numpy(zero_copy_only=False), equal_nan=True)
