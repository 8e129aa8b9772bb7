"""One look for everything that people read in a browser: release pages, the console. Templates escape what they are given."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from blindbayes.io.untrusted import shown

if TYPE_CHECKING:
    from jinja2 import Environment


def _seen(value: Any) -> Any:
    """No character that turns the direction of writing, or that nobody sees, reaches a page as itself."""
    return shown(value, lines=True) if type(value) is str else value


@cache
def look(*rooms: str) -> Environment:
    """Templates of these packages, and behind them those of the reports."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader(room) for room in (*rooms, "blindbayes.report")]
    return Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        finalize=_seen,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(name: str, **facts: Any) -> str:
    """One of the reports' own templates."""
    return look().get_template(name).render(**facts)


def style() -> str:
    return render("look.css")
