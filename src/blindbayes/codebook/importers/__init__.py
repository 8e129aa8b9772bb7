"""Importers of the data dictionaries that organisations have, and exporters.

Each module reads one format into `neutral.Dictionary`; `questions` asks what it leaves open and makes the codebook. Nothing but
a dictionary is read: no importer looks at rows, and statistics of rows that a dictionary repeats are not used.
"""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from blindbayes.codebook.codebook import Codebook, Origin
from blindbayes.codebook.importers import csvw, ddi, frictionless, plain, redcap, sdmx, spss
from blindbayes.codebook.importers.neutral import MAX_FILE, Choose, Dictionary, File, without_identifiers
from blindbayes.codebook.importers.questions import (
    Answers,
    Imported,
    OpenQuestions,
    Question,
    answers_in,
    answers_of,
    imported,
    read_features,
)
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_limited, shown

__all__ = [
    "EXPORTS",
    "FORMATS",
    "Answers",
    "Choose",
    "Imported",
    "OpenQuestions",
    "Question",
    "answers_in",
    "answers_of",
    "exported",
    "import_codebook",
]

FORMATS: dict[str, Callable[[File], Dictionary] | None] = {
    "redcap": redcap.read,
    "frictionless": frictionless.read,
    "csvw": csvw.read,
    "ddi": ddi.read,
    "sdmx": sdmx.read,
    "spss": None,  # a library reads the file
    "dictionary": plain.read,
}
EXPORTS: dict[str, ModuleType] = {"frictionless": frictionless, "csvw": csvw}


def import_codebook(format: str, source: Any, answers: Answers | Mapping[str, Any] | None = None) -> Imported:
    """Make a codebook from a dictionary: a path, the bytes of a file, or rows of blindbayes's own format.

    Raises `OpenQuestions` or `Choose` for what a person must say first.
    """
    given: Answers = {**(answers or {})}  # type: ignore[typeddict-item]
    if unknown := sorted(set(given) - set(Answers.__annotations__)):
        raise ConfigError(f"{unknown[0]!r} is not an answer; known: {', '.join(Answers.__annotations__)}")
    if format not in FORMATS:
        raise ConfigError(f"{shown(format)!r} is not a format of dictionaries; known: {', '.join(FORMATS)}")
    if not isinstance(source, str | os.PathLike | bytes):
        rows = ((f"row {number}", row) for number, row in enumerate(source, start=1))
        return imported(plain.read_rows(rows, File("data dictionary", b"")), given, None)
    reader = FORMATS[format]
    what = "the data dictionary" if isinstance(source, bytes) else f"data dictionary {os.fspath(source)!r}"
    if isinstance(source, bytes) and reader is None:
        raise ConfigError("SPSS and Stata files are imported by `blindbayes codebook import spss`")
    raw = source if isinstance(source, bytes) else _read(source, what, MAX_FILE if reader is not None else 0)
    if reader is None:
        dictionary = spss.read_path(Path(source), what)  # type: ignore[arg-type]
        raw = repr(dictionary.columns).encode()  # not of the file: a hash of rows would confirm a guess of them
    else:
        text = raw.removeprefix(codecs.BOM_UTF8)
        dictionary = reader(File(what, text, given.get("table"), given.get("columns") or {}))
    if format != "dictionary":  # there a person has said of each column what it is
        dictionary = without_identifiers(dictionary)
    return imported(dictionary, given, Origin(format, dictionary.specification, hashlib.sha256(raw).hexdigest()))


def _read(path: str | os.PathLike[str], what: str, max_bytes: int) -> bytes:
    try:
        return read_limited(path, max_bytes)
    except FileNotFoundError:
        raise ConfigError(f"{what} does not exist") from None
    except OSError as cause:
        raise ConfigError(f"{what} cannot be read ({type(cause).__name__})") from None


def exported(format: str, codebook: Codebook) -> dict[str, Any]:
    """Return a codebook in another format. What the format cannot express is written under a `blindbayes` key.

    The document is read back to see what is missing from it, so that an import gives the same codebook.
    """
    if format not in EXPORTS:
        raise ConfigError(f"{shown(format)!r} is not a format of exports; known: {', '.join(EXPORTS)}")
    module = EXPORTS[format]
    document: dict[str, Any] = module.write(codebook)
    book = {name: value for name, value in codebook.to_dict().items() if name != "features"}
    module.annotate(document, {"target": codebook.target}, {})
    native = module.read_table(document, File("the exported codebook", b""))
    described = read_features(native)
    classes = next((list(each.values) for each in native.columns if each.name == codebook.target), None)
    if classes == book["classes"]:
        del book["classes"]  # one place for each fact: people may edit the file
    rest = {}
    for feature in codebook.to_dict()["features"]:
        known = described.get(feature["name"], {})
        rest[feature["name"]] = {name: value for name, value in feature.items() if known.get(name) != value}
        rest[feature["name"]] |= {name: None for name in known if name not in feature}
        if feature["kind"] == "numeric":  # stated, though the step that an import would take may be the same
            rest[feature["name"]]["precision"] = feature.get("precision")
    module.annotate(document, book, rest)
    return document
