"""Frictionless Table Schema (version 2, and 1), alone or in a Data Package.

Keys, unique fields, dates and text without a closed list stay out. What a schema cannot say, such as bins, stands under
`blindbayes` in an exported one, which the specification allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from blindbayes.io.untrusted import read_json_table, shown

SPECIFICATION = "Frictionless Table Schema 2.0"
OWN = "blindbayes"
_NUMBERS = {"integer": 1.0, "number": None, "year": 1.0}
_DATES = ("date", "datetime", "time", "yearmonth", "duration")
_PROFILE = "https://datapackage.org/profiles/2.0/tableschema.json"


def read(file: File) -> Dictionary:
    return read_table(read_json_table(file.raw, file.what, located=True), file)


def read_table(document: Mapping[str, Any], file: File) -> Dictionary:
    schema = _schema(document, file)
    fields = _list(schema.get("fields"), file, place(schema, "fields"))
    keys = schema.get("primaryKey") or []
    keys = [keys] if isinstance(keys, str) else _list(keys, file, "primaryKey")
    unique = [_list(key, file, "uniqueKeys") for key in _list(schema.get("uniqueKeys") or [], file, "uniqueKeys")]
    keys = {key for key in [*keys, *(key for each in unique if len(each) == 1 for key in each)] if isinstance(key, str)}
    columns = [_column(field, position, schema, keys, file) for position, field in enumerate(fields)]
    own = schema.get(OWN) or {}
    if not isinstance(own, Mapping):
        raise file.problem(OWN, "must be a table")
    return Dictionary(file.what, SPECIFICATION, distinct(columns, file), dict(own), is_codebook=bool(own))


def _schema(document: Mapping[str, Any], file: File) -> Mapping[str, Any]:
    resources = [document] if "schema" in document else document.get("resources")
    if resources is None or "fields" in document:  # schemas of France list example files as resources
        return document
    tables = {}
    for position, resource in enumerate(_list(resources, file, "resources")):
        if not isinstance(resource, Mapping):
            raise file.problem(f"resources[{position}]", "must be a table")
        if "schema" in resource:
            tables[str(resource.get("name", position))] = resource["schema"]
    schema = one_of(tables, file, "resource with a schema")
    if not isinstance(schema, Mapping):
        raise file.problem("schema", "stands in another file, which is not fetched: import that file")
    return schema


def _list(value: Any, file: File, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise file.problem(where, "a list is expected")
    return value


def _column(field: Any, position: int, schema: Mapping[str, Any], keys: set[str], file: File) -> Column:
    name = field.get("name") if isinstance(field, Mapping) else None
    where = place(field, f"fields[{position}]" + (f" {name!r}" if isinstance(name, str) else ""))
    if not isinstance(field, Mapping) or not isinstance(name, str) or not name:
        raise file.problem(where, "a field is a table with a name")
    rules = field.get("constraints") or {}
    if not isinstance(rules, Mapping):
        raise file.problem(f"{where}, constraints", "must be a table")
    kind, own = field.get("type", "string"), field.get(OWN) or {}
    if not isinstance(own, Mapping) or not isinstance(kind, str):
        raise file.problem(where, f"type must be a text, and {OWN} a table")
    missing = _markers(field.get("missingValues", schema.get("missingValues", [""])), file, where)
    shared: dict[str, Any] = {
        "optional": rules.get("required") is not True,
        "missing": missing,
        "description": str(field.get("description") or field.get("title") or ""),
        "where": where,
        "more": dict(own),
    }
    made = _categories(field, rules, kind, file, where)
    if name in keys or rules.get("unique") is True or field.get("format") in ("email", "uri", "uuid"):
        return Column(name, **{**made, "kind": "excluded"}, why="a key, or unique: an identifier", **shared)
    if made:
        return Column(name, **made, **shared)
    if kind in _NUMBERS:
        return _number(name, kind, field, rules, file, shared)
    if own.get("kind") == "text":
        return Column(name, "text", **shared)
    if kind in _DATES:
        return excluded(name, "dates: a map derives features from them ([rows.map])", **shared)
    return excluded(name, "free text: the schema lists no values" if kind in ("string", "any") else f"of type {kind}", **shared)


def _categories(field: Mapping[str, Any], rules: Mapping[str, Any], kind: str, file: File, where: str) -> dict[str, Any]:
    listed = field.get("categories", rules.get("enum"))
    if listed is None and kind == "boolean":
        spellings = [_list(field.get(key, [default]), file, f"{where}, {key}") for key, default in _TRUTH.items()]
        return categories((text, "") for each in spellings for text in _texts(each[:1], file, where))
    if listed is None:
        return {}
    pairs = []
    for item in _list(listed, file, f"{where}, categories or enum"):
        value, label = (item.get("value"), item.get("label") or "") if isinstance(item, Mapping) else (item, "")
        pairs.append((_texts([value], file, f"{where}, categories or enum")[0], str(label)))
    if "categories" in field and isinstance(rules.get("enum"), list):
        allowed = set(_texts(rules["enum"], file, f"{where}, enum"))
        pairs = [pair for pair in pairs if pair[0] in allowed]
    return categories(pairs)


_TRUTH = {"falseValues": "false", "trueValues": "true"}


def _texts(values: list[Any], file: File, where: str) -> list[str]:
    texts = [plain(value) for value in values]
    if None in texts:
        raise file.problem(where, "a value is a text, a number or a truth value")
    return [str(text) for text in texts]


def _markers(listed: Any, file: File, where: str) -> tuple[str, ...]:
    where = f"{where}, missingValues"
    texts = [item.get("value") if isinstance(item, Mapping) else item for item in _list(listed, file, where)]
    return markers(_texts(texts, file, where), file, where)


def _number(
    name: str, kind: str, field: Mapping[str, Any], rules: Mapping[str, Any], file: File, shared: Mapping[str, Any]
) -> Column:
    if field.get("bareNumber") is False:  # marks of decimals and thousands are declared where the table is read
        return excluded(name, "its cells hold more than a number (bareNumber)", **shared)
    bounds: dict[str, Any] = {"low": None, "high": None}
    for side, key, step in (("low", "minimum", 1), ("high", "maximum", -1)):
        outside = f"exclusive{key.capitalize()}"
        if key in rules:
            bounds[side] = number(rules[key], file, f"{shared['where']}, {key}")
        elif outside in rules:
            bounds[side] = number(rules[outside], file, f"{shared['where']}, {outside}") + (step if _NUMBERS[kind] else 0)
    return Column(name, "number", precision=_NUMBERS[kind], **bounds, **shared)


# -- export ------------------------------------------------------------------------------------------------------------


def write(codebook: Codebook) -> dict[str, Any]:
    """Return a codebook as a Table Schema, as far as the format can express it."""
    target: dict[str, Any] = {"name": codebook.target, "type": "string", "categories": list(codebook.classes)}
    target["constraints"] = {"required": True}
    fields = [_field(feature, codebook) for feature in codebook.features]
    schema: dict[str, Any] = {"$schema": _PROFILE, "fields": [target, *fields]}
    if markers := [marker for marker in codebook.missing if marker]:
        schema["missingValues"] = ["", *markers]
    return schema


def annotate(schema: dict[str, Any], book: Mapping[str, Any], features: Mapping[str, Mapping[str, Any]]) -> None:
    """Add properties of blindbayes to the table and to each feature."""
    schema[OWN] = dict(book)
    for field in schema["fields"]:
        if rest := features.get(field["name"]):
            field[OWN] = dict(rest)


def _field(feature: Feature, codebook: Codebook) -> dict[str, Any]:
    field: dict[str, Any] = {"name": feature.name, "type": "string"}
    rules: dict[str, Any] = {} if feature.optional else {"required": True}
    if isinstance(feature, Categorical):
        labels = feature.labels
        distinct_labels = len(set(labels.values())) == len(labels)
        listed = [{"value": value, **({"label": labels[value]} if value in labels else {})} for value in feature.values]
        field["categories"] = listed if labels and distinct_labels else list(feature.values)
    elif isinstance(feature, Numeric):
        field["type"] = "number"
        rules |= {
            key: int(each) if each.is_integer() else each for key, each in (("minimum", feature.low), ("maximum", feature.high))
        }
    if rules:
        field["constraints"] = rules
    if feature.description:
        field["description"] = shown(feature.description)
    if own := [marker for marker in feature.missing if marker]:
        field["missingValues"] = list(dict.fromkeys(["", *filter(None, codebook.missing), *own]))
    return field
