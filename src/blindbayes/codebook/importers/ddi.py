"""DDI-Codebook 2.5 (and other 2.x): the variables of `dataDscr`.

Only what was declared is read: categories, valid and invalid ranges, format, unit. Summary statistics (`sumStat`, `catStat`)
are counted from rows, and their minima and maxima are records; they are never used. Some archives write these into the valid
range too: a bound that a statistic repeats, or that has more decimals than the variable, is asked for instead.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from blindbayes.codebook.importers.neutral import (
    MAX_FILE,
    MAX_MARKERS,
    Column,
    Dictionary,
    File,
    categories,
    distinct,
    excluded,
    markers,
    markers_of,
    number,
    one_of,
    within,
)
from blindbayes.io.untrusted import Element, read_xml

SPECIFICATION = "DDI-Codebook 2.5"
_FINEST = 1e-6  # finest step of a bound that people declare


def read(file: File) -> Dictionary:
    root = read_xml(file.raw, file.what, max_bytes=MAX_FILE)
    if root.name != "codeBook":
        raise file.problem(f"line {root.line}", "the root of a DDI-Codebook is codeBook; DDI-Lifecycle is another format")
    variables = root.all("dataDscr", "var")
    if not variables:
        raise file.problem(f"line {root.line}", "dataDscr describes no variable (var)")
    files = sorted({each for variable in variables for each in variable.attributes.get("files", "").split()})
    if len(files) > 1:
        chosen = one_of({each: each for each in files}, file, "data file")
        variables = [each for each in variables if chosen in each.attributes.get("files", "").split()]
    return Dictionary(file.what, SPECIFICATION, distinct((_column(each, file) for each in variables), file))


def _column(variable: Element, file: File) -> Column:
    name = variable.attributes.get("name", "").strip()
    where = f"line {variable.line}, field {name!r}"
    if not name:
        raise file.problem(where, "a variable (var) has a name")
    facts, form = variable.attributes, variable.first("varFormat")
    style = form.attributes if form is not None else {}
    pairs, absent = _codes(variable, file, where)
    invalid, unlisted = _invalid(variable, file, where)
    shared: dict[str, Any] = {
        "missing": markers([*absent, *invalid, *within((code for code, _ in pairs), unlisted)], file, where),
        "unit": facts.get("measUnit", ""),
        "description": _label(variable),
        "where": where,
    }
    absent_codes = set(shared["missing"])
    made = categories(pair for pair in pairs if pair[0] not in absent_codes)
    kind = facts.get("representationType", "")
    if variable.first("security") is not None:
        return Column(name, **{**made, "kind": "excluded"}, why="its security element restricts it", **shared)
    if facts.get("wgt") == "wgt":
        return excluded(name, "a weight", **shared)
    if style.get("category") in ("date", "time") or kind == "datetime":
        return excluded(name, "dates: a map derives features from them ([rows.map])", **shared)
    if made["values"] and facts.get("intrvl", "discrete") != "contin" and kind != "numeric":
        return Column(name, **made, **shared)  # of a range without end its labelled codes are the markers
    if unlisted:
        return excluded(name, "its invalid range has too many values to list: recode them in the table first", **shared)
    step = _step(variable, file, where)
    bounds = _range(variable, file, where, step)
    says_number = form is not None or bounds or step is not None or kind == "numeric" or facts.get("intrvl") == "contin"
    if style.get("type", "numeric") == "character" or kind in ("text", "other") or not says_number:
        return excluded(name, "free text: no category is listed, and nothing says that it is a number", **shared)
    return Column(name, "number", **bounds, precision=step, labels=made["labels"], **shared)


def _codes(variable: Element, file: File, where: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the codes with their labels, and those that mean a missing value."""
    pairs, absent = [], []
    for category in variable.all("catgry"):
        value = category.first("catValu")
        if value is None or not value.text:
            continue  # a heading of others, or the count of empty cells
        if category.attributes.get("missing") == "Y":
            absent.append(value.text)
        else:
            pairs.append((value.text, _label(category)))
    codes = [code for code, _ in pairs]
    if len(set(codes)) < len(codes):
        raise file.problem(where, "a category (catValu) occurs twice")
    return pairs, absent


def _label(element: Element) -> str:
    label = element.first("labl") or element.first("txt")
    return label.text if label is not None else ""


def _invalid(variable: Element, file: File, where: str) -> tuple[list[str], list[tuple[float, float]]]:
    """Return the invalid values as markers, and the ranges with too many of them to list."""
    values = [item.attributes.get("VALUE", "").strip() for item in variable.all("invalrng", "item")]
    unlisted: list[tuple[float, float]] = []
    spans = variable.all("invalrng", "range")
    if len(spans) > MAX_MARKERS:
        raise file.problem(where, f"has more than {MAX_MARKERS:,} ranges of invalid values")
    for span in spans:
        low, high = (
            open_ if end is None else number(end, file, f"{where}, invalrng")
            for end, open_ in ((span.attributes.get("min"), -math.inf), (span.attributes.get("max"), math.inf))
        )
        if (listed := markers_of(low, high)) is None:
            unlisted.append((low, high))
        else:
            values += listed
    return values, unlisted


def _range(variable: Element, file: File, where: str, step: float | None) -> dict[str, Any]:
    """Return the declared bounds, and a note if the file has others that look computed from rows."""
    spans = variable.all("valrng", "range")
    items = [item.attributes.get("VALUE") for item in variable.all("valrng", "item")]  # single valid values
    bounds: dict[str, Any] = {}
    for side, inner, outer, pick in (("low", "min", "minExclusive", min), ("high", "max", "maxExclusive", max)):
        ends = [*(span.attributes.get(inner, span.attributes.get(outer)) for span in spans), *items]
        if ends and None not in ends:
            bound = pick(number(end, file, f"{where}, valrng") for end in ends)
            if _is_counted(variable, inner, bound, step):
                bounds["note"] = "Its valid range repeats a value counted from the rows, which is not used."
            else:
                bounds[side] = bound
    return bounds


def _is_counted(variable: Element, end: str, bound: float, step: float | None) -> bool:
    """Return True if a bound is the smallest or largest value of the rows."""
    for statistic in variable.all("sumStat"):
        if statistic.attributes.get("type") == end:
            with contextlib.suppress(ValueError):  # "." for none
                return float(statistic.text) == bound
    steps = bound / (step or _FINEST)
    return abs(steps - round(steps)) > 1e-6 * max(1.0, abs(steps) * 1e-6)


def _step(variable: Element, file: File, where: str) -> float | None:
    digits = variable.attributes.get("dcml")
    if digits is None:
        whole = any(span.attributes.get("UNITS") == "INT" for span in variable.all("valrng", "range"))
        return 1.0 if whole else None
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 2):
        raise file.problem(f"{where}, dcml", "is not a number of decimals")
    return 10.0 ** -int(digits)
