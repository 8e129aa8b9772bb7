"""The tree's own papers, for an environment that has the package of this tree but not the distribution beside it."""

from __future__ import annotations

import importlib.util
import os
import sys
import tomllib
from pathlib import Path

PAPERS = Path(__file__).parents[2] / "papers"


def offer_papers(folder: Path) -> None:
    """Make them known here and to every process that a test starts, if they are not installed: `make setup` installs them."""
    if importlib.util.find_spec("blindbayes_papers") is not None:
        return
    project = tomllib.loads((PAPERS / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {module}" for name, module in entries.items()))
    ]
    facts = folder / f"blindbayes_papers-{project['version']}.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    found = [str(PAPERS), str(folder)]
    sys.path += found
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *found])
