"""Answers of the page Table and rules of `[rows.map]` are two forms of the same thing."""

from __future__ import annotations

from typing import Any

import ibis
import pyarrow as pa
import pytest

from blindbayes.agent.table_rules import ORDERS, ColumnRule, complete, named, parse_values, rule_form
from blindbayes.data.mapping import DATE_ORDERS, mapped
from blindbayes.errors import ConfigError

FORMS = [
    (ColumnRule("geschlecht"), "geschlecht"),
    (ColumnRule("body mass"), "col('body mass')"),
    (ColumnRule("lambda"), "col('lambda')"),
    (ColumnRule("größe"), "col('größe')"),
    (ColumnRule("it's"), 'col("it\'s")'),
    (ColumnRule("a\\b\nc"), "col('a\\\\b\\nc')"),
    (ColumnRule("w", "number"), "number(w)"),
    (ColumnRule("w", "lower"), "lower(w)"),
    (ColumnRule("born", "year"), "year(born)"),
    (ColumnRule("born", "month", "DMY"), "month(date(born, 'DMY'))"),
    (ColumnRule("born", "month", "DMY or YMD"), "month(date(born, 'DMY or YMD'))"),
    (ColumnRule("born", "years", "MDY", "seen on"), "years(date(born, 'MDY'), date(col('seen on'), 'MDY'))"),
    (ColumnRule("a", "days", "YMD", "b"), "days(a, b)"),
    (ColumnRule("sex", values="m = male\nw = female", other="unknown"),
     {"from": "sex", "values": {"m": "male", "w": "female"}, "other": "unknown"}),
    (ColumnRule("born", "month", values="1 = winter"), {"from": "month(born)", "values": {"1": "winter"}}),
    (ColumnRule(reading="expression", expression="w * 0.45 if w > 0 else 0"), "w * 0.45 if w > 0 else 0"),
    (ColumnRule(reading="expression", expression="years(date(a, 'DMY'), b)"), "years(date(a, 'DMY'), b)"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "rule"), FORMS, ids=lambda each: str(each)[:40])
def test_answers_make_a_rule_and_the_rule_shows_the_answers(form: ColumnRule, rule: Any) -> None:
    assert form.rule("x") == rule
    assert rule_form(rule) == form


@pytest.mark.parametrize("name", ["class", "body mass", "age", "größe"])
def test_a_column_of_the_same_name_that_is_read_as_it_is_needs_no_rule(name: str) -> None:
    assert ColumnRule(name).rule(name) is None
    assert ColumnRule(name, values="a = b").rule(name) == {"from": named(name), "values": {"a": "b"}}
    assert ColumnRule().rule(name) is None


@pytest.mark.parametrize("text", ["m", "= male", "m =", "m = male\nw"])
def test_lines_that_recode_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="one value per line"):
        parse_values(text, "sex")


def test_two_dates_are_needed_for_the_time_between() -> None:
    with pytest.raises(ConfigError, match="age: choose the two columns"):
        ColumnRule("born", "years").rule("age")


def test_a_column_that_a_rule_uses_stays_if_the_codebook_names_it() -> None:
    rules = complete({"age": "years(born, seen)"}, dict.fromkeys(("age", "seen", "sex")), ("born", "seen", "sex"))
    assert rules == {"age": "years(born, seen)", "seen": "seen"}


def test_hostile_expressions_are_shown_and_not_run() -> None:
    for text in ("__import__('os').system('x')", "(" * 5000, "a" * 100_000, "\x00", "lambda: 1"):
        assert rule_form(text) in (ColumnRule(reading="expression", expression=text), ColumnRule(text))


@pytest.mark.parametrize("order", ["DMY", "MDY"])
def test_dates_in_two_forms_are_read_together_and_never_as_each_other(order: str) -> None:
    first = ["03.04.2024", "2023-05-06", "2023-12-13T08:00", "30.30.2024", "x", None]
    table = mapped(ibis.memtable(pa.table({"day": first})), {"month": f"month(date(day, '{order} or YMD'))"})
    assert table.to_pyarrow().column("month").to_pylist() == [4.0 if order == "DMY" else 3.0, 5.0, 12.0, None, None, None]
    assert set(DATE_ORDERS) == {*ORDERS}
