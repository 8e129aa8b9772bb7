"""Convert the small part of Markdown that our documents use to HTML."""

from __future__ import annotations

import re
from html import escape, unescape

_ESCAPED = re.compile(r"\\([^\w\s])")
_BAR = re.compile(r"(?<!\\)\|")


def to_html(text: str, *, below: int = 0) -> str:
    """Return a document as HTML: headings (moved down by `below` levels), paragraphs, lists and tables.

    Untrusted text was escaped as Markdown when it was inserted; it is unescaped here and escaped as HTML. A head in YAML, as
    of a model card, is left out.
    """
    blocks = []
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.split("\n")
        if heading := re.match(r"(#{1,6}) ", part):
            level = min(len(heading[1]) + below, 6)
            blocks.append(f"<h{level}>{_text(lines[0][heading.end() :])}</h{level}>")
            lines = lines[1:]
        if lines and all(line.startswith("- ") for line in lines):
            blocks.append("<ul>" + "".join(f"<li>{_text(line[2:])}</li>" for line in lines) + "</ul>")
        elif lines and all(line.startswith("|") for line in lines):
            head, _, *body = ([_text(cell.strip()) for cell in _BAR.split(line)[1:-1]] for line in lines)
            rows = [_row(head, "th"), *(_row(cells, "td") for cells in body)]
            blocks.append(f'<div class="wide"><table>{"".join(rows)}</table></div>')
        elif lines:
            blocks.append(f"<p>{_text(' '.join(lines))}</p>")
    return "\n".join(blocks)


def _row(cells: list[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{cell}</{kind}>" for cell in cells) + "</tr>"


def _text(markdown: str) -> str:
    return escape(unescape(_ESCAPED.sub(r"\1", markdown)))
