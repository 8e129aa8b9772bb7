"""Write the list of all modules in docs/architecture.md: each file and the first paragraph of its docstring.

    python tools/modules.py

`tests/test_repository.py` fails when the page differs from the sources.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "blindbayes"
PAGE = ROOT / "docs" / "architecture.md"
HEADING = "## All modules\n"


def summary(path: Path) -> str:
    """Return the first paragraph of a module's docstring in one line."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return re.sub(r"\s+", " ", text.split("\n\n")[0]).replace("<", "&lt;")


def listed() -> str:
    """Return the list: a section for each package, a line for each module."""
    files = [path for path in sorted(SOURCE.rglob("*.py")) if not path.name.startswith("__")]
    sections: dict[str, list[str]] = {}
    for path in files:
        name = path.relative_to(SOURCE)
        package = name.parts[0] if len(name.parts) > 1 else "blindbayes"
        sections.setdefault(package, []).append(f"- `{name.as_posix()}`: {summary(path)}")
    return "\n".join("\n".join([f"### `{package}`", "", *lines, ""]) for package, lines in sorted(sections.items()))


def page() -> str:
    """Return the page with today's list in place of the one that it has. The list is the page's last section."""
    before, rest = PAGE.read_text("utf-8").split(HEADING, 1)
    introduction = rest.strip().split("\n\n")[0]
    return f"{before}{HEADING}\n{introduction}\n\n{listed()}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
