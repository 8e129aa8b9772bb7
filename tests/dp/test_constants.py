"""The constants that private fits were tuned by: few, in one table, each with its reason and a way to set it again."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

from blindbayes.dp.release import constants

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
MAX_CONSTANTS = 20


def numbers(module: ModuleType) -> dict[str, int]:
    """How many numbers each name of a module stands for, those within tuples counted one by one."""

    def size(value: object) -> int:
        return sum(map(size, value)) if isinstance(value, tuple | list | dict) else 1

    return {name: size(value) for name, value in vars(module).items() if name.isupper()}


def test_there_are_at_most_twenty_tuned_constants() -> None:
    assert sum(numbers(constants).values()) <= MAX_CONSTANTS


def test_every_constant_is_said_to_be_something_and_is_used() -> None:
    tree = ast.parse(inspect.getsource(constants)).body
    said = {
        first.targets[0].id  # type: ignore[attr-defined]
        for first, then in pairwise(tree)
        if isinstance(first, ast.Assign) and isinstance(then, ast.Expr) and isinstance(then.value, ast.Constant)
    }
    assert said == set(numbers(constants))
    folder = Path(inspect.getfile(constants)).parent
    code = "\n".join(path.read_text() for path in folder.glob("*.py") if path.name != "constants.py")
    assert {name for name in said if not re.search(rf"\b{name}\b", code)} == set()


def test_the_benchmark_varies_a_constant_wherever_it_is_used() -> None:
    varied = importlib.import_module("private_accuracy").varied

    from blindbayes.dp.release import planner

    name = "CELLS_OF_SIGNAL"
    before, cells = getattr(planner, name), planner.cell_count(50.0)
    with varied([f"{name}={2 * before}", "STAGE_SHARE=0.02", "MENDING_SHARES=0.2,0.4"]):
        assert getattr(constants, name) == getattr(planner, name) == 2 * before
        assert planner.cell_count(50.0) > cells
        assert constants.STAGE_SHARE * 100 == 2
        assert [each * 10 for each in constants.MENDING_SHARES] == [2, 4]
    assert getattr(constants, name) == getattr(planner, name) == before
    assert constants.STAGE_SHARE * 100 == 8
