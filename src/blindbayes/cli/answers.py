"""Checks of what people type in the wizard: each takes a text and returns its value, or raises."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.net.identity import Card, pinned, read_card

T = TypeVar("T")

_SECONDS = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_BOUNDS = re.compile(rf"({_NUMBER})\s*(?:to|\.\.)\s*({_NUMBER})(?:\s*by\s*({_NUMBER}))?")


def asked(text: str, check: Callable[[str], T], default: str | None = None) -> T:
    """Ask until `check` accepts the answer, and return its value."""

    def checked(answer: str) -> T:
        try:
            return check(answer)
        except BlindbayesError as problem:
            raise click.UsageError(str(problem)) from None
        except OSError as problem:
            raise click.UsageError(f"cannot be read: {problem.strerror}") from None

    result: T = click.prompt(text, default=default, show_default=bool(default), value_proc=checked)
    return result


def printable(text: str) -> str:
    """Return a printable text."""
    if not text.strip() or not text.isprintable():
        raise ConfigError("give a text of printable characters")
    return text.strip()


def new_file(text: str) -> Path:
    """Return the path of a new file in an existing folder."""
    path = Path(printable(text))
    if path.exists():
        raise ConfigError(f"{path.name} exists already; nothing was overwritten. Choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"the folder {path.parent} does not exist; make it first")
    return path


def new_file_beside(other: Path) -> Callable[[str], Path]:
    """Check for a new file other than `other`."""

    def check(text: str) -> Path:
        path = new_file(text)
        if path.resolve() == other.resolve():
            raise ConfigError("that is the study file; choose another name")
        return path

    return check


def one_of(known: Sequence[str]) -> Callable[[str], str]:
    """Check for one of the known answers."""

    def check(text: str) -> str:
        if text.strip() not in known:
            raise ConfigError(f"answer one of: {', '.join(known)}")
        return text.strip()

    return check


def among(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Check for names of sites that leave at least two others."""

    def check(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(re.split(r"[\s,]+", text.strip()))) if text.strip() else ()
        if unknown := [name for name in chosen if name not in names]:
            raise ConfigError(f"{unknown[0]!r} is not a party; sites: {', '.join(names)}")
        if len(names) - len(chosen) < 2:
            raise ConfigError("at least two sites need rows")
        return chosen

    return check


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Check for a whole number between bounds."""
    span = f"from {low}" + ("" if high is None else f" to {high}")

    def check(text: str) -> int:
        digits = text.strip().replace("_", "")
        if (
            not re.fullmatch(r"\d{1,18}", digits, flags=re.ASCII)
            or int(digits) < low
            or (high is not None and int(digits) > high)
        ):
            raise ConfigError(f"give a whole number {span}")
        return int(digits)

    return check


def number(text: str, rule: str = "give a number") -> float:
    """Parse a finite number; `rule` is the error for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(rule)
    return value


def duration(text: str) -> float:
    """Return seconds from a number of seconds, minutes, hours or days."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d|)", text.strip().lower(), flags=re.ASCII)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= 30 * 86400:
        raise ConfigError("give seconds, or a duration such as 10 min, 1 h, 2 d; more than 0, at most 30 days")
    return seconds


def several(text: str) -> tuple[str, ...]:
    """Split at commas, or at | where a text holds a comma."""
    parts = tuple(part.strip() for part in text.split("|" if "|" in text else ","))
    if len(parts) < 2:
        raise ConfigError("give at least two, separated by commas")
    return parts


def feature_of(name: str, text: str) -> Feature:
    """Return the feature that values separated by commas, or bounds and a step, describe."""
    if match := _BOUNDS.fullmatch(text.strip()):
        return Numeric(name, float(match[1]), float(match[2]), float(match[3] or 1))
    if "," not in text and "|" not in text:
        raise ConfigError("give values separated by commas, such as `f, m`, or bounds, such as `0 to 120 by 1`")
    return Categorical(name, several(text))


def binned(feature: Numeric, text: str) -> Numeric:
    """Cut a numeric feature into bins; 0 leaves it whole."""
    return msgspec.structs.replace(feature, bins=whole(0)(text) or None)


def some_columns(book: Codebook, left: Sequence[str], last: bool, min_count: int) -> Callable[[str], list[str]]:
    """Check for some of the columns that are left; the last site takes all of them."""

    def check(text: str) -> list[str]:
        chosen = [word.strip() for word in text.split(",") if word.strip()]
        if unknown := [word for word in chosen if word not in left]:
            why = "is held by another site" if unknown[0] in book.names else "is not in the codebook"
            raise ConfigError(f"{unknown[0]!r} {why}; left: {', '.join(left) or 'none'}")
        if len(chosen) < min_count:
            raise ConfigError(f"this site holds at least one column; left: {', '.join(left) or 'none'}")
        if last and (missing := [word for word in left if word not in chosen]):
            raise ConfigError(f"no site holds {missing[0]!r}: every column of the codebook needs a holder")
        return [word for word in left if word in chosen]

    return check


def identifier(book: Codebook) -> Callable[[str], tuple[str, ...]]:
    """Return a check for the names of identifier columns."""

    def check(text: str) -> tuple[str, ...]:
        columns = tuple(column for column in re.split(r"[\s,]+", text) if column)
        if not columns or len(set(columns)) < len(columns):
            raise ConfigError("name at least one column, each once")
        if clash := [column for column in columns if column in book.names or column == book.target]:
            raise ConfigError(f"{clash[0]!r} is a column of the codebook; the identifier must not be one")
        return columns

    return check


def cards_of(path: Path) -> list[tuple[Path, Card]]:
    """Return the card of a file, or a site's own and pinned cards of its folder."""
    path = path.expanduser()
    if not path.is_dir():
        return [(path, read_card(path))]
    peers = [(path / "peers" / f"{name}.toml", card) for name, card in pinned(path).items()]
    return [(path / "card.toml", read_card(path / "card.toml")), *peers]
