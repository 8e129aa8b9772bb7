"""The map from a site's columns to those of the codebook."""

from __future__ import annotations

import datetime
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

from blindbayes import Categorical, Codebook, Numeric, load, open_table
from blindbayes.cli import root
from blindbayes.data import check, count_table
from blindbayes.data.mapping import FUNCTIONS
from blindbayes.errors import BlindbayesError, DataError
from blindbayes.statistics import Statistics


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


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


def test_a_date_that_must_not_be_null_is_mapped_like_any_other(tmp_path: Path) -> None:
    """Databases declare dates NOT NULL, and Ibis has another type for them."""
    import duckdb

    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("create table t(born date not null, seen timestamp not null)")
        connection.execute("insert into t values ('1970-05-01', '2020-05-02 10:00:00')")
    with open_table(f"duckdb://{tmp_path / 'x.duckdb'}#t", map={"age": "years(born, seen)"}) as source:
        assert source.arrow(["age"]).to_pylist() == [{"age": 50}]


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
