"""SPSS (.sav, .zsav) and Stata (.dta) files: labels, missing values and formats. Their rows are not read.

pyreadstat (extra `spss`) parses the file's metadata in a process of its own (`readstat`). Minima and maxima are not in there;
they are asked for.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from blindbayes._lazy import need
from blindbayes.codebook.importers.neutral import (
    MAX_FILE,
    Column,
    Dictionary,
    File,
    categories,
    distinct,
    excluded,
    markers_of,
    plain,
    within,
)
from blindbayes.codebook.importers.readstat import READERS
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import convert, read_json

SPECIFICATION = "SPSS or Stata metadata, by ReadStat"
_CHILD = "blindbayes.codebook.importers.readstat"
_SECONDS = 120
_DATES = re.compile(r"%?-?[0-9]*(t[cCdwmqhyg]|d|[AES]?DATE|JDATE|QYR|MOYR|WKYR|DATETIME|D?TIME|WKDAY|MONTH|YMDHMS|MTIME)")
_DECIMALS = re.compile(r"(?:%-?[0-9]*|[A-Z]+[0-9]*)\.([0-9]{1,2})")


class _Facts(msgspec.Struct):
    """A column as the child process prints it."""

    name: str
    label: str
    labels: list[tuple[str | float, str]]
    format: str
    type: str
    measure: str
    missing: list[tuple[str | float, str | float]]


def read_path(path: Path, what: str) -> Dictionary:
    """Read the metadata of a file. A file that crashes the library is an error like any other."""
    if path.suffix.lower() not in READERS:
        raise ConfigError(f"{what} is not an SPSS or Stata file by its name: {', '.join(READERS)}")
    need("pyreadstat")
    try:
        command = [sys.executable, "-m", _CHILD, str(path.resolve())]
        child = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - our own module
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise ConfigError(f"{what} cannot be read as {path.suffix.lower()} ({type(cause).__name__})") from None
    if child.returncode != 0:
        raise ConfigError(f"{what} cannot be read as {path.suffix.lower()}: it is damaged, or of another kind")
    facts = convert(read_json(child.stdout, what, max_bytes=MAX_FILE), list[_Facts], what)
    file = File(what, b"")
    return Dictionary(what, SPECIFICATION, distinct((_column(each, file) for each in facts), file))


def _column(facts: _Facts, file: File) -> Column:
    name, form, where = facts.name, facts.format, f"field {facts.name!r}"
    missing, unlisted = _missing(facts)
    absent = [code for code, _ in facts.labels if isinstance(code, str) and re.fullmatch("[a-z]", code) and form[:1] == "%"]
    pairs = [(str(plain(code)).strip(), label) for code, label in facts.labels if code not in absent]
    missing += [f".{code}" for code in absent]  # as Stata writes its extended missing values into a text file
    missing += within((code for code, _ in pairs), unlisted)
    shared: dict[str, Any] = {"missing": tuple(missing), "description": facts.label, "where": where}
    made = categories(pair for pair in pairs if pair[0] not in missing)
    if _DATES.match(form):
        return excluded(name, "dates: a map derives features from them ([rows.map])", **shared)
    if made["values"] and facts.measure != "scale":  # of a range without end its labelled codes are the markers
        return Column(name, **made, **shared)
    if unlisted:
        return excluded(name, "its range of missing values has too many to list: recode them in the table first", **shared)
    if facts.type == "string":
        return excluded(name, "free text: it has no value labels", **shared)
    digits = _DECIMALS.match(form) if not form.endswith("g") else None  # Stata's general format says nothing of decimals
    step = 1.0 if facts.type in ("int8", "int16", "int32") else 10.0 ** -min(9, int(digits[1])) if digits else None
    return Column(name, "number", precision=step, labels=made["labels"], **shared)


def _missing(facts: _Facts) -> tuple[list[str], list[tuple[float, float]]]:
    """Return the missing markers, and the ranges with too many of them to list."""
    markers: list[str] = []
    unlisted: list[tuple[float, float]] = []
    for low, high in facts.missing:
        if isinstance(low, str) or isinstance(high, str) or low == high:
            markers.append(str(plain(low)).strip())
        elif (listed := markers_of(low, high)) is None:
            unlisted.append((low, high))
        else:
            markers += listed
    return markers, unlisted
