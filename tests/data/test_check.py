"""The check of a table: rows that do not fit are counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.data import check, count
from blindbayes.errors import DataError
from support.tables import mixed_table


def test_check_counts_what_does_not_fit_without_stopping() -> None:
    codebook = Codebook(
        "y",
        ("a", "b"),
        (
            Categorical("k", ("u", "v"), optional=True),
            Numeric("x", 0, 9),
            Numeric("z", 0, 9, optional=True),
            Categorical("w", ("1",)),
        ),
    )
    table = pa.table(
        {
            "k": ["u", "CANARY", "CANARY", None],
            "x": ["1", "oops", "50", "?"],
            "z": [1.0, None, 2.0, 3.0],
            "w": [1, 1, 1, 1],
            "y": ["a", "b", "q", "a"],
        }
    )
    report = check(table, codebook)
    by_name = {column.name: column for column in report.columns}
    assert (report.rows, report.ok) == (4, False)
    assert (by_name["k"].unmapped, by_name["k"].missing) == (2, 1)
    assert (by_name["x"].unreadable, by_name["x"].out_of_bounds) == (2, 1)
    assert (by_name["z"].missing, by_name["z"].problem) == (1, "")
    assert by_name["y"].unmapped == 1
    assert by_name["w"].problem == ""
    assert by_name["k"].unmapped_codes == {"CANARY": 2}
    assert "CANARY" not in str(report)
    assert "CANARY" not in str(report.to_dict())


def test_check_accepts_exactly_what_count_accepts() -> None:
    table, codebook = mixed_table()
    assert check(table, codebook).ok
    broken = table.set_column(5, "half", pa.array([99.0] * table.num_rows))
    assert not check(broken, codebook).ok
    with pytest.raises(DataError):
        count(broken, codebook)
