"""The tree's own audit and papers, for an environment that has the package of this tree but not the distributions beside it."""

from __future__ import annotations

import importlib.util
import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
BESIDE = ("audit", "papers")
"""Folders with a distribution each, which the core finds by its metadata."""


def offer_distributions(folder: Path) -> None:
    """Make them known here and to every process that a test starts, if they are not installed: `make setup` installs them."""
    for name in BESIDE:
        if importlib.util.find_spec(f"blindbayes_{name}") is None:
            _offer(ROOT / name, folder)


def _offer(place: Path, folder: Path) -> None:
    project = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {module}" for name, module in entries.items()))
    ]
    facts = folder / f"blindbayes_{place.name}-{project['version']}.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    found = [each for each in (str(place), str(folder)) if each not in sys.path]
    sys.path += found
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *found])
