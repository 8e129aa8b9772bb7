"""The questions of `blindbayes study init` about the codebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from blindbayes.cli.answers import asked, binned, feature_of, new_file_beside, one_of, printable, several, whole
from blindbayes.cli.drafts import template
from blindbayes.codebook import DEFAULT_MAX_ROWS, Categorical, Codebook, Feature, Numeric
from blindbayes.errors import BlindbayesError

STAND_IN: Feature = Categorical("column", ("a", "b"))  # sizes a study whose columns are still to be filled in


@dataclass(frozen=True)
class Book:
    """The codebook as far as it is known, where it stands or will stand, and what to write there."""

    book: Codebook
    path: Path
    text: str | None = None  # None: the file exists
    complete: bool = True


def ask_codebook(study: Path, given: str | None) -> Book:
    """Read the codebook, or make one from answers; `study` is the file beside which it is written."""
    if given is not None:
        return _shown(Book(Codebook.from_toml(given), Path(given)))
    click.echo("\nThe codebook says what every site may find in its columns. It is public: never fill it from private rows.")
    click.echo("  file: you have one")
    click.echo("  dictionary: you have a data dictionary, a CSV with one line per column")
    click.echo("  new: neither; name the columns here, or get a template to fill in")
    kind = asked("Codebook", one_of(("file", "dictionary", "new")), "new")
    if kind == "file":
        path, book = asked("Codebook file", lambda text: (Path(text), Codebook.from_toml(text)), "codebook.toml")
        return _shown(Book(book, path))
    book, complete = (_from_dictionary(), True) if kind == "dictionary" else _new_codebook()
    click.echo("\nThe study holds the codebook; a file of its own lets each site check its table against it.")
    path = asked("Write the codebook to", new_file_beside(study), str(study.with_name("codebook.toml")))
    return _shown(Book(book, path, book.to_toml() if complete else template(book), complete))


def _from_dictionary() -> Codebook:
    path, target = "columns.csv", "class"
    while True:  # either answer may be the wrong one: both are asked again
        path = asked("Data dictionary", printable, path)
        target = asked("Class column, the one to predict", printable, target)
        try:
            return Codebook.from_dictionary(path, target, max_rows=DEFAULT_MAX_ROWS)
        except BlindbayesError as problem:
            click.echo(f"Error: {problem}")


def _new_codebook() -> tuple[Codebook, bool]:
    """A codebook, and whether its columns are named."""
    target = asked("Class column, the one to predict", printable, "class")
    stand_in = STAND_IN if target.casefold() != STAND_IN.name else msgspec.structs.replace(STAND_IN, name="other column")
    classes = asked("Its labels, separated by commas", lambda text: Codebook(target, several(text), (stand_in,)).classes)
    rows = asked("Most rows that any table may hold", whole(1, 2**48), str(DEFAULT_MAX_ROWS))
    click.echo(
        "\nNow the columns to predict from: a list of values, such as `f, m`, or bounds and step, such as `0 to 120 by 1`."
    )
    features: list[Feature] = []

    def new_name(text: str) -> str:
        if text.strip():
            Codebook(target, classes, (*features, Categorical(text.strip(), ("a",))))
        return text.strip()

    while name := asked("Column (Return: no more)", new_name, ""):
        features.append(_new_feature(name))
    return Codebook(target, classes, tuple(features) or (stand_in,), max_rows=rows), bool(features)


def _new_feature(name: str) -> Feature:
    feature = asked(f"Values or bounds of {name}", lambda text: feature_of(name, text))
    if isinstance(feature, Numeric):
        numeric = feature
        click.echo("Bell-shaped numbers need no bins; others are better counted in 5 to 20 bins.")
        feature = asked("Bins (0: none)", lambda text: binned(numeric, text), "0")
    optional = click.confirm(f"May {name} be missing in a row?", default=False)
    return msgspec.structs.replace(feature, optional=True) if optional else feature


def _shown(known: Book) -> Book:
    click.echo(f"  class column {known.book.target}: {', '.join(known.book.classes)}")
    click.echo(f"  columns: {', '.join(known.book.names) if known.complete else 'to be filled in'}")
    return known
