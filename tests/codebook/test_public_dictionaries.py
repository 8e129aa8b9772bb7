"""Dictionaries that others published: each becomes a codebook, with named questions, and survives every round trip."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from blindbayes import Codebook
from blindbayes.codebook.importers import EXPORTS, FORMATS, Imported, OpenQuestions, import_codebook

LISTED: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "dictionaries" / "public.toml").read_text())[
    "dictionaries"
]


def test_every_importer_has_five_published_dictionaries() -> None:
    times = Counter(each["format"] for each in LISTED)
    assert {*times} == {*FORMATS} - {"dictionary"}
    assert min(times.values()) >= 5


def answered(entry: dict[str, Any], path: Path) -> tuple[Imported, int]:
    """The import with every bound that is asked for answered, known ends as they stand, and the number of such questions."""
    answers: dict[str, Any] = {name: entry[name] for name in ("target", "table", "values", "columns") if name in entry}
    try:
        return import_codebook(entry["format"], path, answers), 0
    except OpenQuestions as asked:
        flags = [shlex.split(question.flag) for question in asked.questions]
    assert {flag for flag, _ in flags} == {"--bound"}
    pairs = (answer.rpartition("=") for _, answer in flags)
    ends = {name: dict(zip(("LOW", "HIGH"), span.split(":"), strict=True)) for name, _, span in pairs}
    usual = {"LOW": "0", "HIGH": "1000000"}
    bounds = {name: tuple(float(usual.get(span[end], span[end])) for end in usual) for name, span in ends.items()}
    return import_codebook(entry["format"], path, {**answers, "bounds": bounds}), len(bounds)


@pytest.mark.parametrize("entry", LISTED, ids=lambda each: f"{each['repository']}/{each['path']}")
def test_a_published_dictionary_becomes_a_codebook_and_survives_every_round_trip(entry: dict[str, Any], tmp_path: Path) -> None:
    path = Path(
        os.environ.get("BLINDBAYES_DATA", "absent"), "dictionaries", entry["repository"].replace("/", "+"), entry["path"]
    )
    if not path.is_file():
        pytest.skip("the file is not in the folder dictionaries of BLINDBAYES_DATA")
    if entry["format"] == "spss":
        pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
    made, asked = answered(entry, path)
    book = made.codebook
    counted = (len(book.classes), len(book.features), len(made.left_out), asked)
    assert counted == (entry["classes"], entry["features"], entry["left_out"], entry["bounds_asked"])
    for format in EXPORTS:
        document = book.to_frictionless() if format == "frictionless" else book.to_csvw()
        (tmp_path / format).write_text(json.dumps(document), encoding="utf-8")
        assert import_codebook(format, tmp_path / format).codebook.sha256 == book.sha256
    book.to_toml(tmp_path / "codebook.toml")
    assert Codebook.from_toml(tmp_path / "codebook.toml") == book
