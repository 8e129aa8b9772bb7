"""Convert a rule of `[rows.map]` to the answers of a form and back: which column, read as what, which values recoded.

A rule that the questions cannot express is shown, and typed, as an expression.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from blindbayes.errors import ConfigError

Reading = Literal["", "number", "lower", "year", "month", "day", "weekday", "hour", "days", "years", "expression"]
DATE_PARTS = ("year", "month", "day", "weekday", "hour")
SPANS = ("days", "years")
Order = Literal["YMD", "DMY", "MDY", "DMY or YMD", "MDY or YMD"]  # `data.mapping.DATE_ORDERS`
ORDERS: tuple[str, ...] = get_args(Order)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_VALUES = 500


class ColumnRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answers for one column of the codebook."""

    column: str = ""  # of the table
    reading: Reading = ""
    order: Order = "YMD"
    second: str = ""  # the column of the second date of a span
    values: str = ""  # lines of "from = to"
    other: str = ""  # for values that are not listed
    expression: str = ""

    def rule(self, name: str) -> Any:
        """Return the rule of a column of the codebook; None if the table's column of that name is read as it is."""
        made = self._made(name)
        if made is None:
            return None
        values = parse_values(self.values, name)
        if values or self.other:
            return {"from": made, **({"values": values} if values else {}), **({"other": self.other} if self.other else {})}
        return None if self.column == name and not self.reading else made

    def _made(self, name: str) -> str | None:
        if self.reading == "expression":
            return self.expression.strip() or None
        if not self.column:
            return None
        if self.reading in SPANS:
            if not self.second:
                raise ConfigError(f"{name}: choose the two columns of dates between which {self.reading} are counted")
            return f"{self.reading}({self._date(self.column)}, {self._date(self.second)})"
        if self.reading in DATE_PARTS:
            return f"{self.reading}({self._date(self.column)})"
        return f"{self.reading}({named(self.column)})" if self.reading else named(self.column)

    def _date(self, column: str) -> str:
        return named(column) if self.order == "YMD" else f"date({named(column)}, {self.order!r})"


def named(column: str) -> str:
    """Return a column as an expression writes it."""
    if _NAME.fullmatch(column) and not keyword.iskeyword(column):
        return column
    return f"col({ast.unparse(ast.Constant(column))})"


def parse_values(text: str, name: str) -> dict[str, str]:
    """Return the recoded values of lines such as `m = male`."""
    values: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        given, equals, wanted = line.partition("=")
        if not equals or not given.strip() or not wanted.strip():
            raise ConfigError(f"{name}: write one value per line, such as m = male")
        values[given.strip()] = wanted.strip()
    if len(values) > _MAX_VALUES:
        raise ConfigError(f"{name}: at most {_MAX_VALUES} values are recoded here; write more into site.toml")
    return values


def rule_form(rule: Any) -> ColumnRule:
    """Return the answers that make a rule."""
    if isinstance(rule, Mapping):
        made = rule_form(str(rule.get("from", "")))
        values = rule.get("values") or {}
        lines = "\n".join(f"{key} = {value}" for key, value in values.items()) if isinstance(values, Mapping) else ""
        return msgspec.structs.replace(made, values=lines, other=str(rule.get("other") or ""))
    typed = ColumnRule(reading="expression", expression=str(rule))
    try:
        node = ast.parse(str(rule).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return typed
    if (column := _column(node)) is not None:
        return ColumnRule(column)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords):
        return typed
    function, dates = node.func.id, [_dated(each) for each in node.args]
    if function in ("number", "lower") and len(node.args) == 1 and (column := _column(node.args[0])) is not None:
        return ColumnRule(column, function)  # type: ignore[arg-type]
    known = [each for each in dates if each is not None]
    if len(known) == len(dates) == (1 if function in DATE_PARTS else 2 if function in SPANS else -1):
        (first, order), (second, last) = known[0], known[-1]
        if order == last:
            return ColumnRule(first, function, order, second if len(known) == 2 else "")  # type: ignore[arg-type]
    return typed


def _column(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "col" and len(node.args) == 1:
        only = node.args[0]
        return only.value if isinstance(only, ast.Constant) and isinstance(only.value, str) else None
    return None


def _dated(node: ast.expr) -> tuple[str, str] | None:
    """Return the column of a date rule and the order of day, month and year."""
    if (column := _column(node)) is not None:
        return column, "YMD"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "date" and 1 <= len(node.args) <= 2:
        column, order = _column(node.args[0]), node.args[1] if len(node.args) == 2 else ast.Constant("YMD")
        if column is not None and isinstance(order, ast.Constant) and order.value in ORDERS:
            return column, str(order.value)
    return None


def complete(rules: Mapping[str, Any], names: Mapping[str, None], columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the rules, completed for columns that are read unchanged and also used by another rule.

    A column that an expression uses leaves the table unless a rule keeps it.
    """
    used: set[str] = set()
    for rule in rules.values():
        used |= _used(rule)
    identities = {name: named(name) for name in names if name in columns and name in used and name not in rules}
    return {**rules, **identities}


def _used(rule: Any) -> set[str]:
    text = str(rule.get("from", "")) if isinstance(rule, Mapping) else str(rule)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {column for node in ast.walk(tree) if isinstance(node, ast.expr) and (column := _column(node)) is not None}
