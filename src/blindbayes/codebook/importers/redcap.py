"""REDCap data dictionary: the CSV of 18 columns that a project exports, or the metadata of its API.

The first field is the record's identifier. `Identifier?` fields, dates, notes, files and text without validation stay out. A
checkbox is one column per choice in an export, named `field___code`, with 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from blindbayes.codebook.importers.neutral import Column, Dictionary, File, categories, distinct, excluded, number
from blindbayes.io.untrusted import read_csv

SPECIFICATION = "REDCap data dictionary, 18 columns"
_HEADINGS = {  # of the exported CSV, and of the API
    "name": ("Variable / Field Name", "field_name"),
    "form": ("Form Name", "form_name"),
    "type": ("Field Type", "field_type"),
    "label": ("Field Label", "field_label"),
    "choices": ("Choices, Calculations, OR Slider Labels", "select_choices_or_calculations"),
    "note": ("Field Note", "field_note"),
    "validation": ("Text Validation Type OR Show Slider Number", "text_validation_type_or_show_slider_number"),
    "low": ("Text Validation Min", "text_validation_min"),
    "high": ("Text Validation Max", "text_validation_max"),
    "identifier": ("Identifier?", "identifier"),
    "branching": ("Branching Logic (Show field only if...)", "branching_logic"),
    "required": ("Required Field?", "required_field"),
    "annotation": ("Field Annotation", "field_annotation"),
}
_NEEDED = ("name", "type", "choices")
_CHOICES = {"yesno": "1, Yes | 0, No", "truefalse": "1, True | 0, False"}
_DECIMALS = re.compile(r"number_([1-9])dp")
_WRITTEN = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_LEFT_OUT = {
    "notes": "notes: free text",
    "file": "a file",
    "descriptive": "shows a text and holds no value",
    "sql": "its choices come from a database: list them with --values",
}
_IDENTIFYING = ("email", "phone", "zipcode", "postalcode", "ssn", "mrn", "vmrn")


def read(file: File) -> Dictionary:
    rows = [(line, _known(row, file)) for line, row in read_csv(file.raw, file.what)]
    if not rows:
        raise file.problem("line 1", "no field is described below the headings")
    columns: list[Column] = []
    for position, (line, row) in enumerate(rows):
        name, where = row.get("name", ""), f"line {line}, field {row.get('name', '')!r}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise file.problem(where, "a name has small letters, digits and underscores, a letter first")
        if position == 0:
            columns.append(excluded(name, "the record's identifier", where=where))
        elif row.get("type", "").lower() == "checkbox":
            columns += _checkbox(row, file, where)
        else:
            columns.append(_column(row, file, where))
    return Dictionary(file.what, SPECIFICATION, distinct(columns, file))


def _known(row: Mapping[str, str], file: File) -> dict[str, str]:
    known = {key: row[name] for key, names in _HEADINGS.items() for name in names if name in row}
    for key in _NEEDED:
        if key not in known and not any(name in row for name in _HEADINGS[key]):
            raise file.problem("line 1", f"the heading {_HEADINGS[key][0]!r} is missing; export the dictionary from REDCap")
    return known


def _shared(row: Mapping[str, str], where: str) -> dict[str, Any]:
    required = row.get("required", "").lower() == "y" and not row.get("branching")
    return {"optional": not required, "description": row.get("label", ""), "where": where}


def _column(row: Mapping[str, str], file: File, where: str) -> Column:
    name, kind, shared = row["name"], row.get("type", "").lower(), _shared(row, where)
    made: dict[str, Any] = {}
    if kind in ("dropdown", "radio", *_CHOICES):
        made = categories(_choices(_CHOICES.get(kind) or row.get("choices", ""), file, where))
    if row.get("identifier", "").lower() == "y":
        return Column(name, **{**made, "kind": "excluded"}, why="marked as an identifier", **shared)
    if made:
        return Column(name, **made, **shared)
    if kind in _LEFT_OUT:
        return excluded(name, _LEFT_OUT[kind], **shared)
    if kind == "slider":
        low, high = (_bound(row.get(side, ""), file, f"{where}, {side}", comma=False) for side in ("low", "high"))
        return Column(
            name, "number", low=0.0 if low is None else low, high=100.0 if high is None else high, precision=1.0, **shared
        )
    if kind == "calc" and "@CALCTEXT" not in row.get("annotation", "").upper():
        return Column(name, "number", **shared)
    if kind not in ("text", "calc"):
        raise file.problem(where, f"{kind!r} is not a field type of REDCap")
    return _text(row, file, where, shared)


def _text(row: Mapping[str, str], file: File, where: str, shared: Mapping[str, Any]) -> Column:
    name, validation = row["name"], row.get("validation", "").lower()
    comma = validation.endswith("comma_decimal")
    if validation in ("integer", "int") or validation.startswith("number") or validation == "float":
        low, high = (_bound(row.get(side, ""), file, f"{where}, {side}", comma=comma) for side in ("low", "high"))
        digits = _DECIMALS.match(validation)
        step = 1.0 if validation.startswith("int") else 10.0 ** -int(digits[1]) if digits else None
        return Column(name, "number", low=low, high=high, precision=step, **shared)
    if validation.startswith(("date", "time")):
        return excluded(name, "dates: a map derives features from them ([rows.map])", **shared)
    if validation.startswith(_IDENTIFYING):
        return excluded(name, f"validated as {validation}: an identifier", **shared)
    return excluded(name, "free text", **shared)


def _bound(text: str, file: File, where: str, *, comma: bool) -> float | None:
    """Return a bound; None for an empty one, and for today, now or another field, which only records know."""
    if not text or not _WRITTEN.fullmatch(text):
        return None
    return number(text, file, where, comma=comma)


def _choices(text: str, file: File, where: str) -> Iterator[tuple[str, str]]:
    for part in text.split("|" if "|" in text else "\\n"):  # older exports write a backslash and n
        code, comma, label = part.partition(",")
        if not code.strip() or not comma:
            raise file.problem(f"{where}, choices", "a choice is a code, a comma and a label; choices are separated by |")
        yield code.strip(), label


def _checkbox(row: Mapping[str, str], file: File, where: str) -> list[Column]:
    columns = []
    for code, label in _choices(row.get("choices", ""), file, where):
        name = f"{row['name']}___{re.sub(r'[^a-z0-9_]', '', re.sub(r'[-.]', '_', code.lower()))}"  # as REDCap makes it
        shared = {
            **_shared(row, where),
            "description": f"{row.get('label', '')}: {label}",
            "optional": bool(row.get("branching")),
        }
        if row.get("identifier", "").lower() == "y":
            columns.append(excluded(name, "marked as an identifier", values=("0", "1"), **shared))
        else:
            columns.append(Column(name, "categories", values=("0", "1"), labels={"0": "Unchecked", "1": "Checked"}, **shared))
    return columns
