"""CSV on the Web: the metadata of a table, a group of tables, or a schema; with bounds and public keys of CSVW-SAFE.

A column is named by its first title, which is its heading in the file, else by its name. CSVW has no closed lists: a format of
plain alternatives (`a|b`) is one, and so are the key values of CSVW-SAFE (now CSVW-EO), in its present and its earlier terms,
unless `exhaustiveKeys` is false. Keys, the privacy unit, dates and other text stay out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from blindbayes.codebook.codebook import Codebook
from blindbayes.codebook.features import Categorical, Feature, Numeric
from blindbayes.codebook.importers.neutral import (
    Column,
    Dictionary,
    File,
    categories,
    distinct,
    excluded,
    markers,
    number,
    one_of,
    place,
    plain,
)
from blindbayes.io.untrusted import read_json_table

SPECIFICATION = "W3C CSV on the Web 2015-12-17"
OWN = "urn:blindbayes:codebook"
_WHOLE = (
    "integer", "long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger", "unsignedLong", "unsignedInt",
    "unsignedShort", "unsignedByte", "nonPositiveInteger", "negativeInteger",
)  # fmt: skip
_REAL = ("decimal", "double", "float", "number")
_DATES = ("date", "dateTime", "datetime", "dateTimeStamp", "time", "duration", "dayTimeDuration", "yearMonthDuration",
    "gDay", "gMonth", "gMonthDay", "gYear", "gYearMonth")  # fmt: skip
_INHERITED = ("datatype", "null", "required", "separator", "default")
_KEYS = ("keyValues", "publicKeys", "publicKeyValues")  # of CSVW-SAFE, the present term first
_LITERAL = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[^\w\s])*")
_VARIABLE = re.compile(r"\{[#/.?&+;]?([^{}*:,]{1,256}+)[^{}]{0,256}+\}")  # of a URI template
_LOW = {"minimum": 0, "minInclusive": 0, "minExclusive": 1}
_HIGH = {"maximum": 0, "maxInclusive": 0, "maxExclusive": -1}


def read(file: File) -> Dictionary:
    return read_table(read_json_table(file.raw, file.what, located=True), file)


def read_table(document: Mapping[str, Any], file: File) -> Dictionary:
    table = _table(document, file)
    schema = table.get("tableSchema", document.get("tableSchema", table))
    if isinstance(schema, str):
        raise file.problem("tableSchema", "stands in another file, which is not fetched: import that file")
    if not isinstance(schema, Mapping) or not isinstance(schema.get("columns"), list):
        raise file.problem(place(table, "tableSchema"), "has no list of columns")
    inherited = {key: level[key] for level in (document, table, schema) for key in _INHERITED if key in level}
    keys = schema.get("primaryKey") or []
    named = [keys] if isinstance(keys, str) else keys if isinstance(keys, list) else []
    subjects = [_subject(level) for level in (document, table, schema)]
    keys = {unquote(key) for key in (*named, *subjects, _fact(table, "privacyUnit")) if isinstance(key, str)}  # as in names
    columns = [_column(each, at, inherited, keys, file) for at, each in enumerate(schema["columns"])]
    own = _own(table, file, "table")
    book: dict[str, Any] = dict(own)
    for key, name in (("maxLength", "max_rows"), ("publicLength", "expected_rows")):  # of CSVW-SAFE
        if type(_fact(table, key)) is int and not own:
            book[name] = _fact(table, key)
    return Dictionary(file.what, SPECIFICATION, distinct((each for each in columns if each is not None), file), book, bool(own))


def _table(document: Mapping[str, Any], file: File) -> Mapping[str, Any]:
    if "tables" not in document:
        return document
    tables = {}
    for position, table in enumerate(document["tables"] if isinstance(document["tables"], list) else [None]):
        if not isinstance(table, Mapping):
            raise file.problem(f"tables[{position}]", "must be a table")
        tables[str(table.get("url", position))] = table
    chosen: Mapping[str, Any] = one_of(tables, file, "table")
    return chosen


def _subject(level: Mapping[str, Any]) -> str | None:
    """Return the column whose value alone says what a row is about, by the template of `aboutUrl`."""
    about = level.get("aboutUrl")
    variables = _VARIABLE.findall(about) if isinstance(about, str) else []
    return variables[0] if len(variables) == 1 else None


def _fact(item: Mapping[str, Any], name: str) -> Any:
    """Return a CSVW-SAFE property, which may be written with any prefix."""
    return next((value for key, value in item.items() if key == name or key.endswith(f":{name}")), None)


def _own(item: Mapping[str, Any], file: File, where: str) -> dict[str, Any]:
    return read_json_table(item[OWN], f"{file.what}, {where}, {OWN}") if isinstance(item.get(OWN), str) else {}


def _heading(column: Mapping[str, Any]) -> str | None:
    titles = column.get("titles")
    if isinstance(titles, Mapping):  # by language
        titles = next(iter(titles.values()), None)
    if isinstance(titles, list):
        titles = next(iter(titles), None)
    name = titles if isinstance(titles, str) and titles.strip() else column.get("name")
    return name if isinstance(name, str) and name else None


def _column(column: Any, position: int, inherited: Mapping[str, Any], keys: set[str], file: File) -> Column | None:
    name = _heading(column) if isinstance(column, Mapping) else None
    where = place(column, f"columns[{position}]" + (f" {name!r}" if name else ""))
    if isinstance(column, Mapping) and column.get("virtual") is True:
        return None  # it is in no file
    if not isinstance(column, Mapping) or name is None:
        raise file.problem(where, "a column is a table with a name or titles")
    facts = {**inherited, **column}
    kind = facts.get("datatype", "string")
    kind = {"base": kind} if isinstance(kind, str) else kind
    if not isinstance(kind, Mapping) or not isinstance(kind.get("base", "string"), str):
        raise file.problem(f"{where}, datatype", "must be a text, or a table with base")
    base, own = kind.get("base", "string"), _own(column, file, where)
    shared: dict[str, Any] = {
        "optional": facts.get("required") is not True,
        "missing": _markers(facts.get("null", ""), file, where),
        "description": _text(_fact(column, "description")),
        "where": where,
        "more": own,
    }
    made = _categories(column, kind, base, file, where)
    if name in keys or unquote(str(column.get("name"))) in keys or _fact(column, "privacyId") is True:
        return Column(name, **{**made, "kind": "excluded"}, why="a key, or the privacy unit: an identifier", **shared)
    if facts.get("separator"):
        return excluded(name, "a cell holds several values", **shared)
    if facts.get("default"):
        why = "an empty cell stands for a value (default): write it into the table first"
        return Column(name, **{**made, "kind": "excluded"}, why=why, **shared)
    if made:
        return Column(name, **made, **shared)
    if base in _WHOLE or base in _REAL:
        if {"%", "\u2030"} & {
            *str(kind.get("format", ""))
        }:  # marks of decimals and thousands are declared where the table is read
            return excluded(name, "its cells are percentages (format): divide them in the table first", **shared)
        low, high = _bounds(column, kind, base in _WHOLE, file, where)
        return Column(name, "number", low=low, high=high, precision=1.0 if base in _WHOLE else None, **shared)
    if own.get("kind") == "text":
        return Column(name, "text", **shared)
    if base in _DATES:
        return excluded(name, "dates: a map derives features from them ([rows.map])", **shared)
    return excluded(name, "free text: the metadata list no values", **shared)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):  # a value of JSON-LD
        value = value.get("@value", "")
    return value if isinstance(value, str) else ""


def _markers(null: Any, file: File, where: str) -> tuple[str, ...]:
    listed = [null] if isinstance(null, str) else null
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise file.problem(f"{where}, null", "must be a text or a list of texts")
    return markers(listed, file, f"{where}, null")


def _categories(column: Mapping[str, Any], kind: Mapping[str, Any], base: str, file: File, where: str) -> dict[str, Any]:
    keys = next((listed for name in _KEYS if (listed := _fact(column, name))), None)
    if keys is None:
        keys = [value for part in _partitions(column) if (value := _fact(part, "partitionValue")) is not None] or None
    if keys is not None and _fact(column, "exhaustiveKeys") is not False:
        texts = [plain(value) for value in keys] if isinstance(keys, list) else [None]
        if None in texts:
            raise file.problem(f"{where}, {_KEYS[0]}", "must be a list of texts or numbers")
        return categories((str(text), "") for text in texts)
    form = kind.get("format")
    if base == "boolean":
        yes, _, no = form.partition("|") if isinstance(form, str) else ("true", "|", "false")
        return categories([(no, ""), (yes, "")]) if yes and no else {}
    if base in ("string", "normalizedString", "token") and isinstance(form, str):
        alternatives = _alternatives(form)
        return categories((text, "") for text in alternatives) if alternatives else {}
    return {}


def _partitions(column: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the CSVW-SAFE partitions of a column: one value each, or a lower and an upper bound."""
    listed = next((parts for name in ("partitions", "publicPartitions") if (parts := _fact(column, name))), None)
    parts = [part for part in listed if isinstance(part, Mapping)] if isinstance(listed, list) else []
    inner = [_fact(part, "predicate") for part in parts]
    return [within if isinstance(within, Mapping) else part for part, within in zip(parts, inner, strict=True)]


def _alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a regular expression such as `a|b`; empty for any other expression."""
    body = re.sub(r"(?s)\A\^?((?:\\.|[^\\])*?)\$?\Z", r"\1", pattern)  # an escaped dollar sign is no anchor
    body = body[1:-1] if body.startswith("(") and body.endswith(")") else body
    parts = [""]
    for piece in re.findall(r"(?s)\||(?:\\.|[^|\\])+|\\", body):
        if piece == "|":
            parts.append("")
        else:
            parts[-1] += piece
    if not all(part and _LITERAL.fullmatch(part) for part in parts):
        return []
    return [re.sub(r"\\(.)", r"\1", part) for part in parts]


def _bounds(
    column: Mapping[str, Any], kind: Mapping[str, Any], whole: bool, file: File, where: str
) -> tuple[float | None, float | None]:
    ends: list[float | None] = []
    parts = _partitions(column)
    for names, side, pick in ((_LOW, "lowerBound", min), (_HIGH, "upperBound", max)):
        stated = [(kind[key], key, step) for key, step in names.items() if key in kind]
        stated += [(column[key], key, 0) for key in names if key in column]  # CSVW-SAFE
        if stated:
            value, key, step = stated[0]
            ends.append(number(value, file, f"{where}, {key}") + (step if whole else 0))
        else:
            stops = [_fact(part, side) for part in parts]
            is_open = not stops or any(stop is None for stop in stops)
            ends.append(None if is_open else pick(number(stop, file, f"{where}, {side}") for stop in stops))
    return ends[0], ends[1]


# -- export ------------------------------------------------------------------------------------------------------------


def write(codebook: Codebook) -> dict[str, Any]:
    """Return a codebook as CSVW metadata, as far as the format can express it."""
    target = {"titles": codebook.target, "datatype": _listed(codebook.classes), "required": True}
    columns = [target, *(_written(feature, codebook) for feature in codebook.features)]
    document: dict[str, Any] = {"@context": "http://www.w3.org/ns/csvw", "url": "rows.csv", "tableSchema": {"columns": columns}}
    if any(codebook.missing):
        document["null"] = ["", *filter(None, codebook.missing)]
    return document


def annotate(document: dict[str, Any], book: Mapping[str, Any], features: Mapping[str, Mapping[str, Any]]) -> None:
    """Add properties of blindbayes to the table and to each feature, as common properties with text values."""
    document[OWN] = json.dumps(book, ensure_ascii=False, sort_keys=True)
    for column in document["tableSchema"]["columns"]:
        if rest := features.get(column["titles"]):
            column[OWN] = json.dumps(rest, ensure_ascii=False, sort_keys=True)


def _listed(values: tuple[str, ...]) -> Any:
    return {"base": "string", "format": "|".join(re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", value) for value in values)}


def _written(feature: Feature, codebook: Codebook) -> dict[str, Any]:
    column: dict[str, Any] = {"titles": feature.name, "datatype": "string"}
    if isinstance(feature, Categorical):
        column["datatype"] = _listed(feature.values)
    elif isinstance(feature, Numeric):
        column["datatype"] = {"base": "number", "minimum": feature.low, "maximum": feature.high}
    if not feature.optional:
        column["required"] = True
    if feature.description:
        column["dc:description"] = feature.description
    if any(feature.missing):
        column["null"] = list(dict.fromkeys(["", *filter(None, codebook.missing), *filter(None, feature.missing)]))
    return column
