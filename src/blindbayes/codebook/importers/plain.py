"""The data dictionary of blindbayes: CSV with a row per column, and the fields of a feature as headings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, get_args

from blindbayes.codebook.features import Feature
from blindbayes.codebook.importers.neutral import Column, Dictionary, File, distinct, excluded
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_csv

SPECIFICATION = "blindbayes.dictionary/1"
_FIELDS = (
    "name, kind, values, low, high, precision, bins, edges, scale, other, buckets, max_words, model, optional, missing, unit, "
    "description, normalise, region"
)
_NUMBERS: dict[str, type[float]] = dict.fromkeys(("low", "high", "precision"), float) | dict.fromkeys(
    ("buckets", "max_words", "bins"), int
)
_KINDS = [kind.__struct_config__.tag for kind in get_args(Feature)]


def read(file: File) -> Dictionary:
    return read_rows(((f"line {line}", row) for line, row in read_csv(file.raw, file.what)), file)


def read_rows(rows: Iterable[tuple[str, Mapping[str, Any]]], file: File) -> Dictionary:
    """Read rows of a dictionary, each with its place."""
    columns: list[Column] = []
    parts: list[dict[str, str]] = []
    for place, row in rows:
        fields = {str(key).strip().lower(): value for key, value in row.items() if value not in (None, "")}
        name = str(fields.pop("name", "")).strip()
        if not name and {"field_name", "variable / field name"} & {*fields}:
            raise file.problem("line 1", "these are the headings of a REDCap data dictionary: its format is redcap")
        if not name:
            raise file.problem(place, f"has no name; each row describes a column, by the fields {_FIELDS}")
        where = f"{place}, field {name!r}"
        kind = str(fields.pop("kind", "categorical" if fields.get("values") else "numeric")).strip().lower()
        if kind == "identifier":
            parts.append({"column": name} | {key: str(fields[key]).strip() for key in ("normalise", "region") if key in fields})
        elif kind == "date":
            columns.append(excluded(name, "dates: a map derives features from them ([rows.map])", where=where))
        elif kind not in _KINDS:
            raise file.problem(where, f"kind must be one of {', '.join(_KINDS)}, date, identifier")
        else:
            columns.append(_column(name, kind, fields, file, where))
    book = {"identifier": {"parts": parts}} if parts else {}
    return Dictionary(file.what, SPECIFICATION, distinct(columns, file), book)


def _column(name: str, kind: str, fields: dict[str, Any], file: File, where: str) -> Column:
    made = _converted(fields, partial(_number, file, where))
    values = _stripped(fields.get("values"))
    known: dict[str, Any] = {key: made.pop(key) for key in ("low", "high", "precision", "unit", "description") if key in made}
    known |= {"optional": made.pop("optional", False), "missing": tuple(made.pop("missing", ())), "where": where}
    if kind == "text":
        return Column(name, "text", more={**made, **({"words": values} if values else {})}, **known)
    if kind == "categorical":
        return Column(name, "categories", values=tuple(values), more=made, **known)
    known.setdefault("precision", 1.0)
    return Column(name, "number", values=tuple(values), more=made, **known)


def _number(file: File, where: str, key: str, convert: type[float] | type[int], value: Any) -> float | int:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{file.what}, {where}: {key} is not a number") from None


def _converted(fields: dict[str, Any], number: Callable[[str, Any, Any], float | int]) -> dict[str, Any]:
    """Convert the fields of a row, by a function for each field of a feature."""
    if isinstance(fields.get("bins"), str) and "|" in fields["bins"]:  # cut points instead of a number of bins
        bins = fields.pop("bins")
        fields.setdefault("edges", bins)
    converters: dict[str, Callable[[Any], Any]] = {
        **{key: partial(number, key, convert) for key, convert in _NUMBERS.items()},
        "edges": lambda value: [number("edges", float, edge) for edge in _listed(value)],
        **dict.fromkeys(("scale", "other", "model"), lambda value: str(value).strip()),
        "optional": lambda value: str(value).strip().lower() in {"true", "yes", "1"},
        "missing": lambda value: str(value).split("|"),
        **dict.fromkeys(("unit", "description"), str),
    }
    return {key: convert(fields[key]) for key, convert in converters.items() if key in fields}


def _listed(values: Any) -> list[Any]:
    return values.split("|") if isinstance(values, str) else list(values or ())


def _stripped(values: Any) -> list[str]:
    return [str(value).strip() for value in _listed(values)]
