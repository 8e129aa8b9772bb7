"""What `blindbayes study init` leaves behind: files, all or none, a codebook to fill in, and the call that finishes."""

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
    """A codebook with class column and labels, and columns to fill in; `codebook check` refuses it until they are."""
    target, classes = tomlkit.item(book.target).as_string(), tomlkit.item(list(book.classes)).as_string()
    return f"""\
# A blindbayes codebook: public facts only. Never fill it from private rows: bounds and categories read off
# private data are a leak that no noise repairs.
format = "{book.format}"
# The class column.
target = {target}
# Every label the class column may hold.
classes = {classes}
# No table may hold more rows than this; it proves that no sum overflows.
max_rows = {book.max_rows}
# Texts that stand for a missing value, besides null, NaN and the empty text.
missing = []

# FILL IN: one [[features]] table for each column to predict from.
# A column with a closed list of values:
[[features]]
kind = "categorical"
name = "FILL IN the name of the column"
values = []               # FILL IN every value, as texts: ["f", "m"]
# optional = true         # if it may be missing in a row

# A column of numbers: take the marks off and fill in.
# [[features]]
# kind = "numeric"
# name = "age"
# low = 0                 # public bounds, not the smallest and largest of your rows
# high = 120
# precision = 1           # the step: numbers are rounded to it
# bins = 12               # only where numbers are not bell-shaped
"""


def write_all(files: Mapping[Path, str]) -> None:
    """All of them or none; nothing is overwritten."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            write_whole(path, text.encode(), private=False, replace=False)
            written.append(path)
    except BaseException:
        for path in written:
            path.unlink()
        raise


def command_line(command: click.Command, said: Mapping[str, Any]) -> str:
    """The call without questions that gives this study."""
    words = ["blindbayes", "study", command.name or "", str(said["path"])]
    for option in command.params:
        value = said.get(str(option.name))
        if isinstance(option, click.Option) and value not in (None, option.default):
            for each in value if option.multiple else [value]:
                words += [option.opts[0], str(each)]
    return shlex.join(words)
