"""Infer codebooks from public frames, data dictionaries, or (without privacy) training data."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.data.encode import arrow_column, is_plain_array, plain_floats
from blindbayes.data.frames import to_arrow
from blindbayes.data.libraries import pa, pc
from blindbayes.data.values import is_whole, marker_numbers, plain_text
from blindbayes.errors import ConfigError, DataError

Provenance = Literal["declared", "public frame", "data dictionary", "inferred"]
_DECIMALS = 9
_CODE_BITS = 45
_FINEST = 490  # a finer binary grid has no square in floating point
_LARGEST = 1e148  # with its margin still within what a codebook allows
_MARGIN = 16  # ranges that an inferred codebook adds on each side, for later batches and queries
_AT_ONCE = 1 << 14  # numbers that fit the processor's cache
_FIELDS = (
    "name, kind, values, low, high, precision, bins, edges, scale, other, buckets, max_words, model, optional, missing, unit, "
    "description, normalise, region"
)
_NUMBERS: dict[str, type[float]] = dict.fromkeys(("low", "high", "precision"), float) | dict.fromkeys(
    ("buckets", "max_words", "bins"), int
)
_KINDS = [kind.__struct_config__.tag for kind in get_args(Feature)]


def infer_codebook(
    frame: Any, target: str, *, bins: int | None, max_rows: int, missing: Sequence[str], provenance: Provenance
) -> Codebook:
    """Infer categories from text, truth values and dictionaries, and numeric features with their grid from numbers."""
    table = to_arrow(frame)
    require_target(table, target)
    if table.num_rows == 0:
        raise DataError("the frame is empty; a codebook needs rows to infer bounds and categories from")
    columns = {name: table.column(name) for name in table.column_names if name != target}
    features = tuple(infer_feature(name, column, bins=bins, missing=tuple(missing)) for name, column in columns.items())
    labels = infer_labels(table.column(target), target, tuple(missing))
    rows = min(table.num_rows, max_rows) if provenance == "public frame" else None
    return Codebook(
        target, labels, features, max_rows=max_rows, missing=tuple(missing), expected_rows=rows, provenance=provenance
    )


def require_target(table: pa.Table, target: str) -> None:
    """Raise if a table lacks its class column."""
    if target not in table.column_names:
        raise DataError(f"class column {target!r} is missing from the table; name the column that is to be predicted as target")


def infer_labels(values: Any, target: str, missing: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the sorted class labels: numbers by size, text by code point."""
    labels, _ = _distinct(arrow_column(values, target), target, missing)
    if not labels:
        raise DataError(f"class column {target!r} holds no label")
    return labels


def infer_feature(
    name: str, values: Any, *, bins: int | None = None, missing: tuple[str, ...] = (), margin: bool = False
) -> Feature:
    """Infer a feature from the values of a column."""
    missing = tuple(dict.fromkeys(("", *missing)))
    column = values if is_plain_array(values) else arrow_column(values, name)
    floats = plain_floats(column)
    if floats is None:
        labels, absent = _distinct(column, name, missing)
        if not labels:
            raise DataError(f"column {name!r} holds no value; drop it")
        return Categorical(name, labels, optional=absent)
    numbers = np.ascontiguousarray(floats)
    rows = len(numbers)
    for number in marker_numbers(missing):
        numbers = numbers[numbers != number]
    if len(numbers) and math.isnan(numbers.min()):
        numbers = numbers[~np.isnan(numbers)]
    absent = len(numbers) < rows
    if not len(numbers):
        raise DataError(f"column {name!r} holds no value; drop it")
    largest = max(-numbers.min(), numbers.max())
    if math.isinf(largest):
        raise DataError(f"column {name!r} holds infinity; drop or clip it")
    if largest > _LARGEST:
        raise DataError(f"column {name!r} holds numbers too large to square; rescale it")
    low, high, precision = _grid(numbers, margin=margin)
    grid = Numeric(name, low, high, precision, optional=absent)
    if bins is not None and bins <= grid.width:
        return Numeric(name, low, high, precision, bins=bins, optional=absent)
    return grid


def _distinct(column: pa.Array, name: str, missing: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    values = pc.unique(column).to_pylist()
    ordered = sorted(value for value in values if value is not None and value == value)
    if any(isinstance(value, float) and not is_whole(value) for value in ordered):
        raise DataError(f"column {name!r}: fractional numbers cannot be labels; cast them to text")
    texts = [plain_text(value) for value in ordered]
    labels = dict.fromkeys(text for text in texts if text and text not in missing)  # -0.0 and 0.0 are one label
    return tuple(labels), len(ordered) < len(values) or any(not text or text in missing for text in texts)


def _grid(numbers: npt.NDArray[np.float64], *, margin: bool) -> tuple[float, float, float]:
    """Return bounds and the coarsest decimal grid with all numbers, else the finest binary grid with exact sums."""
    low, high = float(numbers.min()), float(numbers.max())
    if margin:
        extra = _MARGIN * ((high - low) or max(1.0, abs(low)))
        low, high = low - extra, high + extra
        if extra >= 1:
            low, high = float(math.floor(low)), float(math.ceil(high))
    extent = max(high - low, max(abs(low), abs(high)) * 2.0**-6)
    for decimals in range(_DECIMALS + 1):
        scale = 10.0**decimals
        if extent * scale >= 2.0**_CODE_BITS or max(abs(low), abs(high)) * scale >= 2.0**51:
            break
        if _lies_on(numbers, scale):
            return low, high, 1.0 / scale
    exponent = _CODE_BITS - max(0, math.frexp(extent)[1]) if extent >= 1 else _CODE_BITS + -math.frexp(extent)[1]
    largest = max(abs(low), abs(high))
    if largest:
        exponent = min(exponent, 51 - math.frexp(largest)[1])
    return low, high, 2.0 ** -min(exponent, _FINEST)


def _lies_on(numbers: npt.NDArray[np.float64], scale: float) -> bool:
    """Return True if every number is a grid point, after a look at a few spread over the column."""
    spread = numbers[:: max(1, len(numbers) // 256)]
    parts = (numbers[start : start + _AT_ONCE] for start in range(0, len(numbers), _AT_ONCE))
    return all(np.array_equal(np.floor(part * scale + 0.5) / scale, part) for part in (spread, *parts))


def codebook_from_dictionary(
    rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]], target: str, *, max_rows: int
) -> Codebook:
    """Make a codebook from a data dictionary; see `Codebook.from_dictionary`."""
    features: list[dict[str, Any]] = []
    parts: list[dict[str, str]] = []
    classes: list[str] | None = None
    for position, row in enumerate(_dictionary_rows(rows), start=1):
        fields = {str(key).strip().lower(): value for key, value in row.items() if value not in (None, "")}
        name = str(fields.pop("name", "")).strip()
        if not name:
            raise ConfigError(
                f"data dictionary: row {position} has no name; each row describes a column, by the fields {_FIELDS}"
            )
        kind = str(fields.pop("kind", "categorical" if fields.get("values") else "numeric")).strip().lower()
        if name == target:
            if not (classes := _stripped(fields.get("values"))):
                raise ConfigError(f"data dictionary: class column {target!r} needs values, separated by |")
        elif kind == "identifier":
            parts.append({"column": name} | {key: str(fields[key]).strip() for key in ("normalise", "region") if key in fields})
        elif kind in _KINDS:
            features.append({"kind": kind, "name": name, **_described(name, kind, fields)})
        else:
            raise ConfigError(f"data dictionary: kind of {name!r} must be one of {', '.join(_KINDS)}, identifier")
    if classes is None:
        raise ConfigError(f"data dictionary: no row is named {target!r}, the class column")
    made = {"target": target, "classes": classes, "features": features, "max_rows": max_rows, "provenance": "data dictionary"}
    return Codebook.from_dict({**made, "identifier": {"parts": parts}} if parts else made)


def _dictionary_rows(rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if not isinstance(rows, str | os.PathLike):
        return list(rows)
    try:
        with Path(rows).open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        raise ConfigError(f"data dictionary {os.fspath(rows)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, csv.Error) as cause:
        raise ConfigError(f"data dictionary {os.fspath(rows)!r} cannot be read ({type(cause).__name__})") from None


def _described(name: str, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of a row, by a function for each field of a feature."""

    def number(key: str, convert: type[float] | type[int], value: Any) -> float | int:
        try:
            return convert(value)
        except (TypeError, ValueError):
            raise ConfigError(f"data dictionary: {key} of {name!r} is not a number") from None

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
    values = _stripped(fields.get("values"))
    return ({"words" if kind == "text" else "values": values} if values else {}) | {
        key: convert(fields[key]) for key, convert in converters.items() if key in fields
    }


def _listed(values: Any) -> list[Any]:
    return values.split("|") if isinstance(values, str) else list(values or ())


def _stripped(values: Any) -> list[str]:
    return [str(value).strip() for value in _listed(values)]
