"""A party's columns in a file: read as they lie, without an engine, and refused when they change underneath."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data.columns import open_columns
from blindbayes.errors import DataError

BOOK = Codebook("class", ("a", "b"), (Categorical("colour", ("red", "blue")), Numeric("age", 0, 120)))
TABLE = pa.table({"colour": ["red", "blue", "red"] * 7000, "age": [1.0, 20.0, 119.0] * 7000, "class": ["a", "b", "b"] * 7000})


def write(path: Path, table: pa.Table) -> Path:
    (pacsv.write_csv if path.suffix == ".csv" else pq.write_table)(table, path)
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_file_gives_the_codes_that_its_frame_gives(tmp_path: Path, name: str) -> None:
    found, frame = (open_columns(source, BOOK) for source in (write(tmp_path / name, TABLE), TABLE))
    assert found.rows == frame.rows == 21_000
    read, wanted = (list(each.blocks()) for each in (found, frame))
    for feature in BOOK.names:
        assert np.array_equal(*(np.concatenate([block.columns[feature] for block in blocks]) for blocks in (read, wanted)))
    assert np.array_equal(*(np.concatenate([block.known_labels for block in blocks]) for blocks in (read, wanted)))


@pytest.mark.parametrize("rows", [20_999, 21_001])
def test_a_file_that_changed_since_it_was_counted_is_refused(tmp_path: Path, rows: int) -> None:
    path = write(tmp_path / "rows.parquet", TABLE)
    found = open_columns(path, BOOK)
    write(path, pa.concat_tables([TABLE, TABLE]).slice(0, rows))
    with pytest.raises(DataError, match="changed while it was read"):
        list(found.blocks())
    with pytest.raises(DataError, match="changed while it was read"):
        found.arrow(["colour"])


def test_clean_columns_are_read_without_the_libraries_that_load_for_a_second(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", TABLE)
    program = (
        "import sys; from tests_book import BOOK; from blindbayes.data.columns import open_columns\n"
        f"list(open_columns({str(path)!r}, BOOK).blocks())\n"
        "print([name for name in ('ibis', 'duckdb', 'pandas', 'sklearn') if name in sys.modules])"
    )
    (tmp_path / "tests_book.py").write_text(
        "from blindbayes.codebook import Categorical, Codebook, Numeric\n"
        "BOOK = Codebook('class', ('a', 'b'), (Categorical('colour', ('red', 'blue')), Numeric('age', 0, 120)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
