"""The little Markdown that our papers are written in, as blocks: for the pages and for the PDF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from typing import Literal, NamedTuple

_ESCAPED = re.compile(r"\\([^\w\s])")
_BAR = re.compile(r"(?<!\\)\|")


class BlockOfText(NamedTuple):
    """A heading (with its level), a paragraph, a list or a table, in plain text."""

    kind: Literal["heading", "paragraph", "list", "table"]
    rows: tuple[tuple[str, ...], ...]
    level: int = 0


def blocks(text: str) -> Iterator[BlockOfText]:
    """The blocks of a paper in Markdown. Text of others was escaped when it was put in; here that is undone."""
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.split("\n")
        if heading := re.match(r"(#{1,6}) ", part):
            yield BlockOfText("heading", ((_plain(lines[0][heading.end() :]),),), len(heading[1]))
            lines = lines[1:]
        if lines and all(line.startswith("- ") for line in lines):
            yield BlockOfText("list", tuple((_plain(line[2:]),) for line in lines))
        elif lines and all(line.startswith("|") for line in lines):
            cells = [tuple(_plain(cell.strip()) for cell in _BAR.split(line)[1:-1]) for line in lines]
            yield BlockOfText("table", tuple(row for at, row in enumerate(cells) if at != 1))
        elif lines:
            yield BlockOfText("paragraph", ((_plain(" ".join(lines)),),))


def to_html(text: str, *, below: int = 0) -> str:
    """The same as HTML, headings moved down by some levels."""
    return "\n".join(_html(block, below) for block in blocks(text))


def _html(block: BlockOfText, below: int) -> str:
    if block.kind == "heading":
        level = min(block.level + below, 6)
        return f"<h{level}>{escape(block.rows[0][0])}</h{level}>"
    if block.kind == "paragraph":
        return f"<p>{escape(block.rows[0][0])}</p>"
    if block.kind == "list":
        return "<ul>" + "".join(f"<li>{escape(row[0])}</li>" for row in block.rows) + "</ul>"
    head, *body = block.rows
    cells = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    cells += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return f"<table>{''.join(cells)}</table>"


def _plain(text: str) -> str:
    return unescape(_ESCAPED.sub(r"\1", text))
