"""Rename, recode, convert and derive columns to fit a codebook, without changing the table.

    mapped(table, {
        "sex": {"from": "geschlecht", "values": {"m": "male", "w": "female"}},   # rename and recode
        "weight": "weight_lb * 0.45359237",                                       # convert
        "age": "years(born, admitted)",                                           # derive
    })

An expression has Python's grammar, restricted to columns by name (or `col("odd name")`), numbers, texts, `+ - * /`,
comparisons, `and or not`, `a if condition else b`, and the functions of `FUNCTIONS`. The engine that holds the rows computes it
row by row. A result that cannot be computed (from a text that is not a number, a number beyond 1e150, a division by zero, an
invalid date) is missing; no row is an error, and no row affects another. Columns used by an expression are dropped from the
table; map them to themselves to keep them.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from blindbayes.codebook import Codebook
from blindbayes.data.engines import decimal_number
from blindbayes.data.libraries import ibis
from blindbayes.data.numerals import with_points_there
from blindbayes.data.values import NUMBER_PATTERN, marker_number
from blindbayes.errors import ConfigError, DataError

_LONGEST = 2000
ORDERS = {"YMD": (1, 2, 3), "DMY": (3, 2, 1), "MDY": (3, 1, 2)}  # positions of year, month and day
DATE_ORDERS = (*ORDERS, "DMY or YMD", "MDY or YMD")  # dates with the year first match no other order
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_MONTH, _DAY = "(0?[1-9]|1[0-2])", "(0?[1-9]|[12][0-9]|3[01])"
DATE_FORMS = {
    order: r"^\s*" + "[-./]".join(parts) + r"\s*([ T].*)?$"
    for order, parts in {"YMD": (_YEAR, _MONTH, _DAY), "DMY": (_DAY, _MONTH, _YEAR), "MDY": (_MONTH, _DAY, _YEAR)}.items()
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    getattr(ast, name): getattr(operator, name.lower()[:2]) for name in ("Eq", "Lt", "Gt")
} | {ast.NotEq: operator.ne, ast.LtE: operator.le, ast.GtE: operator.ge}
DATE_EXAMPLES = {"YMD": "2024-12-31", "DMY": "31.12.2024", "MDY": "12/31/2024"}
_LARGEST, _SMALLEST = 1e150, 1e-150  # operations on two such numbers give floats; an engine may refuse others
_TIME = r"[ T]([01]?[0-9]|2[0-3]):([0-5][0-9])"


@dataclass(frozen=True, slots=True)
class Rule:
    """Definition of one column."""

    name: str
    expression: str
    values: Mapping[str, str] | None = None  # recoded values; others are unchanged, or become `other`
    other: str | None = None

    @classmethod
    def parse(cls, name: str, made: Any) -> Rule:
        """Make a rule from an expression, or a table with `from`, `values` and `other`."""
        if isinstance(made, str):
            return cls(name, made)
        if not isinstance(made, Mapping) or not {"from"} <= {*made} <= {"from", "values", "other"}:
            raise ConfigError(f"map of {name!r}: an expression, or a table with from, values and other")
        values, other = made.get("values"), made.get("other")
        if values is not None and not (isinstance(values, Mapping) and all(isinstance(each, str) for each in values.values())):
            raise ConfigError(f"map of {name!r}: values must be a table of texts")
        if not isinstance(made["from"], str) or not (other is None or isinstance(other, str)):
            raise ConfigError(f"map of {name!r}: from and other must be texts")
        return cls(name, made["from"], None if values is None else {str(key): text for key, text in values.items()}, other)

    @property
    def tree(self) -> ast.expr:
        """Parse the expression, or raise `ConfigError`."""
        if len(self.expression) > _LONGEST:
            raise ConfigError(f"map of {self.name!r}: an expression has at most {_LONGEST} characters")
        try:
            return ast.parse(self.expression.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(f"map of {self.name!r}: {self.expression!r} is not an expression") from None

    @property
    def columns(self) -> set[str]:
        tree = self.tree
        functions = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in functions}
        return named | {
            node.args[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "col"
            and len(node.args) == 1
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        }


def mapped(table: Any, rules: Mapping[str, Any], *, partly: bool = False, decimal: str = ".", thousands: str = "") -> Any:
    """Return an Ibis table with the columns of `rules`, and those of `table` that no rule uses.

    With `partly` rules whose columns are missing are left out: rows to be classified have no class.
    """
    made, used = {}, set()
    for name, each in rules.items():
        rule = Rule.parse(name, each)
        columns = rule.columns
        if missing := sorted(columns - set(table.columns)):
            if partly:
                continue
            raise DataError(f"map of {name!r}: the table has no column {missing[0]!r}")
        used |= columns
        made[name] = _recoded(_Reader(table, rule, (decimal, thousands)).read(), rule)
    unused = [name for name in table.columns if name not in used and name not in made]
    return table.select([*(table[name] for name in unused), *(value.name(name) for name, value in made.items())])


def unreadable_dates(
    table: Any, rules: Mapping[str, Any], codebook: Codebook, marks: tuple[str, str] = (".", "")
) -> dict[str, Any]:
    """Return conditions by feature: a date of its rule is a text that is not written as the rule says, and so it is missing.

    With each condition comes a date as the rule expects it. A text that means a missing value is no date.
    """
    conditions = {}
    for feature in codebook.features:
        rule = Rule.parse(feature.name, rules[feature.name]) if feature.name in rules else None
        if rule is None or rule.columns - set(table.columns):
            continue
        reader = _Reader(table, rule, marks)
        result = reader.read()
        markers = list(codebook.markers(feature))
        wrong = [
            text.notnull() & (text.strip() != "") & ~text.isin(markers) & ~_fits(text, order) for text, order in reader.dates
        ]
        if wrong:
            form = " or ".join(dict.fromkeys(DATE_EXAMPLES[each] for _, order in reader.dates for each in order.split(" or ")))
            conditions[feature.name] = result.isnull() & reduce(operator.or_, wrong), form
    return conditions


def _fits(text: Any, order: str) -> Any:
    return reduce(operator.or_, (text.re_search(DATE_FORMS[each]) for each in order.split(" or ")))


def _recoded(value: Any, rule: Rule) -> Any:
    if isinstance(value, _Date):
        raise ConfigError(
            f"map of {rule.name!r}: a date is not a feature; use a part of it, such as year(...), or "
            "days(a, b); for an identifier write iso(...)"
        )
    if rule.values is None:
        return value
    cases = [(_is(value, key), text) for key, text in rule.values.items()]
    rest = value.cast("string") if rule.other is None else ibis.literal(rule.other)
    return ibis.cases(*cases, (value.notnull(), rest))


def _is(value: Any, key: str) -> Any:
    """Return whether a value reads as a text: 1, 1.0 and "1.0" as 1, true and "True" as true."""
    kind, number = value.type(), marker_number(key)
    if kind.is_string():
        same = value.isin([key, key.upper(), key.capitalize()] if key in ("true", "false") else [key])
        whole = number is not None and math.isfinite(number) and number == int(number) and str(int(number)) == key
        return same | value.re_search(f"^{key}[.]0+$") if whole else same
    if kind.is_boolean():
        return value == (key == "true") if key in ("true", "false") else ibis.literal(False)
    return ibis.literal(False) if number is None else value == number


@dataclass(frozen=True, slots=True)
class _Date:
    """A point in time by its parts, which every engine computes alike; all are missing if it is invalid."""

    year: Any
    month: Any
    day: Any
    number: Any  # days since 1970; the 31st of a short month falls into the next
    seconds: Any  # of the day


class _Reader:
    """Translator of a syntax tree to an expression of the engine."""

    def __init__(self, table: Any, rule: Rule, marks: tuple[str, str]) -> None:
        self.table, self.rule, self.marks = table, rule, marks
        self.dates: list[tuple[Any, str]] = []  # texts that were read as dates, with the order of their parts

    def read(self) -> Any:
        return self._value(self.rule.tree)

    def _refuse(self, why: str) -> ConfigError:
        return ConfigError(f"map of {self.rule.name!r}: {why}")

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self._column(node.id)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, str, bool):
            if isinstance(node.value, int | float) and not isinstance(node.value, bool):
                # From a text: PostgreSQL has decimals of its own for other literals.
                return ibis.literal(repr(float(node.value))).cast("float64")
            return ibis.literal(node.value)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                return ~self._truth(node.operand)
            if isinstance(node.op, ast.USub):
                return -self._number(node.operand)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node)
        if isinstance(node, ast.BoolOp):
            first, *rest = (self._truth(each) for each in node.values)
            for each in rest:
                first = first & each if isinstance(node.op, ast.And) else first | each
            return first
        if isinstance(node, ast.IfExp):
            condition = self._truth(node.test)
            yes, no = self._value(node.body), self._value(node.orelse)
            if yes.type().is_string() != no.type().is_string():
                yes, no = yes.cast("string"), no.cast("string")
            return ibis.cases((condition, yes), (~condition, no))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._called(node.func.id, node.args)
        raise self._refuse("only columns, numbers, texts, + - * /, comparisons, and or not, a if b else c, and functions")

    def _column(self, name: str) -> Any:
        if name not in self.table.columns:
            raise DataError(f"map of {self.rule.name!r}: the table has no column {name!r}")
        column = self.table[name]
        kind = column.type()
        if kind.is_date() or kind.is_timestamp():
            parts = [each.cast("float64") for each in (column.year(), column.month(), column.day())]
            clock = ibis.literal(0.0)
            if kind.is_timestamp():
                clock = (column.hour() * 3600 + column.minute() * 60).cast("float64")
            known = ibis.cases((parts[0].between(1, 9999), column))  # else null: PostgreSQL's dates may be infinite
            number = _floor(known.cast("timestamp").epoch_seconds().cast("float64") / 86400)
            return _Date(parts[0], parts[1], parts[2], number, clock)
        if kind.is_decimal():
            return decimal_number(column)
        if not (kind.is_string() or kind.is_numeric() or kind.is_boolean()):
            raise DataError(f"column {name!r} has a type that is neither text, number, truth value nor date; cast it before")
        return column.nullif("") if kind.is_string() else column  # like an empty cell of a file

    def _number(self, node: ast.expr) -> Any:
        value = self._value(node)
        if isinstance(value, _Date):
            raise self._refuse("a date is no number; days(a, b) and years(a, b) say how far two are apart")
        if value.type().is_string():
            trimmed = with_points_there(value.strip(), *self.marks)
            value = ibis.ifelse(trimmed.re_search(NUMBER_PATTERN), trimmed, ibis.null("string"))
        if value.type().is_boolean():
            return ibis.cases((value, 1.0), (~value, 0.0))
        number = value.cast("float64")
        size = number.abs()
        return ibis.cases((size < _SMALLEST, 0.0), (size <= _LARGEST, number))

    def _truth(self, node: ast.expr) -> Any:
        value = self._value(node)
        if isinstance(value, _Date) or not value.type().is_boolean():
            raise self._refuse("a condition is a comparison, or a column of truth values")
        return value

    def _text(self, node: ast.expr) -> Any:
        value = self._value(node)
        if isinstance(value, _Date) or not value.type().is_string():
            raise self._refuse("a text is expected")
        return value

    def _date(self, node: ast.expr, order: str = "YMD") -> _Date:
        value = self._value(node)
        if isinstance(value, _Date):
            return value
        if not value.type().is_string():
            raise self._refuse("a date is expected: dates, or texts such as 2024-12-31 (for others: date(x, 'DMY'))")
        if not isinstance(node, ast.Constant):
            self.dates.append((value, order))

        def parts(order: str) -> list[Any]:
            text = ibis.ifelse(value.re_search(DATE_FORMS[order]), value, ibis.null("string"))
            return [text.re_extract(DATE_FORMS[order], at) for at in ORDERS[order]]

        read = [parts(each) for each in order.split(" or ")]  # no text has two of the orders that `DATE_ORDERS` combines
        year, month, day = (first.coalesce(*others) if others else first for first, *others in zip(*read, strict=True))
        first = (year + "-" + month.lpad(2, "0") + "-01").cast("timestamp").epoch_seconds().cast("float64") / 86400
        timed = ibis.ifelse(value.re_search(_TIME), value, ibis.null("string"))
        hours, minutes = (timed.re_extract(_TIME, at).cast("float64") for at in (1, 2))
        year, month, day = (part.cast("float64") for part in (year, month, day))
        return _Date(year, month, day, _floor(first) + day - 1, (hours * 3600 + minutes * 60).coalesce(0.0))

    def _arithmetic(self, node: ast.BinOp) -> Any:
        left, right = self._number(node.left), self._number(node.right)
        if isinstance(node.op, ast.Div):
            right = ibis.ifelse(right == 0, ibis.null("float64"), right)
        if type(node.op) not in _ARITHMETIC:
            raise self._refuse("arithmetic is + - * /")
        return _ARITHMETIC[type(node.op)](left, right)

    def _compared(self, node: ast.Compare) -> Any:
        sides = (node.left, node.comparators[0])
        as_text = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)
        left, right = (self._text(side) if as_text else self._number(side) for side in sides)
        if type(node.ops[0]) not in _COMPARISONS:
            raise self._refuse("comparisons are == != < <= > >=")
        return _COMPARISONS[type(node.ops[0])](left, right)

    def _called(self, name: str, given: list[ast.expr]) -> Any:
        if name not in FUNCTIONS:
            raise self._refuse(f"there is no function {name!r}; known: {', '.join(FUNCTIONS)}")
        minimum, maximum = FUNCTIONS[name]
        if not minimum <= len(given) <= maximum:
            raise self._refuse(f"{name} takes {minimum if minimum == maximum else f'{minimum} or {maximum}'} argument(s)")
        if name in _NUMBER_FUNCTIONS:
            return _NUMBER_FUNCTIONS[name](*map(self._number, given))
        if name in _DATE_FUNCTIONS:
            return _DATE_FUNCTIONS[name](*map(self._date, given))
        if name == "col":
            if not (isinstance(given[0], ast.Constant) and isinstance(given[0].value, str)):
                raise self._refuse('col takes the name of a column in quotes: col("blood pressure")')
            return self._column(given[0].value)
        if name == "date":
            order = given[1].value if len(given) == 2 and isinstance(given[1], ast.Constant) else "YMD"
            if order not in DATE_ORDERS:
                raise self._refuse(f"the order of a date is one of {', '.join(map(repr, DATE_ORDERS))}")
            return self._date(given[0], order)
        if name == "missing":
            value = self._value(given[0])
            return (value.year if isinstance(value, _Date) else value).isnull()
        return self._text(given[0]).lower().strip()  # lower


def _floor(number: Any) -> Any:
    """Return the floor as a float. Engines convert to integers; floats from 2^52 on are whole already."""
    small = number.abs() < 2.0**52
    return ibis.ifelse(small, ibis.ifelse(small, number, 0.0).floor().cast("float64"), number)


def _where(condition: Any, number: Any) -> Any:
    return ibis.ifelse(condition, number, ibis.null("float64"))


def _extreme(first: Any, second: Any, *, smaller: bool) -> Any:
    return ibis.cases(((first <= second) == smaller, first), (second.notnull() & first.notnull(), second))


def _iso(date: _Date) -> Any:
    year, month, day = (part.cast("int64").cast("string") for part in (date.year, date.month, date.day))
    return year.lpad(4, "0") + "-" + month.lpad(2, "0") + "-" + day.lpad(2, "0")


def _weekday(date: _Date) -> Any:
    shifted = date.number + 3  # 1970-01-01 was a Thursday; Monday is 1
    return shifted - _floor(shifted / 7) * 7 + 1


def _years(start: _Date, end: _Date) -> Any:
    early = (end.month * 32 + end.day) < (start.month * 32 + start.day)
    return end.year - start.year - ibis.ifelse(early, 1, 0)


_NUMBER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "number": lambda number: number,
    "abs": lambda number: number.abs(),
    "floor": _floor,
    "round": lambda number: _floor(number + 0.5),
    "log": lambda number: _where(number > 0, number).ln(),
    "sqrt": lambda number: _where(number >= 0, number).sqrt(),
    "min": partial(_extreme, smaller=True),
    "max": partial(_extreme, smaller=False),
}
_DATE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "iso": _iso,
    "year": lambda date: date.year,
    "month": lambda date: date.month,
    "day": lambda date: date.day,
    "weekday": _weekday,
    "hour": lambda date: _floor(date.seconds / 3600) + 0 * date.year,
    "days": lambda start, end: end.number - start.number,
    "hours": lambda start, end: (end.number - start.number) * 24 + (end.seconds - start.seconds) / 3600,
    "years": _years,
}
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("col", "number", "lower", "missing", *_NUMBER_FUNCTIONS, *_DATE_FUNCTIONS), (1, 1)),
    **dict.fromkeys(("min", "max", "days", "hours", "years"), (2, 2)),
    "date": (1, 2),
}
"""Functions of an expression, with the minimum and maximum number of their arguments."""
