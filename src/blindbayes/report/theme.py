"""The templates and the style sheet that release pages and console share. Templates escape every value."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from blindbayes.io.untrusted import shown

if TYPE_CHECKING:
    from jinja2 import Environment


def _visible(value: Any) -> Any:
    """Escape invisible characters and those that change the writing direction."""
    return shown(value, lines=True) if type(value) is str else value


@cache
def templates(*packages: str) -> Environment:
    """Return the templates of these packages and, behind them, those of the reports."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "blindbayes.report")]),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(name: str, **facts: Any) -> str:
    """Render one of the reports' own templates."""
    return templates().get_template(name).render(**facts)
