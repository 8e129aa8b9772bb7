"""Code and proofs name each other."""

from __future__ import annotations

import re
from pathlib import Path

import blindbayes.privacy

ROOM = Path(blindbayes.privacy.__file__).parent
TESTS = Path(__file__).parent


def test_every_claim_in_the_code_has_its_proof_and_every_proof_its_claim() -> None:
    proofs = set(re.findall(r"^## \[([a-z-]+)\]$", (ROOM / "PROOFS.md").read_text(), flags=re.MULTILINE))
    code = "\n".join(path.read_text() for room in (ROOM, ROOM.parent / "scheme") for path in room.glob("*.py"))
    claims = set(re.findall(r"\.  \[([a-z-]+)\]", code))  # a claim ends a docstring's sentence: two spaces, then its name
    assert len(proofs) >= 10
    assert claims <= proofs
    assert {name for name in proofs if f"[{name}]" not in code} == set()


def test_every_test_named_in_a_proof_exists() -> None:
    named = set(re.findall(r"`(test_[a-z_]+)", (ROOM / "PROOFS.md").read_text()))
    written = {name for path in TESTS.parent.glob("*/test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named <= written
