"""Tables as people have them: dialects of CSV, packed files, workbooks, dates, and a map from a site's columns.

One table counts alike whatever carries it, and no row changes how another is read: a dialect is declared, or decided by the
header and the first bytes.
"""

from __future__ import annotations

import bz2
import codecs
import datetime
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ibis
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, Dialect, NaiveBayes, Numeric, PrivateNaiveBayes, load, open_table
from blindbayes.cli import root
from blindbayes.data import check, count_table
from blindbayes.data.mapping import FUNCTIONS
from blindbayes.data.sources import read_public
from blindbayes.errors import BlindbayesError, ConfigError, DataError
from blindbayes.statistics import Statistics

BOOK = Codebook(
    "y",
    ("no", "yes"),
    (Categorical("job", ("cook", "clerk; senior", "müller"), optional=True), Numeric("pay", -10, 100, 0.5, optional=True)),
    max_rows=1000,
)
FRAME = pd.DataFrame(
    {"job": ["cook", "clerk; senior", None, "müller"], "pay": [1.5, -2.0, None, 99.5], "y": ["no", "yes", "no", "yes"]}
)
WANT = count_table(FRAME, BOOK)


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


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


# -- one meaning of a value ---------------------------------------------------------------------------------------------------

CODES = Codebook("y", ("true", "false"), (Categorical("c", ("1", "2", "3"), optional=True),), max_rows=100)


def test_truth_values_and_whole_numbers_with_gaps_count_alike_in_frame_csv_parquet_and_database(tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": [1.0, 2.0, None, 3.0], "y": [True, False, True, True]})  # as pandas holds an integer with gaps
    frame.to_csv(tmp_path / "t.csv", index=False)  # True, 1.0
    frame.to_parquet(tmp_path / "t.parquet")
    there = ibis.duckdb.connect()
    sources = (frame, tmp_path / "t.csv", tmp_path / "t.parquet", there.create_table("t", pa.Table.from_pandas(frame)))
    want = count_table(frame.astype({"c": "Int64"}), CODES)
    assert all(count_table(source, CODES) == want for source in sources)
    there.disconnect()


# -- the map -------------------------------------------------------------------------------------------------------------------

MAPPED = Codebook(
    "ill",
    ("no", "yes"),
    (
        Categorical("sex", ("male", "female", "other"), optional=True),
        Numeric("weight", 0, 300, 0.5, optional=True),
        Numeric("age", 0, 120, 1.0, optional=True),
        Numeric("stay", 0, 400, 1.0, optional=True),
        Numeric("weekday", 1, 7, 1.0, bins=7, optional=True),
        Categorical("old", ("yes", "no"), optional=True),
    ),
    max_rows=1000,
)
MAP: dict[str, Any] = {
    "ill": {"from": "Befund", "values": {"1": "yes", "0": "no"}},
    "sex": {"from": "geschlecht", "values": {"m": "male", "w": "female"}, "other": "other"},
    "weight": "lb * 0.45359237",
    "age": "years(born, col('admitted at'))",
    "stay": "days(col('admitted at'), left)",
    "weekday": "weekday(left)",
    "old": "'yes' if years(born, left) >= 65 else 'no'",
}
RAW = ["Befund", "geschlecht", "lb", "born", "admitted at", "left"]
PATIENTS = [
    ("1", "m", "220.5", "1950-02-28", "2024-02-28", "2024-03-01"),
    ("0", "w", "100", "2000-02-29", "2024-02-28", "2025-02-28"),
    ("0", "d", "", "1999-12-31", "2024-01-01 23:59", "2024-01-01"),
    ("1", "", "x", "1999-13-31", "today", "2023-12-24"),
]


def carriers(rows: list[tuple[str, ...]], folder: Path) -> dict[str, Callable[[], Any]]:
    frame = pd.DataFrame(rows, columns=RAW, dtype=str)
    frame.to_csv(folder / "p.csv", index=False, sep=";")
    frame.to_parquet(folder / "p.parquet")
    return {
        "frame": lambda: frame,
        "csv": lambda: folder / "p.csv",
        "parquet": lambda: folder / "p.parquet",
        "engine": lambda: ibis.duckdb.connect().create_table("p", pa.Table.from_pandas(frame, preserve_index=False)),
    }


def counted(source: Any, lenient: bool = True) -> Statistics:
    with open_table(source, map=MAP) as table:
        return count_table(table, MAPPED, lenient=lenient)


def by_hand() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sex": ["male", "female", "other", None],
            "weight": [220.5 * 0.45359237, 45.359237, np.nan, np.nan],
            "age": [74, 23, 24, np.nan],
            "stay": [2, 366, 0, np.nan],
            "weekday": [5, 5, 1, 7],
            "old": ["yes", "no", "no", None],
            "ill": ["yes", "no", "no", "yes"],
        }
    )


def test_a_map_does_what_a_hand_would_whatever_carries_the_table(tmp_path: Path) -> None:
    want = count_table(by_hand(), MAPPED, lenient=True)
    for name, carrier in carriers(PATIENTS, tmp_path).items():
        assert counted(carrier()) == want, name
        assert counted(carrier(), lenient=False) == want, name


CELL = st.sampled_from(
    ["", "1", "0", "1.0", "m", "w", "1e99", "-5", "2024-02-29", "9999-12-31", "0000-01-01", "2024-1-1T5:07", "x", "é"]
)
ROW = st.tuples(*[CELL] * len(RAW))


@settings(max_examples=2, deadline=None)
@given(rows=st.lists(ROW, max_size=3), record=ROW)
def test_a_record_adds_what_it_adds_alone_under_a_map(rows: list[Any], record: Any, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("map")
    counts = [
        {name: counted(carrier()) for name, carrier in carriers(each, folder).items()}
        for each in ([*rows, record], rows, [record])
    ]
    for name in counts[0]:
        assert counts[0][name] - counts[1][name] == counts[2][name], name
        assert counts[0][name] == counts[0]["csv"], name


@settings(max_examples=6, deadline=None)
@given(start=st.dates(), end=st.dates())
def test_days_and_years_are_those_of_the_calendar(start: datetime.date, end: datetime.date) -> None:
    typed = pa.table({"a": pa.array([start]), "b": pa.array([end])})
    spelled = pa.table({"a": [start.isoformat()], "b": [f"{end.isoformat()} 12:30"]})
    rules = {"d": "days(a, b)", "y": "years(a, b)", "w": "weekday(b)", "m": "month(b)"}
    for source in (typed, spelled):
        with open_table(source, map=rules) as table:
            found = table.table.to_pyarrow().to_pylist()[0]
        early = (end.month, end.day) < (start.month, start.day)
        want = {"d": (end - start).days, "y": end.year - start.year - early, "w": end.isoweekday(), "m": end.month}
        assert found == want


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("__import__('os').system('true')", "only columns"),
        ("open('x')", "no function 'open'"),
        ("a.b", "only columns"),
        ("[a for a in b]", "only columns"),
        ("a ** b", r"\+ - \* /"),
        ("lambda: a", "only columns"),
        ("a[0]", "only columns"),
        ("f'{a}'", "only columns"),
        ("a +", "not an expression"),
        ("(" * 900 + ")" * 900, "not an expression"),
        ("b" * 3000, "characters"),
        ("nosuch + 1", "no column 'nosuch'"),
        ("day", "a date is not a feature|no column"),
        ("date(a)", "a date is not a feature"),
        ("years(a)", "2 argument"),
        ("'x' + 1 if a else 2", "condition"),
        ({"from": "a", "value": {}}, "from, values and other"),
        ({"from": "a", "values": {"1": 2}}, "table of texts"),
        (7, "an expression"),
    ],
)
def test_what_is_no_rule_is_refused(rule: Any, why: str) -> None:
    with pytest.raises(BlindbayesError, match=why):
        open_table(pa.table({"a": ["1"], "b": ["2"]}), map={"x": rule})


def test_every_function_of_the_map_stands_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/tables.md").read_text(encoding="utf-8")
    assert [name for name in FUNCTIONS if f"`{name}(" not in page] == []


# -- from the command line, and in the estimator ---------------------------------------------------------------------


def test_a_bank_s_semicolons_train_check_and_predict_without_touching_the_file(tmp_path: Path) -> None:
    data = write(tmp_path / "bank.csv", FRAME.assign(id=range(4)).to_csv(index=False, sep=";", decimal=","), "latin-1")
    BOOK.to_toml(tmp_path / "book.toml")
    reading = ["--encoding", "latin-1", "--decimal", ",", "--ignore-extra"]
    run = CliRunner()
    for command in (
        ["codebook", "check", str(tmp_path / "book.toml"), "--data", str(data)],
        ["train", str(data), "--codebook", str(tmp_path / "book.toml"), "--out", str(tmp_path / "m.json")],
        ["predict", str(tmp_path / "m.json"), str(data)],
    ):
        found = run.invoke(root, [*command, *reading])
        assert found.exit_code == 0, found.output
        assert "separated by semicolons" in found.stderr
    assert load(tmp_path / "m.json").statistics_ == WANT


def test_a_map_on_the_command_line(tmp_path: Path) -> None:
    carriers(PATIENTS, tmp_path)
    MAPPED.to_toml(tmp_path / "book.toml")
    rules = ["[map]"] + [
        f"{name} = {rule!r}" if isinstance(rule, str) else f"{name} = " + str(rule).replace("':", "' =").replace("{'", "{ '")
        for name, rule in MAP.items()
    ]
    write(tmp_path / "map.toml", "\n".join(rules).replace('"', '"'))
    options = ["--map", str(tmp_path / "map.toml"), "--out", str(tmp_path / "m.json")]
    found = CliRunner().invoke(
        root,
        [
            "train",
            str(tmp_path / "p.csv"),
            "--codebook",
            str(tmp_path / "book.toml"),
            "--out",
            str(tmp_path / "m.json"),
            *options,
        ],
    )
    assert found.exit_code == 0, found.output
    assert load(tmp_path / "m.json").statistics_ == count_table(by_hand(), MAPPED)


def test_columns_that_nobody_declared_are_left_unread_where_the_error_says_so() -> None:
    more = FRAME.assign(id=["CANARY"] * 4)
    with pytest.raises(DataError, match="extra_columns='ignore'"):
        NaiveBayes(BOOK).fit(more)
    plain, private = NaiveBayes(BOOK, extra_columns="ignore"), PrivateNaiveBayes(BOOK, epsilon=1.0, extra_columns="ignore")
    for model in (plain.fit(more), private.fit(more)):
        assert (model.predict(more) == model.predict(FRAME)).all()
    with open_table(more) as table:
        assert check(table, BOOK, extra_columns="ignore").ok


def test_a_public_file_in_another_dialect_makes_a_codebook(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", FRAME.to_csv(index=False, sep=";"))
    assert read_public(str(path))[0].schema.field("pay").type == pa.float64()


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


DATED = Codebook(
    "y",
    ("a", "b"),
    (Numeric("month", 1, 12, optional=True, missing=("?",)), Numeric("stay", 0, 400, optional=True), Numeric("x", 0, 9)),
    max_rows=100,
)
DATE_MAP = {"month": "month(date(seen, 'DMY'))", "stay": "days(date(seen, 'DMY or YMD'), date(left, 'DMY or YMD'))"}
DATES = pa.table(
    {
        "seen": ["05.03.2024", "2024-03-05", "03/31/2024", "?", None, ""],
        "left": ["06.03.2024", "2024-03-09", "01.04.2024", "02.03.2024", "gone", None],
        "x": ["1", "2", "3", "4", "5", "6"],
        "y": ["a", "b", "a", "b", "a", "b"],
    }
)


@pytest.mark.parametrize("carrier", ["frame", "csv", "parquet", "duckdb"])
def test_dates_that_cannot_be_read_are_counted_with_the_form_that_is_expected(carrier: str, tmp_path: Path) -> None:
    """Two of `seen` are in another order; "?" means missing to `month` alone; "gone" is no date, and nothing is one neither."""
    carried: Any = DATES
    if carrier == "csv":
        carried = write(tmp_path / "t.csv", DATES.to_pandas().to_csv(index=False))
    elif carrier == "parquet":
        pq.write_table(DATES, carried := tmp_path / "t.parquet")
    elif carrier == "duckdb":
        database = ibis.duckdb.connect(str(tmp_path / "t.duckdb"))
        database.create_table("rows", DATES)
        database.disconnect()
        carried = f"duckdb://{tmp_path / 't.duckdb'}#rows"
    with open_table(carried, map=DATE_MAP) as table:
        counted = {name: (each.rows, each.form) for name, each in table.unreadable_dates(DATED).items()}
        report = {each.name: each for each in check(table, DATED).columns}
    assert counted == {"month": (2, "31.12.2024"), "stay": (3, "31.12.2024 or 2024-12-31")}
    assert (report["month"].missing, report["month"].unreadable, report["month"].problem) == (3, 2, "")
    assert report["month"].note == "2 rows hold a date that is not written as 31.12.2024; it counts as missing"
    assert (report["stay"].missing, report["stay"].unreadable) == (1, 3)
    assert report["x"].note == ""
    required = DATED.with_features(msgspec.structs.replace(each, optional=False) for each in DATED.features)
    with (
        open_table(carried, map=DATE_MAP) as table,
        pytest.raises(DataError, match=r"5 rows are missing.*; 2 rows hold a date that is not written as 31\.12\.2024"),
    ):
        count_table(table, required)


def test_train_predict_and_check_say_how_many_dates_they_could_not_read(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", DATES.to_pandas().to_csv(index=False))
    write(tmp_path / "map.toml", "\n".join(f'{name} = "{rule}"' for name, rule in DATE_MAP.items()))
    DATED.to_toml(tmp_path / "book.toml")
    asked = [str(tmp_path / "t.csv"), "--map", str(tmp_path / "map.toml")]
    book, model = ["--codebook", str(tmp_path / "book.toml")], str(tmp_path / "model.json")
    train = CliRunner().invoke(root, ["train", *asked, *book, "--out", model])
    checked = CliRunner().invoke(root, ["codebook", "check", str(tmp_path / "book.toml"), "--data", *asked, "--json"])
    predicted = CliRunner().invoke(root, ["predict", model, *asked])
    for done in (train, checked, predicted):
        assert done.exit_code == 0, done.output
        assert "2 rows hold a date that is not written as 31.12.2024; it counts as missing" in done.output
        assert "gone" not in done.output
    private = ["train", *asked, *book, "--epsilon", "1", "--out", str(tmp_path / "private.json")]
    assert "hold a date" not in CliRunner().invoke(root, private).output


def test_a_date_that_must_not_be_null_is_mapped_like_any_other(tmp_path: Path) -> None:
    """Databases declare dates NOT NULL, and Ibis has another type for them."""
    import duckdb

    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("create table t(born date not null, seen timestamp not null)")
        connection.execute("insert into t values ('1970-05-01', '2020-05-02 10:00:00')")
    with open_table(f"duckdb://{tmp_path / 'x.duckdb'}#t", map={"age": "years(born, seen)"}) as source:
        assert source.arrow(["age"]).to_pylist() == [{"age": 50}]
