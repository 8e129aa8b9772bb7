"""Code and proofs name each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import blindbayes.dp
import blindbayes_papers

ROOM = Path(blindbayes.dp.__file__).parent
TESTS = Path(__file__).parents[1]
PAGES = {ROOM / "PROOFS.md": (ROOM, ROOM.parent / "study")}
PAGES |= {page: (page.parent,) for page in Path(blindbayes_papers.__file__).parent.rglob("PROOFS.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_claim_in_the_code_has_its_proof_and_every_proof_its_claim(page: Path) -> None:
    proofs = set(re.findall(r"^## \[([a-z-]+)\]$", page.read_text(), flags=re.MULTILINE))
    code = "\n".join(path.read_text() for room in PAGES[page] for path in room.rglob("*.py"))
    claims = set(re.findall(r"\.  \[([a-z-]+)\]", code))  # a claim ends a docstring's sentence: two spaces, then its name
    assert len(proofs) >= (10 if page.parent == ROOM else 1)
    assert claims <= proofs
    assert {name for name in proofs if f"[{name}]" not in code} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_test_named_in_a_proof_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_[a-z_]+)", page.read_text()))
    written = {name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named <= written
