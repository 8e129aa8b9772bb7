"""Write a codebook as commented TOML."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.items

from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_toml

_COMMENTS = {
    "format": "A blindbayes codebook: public facts only. Never fill it from private rows: bounds and categories read off\n"
    "private data are a leak that no noise repairs.",
    "target": "The class column.",
    "classes": "Every label the class column may hold.",
    "max_rows": "No table may hold more rows than this; it proves that no sum overflows.",
    "expected_rows": "About how many rows the table has, from public knowledge: private releases are planned for it.",
    "order": "Features, most informative first, from public knowledge: a private release keeps the first ones where noise\n"
    "would bury all of them.",
    "missing": "Texts that stand for a missing value, besides null, NaN and the empty text.",
    "variance_floor": "Smallest variance of a Gaussian feature, in squared units; studies over columns need it.",
    "provenance": "Where the public facts come from.",
    "origin": "The data dictionary that this codebook was imported from, and the SHA-256 of its file.",
    "omop": "How a site computes the columns from an OMOP database: one row per person.",
}


def document_of(fields: dict[str, Any], path: Path | None) -> tomlkit.TOMLDocument:
    """Return the document of a codebook's fields, with the comments of an existing file at `path`."""
    features = fields.pop("features")
    identifier = fields.pop("identifier", None)
    if path is not None and path.exists():
        try:
            text = path.read_text(encoding="utf-8")
            read_toml(text, "it", wide=True)  # checks limits: tomlkit, which preserves comments, has none
            document = tomlkit.parse(text)
        except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError, ConfigError):
            raise ConfigError(f"{os.fspath(path)!r} exists and is not TOML; move it away or choose another path") from None
        for key in [key for key in document if key not in (*fields, "features", "identifier")]:
            del document[key]
        for key, value in fields.items():
            if document.get(key) != value:
                document[key] = value
        old = {str(item["name"]): item for item in document.get("features", []) if "name" in item}
        tables = tomlkit.aot()
        for feature in features:
            tables.append(_updated(old[feature["name"]], feature) if feature["name"] in old else _table(feature))
        document["features"] = tables
    else:
        document = tomlkit.document()
        for key in _COMMENTS:
            if key in fields:
                for line in _COMMENTS[key].split("\n"):
                    document.add(tomlkit.comment(line))
                document.add(key, multiline(fields[key]))
        tables = tomlkit.aot()
        for feature in features:
            tables.append(_table(feature))
        document.add("features", tables)
    if identifier is not None:
        document["identifier"] = identifier
    elif "identifier" in document:
        del document["identifier"]
    return document


def multiline(value: Any) -> Any:
    """Return a long list with one entry per line; return other values unchanged."""
    return _Lines(value) if isinstance(value, list) and len(value) > 8 else value


class _Lines(tomlkit.items.Array):
    """A read-only array: tomlkit's own takes time quadratic in its length."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__([], tomlkit.items.Trivia())
        self._lines = "[\n" + "".join(f"    {json.dumps(each, ensure_ascii=False)},\n" for each in values) + "]"

    def as_string(self) -> str:
        return self._lines  # strings and numbers in JSON are valid TOML


def _table(fields: Mapping[str, Any]) -> tomlkit.items.Table:
    table = tomlkit.table()
    for key, value in fields.items():
        table.add(key, multiline(value))
    return table


def _updated(table: Any, fields: Mapping[str, Any]) -> Any:
    for key in [key for key in table if key not in fields]:
        del table[key]
    for key, value in fields.items():
        if table.get(key) != value:
            table[key] = multiline(value)
    return table
