"""Stored results of what was tried: docs/what-we-tried.json, from which `python tests/tried` writes docs/what-we-tried.md."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "what-we-tried.json"
LARGEST = {"targets", "slowest_seconds", "peak_megabytes"}


def commit() -> str:
    """The commit that was tried, marked if files of the package differ from it."""
    ask = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
    name = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], **ask).stdout.strip()  # type: ignore[call-overload]
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "src"], **ask).stdout  # type: ignore[call-overload]
    return f"{name}-dirty" if changed.strip() else str(name)


def added(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums of the parts' figures, and the largest of those that are no counts."""
    names = sorted({name for each in parts for name in each})
    return {name: (max if name in LARGEST else sum)(each.get(name, 0) for each in parts) for name in names}


def store(name: str, figures: dict[str, Any], path: Path = STORED, *, part: str = "") -> None:
    """Store the result of a trial, with date and commit.

    A long trial may come in parts, by seed. Parts of one commit are added up; one that ran again replaces itself.
    """
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    result = {"date": datetime.now(UTC).date().isoformat(), "commit": commit(), "figures": figures}
    if part:
        before = known.get(name, {})
        parts = before.get("parts", {}) if before.get("commit") == result["commit"] else {}
        result["parts"] = {**parts, part: figures}
        result["figures"] = added(list(result["parts"].values()))
    known[name] = result
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
