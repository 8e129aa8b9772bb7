"""Pages state only figures that a benchmark measured and stored."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import figures  # noqa: E402

STORED = json.loads(figures.STORED.read_text(encoding="utf-8"))
WRITTEN = {"peers.md"}  # wholly by its own benchmark, with date and machine
CLAIM = re.compile(
    r"\d[\d.,]* (?:times (?:faster|less|slower|the CPU|as fast)|(?:us|ms|s|seconds|minutes|hours) of (?:CPU|processor))"
    r"|CPU [a-z ]*\d|\btook \d|\| *\d[\d.,]* (?:ms|s|CPU s) *\|"
)
PAGES = [page for page in figures.pages() if page.name not in WRITTEN and "papers" not in page.parts]


def unmarked(text: str) -> list[str]:
    """Claims about speed that no marker surrounds."""
    return [match[0] for match in CLAIM.finditer(figures.MARKED.sub("", text))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_states_the_stored_figures_and_no_others(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert figures.rendered(text, STORED) == text, "python benchmarks/figures.py --write"
    assert unmarked(text) == [], "let benchmarks/figures.py measure it, or drop it"


def test_a_page_that_claims_more_fails() -> None:
    """Planted claims: a marked figure above the stored one, and one without a marker."""
    more = "fits <!-- figure: counting.times -->99<!-- /figure --> times faster"
    assert figures.rendered(more, STORED) != more
    assert unmarked("it fits 9 times faster from Parquet") == ["9 times faster"]
    assert unmarked("| 500 | 2.5 ms | 12.9 kB |") == ["| 2.5 ms |"]
    assert unmarked("checking takes 0.3 s of CPU at 32,000") == ["0.3 s of CPU"]


def test_every_measurement_says_when_where_and_of_what() -> None:
    commits = subprocess.run(["git", "rev-parse", "--is-inside-work-tree"], cwd=ROOT, capture_output=True, check=False)
    for name, own in STORED.items():
        assert name in {*figures.MEASURES, "many_sites"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", own["date"])
        assert "cores" in own["machine"]
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", own["commit"]) or commits.returncode


def test_ratios_are_rounded_against_us() -> None:
    assert [figures.down(ratio) for ratio in (12.9, 3.0, 2.99, 1.04)] == ["12", "3", "2.9", "1.0"]
    assert [figures.up(ratio) for ratio in (1.01, 1.4, 2.449)] == ["1.1", "1.4", "2.5"]
