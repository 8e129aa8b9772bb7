"""Stored results of what was tried: docs/what-we-tried.json, from which `python tests/tried` writes docs/what-we-tried.md."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "what-we-tried.json"


def commit() -> str:
    """The commit that was tried, marked if files of the package differ from it."""
    ask = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
    name = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], **ask).stdout.strip()  # type: ignore[call-overload]
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "src"], **ask).stdout  # type: ignore[call-overload]
    return f"{name}-dirty" if changed.strip() else str(name)


def store(name: str, figures: dict[str, Any], path: Path = STORED) -> None:
    """Replace the stored result of one kind of trial, with date and commit."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[name] = {"date": datetime.now(UTC).date().isoformat(), "commit": commit(), "figures": figures}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
