"""Text files in every dialect, packed files and workbooks."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from blindbayes import Dialect, NaiveBayes, open_table
from blindbayes.cli import root
from blindbayes.data import count_table
from blindbayes.data.files import BATCH, parquet_batches
from blindbayes.data.grouping import distinct
from blindbayes.errors import ConfigError, DataError
from support.jobs import BOOK, FRAME, WANT, write

DIALECTS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "commas": ({}, "utf-8", {}),
    "semicolons": ({"sep": ";"}, "utf-8", {}),
    "tabs": ({"sep": "\t"}, "utf-8", {}),
    "bars": ({"sep": "|"}, "utf-8", {}),
    "decimal commas": ({"sep": ";", "decimal": ","}, "utf-8", {"decimal": ","}),
    "Latin-1": ({"sep": ";"}, "latin-1", {"encoding": "latin-1"}),
    "UTF-8 with a mark": ({}, "utf-8-sig", {}),
    "UTF-16 with a mark": ({}, "utf-16", {}),
    "single quotes": ({"quotechar": "'", "quoting": 1}, "utf-8", {"quote": "'"}),
    "no header": ({"sep": ";", "header": False}, "utf-8", {"delimiter": ";", "names": ("job", "pay", "y")}),
    "Windows": ({"lineterminator": "\r\n"}, "utf-8", {}),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_text_file_counts_like_its_frame_in_every_dialect(dialect: str, tmp_path: Path) -> None:
    written, encoding, declared = DIALECTS[dialect]
    path = write(tmp_path / "t.csv", FRAME.to_csv(index=False, **written), encoding)
    for lenient in (False, True):
        with open_table(path, dialect=Dialect(**declared)) as table:
            assert count_table(table, BOOK, lenient=lenient) == WANT
            assert table.table.count().execute() == 4  # the same rows in an engine
            assert count_table(table, BOOK, lenient=lenient) == WANT


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zip", ".zst"])
def test_a_packed_file_counts_like_its_frame(packed: str, tmp_path: Path) -> None:
    path, text = tmp_path / f"t.csv{packed}", FRAME.to_csv(index=False, sep=";").encode()
    if packed == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("t.csv", text)
    elif packed == ".zst":
        path.write_bytes(pa.compress(text, "zstd", asbytes=True))
    else:
        path.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[packed](text))
    assert count_table(path, BOOK) == WANT
    path.write_bytes(b"CANARY" + path.read_bytes()[6:])
    with pytest.raises(DataError, match=r"^[^C]*$"):
        count_table(path, BOOK)


def test_no_row_decides_the_dialect(tmp_path: Path) -> None:
    """Rows full of other delimiters, quotes and decimal commas: the header says commas, so commas it is."""
    rows = 'job,pay,y\n"a;b|c",1,no\n"1;2;3;4",2,yes\n' + '";;;;;",3,no\n' * 50
    with open_table(write(tmp_path / "t.csv", rows)) as table:
        assert table.dialect is not None
        assert table.dialect.delimiter == ","
        assert count_table(table, BOOK, lenient=True).class_counts.tolist() == [51, 1]


def test_a_decimal_comma_is_declared_and_never_guessed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "job;pay;y\ncook;1,5;no\n")
    with pytest.raises(DataError, match="neither a number nor"):
        count_table(path, BOOK)
    assert count_table(path, BOOK, lenient=True).n["pay"].tolist() == [0, 0]
    with open_table(path, dialect=Dialect(decimal=",")) as table:
        assert count_table(table, BOOK).sums["pay"] is not None
        assert count_table(table, BOOK).n["pay"].tolist() == [1, 0]


def test_dialects_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", FRAME.to_csv(index=False))
    for wrong in ({"delimiter": ";;"}, {"quote": ""}, {"decimal": "'"}, {"encoding": "klingon"}, {"delimiter": "\n"}):
        with pytest.raises(ConfigError):
            open_table(path, dialect=Dialect(**wrong))
    with pytest.raises(DataError, match="declare another encoding"):
        count_table(write(tmp_path / "l.csv", FRAME.to_csv(index=False), "latin-1"), BOOK)
    for name in ("a.csv", "b.csv"):
        write(tmp_path / f"many_{name}", "job,pay,y\n" if name == "a.csv" else "job,y,pay\n")
    with pytest.raises(DataError, match="different columns"):
        open_table(tmp_path / "many_*.csv")
    with pytest.raises(ConfigError, match=r"\.csv"):
        open_table(write(tmp_path / "t.pdf", "x"))


def test_a_workbook_counts_like_its_frame(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    xlsxwriter = pytest.importorskip("xlsxwriter")
    with xlsxwriter.Workbook(str(tmp_path / "t.xlsx")) as book:
        book.add_worksheet("notes").write(0, 0, "nothing")
        sheet = book.add_worksheet("rows")
        for at, row in enumerate([list(FRAME.columns), *FRAME.itertuples(index=False)]):
            for column, value in enumerate(row):
                if value == value and value is not None:
                    sheet.write(at, column, value)
    with open_table(tmp_path / "t.xlsx", table="rows") as table:
        assert count_table(table, BOOK) == WANT
    with pytest.raises(DataError, match="no sheet"):
        open_table(tmp_path / "t.xlsx", table="nosuch")


def test_a_workbook_without_its_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    with pytest.raises(ConfigError, match=r"blindbayes\[excel\]"):
        open_table(write(tmp_path / "t.xlsx", "x"))


def test_a_mark_at_the_start_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(codecs.BOM_UTF8 + FRAME.to_csv(index=False).encode())
    with open_table(path) as table:
        assert table.columns[0] == "job"


def test_a_row_longer_than_a_block_is_read_after_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are small, for speed; rows that were given already are not given again."""
    monkeypatch.setattr("blindbayes.data.files.BATCH", 4)
    long = "w" * (3 << 20)
    words = [*("u" * 9), "", long, "v", *("u" * 5)]
    path = tmp_path / "t.csv"
    path.write_text("k,y\n" + "".join(f'"{word}",{at}\n' for at, word in enumerate(words)), encoding="utf-8")
    with open_table(path) as source:
        read = [
            cell
            for batch in source.batches(["k", "y"])
            for cell in zip(*(batch[name].to_pylist() for name in "ky"), strict=True)
        ]
    assert read == [(word or None, str(at)) for at, word in enumerate(words)]


def test_texts_of_few_values_come_as_dictionaries_and_others_as_texts(tmp_path: Path) -> None:
    few, many = ["u", "v"] * 100_000, [f"{at:0100}" for at in range(200_000)]
    pq.write_table(pa.table({"few": few, "many": many}), tmp_path / "t.parquet")
    batch = next(parquet_batches(str(tmp_path / "t.parquet"), ["few", "many"], {"few", "many"}))
    assert pa.types.is_dictionary(batch.column("few").type)
    assert batch.column("many").type == pa.string()
    assert distinct(batch.column("many"), often=False) is None


def test_memory_does_not_grow_with_the_row_groups_of_a_file(tmp_path: Path) -> None:
    """By default Arrow reads all row groups ahead: 48 MB more at 10^7 rows than at 10^6."""
    generator = np.random.default_rng(7)
    schema = pa.schema([("x", pa.float64())])
    with pq.ParquetWriter(tmp_path / "t.parquet", schema) as writer:
        for _ in range(40):
            writer.write_table(pa.table({"x": generator.integers(0, 20_000, BATCH) / 100}, schema))
    before, held = pa.total_allocated_bytes(), []
    for batch in parquet_batches(str(tmp_path / "t.parquet"), ["x"]):
        held.append(pa.total_allocated_bytes() - before)
        del batch
    assert max(held) < 1 << 22 < (tmp_path / "t.parquet").stat().st_size


def test_texts_for_numbers_in_a_workbook_are_made_numbers_there(tmp_path: Path) -> None:
    """`decimal` is for text files: the error for a workbook does not name it."""
    xlsxwriter, path = pytest.importorskip("xlsxwriter"), str(tmp_path / "t.xlsx")
    with xlsxwriter.Workbook(path) as book:
        sheet = book.add_worksheet()
        for at, row in enumerate([("job", "pay", "y"), ("cook", "1,5", "no"), ("cook", "2,5", "yes")]):
            sheet.write_row(at, 0, row)
    BOOK.to_toml(tmp_path / "book.toml")
    NaiveBayes(BOOK).fit(FRAME).save(tmp_path / "model.json")
    checked = CliRunner().invoke(root, ["codebook", "check", str(tmp_path / "book.toml"), "--data", path, "--json"])
    messages = [next(each["problem"] for each in json.loads(checked.stdout)["columns"] if each["name"] == "pay")]
    for words in (
        ["train", path, "--codebook", str(tmp_path / "book.toml"), "--out", str(tmp_path / "m.json"), "--decimal", ","],
        ["predict", str(tmp_path / "model.json"), path],
    ):
        messages.append(str(CliRunner().invoke(root, words).exception))
    for message in messages:
        assert "in the workbook (in Excel: Data, Text to Columns)" in message
        assert "decimal comma" not in message
        assert "--decimal" not in message
