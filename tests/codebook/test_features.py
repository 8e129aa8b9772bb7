"""Cells of unequal width: declared edges, and a logarithmic scale with a cell for zero."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Codebook, Numeric
from blindbayes.codebook import log_points
from blindbayes.data import count, encode
from blindbayes.errors import ConfigError
from blindbayes.statistics import Layout, cells_of, count_block

CASES = (
    Numeric("x", 0, 10, edges=(1, 5)),
    Numeric("x", -2.5, 40, 0.25, edges=(-1.25, 0, 0.25, 40)),
    Numeric("x", 0, 100_000, bins=7, spacing="log"),
    Numeric("x", -300, 5000, 0.5, bins=9, spacing="log"),
    Numeric("x", 20, 5000, bins=5, spacing="log"),
    Numeric("x", -5000, -20, bins=5, spacing="log"),
    Numeric("x", 0, 10**9, bins=2, spacing="log"),
    Numeric("x", 0, 100, bins=8),
)


@pytest.mark.parametrize("feature", CASES, ids=str)
def test_cells_cover_the_grid_in_order_and_every_way_to_find_one_agrees(feature: Numeric) -> None:
    starts = feature.starts
    assert len(starts) == feature.size
    assert starts[0] == feature.code_low
    assert list(starts) == sorted(set(starts))
    near = {code + step for code in starts for step in (-1, 0, 1)} | {feature.code_high}
    codes = np.array(sorted(code for code in near if feature.code_low <= code <= feature.code_high))
    expected = [sum(start <= code for start in starts) - 1 for code in codes]
    assert cells_of(codes, feature).tolist() == expected
    assert [feature.bin_of(int(code)) for code in codes] == expected


@pytest.mark.parametrize("feature", CASES, ids=str)
def test_rows_in_memory_and_in_a_database_are_counted_into_the_same_cells(feature: Numeric) -> None:
    codebook = Codebook("y", ("a", "b"), (feature,), max_rows=1000)
    starts = np.array([*feature.starts, feature.code_high])
    values = np.concatenate([starts, starts[1:] - 1]) + feature.centre
    table = pa.table({"x": values / feature.scale, "y": ["a", "b"] * (len(values) // 2) + ["a"] * (len(values) % 2)})
    block = encode({"x": table["x"]}, codebook, training=True, labels=table["y"])
    assert count(table, codebook) == count_block(Layout(codebook), block)


def test_zero_has_a_cell_of_its_own_on_a_logarithmic_scale() -> None:
    feature = Numeric("amount", -1000, 10**6, 0.01, bins=8, spacing="log")
    zero = feature.grid(0.0) - feature.centre
    assert feature.bin_of(zero - 1) == feature.bin_of(zero) - 1
    assert feature.bin_of(zero + 1) == feature.bin_of(zero) + 1


def test_logarithmic_cells_double_after_every_few_steps() -> None:
    assert log_points(-20, 100, 2) == [-20, -15, -11, -7, -5, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]


def test_scale_and_edges_are_written_and_read_back() -> None:
    book = Codebook("y", ("a",), (Numeric("u", 0, 9, edges=(3, 4)), Numeric("v", 0, 99, bins=4, spacing="log")))
    assert 'scale = "log"' in book.to_toml()
    assert Codebook.from_dict(book.to_dict()) == book
    assert Codebook.from_dict(book.to_dict()).sha256 == book.sha256


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"edges": (5.0, 5.2)}, "must increase"),
        ({"edges": (0.0,)}, "above the lower bound"),
        ({"edges": (11.0,)}, "above the lower bound"),
        ({"edges": (5.0,), "bins": 3}, "drop bins"),
        ({"edges": (5.0,), "spacing": "log"}, "drop scale"),
        ({"edges": (float("nan"),)}, "finite"),
        ({"spacing": "cubic"}, "linear or log"),
    ],
)
def test_edges_and_scales_that_make_no_sense_are_refused(fields: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        Numeric("x", 0, 10, **fields)  # type: ignore[arg-type]
