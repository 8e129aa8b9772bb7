"""The tables of items: every one of the 93 has a command that parses, its tests exist, and the cheap ones run."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from blindbayes.cli import root
from blindbayes_papers import PAPERS

ROOT = Path(__file__).parents[2]
ILLUSTRATIONS = {57, 72, 87, 97}
LINE = re.compile(r"^\| (\d+) \| (.+?) \| `(.+?)` \| (.+?) \|$")


def items(paper: str) -> list[tuple[int, str]]:
    text = (ROOT / "papers" / "blindbayes_papers" / paper / "README.md").read_text("utf-8")
    return [(int(found[1]), found[3]) for line in text.splitlines() if (found := LINE.match(line))]


COMMANDS = sorted({command for paper in PAPERS for _, command in items(paper)})


def test_every_item_of_every_paper_has_one_line() -> None:
    numbers = [number for paper in PAPERS for number, _ in items(paper)]
    assert sorted(numbers) == sorted(set(range(1, 98)) - ILLUSTRATIONS)
    assert len(numbers) == 93


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("blindbayes ")])
def test_commands_parse(command: str) -> None:
    words = shlex.split(command)[1:]
    found: click.Command = root
    context = click.Context(root, info_name="blindbayes")
    while isinstance(found, click.Group):
        name = words.pop(0)
        nested = found.get_command(context, name)
        assert nested is not None, f"no command {name}"
        found = nested
        context = click.Context(found, parent=context, info_name=name)
    if "--help" not in words:
        found.make_context(found.name, list(words), resilient_parsing=False, parent=context.parent)


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("pytest ")])
def test_the_tests_that_commands_name_exist(command: str) -> None:
    words = shlex.split(command)[1:]
    path, _, name = words[0].partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert any(each.startswith("test_") for each in defined)
    assert not name or name in defined
    assert words[1:2] in ([], ["-k"])


def test_every_command_is_one_of_the_two_kinds() -> None:
    assert all(each.startswith(("blindbayes ", "pytest ")) for each in COMMANDS)
