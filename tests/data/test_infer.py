"""`codebook draft`: a codebook from a public sample, with reasons, and without the columns that single people out."""

from __future__ import annotations

import re
import tomllib
import warnings
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from blindbayes import Categorical, Codebook, ConfigError, DataError, NaiveBayes, Numeric, PrivateNaiveBayes
from blindbayes.cli import root
from blindbayes.data import open_table
from blindbayes.data.infer import EITHER_ORDER, Choices, draft_codebook, looks_personal

ROWS = 600


def sample() -> pd.DataFrame:
    draws = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "mrn": np.arange(ROWS) + 70_001,
            "email": [f"p{at}@example.org" for at in range(ROWS)],
            "phone": [f"+33 6 {at % 100:02d} 11 22 {at % 97:02d}" for at in range(ROWS)],
            "note": [f"seen on day {at} by the night shift" for at in range(ROWS)],
            "ward": draws.choice(["Köln", "b", "c"], ROWS),
            "age": draws.normal(55, 12, ROWS).round(),
            "balance": np.exp(draws.normal(5, 2, ROWS)).round(2),
            "waiting": draws.exponential(9, ROWS).round(1),
            "empty": [None] * ROWS,
            "outcome": draws.choice(["no", "yes"], ROWS),
        }
    )


def test_columns_that_single_people_out_stay_out_and_are_named() -> None:
    made = draft_codebook(sample(), "outcome", max_rows=10_000)
    assert set(made.left_out) == {"mrn", "email", "phone", "note", "empty"}
    assert made.codebook.names == ("ward", "age", "balance", "waiting")
    text = made.to_toml()
    assert "p17@example.org" not in text
    for name in made.left_out:
        assert f"# - {name}: " in text
    assert Codebook.from_dict(made.codebook.to_dict()) == made.codebook
    kept = draft_codebook(sample(), "outcome", Choices(keep=("mrn",), drop=("age",)), max_rows=10_000)
    assert "mrn" in kept.codebook.names
    assert kept.left_out["age"] == "as asked for"


def test_numbers_are_described_by_their_shape() -> None:
    book = draft_codebook(sample(), "outcome", max_rows=10_000).codebook
    age, balance, waiting, ward = (book.feature(name) for name in ("age", "balance", "waiting", "ward"))
    assert isinstance(ward, Categorical)
    assert isinstance(age, Numeric)
    assert age.bins is None
    assert age.low % 10 == 0
    assert isinstance(balance, Numeric)
    assert balance.spacing == "log"
    assert balance.low == 0
    assert isinstance(waiting, Numeric)
    assert waiting.bins
    assert PrivateNaiveBayes(book, epsilon=1.0).fit(sample()[[*book.names, "outcome"]])


def test_short_or_ordinary_columns_do_not_look_like_persons() -> None:
    assert looks_personal(["a", "b", "c"], "x") is None
    assert looks_personal(np.random.default_rng(1).normal(size=500), "x") is None
    assert looks_personal([str(at % 30) for at in range(500)], "zip") is None


def test_a_draft_refuses_what_is_not_there() -> None:
    with pytest.raises(DataError, match="class column"):
        draft_codebook(sample(), "class", max_rows=10)
    with pytest.raises(ConfigError, match="nope"):
        draft_codebook(sample(), "outcome", Choices(keep=("nope",)), max_rows=10_000)
    with pytest.raises(DataError, match="no column is left"):
        draft_codebook(sample()[["mrn", "outcome"]], "outcome", max_rows=10_000)


def test_the_command_says_why(tmp_path: Path) -> None:
    sample().to_csv(tmp_path / "sample.csv", index=False)
    out = tmp_path / "codebook.toml"
    done = CliRunner().invoke(
        root, ["codebook", "draft", str(tmp_path / "sample.csv"), "--target", "outcome", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert "left out" in done.output
    assert "# bounds rounded outwards" in out.read_text(encoding="utf-8")
    book = Codebook.from_toml(out)
    assert book.names == ("ward", "age", "balance", "waiting")


@pytest.mark.parametrize("floor", [1, 10])
@pytest.mark.parametrize("bins", [None, 20])
def test_a_draft_states_no_figure_of_its_sample_as_it_is(floor: int, bins: int | None) -> None:
    """617 rows, 19.3 to 87.1: the file that is sent holds neither the number of rows nor an extreme of them."""
    draws = np.random.default_rng(5)
    weight = np.r_[19.3, draws.uniform(30, 70, 615).round(1), 87.1]
    mail = [f"p{at}" for at in range(617)]
    rows = pd.DataFrame({"mrn": mail, "weight": weight, "outcome": ["no", *["yes", "no"] * 308]})
    made = draft_codebook(rows, "outcome", Choices(bins=bins), max_rows=10_000, floor=floor)
    assert made.codebook.expected_rows == 1000
    text = made.to_toml()
    assert not re.search(r"617|19\.3|87\.1", text)
    assert made.codebook.numeric("weight").low % 10 == made.codebook.numeric("weight").high % 10 == 0


def test_a_draft_from_a_sites_own_table_rests_on_ten_rows_each() -> None:
    """One row in ward X, one of class `unclear` and one of 160 kg: each would point at a person in a file that is sent."""
    draws = np.random.default_rng(5)
    weight = np.r_[draws.uniform(50, 90, 299).round(), 160]
    ward = ["a", "b"] * 140 + ["c"] * 10 + ["d"] * 9 + ["X"]
    rows = pd.DataFrame({"ward": ward, "weight": weight, "outcome": ["unclear", *["yes", "no"] * 149, "no"]})
    loose = draft_codebook(rows, "outcome", max_rows=10_000).codebook
    assert (loose.feature("ward").size, loose.numeric("weight").high, len(loose.classes)) == (5, 160, 3)  # of a public sample
    book = draft_codebook(rows, "outcome", max_rows=10_000, floor=10).codebook
    ward_listed = book.feature("ward")
    assert isinstance(ward_listed, Categorical)
    assert (ward_listed.values, ward_listed.other) == (("a", "b", "c", "other"), "other")
    assert book.numeric("weight").high <= 100
    assert book.classes == ("no", "yes")
    lone = rows.assign(rare=["x"] * 295 + ["y"] * 5, few=[1.5 * at for at in range(12)] + [None] * 288)
    left_out = draft_codebook(lone, "outcome", max_rows=10_000, floor=10).left_out
    assert set(left_out) == {"rare", "few"}
    with pytest.raises(DataError, match="list them by hand"):
        draft_codebook(rows.assign(outcome=["no"] * 295 + ["yes"] * 5), "outcome", max_rows=10_000, floor=10)


def test_fitting_without_a_codebook_names_columns_that_single_people_out() -> None:
    rows = sample()
    with pytest.warns(UserWarning, match="'email': its values look like e-mail addresses"):
        NaiveBayes().fit(rows[["email", "age"]], rows["outcome"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        NaiveBayes().fit(rows[["ward", "age"]], rows["outcome"])


@pytest.mark.parametrize("marker", ["NA", "k.A.", "-"])
def test_a_usual_marker_among_numbers_means_no_value(marker: str, tmp_path: Path) -> None:
    lines = [f"{20 + at * 7 % 40},{'f' if at % 3 else marker},{'yes' if at % 2 else 'no'}" for at in range(60)]
    (tmp_path / "t.csv").write_text(f"age,sex,ill\n{marker},m,yes\n" + "\n".join(lines) + "\n")
    command = ["codebook", "draft", str(tmp_path / "t.csv"), "--target", "ill", "--out", str(tmp_path / "c.toml")]
    done = CliRunner().invoke(root, command)
    assert done.exit_code == 0, done.output
    assert f"stands among numbers: {marker}" in done.output
    book = Codebook.from_toml(tmp_path / "c.toml")
    age, sex = book.feature("age"), book.feature("sex")
    assert isinstance(age, Numeric)
    assert isinstance(sex, Categorical)
    assert sex.values == ("f", "m")
    assert age.optional
    assert sex.optional
    assert book.missing == (marker,)


@pytest.mark.parametrize("other", ["unknown", "None, but a note"])
def test_other_texts_among_numbers_are_values_until_somebody_says_otherwise(other: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,ill\n" + "".join(f'{20 + at * 7 % 40},yes\n"{other}",no\nNA,no\n' for at in range(60)))
    command = ["codebook", "draft", str(tmp_path / "t.csv"), "--target", "ill", "--out", str(tmp_path / "c.toml")]
    assert CliRunner().invoke(root, command).exit_code == 0
    book = Codebook.from_toml(tmp_path / "c.toml")
    assert isinstance(book.feature("age"), Categorical)
    assert book.missing == ()
    assert (
        CliRunner().invoke(root, [*command[:-1], str(tmp_path / "d.toml"), "--missing", "NA", "--missing", other]).exit_code
        == 0
    )
    assert isinstance(Codebook.from_toml(tmp_path / "d.toml").feature("age"), Numeric)


def test_a_marker_of_ones_own_comes_beside_the_usual_ones(tmp_path: Path) -> None:
    rows = [f"{at / 7:.3f},{20 + at * 7 % 40},{'yes' if at % 2 else 'no'}" for at in range(60)]
    (tmp_path / "t.csv").write_text("speed,heat,ill\nNA,30,no\n1,-99,no\n" + "\n".join(rows) + "\n")
    command = [
        "codebook",
        "draft",
        str(tmp_path / "t.csv"),
        "--target",
        "ill",
        "--missing=-99",
        "--out",
        str(tmp_path / "c.toml"),
    ]
    done = CliRunner().invoke(root, command)
    assert done.exit_code == 0, done.output
    assert "stands among numbers: NA." in done.output
    book = Codebook.from_toml(tmp_path / "c.toml")
    speed, heat = book.feature("speed"), book.feature("heat")
    assert isinstance(speed, Numeric)
    assert isinstance(heat, Numeric)
    assert heat.low > 0
    assert book.missing == ("-99", "NA")


@pytest.mark.parametrize(("odd", "floor", "asked"), [(1, 1, True), (1, 10, False), (12, 10, True), (0, 1, False)])
def test_numbers_left_out_for_a_few_texts_are_said_to_be_numbers(odd: int, floor: int, asked: bool) -> None:
    """With a floor, the reason does not show that a single row is odd."""
    why = looks_personal(["Inf" for _ in range(odd)] + [f"{at / 7:.3f}" for at in range(200)], "speed", floor)
    assert why is not None
    assert ("Most are numbers" in why) == asked


def test_a_marker_that_no_column_has_among_numbers_is_a_category(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "pool,n,ill\n" + "".join(f"None,{at * 7 % 30},yes\nlarge,{at * 7 % 29},no\n" for at in range(60))
    )
    command = ["codebook", "draft", str(tmp_path / "t.csv"), "--target", "ill", "--out", str(tmp_path / "c.toml")]
    assert CliRunner().invoke(root, command).exit_code == 0
    pool = Codebook.from_toml(tmp_path / "c.toml").feature("pool")
    assert isinstance(pool, Categorical)
    assert pool.values == ("None", "large")


@pytest.mark.parametrize(
    ("form", "order"),
    [
        ("%m/%d/%Y", "MDY"),
        ("%d.%m.%Y", "DMY"),
        ("%Y-%m-%dT%H:%M:%S+01:00", "YMD"),
        ("%m/%d/%Y %H:%M", "MDY"),
    ],
)
def test_the_order_of_dates_is_the_one_that_fits_them(form: str, order: str) -> None:
    """A wrong order reads the day as the month, and no error shows it."""
    days = pd.date_range("2022-01-01", periods=ROWS, freq="31h").strftime(form)
    made = draft_codebook(sample()[["age", "outcome"]].assign(seen=days), "outcome", max_rows=10_000)
    assert made.dates == {"seen": order}
    (month,) = [line for line in made.maps if line.startswith("seen_month")]
    with open_table(pd.DataFrame({"seen": days}), map=tomllib.loads(month)) as table:
        assert table.table.to_pandas()["seen_month"].tolist() == [
            day.month for day in pd.date_range("2022-01-01", periods=ROWS, freq="31h")
        ]


def test_dates_that_fit_two_orders_are_asked_about() -> None:
    days = [f"{1 + at % 12:02d}/{1 + at % 11:02d}/2023" for at in range(ROWS)]
    made = draft_codebook(sample()[["age", "outcome"]].assign(seen=days), "outcome", max_rows=10_000)
    assert made.dates == {"seen": EITHER_ORDER}
    assert '"MDY"' in made.maps[0]
    assert tomllib.loads("\n".join(made.maps))


def dated(days: object, *, floor: int = 1) -> tuple[list[str], dict[str, str]]:
    """The map that a draft offers for a column, and which columns it leaves out for which reasons."""
    made = draft_codebook(sample()[["age", "outcome"]].assign(seen=days), "outcome", max_rows=10_000, floor=floor)
    return made.maps, dict(made.left_out)


def offered(days: object) -> list[str]:
    return [line.partition(" ")[0].removeprefix("seen_") for line in dated(days)[0]]


def test_parts_that_are_constant_in_all_dates_are_not_offered() -> None:
    mondays = pd.date_range("2022-01-03", periods=ROWS, freq="7D")
    assert offered(mondays) == ["month", "days", "years"]
    assert offered(mondays.strftime("%d.%m.%Y")) == ["month", "days", "years"]
    in_march = [f"2024-03-{1 + at % 30:02d}" for at in range(ROWS)]
    assert offered(in_march) == ["weekday", "days"]
    assert dated(["2024-03-05"] * ROWS) == ([], {"seen": "a constant: it has the same value in every row that has one"})


LONE = {  # a column and its last cell, for which another would give a draft from a public sample other words
    "month": ([f"2024-03-{1 + at % 30:02d}" for at in range(ROWS)], "2024-07-01"),
    "day": (["2024-03-05"] * ROWS, "2024-03-06"),
    "order": ([f"{1 + at % 12:02d}/{1 + at % 11:02d}/2023" for at in range(ROWS)], "25/01/2023"),
    "text": (["a"] * ROWS, "b"),
    "number": ([3.0] * ROWS, 4.0),
    "nothing": ([None] * ROWS, "b"),
    "comma": ([str(at % 7) for at in range(ROWS)], "1,5"),
    "formula": ([f"ward {at % 7}" for at in range(ROWS)], "=SUM(A1)"),
    "numbers": ([float(at) for at in np.random.default_rng(2).permutation(ROWS)], 5.0),
}


@pytest.mark.parametrize("name", LONE)
def test_no_single_row_decides_what_the_draft_of_a_sites_table_says_about_a_column(name: str) -> None:
    column, other = LONE[name]
    changed = [*column[:-1], other]
    assert dated(column) != dated(changed)
    assert dated(column, floor=10) == dated(changed, floor=10)


def test_columns_of_any_type_are_drafted_or_left_out() -> None:
    table = pa.table(
        {
            "tier": pa.array(["gold", "silver", None] * 200).dictionary_encode(),
            "size": pa.array([3, 40, 500] * 200, pa.uint16()).dictionary_encode(),
            "price": pa.array([Decimal(at) / 100 for at in range(100, 700)], pa.decimal128(10, 2)),
            "seen": pa.array([datetime(2024, 1, 1 + at % 28) for at in range(ROWS)], pa.timestamp("us", "Europe/Berlin")),
            "span": pa.array(range(ROWS), pa.duration("s")),
            "clock": pa.array(range(ROWS), pa.time32("s")),
            "tags": pa.array([["a"]] * ROWS),
            "raw": pa.array([b"x"] * ROWS),
            "returned": pa.array([True, False] * 300),
        }
    )
    made = draft_codebook(table, "returned", max_rows=10_000)
    assert made.codebook.names == ("tier", "size", "price")
    assert made.left_out["seen"].startswith("dates")
    assert {name for name, why in made.left_out.items() if "neither text, number nor truth value" in why} == {
        "span",
        "clock",
        "tags",
        "raw",
    }
    assert made.codebook.classes == ("false", "true")


def test_numbers_that_may_be_codes_are_named_and_become_categories_if_asked(tmp_path: Path) -> None:
    table = sample()[["age", "outcome"]].assign(branch=np.resize([12, 13, 14], ROWS), post=np.resize(["01067", "20095"], ROWS))
    table.to_csv(tmp_path / "sample.csv", index=False)
    words = ["codebook", "draft", str(tmp_path / "sample.csv"), "--target", "outcome", "--out"]
    done = CliRunner().invoke(root, [*words, str(tmp_path / "one.toml")])
    assert "few different values: if they are codes, draft again with --codes branch" in " ".join(
        done.output.replace("│", " ").split()
    )
    book = Codebook.from_toml(tmp_path / "one.toml")
    assert book.feature("post") == Categorical("post", ("01067", "20095"))  # leading zeros: no amount
    assert isinstance(book.feature("branch"), Numeric)
    CliRunner().invoke(root, [*words, str(tmp_path / "two.toml"), "--codes", "branch"])
    book = Codebook.from_toml(tmp_path / "two.toml")
    assert book.feature("branch") == Categorical("branch", ("12", "13", "14"))
    assert NaiveBayes(book).fit(tmp_path / "sample.csv").class_count_.sum() == ROWS
    made = draft_codebook(table, "outcome", Choices(codes=("branch",)), max_rows=ROWS).codebook
    assert made.feature("branch") == book.feature("branch")


def test_the_class_column_of_a_sample_is_judged_too() -> None:
    table = sample()[["age", "outcome"]]
    assert draft_codebook(table, "outcome", max_rows=10_000).notes == ()
    (note,) = draft_codebook(table.assign(outcome="no"), "outcome", max_rows=10_000).notes
    assert "one value" in note
    (note,) = draft_codebook(table.assign(outcome=table["outcome"].where(table.index > 6)), "outcome", max_rows=10_000).notes
    assert "some rows have no label" in note
    (note,) = draft_codebook(table, "outcome", max_rows=10_000, missing=["no"]).notes[1:]
    assert "some rows have no label" in note


def test_a_text_among_few_numbers_is_asked_about() -> None:
    table = sample()[["age", "outcome"]].assign(claims=np.resize(["0", "1", "2", "3", "k. A."], ROWS))
    assert "--missing TEXT" in draft_codebook(table, "outcome", max_rows=10_000).reasons["claims"]
    graded = table.assign(claims=np.resize(["A", "B", "1"], ROWS))
    assert "--missing TEXT" not in draft_codebook(graded, "outcome", max_rows=10_000).reasons["claims"]


def test_a_wide_draft_fits_a_screen(tmp_path: Path) -> None:
    draws = np.random.default_rng(3).normal(size=(40, 90)).round(2)
    wide = pd.DataFrame(draws, columns=[f"g{at}" for at in range(90)]).assign(arm=["a", "b"] * 20, same=1)
    wide.to_csv(tmp_path / "wide.csv", index=False)
    out = str(tmp_path / "wide.toml")
    done = CliRunner().invoke(root, ["codebook", "draft", str(tmp_path / "wide.csv"), "--target", "arm", "--out", out])
    assert "(60 more)" in done.output
    assert "left out" in done.output
    assert len(Codebook.from_toml(out).names) == 90
