"""Refusals on pages name what can be done on pages, not options of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import xlsxwriter

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.console.strings import in_console, linked, on_table_page, words_on
from blindbayes.data import Dialect, check, count_table, open_table
from blindbayes.errors import BlindbayesError

BOOK = Codebook("y", ("no", "yes"), (Categorical("job", ("cook", "clerk")), Numeric("pay", 0, 50)))
PROGRAMMING = re.compile(r"--[a-z]|open_table|extra_columns|encoding=|decimal=|delimiter=|thousands=|map=|command line")
PLAIN = "y,job,pay\nno,cook,1.5\nyes,clerk,2\n"


def counted(text: str, encoding: str = "utf-8") -> Callable[[Path], object]:
    def act(folder: Path) -> object:
        path = folder / "table.csv"
        path.write_text(text, encoding=encoding)
        with open_table(path) as table:
            return count_table(table, BOOK)

    return act


def in_workbook(folder: Path) -> object:
    with xlsxwriter.Workbook(path := str(folder / "table.xlsx")) as book:
        sheet = book.add_worksheet()
        for at, row in enumerate([("y", "job", "pay"), ("no", "cook", "1,5")]):
            sheet.write_row(at, 0, row)
    with open_table(path, dialect=Dialect(decimal=",")) as table:
        return count_table(table, BOOK)


def dated(folder: Path) -> object:
    return count_table(pd.DataFrame({"y": ["no"], "job": ["cook"], "pay": pd.to_datetime(["2024-01-02"])}), BOOK)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (
            counted(PLAIN.replace("pay", "pay,note").replace("5\n", "5,x\n").replace("2\n", "2,y\n")),
            "Leave other columns unread",
        ),
        (counted(PLAIN.replace("job", "beruf")), "choose its column on the page Table"),
        (counted(PLAIN.replace("1.5", '"1,5"')), "the decimal sign on the page Table"),
        (in_workbook, "in the workbook (in Excel: Data, Text to Columns)"),
        (counted(PLAIN.replace("job", "jöb"), "latin-1"), "choose its encoding on the page Table"),
        (counted(PLAIN.replace("cook,1.5", "cook,1.5,3")), "choose the separator on the page Table"),
        (counted(PLAIN.replace("cook", "chef")), "recode it on the page Table"),
        (dated, "chosen on the page Table"),
    ],
    ids=["extra", "missing", "decimal", "workbook", "encoding", "width", "category", "date"],
)
def test_a_mistake_is_mended_on_the_page(tmp_path: Path, act: Callable[[Path], object], words: str) -> None:
    with pytest.raises(BlindbayesError) as refused:
        act(tmp_path)
    shown = in_console(str(refused.value))
    assert words in shown
    assert "page Table" not in words_on("table.html")(str(refused.value))
    assert words_on("data.html")(str(refused.value)) == shown
    assert PROGRAMMING.search(shown) is None, shown


def test_several_missing_columns_are_chosen_by_a_link_or_on_the_page_itself(tmp_path: Path) -> None:
    with pytest.raises(BlindbayesError) as refused:
        counted(PLAIN.replace("job", "beruf").replace("pay", "<b>"))(tmp_path)
    shown = in_console(str(refused.value))
    assert "are missing from the table; choose their columns on the page Table" in shown
    assert PROGRAMMING.search(shown) is None, shown
    assert str(linked(f"<i>{shown}")).startswith("&lt;i&gt;")
    assert 'choose their columns on the page <a href="/table">Table</a>' in linked(shown)
    assert on_table_page(str(refused.value)).endswith("choose their columns")


def test_the_problems_of_a_check_are_too(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(PLAIN.replace("1.5", '"1,5"'))
    problems = [each.problem for each in check(str(path), BOOK).columns if each.problem]
    assert PROGRAMMING.search(problems[0])
    assert [PROGRAMMING.search(in_console(each)) for each in problems] == [None]
    assert "on the page Table, set the decimal sign, the separator of thousands" in in_console(problems[0])
