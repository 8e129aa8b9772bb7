"""Quotations from the papers: what our pages say that a paper says, in its own words and with the place.

A folder's `quotations.toml` has one entry per quotation: `where` is a section, equation, theorem, table or algorithm, and
`words` are the paper's. Formulas are written in plain text. `translated`: from the Persian; `described`: in our
words, of an algorithm or equation; `converted`: what our pages print instead, in another unit or computed.
"""

from __future__ import annotations

import importlib.resources
import tomllib
from functools import cache
from typing import Any

from blindbayes.errors import ConfigError


@cache
def quotations(paper: str) -> dict[str, dict[str, Any]]:
    """Return the quotations of a paper by their names."""
    path = importlib.resources.files("blindbayes_papers") / paper / "quotations.toml"
    return tomllib.loads(path.read_text("utf-8"))


def quote(paper: str, name: str) -> str:
    """Return a quotation with its place."""
    try:
        entry = quotations(paper)[name]
    except KeyError:
        raise ConfigError(f"{paper}/quotations.toml has no entry {name!r}") from None
    return f"\u201c{entry['words']}\u201d ({entry['where']})"
