"""The constants that private fits were tuned by: few, in one table, each with its reason and a way to set it again."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
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


EXEMPT = {
    # grids: what they list is weighed by its evidence, so that their ends and steps set the resolution alone
    "postprocess.py": {"_EFFECTS", "_MEANS", "_DEVIATIONS", "_CLASS_SPREADS", "_RATIO_SPREADS", "_POWERS"},
    "calibration.py": {"EDGES", "_CENTRES", "_TEMPERATURES"},
    # what a forecast tries and prints; the law of made-up tables
    "forecast.py": {"EPSILONS", "TEST_SHARE", "CLOSE", "BAND", "synthetic_proxy"},
    "private_fit.py": {"MAX_RHO"},  # what a caller may ask for
}
"""Names whose literals tune nothing, by module."""


def literals(module: Path) -> list[str]:
    """Floats, and numerators of fractions, that a module holds outside the exempt names, but for mathematical constants.

    Those are 0, a half, 1 and 2, and powers of ten that keep a number from being zero or infinite.
    """

    def is_free(value: float) -> bool:
        power = math.log10(value) if value > 0 else 0.5
        return value in (0, 0.5, 1, 2) or (power == round(power) and abs(power) >= 6)

    found = []
    for part in ast.parse(module.read_text()).body:
        targets = part.targets if isinstance(part, ast.Assign) else [part]
        names = {getattr(each, "id", getattr(each, "name", "")) for each in targets}
        if names & EXEMPT.get(module.name, set()):
            continue
        for node in ast.walk(part):
            fraction = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fraction"
            for each in node.args if isinstance(node, ast.Call) and fraction else [node]:
                if isinstance(each, ast.Constant) and (fraction or isinstance(each.value, float)) and not is_free(each.value):
                    found.append(f"{module.name}:{each.lineno}: {each.value}")
    return found


def test_no_constant_stands_outside_the_table(tmp_path: Path) -> None:
    folder = Path(inspect.getfile(constants)).parent
    assert [each for path in sorted(folder.glob("*.py")) if path.name != "constants.py" for each in literals(path)] == []
    (tmp_path / "one.py").write_text("def some(x):\n    return 0.25 * x + Fraction(3, 100) if x > 1e-12 else 0.5\n")
    assert literals(tmp_path / "one.py") == ["one.py:2: 3", "one.py:2: 100", "one.py:2: 0.25"]


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
