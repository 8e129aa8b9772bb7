"""Draft a codebook from a public sample, with a reason for each choice and without columns that look like identifiers."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.data.encode import arrow_column
from blindbayes.data.frames import to_arrow
from blindbayes.data.infer import infer_feature, infer_labels, require_target
from blindbayes.data.libraries import pa, pc
from blindbayes.data.values import marker_numbers
from blindbayes.errors import ConfigError, DataError

CELLS = 20  # bins of a number that is not bell-shaped
_FEW = 20  # too few rows to judge whether a column identifies people
_MANY = 1000  # too many categories
_PATTERNS = {
    "e-mail addresses": r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    "phone numbers": r"^\+?[0-9][0-9 ()/.-]{7,}$",
    "links": r"^https?://",
}


@dataclass(frozen=True)
class Draft:
    """A codebook with the reason for each feature, and for each column that was left out."""

    codebook: Codebook
    reasons: Mapping[str, str]
    left_out: Mapping[str, str]

    def to_toml(self) -> str:
        """Return the codebook file with the reasons as comments, and the columns left out at its end."""
        lines, inside = [], False
        for line in self.codebook.to_toml().split("\n"):
            inside = inside or line == "[[features]]"
            lines.append(line)
            match = re.match(r"name = (.+)$", line) if inside else None
            if match and (reason := self.reasons.get(match[1].strip("\"'"))):
                lines.append(f"# {reason}")
        if self.left_out:
            lines += ["# Left out of this codebook:", *(f"# - {name}: {why}" for name, why in self.left_out.items())]
        return "\n".join(lines).rstrip("\n") + "\n"


def looks_personal(values: Any, name: str) -> str | None:
    """Return why a column's values look like identifiers or free text, without a value, or None if they do not."""
    column = arrow_column(values, name)
    present = column.drop_null()
    rows = len(present)
    if rows < _FEW or pa.types.is_boolean(present.type):
        return None
    distinct = pc.count_distinct(present).as_py()
    if pa.types.is_floating(present.type) and not pc.all(pc.equal(pc.floor(present), present)).as_py():
        return None
    if pa.types.is_integer(present.type) or pa.types.is_floating(present.type):  # all numbers of a CSV are floats
        return f"every one of its {rows:,} numbers is different: a record number?" if distinct == rows else None
    if pa.types.is_dictionary(present.type):
        present = present.dictionary_decode()
    if not (pa.types.is_string(present.type) or pa.types.is_large_string(present.type)):
        return None
    values, counts = present.value_counts().flatten()  # match each distinct text once
    for what, pattern in _PATTERNS.items():
        if (pc.sum(counts.filter(pc.match_substring_regex(values, pattern))).as_py() or 0) * 2 > rows:
            return f"its values look like {what}"
    if distinct * 2 > rows:
        spaces = pc.sum(pc.cast(pc.match_substring(present, " "), pa.int64())).as_py() or 0
        text = " (text: kind = 'text' with a public vocabulary)" if spaces * 2 > rows else ""
        return f"{distinct:,} different values in {rows:,} rows: an identifier or free text?{text}"
    return f"{distinct:,} different values: more than a table of counts can hold with sense" if distinct > _MANY else None


def draft_codebook(
    frame: Any,
    target: str,
    *,
    keep: Collection[str] = (),
    drop: Collection[str] = (),
    bins: int | None = None,
    max_rows: int,
    missing: Sequence[str] = (),
) -> Draft:
    """Draft a codebook from a PUBLIC sample; `keep` includes columns that look like identifiers, `drop` excludes others."""
    table = to_arrow(frame)
    require_target(table, target)
    if unknown := sorted({*keep, *drop} - set(table.column_names)):
        raise ConfigError(f"the table has no column {unknown[0]!r}")
    features: list[Feature] = []
    reasons: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in table.column_names:
        if name == target:
            continue
        column = table.column(name)
        why = "as asked for" if name in drop else None if name in keep else looks_personal(column, name)
        if why is None and column.null_count == len(column):
            why = "it holds no value"
        if why is not None:
            left_out[name] = why
            continue
        feature = infer_feature(name, column, bins=bins, missing=tuple(missing))
        if bins is None or isinstance(feature, Categorical):
            feature, reasons[name] = _described(feature, column, tuple(missing))
        else:
            reasons[name] = "bounds of the sample, in cells as asked for"
        features.append(feature)
    if not features:
        why = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise DataError(f"no column is left to predict from ({why}); name columns to include by keep")
    labels = infer_labels(table.column(target), target, tuple(missing))
    expected = min(table.num_rows, max_rows)
    book = Codebook(
        target,
        labels,
        tuple(features),
        max_rows=max_rows,
        missing=tuple(missing),
        expected_rows=expected,
        provenance="public frame",
    )
    return Draft(book, reasons, left_out)


def _described(feature: Feature, column: Any, missing: tuple[str, ...]) -> tuple[Feature, str]:
    if not isinstance(feature, Numeric):
        return feature, f"{feature.size} values, all that the sample holds: add those that it happens to lack"
    numbers = np.asarray(arrow_column(column, feature.name).drop_null().to_numpy(zero_copy_only=False), dtype=np.float64)
    numbers = numbers[np.isfinite(numbers) & ~np.isin(numbers, list(marker_numbers(missing)))]
    low, high = _outwards(float(numbers.min()), float(numbers.max()), feature.precision)
    bounds = f"bounds rounded outwards from {numbers.min():g} to {numbers.max():g} in the sample"
    known: dict[str, Any] = {"optional": feature.optional}
    if low == high or (high - low) / feature.precision < CELLS:
        return Numeric(feature.name, low, max(high, low + feature.precision), feature.precision, **known), bounds
    median = float(np.median(np.abs(numbers)))
    if low >= 0 and high > 20 * max(median, feature.precision):
        return (
            Numeric(feature.name, low, high, feature.precision, bins=CELLS, spacing="log", **known),
            f"{bounds}; log scale: the largest is more than 20 times the median",
        )
    if abs(_skew(numbers)) > 1:
        return Numeric(feature.name, low, high, feature.precision, bins=CELLS, **known), f"{bounds}; in cells: not bell-shaped"
    return Numeric(feature.name, low, high, feature.precision, **known), f"{bounds}; about bell-shaped: mean and deviation do"


def _skew(numbers: npt.NDArray[np.float64]) -> float:
    centred = numbers - numbers.mean()
    spread = float(np.sqrt(np.mean(centred**2)))
    return float(np.mean(centred**3)) / spread**3 if spread else 0.0


def _outwards(low: float, high: float, precision: float) -> tuple[float, float]:
    """Round bounds outwards by a tenth of the range, to one digit, without crossing zero."""
    step = max((high - low) / 10, precision)
    step = max(10.0 ** round(math.log10(step)), precision)
    down, up = math.floor(low / step) * step, math.ceil(high / step) * step
    return (0.0 if low >= 0 > down else round(down, 9)), (0.0 if high <= 0 < up else round(up, 9))
