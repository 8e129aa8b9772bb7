"""The kernel reads delimited text as Arrow does, or leaves a row to Arrow."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.crypto import kernels
from blindbayes.crypto.kernels.cells import PADDING, CellScanner, Stop
from blindbayes.data import count_table
from blindbayes.data.files import Dialect, Unscanned, csv_batches, scanned
from blindbayes.errors import DataError, LocalProtocolError

pytestmark = pytest.mark.skipif(not kernels.available(), reason="build the kernels: python -m blindbayes.crypto.kernels.build")
PIECES = [
    ",",
    ",",
    "\n",
    "\n",
    "\r\n",
    "\r",
    '"',
    '""',
    "a",
    "b",
    "1",
    "12",
    "long enough text",
    " ",
    "\t",
    "\0",
    "é",
    ";",
    "x,y",
]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
CELLS = st.sampled_from(
    ["", "a", "b", "1.0", "seven77", "eight888", "more than eight bytes", '"quoted"', '"q, r"', '"q\nr"', '""', "é"]
)
TABLES = st.lists(st.lists(CELLS, min_size=3, max_size=3).map(",".join), max_size=30)


@pytest.fixture(params=[*dict.fromkeys((kernels.available() or ("off",))[:: len(kernels.available()) - 1 or 1])], autouse=True)
def isa(request: pytest.FixtureRequest) -> Any:
    with kernels.using(request.param):
        yield


def rows(path: Path, dialect: Dialect, columns: list[str], names: list[str], coded: list[str]) -> Any:
    """The cells of every row, or that the file cannot be read."""
    try:
        batches = list(csv_batches(str(path), dialect, columns, names, coded))
    except (pa.ArrowInvalid, DataError):
        return "unreadable"
    return [tuple(batch.column(name)[at].as_py() for name in names) for batch in batches for at in range(batch.num_rows)]


def alike(path: Path, text: bytes, columns: int, dialect: Dialect = Dialect(",")) -> None:  # noqa: B008
    path.write_bytes(text)
    known = ["k", "l", "m", "n"][:columns]
    names = known[::-1][:2]
    if dialect.names is not None:
        dialect = Dialect(dialect.delimiter, names=tuple(known))
    expected = rows(path, dialect, known, names, [])
    assert rows(path, dialect, known, names, names) == expected
    assert rows(path, dialect, known, names, names[:1]) == expected


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=HOSTILE, columns=st.integers(1, 4), header=st.booleans(), end=st.sampled_from(["", "\n", "\r\n", "\n\n"]))
def test_any_text_reads_as_arrow_reads_it(tmp_path_factory: Any, text: str, columns: int, header: bool, end: str) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile.csv"
    first = ",".join("klmn"[:columns]) + "\n" if header else ""
    alike(path, (first + text + end).encode(), columns, Dialect(",", names=None if header else ("k",)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=TABLES, end=st.sampled_from(["\n", "\r\n"]), last=st.booleans(), mark=st.booleans())
def test_whole_tables_read_as_arrow_reads_them(
    tmp_path_factory: Any, lines: list[str], end: str, last: bool, mark: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "table.csv"
    text = end.join(["k,l,m", *lines]) + (end if last else "")
    alike(path, (b"\xef\xbb\xbf" if mark else b"") + text.encode(), 3)


def test_blocks_strips_and_full_tables_read_as_arrow_reads_them(tmp_path: Path) -> None:
    """More rows than a batch, rows over the ends of blocks and strips, more values than a table has room for."""
    drawn = random.Random(7)
    lines = [f"{drawn.choice('ab')},{drawn.randint(0, 6000)},{'w' * drawn.choice([0, 1, 7, 8, 9, 300])}" for _ in range(60_000)]
    alike(tmp_path / "large.csv", "\n".join(["k,l,m", *lines]).encode(), 3)
    lines[56_000] = 'a,"1""2",w'  # Arrow goes on from here
    alike(tmp_path / "odd.csv", "\n".join(["k,l,m", *lines]).encode(), 3)
    wide = f"{'w' * 3_000_000},1,x\n"
    alike(tmp_path / "wide.csv", f"k,l,m\na,2,y\n{wide}b,3,z\n".encode(), 3)


def test_bytes_that_are_no_text_are_an_error_in_both(tmp_path: Path) -> None:
    alike(tmp_path / "latin.csv", b"k,l\na,b\n\xe9,c\n", 2)
    path = tmp_path / "latin.csv"
    assert rows(path, Dialect(","), ["k", "l"], ["k", "l"], ["k"]) == "unreadable"
    assert rows(path, Dialect(","), ["k", "l"], ["l"], ["l"]) == [("b",), ("c",)]


def test_plain_tables_are_left_to_no_other_reader(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('k,l\n1,"a"\n2,b\r\n\n3,\n')
    kernel = kernels.active()
    assert kernel is not None
    [batch] = scanned(str(tmp_path / "t.csv"), Dialect(","), ["k", "l"], ["l", "k"], kernel, {"k", "l"})
    assert batch.to_pydict() == {"l": ["a", "b", None], "k": ["1", "2", "3"]}
    assert pa.types.is_dictionary(batch.column("k").type)
    (tmp_path / "t.csv").write_text("k,l\n1,a\n2\n")
    with pytest.raises(Unscanned):
        list(scanned(str(tmp_path / "t.csv"), Dialect(","), ["k", "l"], ["l", "k"], kernel, {"k", "l"}))


def test_a_table_counts_alike_with_and_without_kernels(tmp_path: Path) -> None:
    book = Codebook(
        "y", ("0", "1"), (Categorical("k", ("a", "b"), other="b"), Numeric("x", -5, 5, 0.25, optional=True)), missing=("?",)
    )
    drawn = random.Random(8)
    lines = [
        f"{drawn.choice('aAbc')},{drawn.choice(['?', '', '1e1', '-9', 'x', str(drawn.gauss(0, 3))])},{at % 3}"
        for at in range(20_000)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["k,x,y", *lines]))
    found = count_table(tmp_path / "t.csv", book, lenient=True)
    with kernels.using("off"):
        assert count_table(tmp_path / "t.csv", book, lenient=True) == found


def test_the_border_refuses_what_does_not_fit() -> None:
    kernel = kernels.active()
    assert kernel is not None
    for wanted, plain in (([], []), ([0, 0], [False] * 2), ([3], [False]), ([-1], [False]), ([0], [])):
        with pytest.raises(LocalProtocolError):
            CellScanner(kernel, b',\n"\r', 3, wanted, plain, 10)
    scanner = CellScanner(kernel, b',\n"\r', 3, [0], [False], 10, skip=1)
    with pytest.raises(LocalProtocolError):
        scanner.scan(b"1,2,3\n", 0, 6)
    assert scanner.scan(b"1,2,3\n" * 12 + bytes(PADDING), 0, 72) == (66, Stop.ROWS)
    assert scanner.rows == 10
