"""The tables of items: each of the 93 has a command that ends with exit code 0.

The default suite parses every command, looks for the tests that they name (which it runs anyway) and runs the cheap ones;
`pytest -m slow tests/papers/test_items.py` runs every `blindbayes` command between real processes, offline, in an empty folder.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from blindbayes.cli import root
from blindbayes.crypto.kernels import active
from blindbayes_papers import NEEDS, PAPERS
from blindbayes_papers.between import BOOK
from blindbayes_papers.pages import document, measured_with
from blindbayes_papers.quotations import quotations

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


def test_the_index_of_the_pages_has_the_times_of_the_command() -> None:
    index = (ROOT / "docs" / "papers" / "index.md").read_text("utf-8")
    assert {paper: re.search(rf"\({paper}/index.html\) \| full \| (.+?) \|", index)[1] for paper in PAPERS} == {  # type: ignore[index]
        paper: minutes for paper, (minutes, _) in NEEDS.items()
    }
    pages = {paper: (ROOT / "docs" / "papers" / paper / "index.html").read_text("utf-8") for paper in PAPERS}
    assert not [paper for paper, page in pages.items() if "The quick form." in page]


@pytest.mark.parametrize("paper", PAPERS)
def test_published_pages_have_the_head_that_the_command_writes(paper: str) -> None:
    """For phones and dark screens; a change of the style is taken over without new measurements."""
    page = (ROOT / "docs" / "papers" / paper / "index.html").read_text("utf-8")
    title = re.search(r"<title>(.+?)</title>", page)
    assert title is not None
    assert page.startswith(document(title[1], "").partition("</style>")[0])
    assert page.count("viewport") == page.count("color-scheme:light dark") == 1


@pytest.mark.parametrize("paper", ["kikuchi2011", "vaidya2008"])
def test_published_times_were_measured_with_the_kernels(paper: str) -> None:
    """A run of a tree where nobody compiled them was 2 to 4 times as slow, and its page did not say so."""
    assert "with the compiled kernels" in (ROOT / "docs" / "papers" / paper / "index.html").read_text("utf-8")
    assert f"{'without' if active() is None else 'with'} the compiled kernels" in measured_with()


def test_lines_about_a_theorem_name_the_protocol_that_it_is_about() -> None:
    """Theorem 1 of Vaidya et al. is the composition theorem, so that Theorem 2 is about Protocol 1, and so on."""
    lines = (ROOT / "papers" / "blindbayes_papers" / "vaidya2008" / "README.md").read_text("utf-8").splitlines()
    about = {found[1]: found[2] for line in lines if (found := re.match(r"\| \d+ \| (Theorem \d+): ([^|]+)", line))}
    quoted = {entry["where"]: entry["words"] for entry in quotations("vaidya2008").values()}
    assert len(about) == 7
    for theorem, what in about.items():
        assert re.findall(r"Protocol \d", what) == re.findall(r"Protocol \d", quoted[theorem]), theorem


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
    slow = words[:2] == ["-m", "slow"]
    if slow:
        del words[:2]
    path, _, name = words[0].partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    named = [node for test, node in defined.items() if test == name or (not name and test.startswith("test_"))]
    marked = [any(ast.unparse(mark) == "pytest.mark.slow" for mark in node.decorator_list) for node in named]
    assert slow in marked  # else pytest selects nothing and ends with exit code 5
    assert words[1:2] in ([], ["-k"])


def test_every_command_is_one_of_the_two_kinds() -> None:
    assert all(each.startswith(("blindbayes ", "pytest ")) for each in COMMANDS)


RUN = [each for each in COMMANDS if each.startswith("blindbayes ")]


def is_heavy(command: str) -> bool:
    return "reproduce" in command


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", [pytest.param(each, marks=pytest.mark.slow) if is_heavy(each) else each for each in RUN])
def test_commands_end_with_exit_code_0_without_network_and_data(command: str, tmp_path: Path) -> None:
    """`codebook.toml` is the reader's own: the only file that a command may ask for."""
    BOOK.to_toml(tmp_path / "codebook.toml")
    program = Path(sys.executable).with_name("blindbayes")
    offline = {
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    environment = {name: value for name, value in os.environ.items() if name != "BLINDBAYES_DATA"} | offline
    words = [str(program), *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_commands_of_every_kind_are_run() -> None:
    assert {shlex.split(each)[1] for each in RUN} == {"audit-smooth", "plan-smooth", "reproduce"}
    assert sum(map(is_heavy, RUN)) == 9  # five experiments; the protocols of four papers, since Zafarani's has one table
