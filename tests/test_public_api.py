"""Signatures: `help` names every argument of what users call, and no function takes too many."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import blindbayes

ROOT = Path(__file__).parents[1]
OPEN = {
    "Study.replace": "any setting of the study, as `dataclasses.replace` takes any field",
    "Ledger.charge": "public facts, which the caller names",
    "Ledger.note": "public facts, which the caller names",
    "BaseEstimator.set_params": "scikit-learn's",
}


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what users call, by its qualified name: everything in `__all__` and its public methods."""
    for name in blindbayes.__all__:
        made = getattr(blindbayes, name)
        if inspect.isclass(made):
            if not issubclass(made, BaseException):
                yield name, made
            members = (member for key, member in inspect.getmembers(made, callable) if not key.startswith("_"))
            yield from (
                (each.__qualname__, each) for each in members if not inspect.isbuiltin(each) and inspect.isroutine(each)
            )
        elif callable(made):
            yield name, made


def test_every_argument_of_what_users_call_has_a_name_and_a_type() -> None:
    signatures = {name: inspect.signature(each) for name, each in callables() if not inspect.ismethoddescriptor(each)}
    assert len(signatures) > 100
    parameters = [(name, each) for name, signature in signatures.items() for each in signature.parameters.values()]
    assert {name for name, each in parameters if each.kind is each.VAR_KEYWORD} == set(OPEN)
    untyped = {name for name, each in parameters if each.annotation is each.empty and each.name not in ("self", "cls")}
    assert untyped <= {"BaseEstimator.get_params", "BaseEstimator.set_params"}


MAX_PARAMETERS = 8
CONSTRUCTORS = {"PrivateNaiveBayes", "SmoothNaiveBayes"}  # of estimators: scikit-learn reads their parameters


@pytest.mark.parametrize("folder", ["src", "papers", "engines", "examples"])
def test_no_function_but_a_public_constructor_has_more_than_eight_parameters(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for scope in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for node in ast.iter_child_nodes(scope):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    given = node.args
                    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                    number = (
                        len([each for each in named if each not in ("self", "cls")]) + bool(given.vararg) + bool(given.kwarg)
                    )
                    public = node.name == "__init__" and isinstance(scope, ast.ClassDef) and scope.name in CONSTRUCTORS
                    assert number <= MAX_PARAMETERS or public, f"{path}:{node.lineno} {node.name} has {number} parameters"
