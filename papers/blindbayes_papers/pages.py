"""Pages, CSV files and pictures of the papers' experiments."""

from __future__ import annotations

import csv
import html
import pathlib
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from blindbayes.crypto.kernels import active

STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;overflow-wrap:break-word}"
    "table{border-collapse:collapse;margin:1rem 0;display:block;max-width:100%;overflow-x:auto}"
    "td,th{border:1px solid #8888;padding:.25rem .6rem;text-align:left;vertical-align:top}"
    "table.numbers td,table.numbers th{text-align:right}table.numbers :is(td,th):is(:first-child,.note){text-align:left}"
    ".note,figcaption{opacity:.8;font-size:.9em}img{max-width:100%;background:#fff}figure{margin:1rem 0}"
    "@media(max-width:40rem){table:not(.numbers) td{min-width:7rem}}"
)


def document(title: str, body: str, style: str = "") -> str:
    """Return a whole page."""
    viewport = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    head = f'<meta charset="utf-8">{viewport}<title>{html.escape(title)}</title><style>{STYLE}{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}</body></html>\n'


def write_page(path: pathlib.Path, page: str, short: str = "") -> pathlib.Path:
    """Write a page and return its path; `short` says below the title what the quick form left out."""
    note = f"</h1>\n<p><b>The quick form.</b> {html.escape(short)}</p>" if short else "</h1>"
    path.write_text(page.replace("</h1>", note, 1), encoding="utf-8")
    return path


def measured_with() -> str:
    """Return what times depend on. Without kernels ours take 2 to 4 times as long."""
    import gmpy2

    kernels = "without" if active() is None else "with"
    machine = html.escape(platform.machine())
    return f"Python {platform.python_version()} and gmpy2 {gmpy2.version()} on {machine}, {kernels} the compiled kernels"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table of texts; kind "numbers" aligns them to the right."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"

    start = f'<table class="{kind}">' if kind else "<table>"
    return start + row(head, "th") + "".join(row(cells, "td") for cells in rows) + "</table>"


def images(names: Sequence[str]) -> str:
    """Return the pictures, or what to install for them."""
    return "".join(f'<img src="{name}" alt="{name}">' for name in names) or "<p>Install matplotlib for the pictures.</p>"


def write_csv(path: pathlib.Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def write_records(path: pathlib.Path, records: Sequence[Any]) -> None:
    """Write dataclass instances of one kind, a column per field; no file for an empty list."""
    rows = [asdict(record) for record in records]
    if rows:
        write_csv(path, list(rows[0]), [list(row.values()) for row in rows])


def pyplot() -> Any:
    """Return matplotlib's pyplot, set to draw into files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
