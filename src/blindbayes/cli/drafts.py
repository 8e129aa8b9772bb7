"""Files that the wizard writes: a codebook to fill in, and the equivalent command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import tomlkit

from blindbayes.codebook import Codebook
from blindbayes.io.files import write_whole


def template(book: Codebook) -> str:
    """Return a codebook with class column and labels, and features to fill in; `codebook check` refuses it until then."""
    target, classes = tomlkit.item(book.target).as_string(), tomlkit.item(list(book.classes)).as_string()
    return f"""\
# A blindbayes codebook: public facts only. Never fill it from private rows: bounds and categories read off
# private data are a leak that no noise repairs.
format = "{book.format}"
# The class column.
target = {target}
# Every label the class column may hold.
classes = {classes}
# Maximum number of rows of a table; it proves that no sum overflows.
max_rows = {book.max_rows}
# Texts that stand for a missing value, in addition to null, NaN and the empty text.
missing = []

# FILL IN: one [[features]] table for each column to predict from.
# A column with a closed list of values:
[[features]]
kind = "categorical"
name = "FILL IN the name of the column"
values = []               # FILL IN every value, as texts: ["f", "m"]
# optional = true         # if it may be missing in a row

# A numeric column: uncomment and fill in.
# [[features]]
# kind = "numeric"
# name = "age"
# low = 0                 # public bounds, not the smallest and largest of your rows
# high = 120
# precision = 1           # the step: numbers are rounded to it
# bins = 12               # only where numbers are not bell-shaped
"""


def write_all(files: Mapping[Path, str]) -> None:
    """Write all files or none, without overwriting any."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            write_whole(path, text.encode(), private=False, replace=False)
            written.append(path)
    except BaseException:
        for path in written:
            path.unlink()
        raise


def command_line(command: click.Command, answers: Mapping[str, Any]) -> str:
    """Return the command that makes the same study without questions."""
    words = ["blindbayes", "study", command.name or "", str(answers["path"])]
    for option in command.params:
        value = answers.get(str(option.name))
        if isinstance(option, click.Option) and value not in (None, option.default):
            for each in value if option.multiple else [value]:
                words += [option.opts[0], str(each)]
    return shlex.join(words)
