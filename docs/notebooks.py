"""Write the tutorials as notebooks: `python docs/notebooks.py`. A test fails if they are out of date."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = ("hospitals", "census", "columns")


def notebook(markdown: str) -> str:
    """Convert a tutorial to a notebook: python blocks become code cells, bash blocks become cells with `!`."""
    cells: list[dict[str, Any]] = []
    for part in re.split(r"(^```(?:python|bash)\n.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE):
        block = re.fullmatch(r"```(python|bash)\n(.*?)```", part, flags=re.DOTALL)
        text = block.group(2).rstrip("\n") if block else part.strip()
        if not text:
            continue
        if block and block.group(1) == "bash":
            text = "\n".join(f"!{line}" for line in text.splitlines())
        cell: dict[str, Any] = {"cell_type": "code" if block else "markdown", "id": f"cell-{len(cells)}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        if block:
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return (
        json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False)
        + "\n"
    )


def made(name: str) -> str:
    """Return the notebook of one tutorial."""
    return notebook((HERE / "tutorials" / f"{name}.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    (HERE / "notebooks").mkdir(exist_ok=True)
    for name in NAMES:
        (HERE / "notebooks" / f"{name}.ipynb").write_text(made(name), encoding="utf-8")
