"""Infer and draft codebooks from public frames, or (without privacy) training data."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.codebook.codebook import is_formula
from blindbayes.data.encode import arrow_column, is_plain_array, plain_floats
from blindbayes.data.frames import to_arrow
from blindbayes.data.libraries import pa, pc
from blindbayes.data.mapping import DATE_FORMS, ORDERS
from blindbayes.data.sources import is_source, read_public, still_open
from blindbayes.data.values import NUMBER_PATTERN, UNLABELLED, is_whole, marker_numbers, plain_text
from blindbayes.errors import ConfigError, DataError

Provenance = Literal["declared", "public frame", "data dictionary", "inferred"]
_DECIMALS = 9
_CODE_BITS = 45
_FINEST = 490  # a finer binary grid has no square in floating point
_LARGEST = 1e148  # with its margin still within what a codebook allows
_MARGIN = 16  # ranges that an inferred codebook adds on each side, for later batches and queries
_AT_ONCE = 1 << 14  # numbers that fit the processor's cache


def infer_codebook(
    frame: Any, target: str, *, bins: int | None, max_rows: int, missing: Sequence[str], provenance: Provenance
) -> Codebook:
    """Infer categories from text, truth values and dictionaries, and numeric features with their grid from numbers."""
    if is_source(frame):
        frame, missing = read_public(still_open(frame), text=(target,), missing=missing)
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
    if target not in table.column_names:
        near = difflib.get_close_matches(target.casefold(), [name.casefold() for name in table.column_names], 1)
        meant = "".join(f" (did you mean {name!r}?)" for name in table.column_names if [name.casefold()] == near)
        others = ", ".join(table.column_names[:20]) + (", ..." if table.num_columns > 20 else "")
        raise DataError(
            f"class column {target!r} is missing from the table{meant}; "
            f"name the column that is to be predicted as target: one of {others}"
        )


def infer_labels(values: Any, target: str, missing: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the sorted class labels: numbers by size, text by code point."""
    labels, _ = _distinct(arrow_column(values, target), target, missing)
    if not labels:
        raise DataError(f"class column {target!r} holds no label")
    return labels


def infer_feature(
    name: str, values: Any, *, bins: int | None = None, missing: tuple[str, ...] = (), margin: bool = False
) -> Feature:
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


EITHER_ORDER = "DMY or MDY"
DATE_PARTS: Mapping[str, tuple[str, Callable[[date], int]]] = {  # the end of a line of a map; what it computes
    "month": ("month({})'", lambda day: day.month),
    "weekday": ("weekday({})'", date.isoweekday),
    "days": ('days(date("2000-01-01"), {})\'  # days since', date.toordinal),
    "years": ('years({}, date("2025-01-01"))\'  # age on that day', lambda day: -day.year - ((day.month, day.day) > (1, 1))),
}
DATES = "dates: a map derives features from them (--map)"
CELLS = 20  # bins of a number that is not bell-shaped
_FEW = 20  # too few rows to judge whether a column identifies people
_MANY = 1000  # too many categories
_MIXED = "Most are numbers: if the other texts mean no value, draft again with --missing TEXT"
_CODES = 12  # a number with at most this many different values may be a code
_READ_WITH = "read them with "
_NUMERALS = {  # numbers that were read as text, and the option that reads them -> its mark, and the numbers beside
    "numbers with separated thousands: read them with --thousands ,": (
        r"^[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$",
        r"^[+-]?[0-9]*$",
    ),
    "numbers with decimal comma and separated thousands: read them with --decimal , --thousands .": (
        r"^[+-]?[0-9]{1,3}(\.[0-9]{3})+,[0-9]+$",
        r"^[+-]?[0-9]*(,[0-9]+)?$",
    ),
    "numbers with a decimal comma: read them with --decimal ,": (r"^[+-]?[0-9]+,[0-9]+$", r"^[+-]?[0-9]*$"),
}
_SENTENCE = r"\S+ \S+ \S.*[.!?]$"
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
    dates: Mapping[str, str] = field(default_factory=dict)  # column left out -> order of its dates; EITHER_ORDER: unknown
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # such a column -> the `DATE_PARTS` that vary in it
    notes: tuple[str, ...] = ()  # about the class column
    unlabelled: str = ""  # the line of a map that gives rows without a label a class; empty if every row has one

    @property
    def reading(self) -> str:
        """The options that read the numbers of columns left out, such as ``--decimal ,``; empty without such columns."""
        options = {why.partition(_READ_WITH)[2] for why in self.left_out.values() if why in _NUMERALS}
        return max(sorted(options), key=len, default="")

    @property
    def maps(self) -> list[str]:
        """Lines of a map that derives features from the dates that were left out, to choose from."""
        lines = []
        for name, order in self.dates.items():
            known = "DMY" if order == EITHER_ORDER else order
            day = f"date(col({json.dumps(name)}){'' if known == 'YMD' else f', {known!r}'})".replace("'", '"')
            stem = re.sub(r"\W+", "_", name).strip("_").lower()
            if order == EITHER_ORDER:
                lines.append(f'# {name}: day or month first? All fit both orders; write "MDY" below if the month comes first')
            lines += [f"{stem}_{part} = '{DATE_PARTS[part][0].format(day)}" for part in self.parts[name]]
        return lines

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
            left_out = [(name or "(no name)", why) for name, why in self.left_out.items()]
            lines += ["# Left out of this codebook:", *(f"# - {name}: {why}" for name, why in left_out)]
        return "\n".join(lines).rstrip("\n") + "\n"


def date_order(values: Any, name: str, floor: int = 1) -> str | None:
    """Return the order of a column of dates, for `date` in a map, or None if it holds none. A type of dates counts too.

    Fewer than `floor` rows do not decide between day and month first.
    """
    kind = values.type if isinstance(values, pa.Array | pa.ChunkedArray) else None
    if kind is not None and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return "YMD"
    try:
        present = arrow_column(values, name).drop_null()
    except DataError:
        return None
    if not len(present) or not (pa.types.is_string(present.type) or pa.types.is_large_string(present.type)):
        return None
    texts, counts = present.value_counts().flatten()
    fitting = {
        order: pc.sum(counts.filter(pc.match_substring_regex(texts, form))).as_py() or 0 for order, form in DATE_FORMS.items()
    }
    order = max(fitting, key=lambda each: fitting[each])
    if fitting[order] * 2 <= len(present):
        return None
    return EITHER_ORDER if order != "YMD" and abs(fitting["DMY"] - fitting["MDY"]) < floor else order


def _varying_parts(values: Any, name: str, order: str, floor: int) -> tuple[str, ...]:
    """Return the parts of dates that differ among the rows without the `floor` - 1 smallest and largest."""
    varying = set()
    for each in order.split(" or "):
        days = _days_of(values, name, each)
        for part, (_, value) in DATE_PARTS.items():
            numbers = sorted((value(day), rows) for day, rows in days.items())
            if _inner_range(np.repeat(*np.array(numbers, dtype=np.int64).reshape(-1, 2).T), floor) is not None:
                varying.add(part)
    return tuple(part for part in DATE_PARTS if part in varying)


def _days_of(values: Any, name: str, order: str) -> Counter[date]:
    """Return the days of a column of dates, with their numbers of rows; texts that are no date in this order are left out."""
    days: Counter[date] = Counter()
    if isinstance(values, pa.Array | pa.ChunkedArray) and (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
        column = pc.cast(values, pa.date32(), safe=False)
    else:
        column = arrow_column(values, name)
    for value, rows in zip(*(part.to_pylist() for part in column.drop_null().value_counts().flatten()), strict=True):
        if isinstance(value, date):
            days[value] += rows
        elif match := re.match(DATE_FORMS[order], value):
            with contextlib.suppress(ValueError):  # the 31st of a short month
                days[date(*(int(match[place]) for place in ORDERS[order]))] += rows
    return days


def _inner_range(numbers: npt.NDArray[Any], floor: int) -> tuple[float, float] | None:
    """Return the ends of sorted numbers without the `floor` - 1 smallest and largest, or None if these are equal or too few."""
    if len(numbers) < 2 * floor or numbers[floor - 1] == numbers[-floor]:
        return None
    return float(numbers[floor - 1]), float(numbers[-floor])


def _numerals(values: Any, name: str, floor: int) -> str | None:
    """Return the option that reads the numbers in a text column, or None. Whole numbers count with any option."""
    present = arrow_column(values, name).drop_null()
    if not len(present) or not (pa.types.is_string(present.type) or pa.types.is_large_string(present.type)):
        return None
    for why, (mark, beside) in _NUMERALS.items():
        matched, plain = pc.match_substring_regex(present, mark), pc.match_substring_regex(present, beside)
        if pc.sum(matched).as_py() >= floor and pc.sum(pc.or_(matched, plain)).as_py() * 10 > len(present) * 9:
            return why
    return None


def _counts_up(numbers: Any) -> bool:
    """Return True for whole numbers most of which are one more than the one before: record numbers, perhaps per batch."""
    steps = np.diff(np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64))
    return float(np.mean(steps == 1)) > 0.8


def looks_personal(values: Any, name: str, floor: int = 1) -> str | None:
    """Return why a column's values look like identifiers or free text, without a value, or None if they do not.

    A reason rests on `floor` rows or more, and fewer exceptions than that do not refute it.
    """
    column = arrow_column(values, name)
    present = column.drop_null()
    rows = len(present)
    if rows < _FEW or pa.types.is_boolean(present.type):
        return None
    distinct = pc.count_distinct(present).as_py()
    if pa.types.is_floating(present.type) and not pc.all(pc.equal(pc.floor(present), present)).as_py():
        return None
    if pa.types.is_integer(present.type) or pa.types.is_floating(present.type):  # all numbers of a CSV are floats
        if rows - distinct < floor or _counts_up(present):
            return "its numbers are all different, or count up row by row: a record number?"
        return None
    if pa.types.is_dictionary(present.type):
        present = present.dictionary_decode()
    if not (pa.types.is_string(present.type) or pa.types.is_large_string(present.type)):
        return None
    values, counts = present.value_counts().flatten()  # match each distinct text once
    formulas = (rows for value, rows in zip(values.to_pylist(), counts.to_pylist(), strict=True) if is_formula(value))
    if sum(formulas) >= floor:
        return "formulas of a spreadsheet are among its values"
    if date_order(present, name, floor) is not None:
        return DATES
    for what, pattern in _PATTERNS.items():
        if (pc.sum(counts.filter(pc.match_substring_regex(values, pattern))).as_py() or 0) * 2 > rows:
            return f"its values look like {what}"
    if (pc.sum(counts.filter(pc.match_substring_regex(values, _SENTENCE))).as_py() or 0) * 2 > rows:
        return "sentences: free text (kind = 'text' with a public vocabulary)"
    if distinct * 2 > rows:
        spaces = pc.sum(pc.cast(pc.match_substring(present, " "), pa.int64())).as_py() or 0
        text = " (text: kind = 'text' with a public vocabulary)" if spaces * 2 > rows else ""
        numerals = pc.sum(counts.filter(pc.match_substring_regex(values, NUMBER_PATTERN))).as_py() or 0
        mixed = f". {_MIXED}" if numerals * 2 > rows and rows - numerals >= floor else ""
        return f"most of its values stand in one row alone: an identifier or free text?{text}{mixed}"
    return f"more than {_MANY:,} different values: too many for a table of counts" if distinct > _MANY else None


@dataclass(frozen=True, slots=True)
class Choices:
    """Decisions of a person about the columns of a draft.

    `keep` includes columns that look like identifiers, `drop` excludes others; numbers in `codes` become categories, all other
    numbers have `bins` equal cells, by default as many as suit the column.
    """

    keep: Collection[str] = ()
    drop: Collection[str] = ()
    codes: Collection[str] = ()
    bins: int | None = None


AS_THEY_ARE = Choices()


def draft_codebook(
    frame: Any, target: str, choices: Choices = AS_THEY_ARE, *, max_rows: int, missing: Sequence[str] = (), floor: int = 1
) -> Draft:
    """Draft a codebook from a PUBLIC sample.

    The draft states no figure of the sample as it is: bounds are rounded, and the expected rows are a power of ten. Where the
    sample is a site's own table, `floor` is the number of rows that each listed value and each bound rests on. Values of fewer
    rows count as `other`, and bounds pass over the outermost rows, so that neither shows what a single row holds.
    """
    table = to_arrow(frame)
    require_target(table, target)
    if unknown := sorted({*choices.keep, *choices.drop, *choices.codes} - set(table.column_names)):
        raise ConfigError(f"the table has no column {unknown[0]!r}")
    features: list[Feature] = []
    reasons: dict[str, str] = {}
    left_out: dict[str, str] = {}
    seen: dict[tuple[Any, ...], list[tuple[str, Any]]] = {}
    for name in table.column_names:
        if name == target:
            continue
        column = table.column(name)
        if (why := _excluded(column, name, choices, floor)) is not None:
            left_out[name] = why
            continue
        if name in choices.codes:
            column = pa.array(map(plain_text, column.to_pylist()), pa.string())
        if name not in choices.keep and (twin := _twin(name, column, seen)) is not None:
            left_out[name] = f"the same as {twin!r} in every row: its evidence would count twice"
            continue
        feature = infer_feature(name, column, missing=tuple(missing))
        if floor > 1 and (why := _too_few(feature, column, tuple(missing), floor)) is not None:
            left_out[name] = why
            continue
        feature, reasons[name] = _described(feature, column, tuple(missing), choices.bins, floor)
        features.append(feature)
    if not features and not left_out:
        raise DataError("the table has no column but the class column: there is nothing to predict from")
    if not features:
        why = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise DataError(f"no column is left to predict from ({why}); name columns to include by keep")
    labels = infer_labels(table.column(target), target, tuple(missing))
    if len(labels) > max(_FEW, table.num_rows / 10):
        raise DataError(
            f"class column {target!r} has {len(labels):,} different values in {table.num_rows:,} rows: a number or an "
            "identifier? Name a column of classes as target, or cut the number into classes before"
        )
    if floor > 1:
        labels = _frequent(labels, table.column(target), target, floor)
        if len(labels) < 2:
            raise DataError(f"class column {target!r} has fewer than two values that stand in {floor} rows: list them by hand")
    book = Codebook(
        target,
        labels,
        tuple(features),
        max_rows=max_rows,
        missing=tuple(missing),
        expected_rows=min(_power_of_ten(table.num_rows), max_rows),
        provenance="public frame",
    )
    dates = {name: date_order(table.column(name), name, floor) or "" for name, why in left_out.items() if why == DATES}
    parts = {name: _varying_parts(table.column(name), name, order, floor) for name, order in dates.items()}
    notes, unlabelled = _class_notes(labels, table.column(target), target, tuple(missing))
    return Draft(book, reasons, left_out, dates, parts, notes, unlabelled)


def _twin(name: str, column: Any, seen: dict[tuple[Any, ...], list[tuple[str, Any]]]) -> str | None:
    """Return an earlier column with the same values in the same rows, or None and remember this one."""
    likely = seen.setdefault((str(column.type), column.null_count, *column[:_FEW].to_pylist()), [])
    for other, values in likely:
        if column.equals(values):
            return other
    likely.append((name, column))
    return None


def _class_notes(labels: tuple[str, ...], column: Any, target: str, missing: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the reasons why training on the class column would fail, and the map that makes a class of missing labels."""
    notes, unlabelled = [], ""
    if len(labels) < 2:
        notes.append(f"class column {target!r} has one value in the sample: add the other classes to the codebook")
    texts = arrow_column(column, target).cast(pa.string())
    gone = pc.or_kleene(pc.is_null(texts), pc.is_in(texts, value_set=pa.array(["", *missing], pa.string())))
    if pc.any(gone).as_py():
        notes.append(f"class column {target!r}: some rows have no label; {UNLABELLED}")
        label = next(each for each in ("unknown", "no label", "no label (blank)") if each not in labels)
        cell = f"col({json.dumps(target)})"
        unlabelled = f"{json.dumps(target)} = '\"{label}\" if missing({cell}) else {cell}'"
    return tuple(notes), unlabelled


def _power_of_ten(rows: int) -> int:
    """Return the nearest power of ten: a draft may be sent, the exact number of rows stays at the site."""
    return int(10 ** round(math.log10(max(rows, 1))))


def _frequent(values: tuple[str, ...], column: Any, name: str, floor: int) -> tuple[str, ...]:
    """Return the values that occur in at least `floor` rows."""
    rows: Counter[str] = Counter()
    distinct, counts = arrow_column(column, name).drop_null().value_counts().flatten()
    for value, count in zip(distinct.to_pylist(), counts.to_pylist(), strict=True):
        rows[plain_text(value) or ""] += count
    return tuple(value for value in values if rows[value] >= floor)


def _too_few(feature: Feature, column: Any, missing: tuple[str, ...], floor: int) -> str | None:
    """Return why a column of a site's own table has nothing to list, or None."""
    if isinstance(feature, Categorical):
        few = len(_frequent(feature.values, column, feature.name, floor)) < 2
    else:
        few = _inner_range(_numbers(column, feature.name, missing), floor) is None
    return _too_few_words(floor) if few else None


_CONSTANT = "a constant: it has the same value in every row that has one"


def _too_few_words(floor: int) -> str:
    return f"too few of its values stand in {floor} rows: list them by hand if they are public"


def _excluded(column: Any, name: str, choices: Choices, floor: int) -> str | None:
    """Return why a draft leaves a column out, or None. With a floor, no reason is one that a single row would change."""
    if name in choices.drop:
        return "as asked for"
    if len(column) - column.null_count < floor:
        return "it holds no value" if floor == 1 else _too_few_words(floor)
    if (order := date_order(column, name, floor)) is not None and name not in choices.keep:
        return DATES if _varying_parts(column, name, order, floor) else _CONSTANT if floor == 1 else _too_few_words(floor)
    try:
        column = arrow_column(column, name)
    except DataError:  # also of dates to keep
        return DATES if order is not None else f"its type ({column.type}) is neither text, number nor truth value"
    if name in choices.keep:
        return None
    if (why := _numerals(column, name, floor)) is not None:
        return why
    if floor == 1 and pc.count_distinct(column).as_py() == 1:  # with a floor, `_too_few` decides
        return _CONSTANT
    return looks_personal(column, name, floor)


def _numbers(column: Any, name: str, missing: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """Return the numbers of a column, in order of size."""
    numbers = np.asarray(arrow_column(column, name).drop_null().to_numpy(zero_copy_only=False), dtype=np.float64)
    return np.sort(numbers[np.isfinite(numbers) & ~np.isin(numbers, list(marker_numbers(missing)))])


def _described(feature: Feature, column: Any, missing: tuple[str, ...], bins: int | None, floor: int) -> tuple[Feature, str]:
    """Return the feature for a draft and the reason for its description. The reason quotes no row."""
    if isinstance(feature, Categorical) and floor > 1:
        values = _frequent(feature.values, column, feature.name, floor)
        if len(values) == feature.size:
            return feature, f"each value stands in {floor} rows or more: add those that happen to be lacking"
        listed = tuple(dict.fromkeys((*values, "other")))
        made = Categorical(feature.name, listed, optional=feature.optional, other="other")
        return made, f"values of fewer than {floor} rows count as other: add those that are public"
    if not isinstance(feature, Numeric):
        values = feature.values if isinstance(feature, Categorical) else ()
        numerals = sum(re.fullmatch(NUMBER_PATTERN, value) is not None for value in values)
        mixed = numerals > 2 and feature.size > numerals > feature.size / 2
        hint = f". {_MIXED}" if mixed else ""
        return feature, f"{feature.size} values, all that the sample holds: add those that it happens to lack{hint}"
    numbers = _numbers(column, feature.name, missing)
    within = numbers[floor - 1 : len(numbers) - floor + 1]
    low, high = _outwards(float(within[0]), float(within[-1]), feature.precision)
    bounds = "bounds rounded outwards from those of the sample"
    if floor > 1:
        bounds = f"bounds of the rows without the {floor - 1} smallest and largest, rounded outwards: write the public ones"
    if len(np.unique(numbers)) <= _CODES:
        bounds += f"; few different values: if they are codes, draft again with --codes {shlex.quote(feature.name)}"
    known: dict[str, Any] = {"optional": feature.optional}
    if bins is not None and bins <= Numeric(feature.name, low, max(high, low + feature.precision), feature.precision).width:
        return Numeric(feature.name, low, high, feature.precision, bins=bins, **known), f"{bounds}; in cells as asked for"
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
