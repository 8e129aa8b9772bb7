"""Files, modules and tests that SPEC.md, PROOFS.md and the papers' READMEs name exist: else a claim is without evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPAN = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"((?:[\w-]+/)*[\w-]+\.(?:py|md)|(?:tests|docs|papers|src|benchmarks)/[\w/]+)(?:::(\w+))?")
MODULE = re.compile(r"[a-z_]+(?:\.[A-Za-z_]+)+")
SUFFIXES = {"csv", "gz", "html", "json", "jsonl", "md", "png", "py", "svg", "toml"}
PUBLIC = {"report.md", "statement.md", "model_card.md"}  # which a run writes


def pages() -> list[Path]:
    found = [path for folder in ("src", "papers") for path in (ROOT / folder).rglob("*.md")]
    return sorted(path for path in found if path.name in ("SPEC.md", "PROOFS.md", "README.md"))


def files() -> list[str]:
    return [
        "/" + path.relative_to(ROOT).as_posix()
        for top in ("src", "papers", "tests", "docs", "benchmarks", "examples")
        for path in (ROOT / top).rglob("*")
        if "__pycache__" not in path.parts
    ]


FILES = files()
SOURCES = {name for name in FILES if name.endswith(".py") and name.startswith(("/src/", "/papers/"))}


def dead(text: str) -> Iterator[str]:
    """Yield the references of a page that lead nowhere."""
    for span in SPAN.findall(text):
        if (file := FILE.fullmatch(span)) and file[1] not in PUBLIC:
            hits = [name for name in FILES if name.endswith("/" + file[1].rstrip("/"))]
            if not hits or (file[2] and f"def {file[2]}(" not in (ROOT / hits[0][1:]).read_text("utf-8")):
                yield span
        elif MODULE.fullmatch(span) and span.rsplit(".", 1)[1] not in SUFFIXES and not _resolves(span.split(".")):
            yield span


def _resolves(parts: list[str]) -> bool:
    """Return whether the parts are a module or package, or names inside one; parts of data files are not modules at all."""
    for cut in range(len(parts), 0, -1):
        tail = "/" + "/".join(parts[:cut])
        hits = [name for name in SOURCES if name.endswith((tail + ".py", tail + "/__init__.py"))]
        if hits:
            rest = parts[cut:]
            return all(any(re.search(rf"\b{name}\b", (ROOT / hit[1:]).read_text("utf-8")) for hit in hits) for name in rest)
    return False


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_exists(page: Path) -> None:
    assert list(dead(page.read_text("utf-8"))) == []


def test_dead_references_are_reported() -> None:
    planted = "`tests/none.py`, `tests/test_references.py::test_none`, `privacy.rules`, `agent.runs.commit_points.none_such`"
    assert len(list(dead(planted))) == 4
    assert list(dead("`tests/test_references.py`, `agent.runs.commit_points`, `dp/PROOFS.md`, `study.toml`, `x = 1`")) == []
