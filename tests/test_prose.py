"""Prose and names of the sources and of Markdown pages follow the style guide: banned phrases, names, openings of docstrings.

`prose_allowed.txt` lists the files that are not clean yet. It only shrinks: a file that is not listed must be clean, and a
listed file that is clean fails the test. `python tests/test_prose.py PATH ...` prints the findings in files; without paths it
prints those in files that are not listed, and removes clean files from the list.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_name("prose_allowed.txt")

PROSE = re.compile(
    r"\b(?:[Ww]hoever|[Ss]o\s+many|(?:is|are|was|were)\s+none|tells|told|its\s+people|house|rooms?|[Ss]trangers?)\b"
)
CODE_SPAN = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
FRAGMENT = re.compile(r"^(?:Of|As|What|Whether|Whose|Which|Who|Why|How|That|Where|If) ")  # no imperative, no head noun
NAME = re.compile(
    r"^_*(?:found|kept|held|said|drawn|told|of|of_.*|(?:most|least|fewest)(?:_.*)?)$|(?:^|_)(?:house|room|stranger)s?(?:_|$)",
    re.IGNORECASE,
)


def sources() -> list[Path]:
    return sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "papers").rglob("*.py")])


def pages() -> list[Path]:
    """Return the Markdown files of the repository: READMEs, docs, SPEC.md, PROOFS.md."""
    folders = ("benchmarks", "docs", "engines", "examples", "papers", "src", "tests")
    return sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))])


def page_findings(text: str) -> Iterator[str]:
    """Yield `line: reason` for each banned phrase in a Markdown file, across line breaks; code spans are not prose."""
    prose = CODE_SPAN.sub(lambda span: re.sub(r"\w", "x", span[0]), text)
    for match in PROSE.finditer(prose):
        yield f"{prose.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"


def findings(text: str) -> Iterator[str]:
    """Yield `line: reason` for each violation in a source file."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            line = getattr(node, "lineno", 1)
            yield from (f"{line}: docstring: {phrase}" for phrase in phrases(docstring))
            if match := FRAGMENT.match(docstring):
                yield f"{line}: docstring starts with {match[0].strip()!r}"
        elif isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield from (f"{part.lineno}: error: {phrase}" for phrase in phrases(part.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\bits\s+people\b", node.value):
            yield f"{node.lineno}: text: its people"
        yield from (f"{line}: name: {name}" for line, name in names(node) if NAME.search(name))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from (f"{token.start[0]}: comment: {phrase}" for phrase in phrases(token.string))


def phrases(text: str) -> list[str]:
    return [match[0] for match in PROSE.finditer(" ".join(text.split()))]


def names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names that a node defines: functions, classes, arguments and variables."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.lineno, node.name
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id


def allowed() -> list[str]:
    return ALLOWED.read_text(encoding="utf-8").splitlines()


def violations() -> dict[str, list[str]]:
    each = {path.relative_to(ROOT).as_posix(): list(findings(path.read_text(encoding="utf-8"))) for path in sources()}
    return {name: lines for name, lines in each.items() if lines}


def test_sources_that_are_not_listed_are_clean() -> None:
    assert {name: lines for name, lines in violations().items() if name not in allowed()} == {}


def test_listed_files_are_not_clean_yet() -> None:
    assert sorted(set(allowed()) - set(violations())) == []
    assert allowed() == sorted(set(allowed()))


def test_pages_are_clean() -> None:
    """No list of exceptions: every page is."""
    each = {path.relative_to(ROOT).as_posix(): list(page_findings(path.read_text("utf-8"))) for path in pages()}
    assert len(each) > 80
    assert {name: lines for name, lines in each.items() if lines} == {}


@pytest.mark.parametrize(
    "text", ["Whoever reads", "at least so\nmany rows", "a date that is\n  none", "# Its people and its people"]
)
def test_planted_phrases_in_pages_are_reported(text: str) -> None:
    assert list(page_findings(text))


def test_code_spans_in_pages_are_no_prose() -> None:
    assert list(page_findings("the verdict `tells`, a ``` fence\n")) == []
    assert list(page_findings("`x` tells `y`")) == ["1: tells"]


@pytest.mark.parametrize(
    "text",
    [
        '"""Text from strangers."""',
        '"""What a run costs."""',
        'def f():\n    """Of a batch."""',
        'def f():\n    """Whether it holds."""',
        "x = 1  # whoever calls",
        'raise ValueError(f"a rate that is none: {1}")',
        "found = 1",
        "def of(cls): ...",
        "def f(most_bytes): ...",
        "for held in []: ...",
        "MOST_WORDS = 1",
    ],
)
def test_planted_violations_are_reported(text: str) -> None:
    assert list(findings(text))


@pytest.mark.parametrize(
    "text",
    [
        'def f():\n    """Return the offer to send now, or None."""',
        "max_words = 1",
        "foundation = 1  # mostly harmless",
        "x = 'told'",
    ],
)
def test_plain_sources_pass(text: str) -> None:
    assert list(findings(text)) == []


def main() -> None:
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            report = page_findings if name.endswith(".md") else findings
            for line in report(Path(name).read_text(encoding="utf-8")):
                print(f"{name}:{line}")
        return
    broken, listed = violations(), allowed()
    for name, lines in broken.items():
        if name not in listed:
            print(*(f"{name}:{line}" for line in lines), sep="\n")
    ALLOWED.write_text("".join(f"{name}\n" for name in sorted(set(listed) & set(broken))), encoding="utf-8")


if __name__ == "__main__":
    main()
