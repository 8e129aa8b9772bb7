"""Evaluate the small formulas of SPEC.md files (numbers, names, comparisons) without running them as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from blindbayes.errors import ConfigError

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
_CALLS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "int": int}


def value_of(formula: str, names: Mapping[str, float]) -> float:
    """Evaluate a formula in these names. Raise `ConfigError` for anything beyond arithmetic."""
    try:
        result: float = _walk(ast.parse(formula, mode="eval").body, names)
    except (SyntaxError, KeyError, ZeroDivisionError) as cause:
        raise ConfigError(f"the formula {formula!r} cannot be worked out; mend it in the protocol's SPEC.md") from cause
    return result


def _walk(node: ast.expr, names: Mapping[str, float]) -> Any:
    match node:
        case ast.Constant(value=int() | float()):
            return node.value
        case ast.Name():
            return names[node.id]
        case ast.BinOp():
            return _BINARY[type(node.op)](_walk(node.left, names), _walk(node.right, names))
        case ast.UnaryOp(op=ast.USub()):
            return -_walk(node.operand, names)
        case ast.UnaryOp(op=ast.Not()):
            return not _walk(node.operand, names)
        case ast.IfExp():
            return _walk(node.body if _walk(node.test, names) else node.orelse, names)
        case ast.BoolOp():
            joined = all if isinstance(node.op, ast.And) else any
            return joined(_walk(part, names) for part in node.values)
        case ast.Compare(ops=[op], comparators=[right]):
            return _COMPARE[type(op)](_walk(node.left, names), _walk(right, names))
        case ast.Call(func=ast.Name(id=called), keywords=[]):
            return _CALLS[called](*(_walk(part, names) for part in node.args))
    raise KeyError(type(node).__name__)
