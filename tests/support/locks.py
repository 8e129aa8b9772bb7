"""The lock files at the top of the repository."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pins(name: str) -> dict[tuple[str, str], set[str]]:
    """The hashes of every pinned version of a lock."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^(\S+?)==(\S+)[^\n]*\n((?:    --hash=\S+[^\n]*\n)+)", text, flags=re.MULTILINE)
    return {(library, version): set(re.findall(r"sha256:[0-9a-f]{64}", hashes)) for library, version, hashes in found}
