"""`blindbayes codebook`: make, check and show codebooks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import IGNORE_EXTRA, JSON, OMOP, open_data, open_rows, print_result, require_new_path, table_options
from blindbayes.cli.screen import Screen
from blindbayes.codebook import DEFAULT_MAX_ROWS, Categorical, Codebook, Numeric, Text, json_schema
from blindbayes.codebook.features import number_name
from blindbayes.codebook.importers import EXPORTS, FORMATS, answers_of, import_codebook
from blindbayes.errors import DataError
from blindbayes.io.files import write_whole

if TYPE_CHECKING:
    from blindbayes.data.omop import OmopReport

_MAX_SHOWN = 30  # columns of a draft on the screen
_LEAK = (
    "This codebook was made from the rows of the table: its bounds and categories reveal single records.\n"
    "Use it only if that table is public. Made from private rows, it is a leak that no noise repairs."
)


@click.group()
def command() -> None:
    """Make, check and show codebooks: the public facts about columns.

    Example:
      blindbayes codebook import redcap dictionary.csv --target outcome --out codebook.toml
      blindbayes codebook draft published_sample.csv --target class --out codebook.toml
      blindbayes codebook check codebook.toml --data visits.parquet
    """


@command.command("show")
@click.argument("path", type=click.Path(dir_okay=False))
@JSON
def show(path: str, as_json: bool) -> None:
    """Print a codebook and its hash.

    Example:
      blindbayes codebook show codebook.toml
    """
    codebook = Codebook.from_toml(path)
    if as_json:
        print_json({"sha256": codebook.sha256, **codebook.to_dict()})
        return
    screen = Screen()
    target, classes = escape(codebook.target), escape(", ".join(codebook.classes))
    screen.print(f"class column [bold]{target}[/]: {classes}", highlight=False)
    screen.line(f"sha256 {codebook.sha256}")
    table = Table("feature", "kind", "domain", "optional")
    for feature in codebook.features:
        if isinstance(feature, Categorical):
            shown = ", ".join(feature.values[:6]) + (f", ... ({feature.size} values)" if feature.size > 6 else "")
            table.add_row(escape(feature.name), "categorical", escape(shown), "yes" if feature.optional else "")
        elif isinstance(feature, Text):
            shown = (
                ", ".join(feature.words[:6]) + f", ... ({feature.size} words)" if feature.words else f"{feature.size} buckets"
            )
            bound = f"; at most {feature.max_words} of a document" if feature.max_words else ""
            kind = f"text, {feature.model}"
            table.add_row(escape(feature.name), kind, escape(shown + bound), "yes" if feature.optional else "")
        else:
            domain = (
                f"{number_name(feature.low)} to {number_name(feature.high)} by {feature.precision:g} {feature.unit}".rstrip()
            )
            kind = f"numeric, {feature.bins} bins" if feature.bins else "numeric"
            table.add_row(escape(feature.name), kind, escape(domain), "yes" if feature.optional else "")
    screen.print(table)


@command.command("hash")
@click.argument("path", type=click.Path(dir_okay=False))
def hash_(path: str) -> None:
    """Print a codebook's SHA-256, to compare by phone.

    Example:
      blindbayes codebook hash codebook.toml
    """
    click.echo(Codebook.from_toml(path).sha256)


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of codebook files.

    Example:
      blindbayes codebook schema > codebook.schema.json
    """
    print_json(json_schema())


@command.command("draft")
@click.argument("data", type=click.Path())
@click.option("--target", required=True, help="The class column.")
@click.option("--keep", multiple=True, help="Column to keep although it looks like an identifier or free text.")
@click.option("--drop", multiple=True, help="Column to leave out.")
@click.option("--codes", multiple=True, help="Column whose numbers are codes: categories instead of amounts.")
@click.option("--bins", type=int, help="Cut every number into this many equal cells. [default: chosen per column]")
@click.option("--max-rows", type=int, default=DEFAULT_MAX_ROWS, show_default=True, help="Maximum number of rows of a table.")
@table_options
@click.option("--out", type=click.Path(dir_okay=False), help="Write to this file instead of printing.")
def draft(data: str, target: str, missing: tuple[str, ...], out: str | None, **given: Any) -> None:
    """Draft a codebook from a PUBLIC sample, with a reason for each choice.

    Categories are those of the sample; bounds are rounded outwards; skewed numbers get cells, heavy tails a log scale.
    Columns that look like identifiers or free text are left out and listed.

    Example:
      blindbayes codebook draft published_sample.csv --target class --out codebook.toml
    """
    from blindbayes.data.infer import Choices, draft_codebook
    from blindbayes.data.sources import read_public

    choices = Choices(*(given.pop(name) for name in ("keep", "drop", "codes", "bins")))
    max_rows = given.pop("max_rows")
    public, markers = read_public(open_data(data, **given), text=(target, *choices.codes), missing=missing)
    made = draft_codebook(public, target, choices, max_rows=max_rows, missing=markers)
    screen = Screen(stderr=True)
    _write(made.codebook, out, made.to_toml())
    if out is not None:
        table = Table("column", "described as", "why")
        features = made.codebook.features
        for feature in features[:_MAX_SHOWN]:
            numbers = "numbers in cells" if isinstance(feature, Numeric) and feature.bins else "numbers"
            kind = numbers if isinstance(feature, Numeric) else "categorical"
            table.add_row(escape(feature.name), kind, escape(made.reasons[feature.name]))
        if (more := len(features) - _MAX_SHOWN) > 0:
            table.add_row(f"({more} more)", "", f"as {out} says for each")
        for name, why in made.left_out.items():
            table.add_row(escape(name or "(no name)"), "[bold]left out[/]", escape(why))
        screen.print(table)
    elif made.left_out:
        screen.line(f"left out: {', '.join(made.left_out)}")
    if made.maps:
        screen.line("Dates were left out. To use them, write lines of these to map.toml and draft a new file with --map:")
        for line in made.maps:
            screen.line(f"  {line}")
    for note in made.notes:
        screen.line(f"Note: {note}.")
    if usual := [each for each in markers if each not in missing]:
        screen.line(f"Read as no value, since it stands among numbers: {', '.join(usual)}. Other texts: --missing TEXT")
    screen.print(_LEAK, style="bold red")
    if made.unlabelled:
        mapped = given["map_path"] or "map.toml"
        screen.line(f"To give rows without a label a class of their own, write this line to {mapped}:")
        screen.line(f"  {made.unlabelled}")
        given["map_path"] = mapped
    if out is None:
        return
    if made.unlabelled or made.reading:
        again = ["blindbayes", "codebook", "draft", data, "--target", target]
        named = {"keep": choices.keep, "drop": choices.drop, "codes": choices.codes}
        again += [word for name, columns in named.items() for each in columns for word in (f"--{name}", each)]
        again += [word for each in missing for word in ("--missing", each)]
        new = Path(out).with_stem(f"{Path(out).stem}-2")
        screen.line(f"Next: {shlex.join([*again, *_reading(given, made.reading), '--out', str(new)])}")
        return
    words = ["blindbayes", "train", data, "--codebook", out, *["--ignore-extra"] * bool(made.left_out)]
    screen.line(f"Next: {shlex.join([*words, *_reading(given), '--out', 'model.json'])}")


def _reading(reading: Mapping[str, Any], more: str = "") -> list[str]:
    """Return the options that read the table in the same way, and those in `more` in their place."""
    added = shlex.split(more)
    reading = {**reading, **{name.removeprefix("--"): value for name, value in zip(added[::2], added[1::2], strict=True)}}
    words: list[str] = []
    defaults = {"delimiter": None, "decimal": ".", "thousands": "", "encoding": None, "quote": '"', "sheet": None}
    for name, default in defaults.items():
        words += [f"--{name}", reading[name]] if reading[name] != default else []
    return [*words, *(["--map", reading["map_path"]] if reading["map_path"] is not None else [])]


@command.command("import")
@click.argument("format", type=click.Choice(list(FORMATS)))
@click.argument("dictionary", type=click.Path(dir_okay=False))
@click.option("--target", help="The class column.")
@click.option("--bound", metavar="NAME=LOW:HIGH", multiple=True, help="Public bounds of a number: age=0:120.")
@click.option("--precision", metavar="NAME=STEP", multiple=True, help="Step of a number's grid: height=0.1.")
@click.option("--unit", metavar="NAME=UNIT", multiple=True, help="Unit of a number: height=cm.")
@click.option("--values", metavar="NAME=A|B", multiple=True, help="Closed list of a column's values: 'ward=north|south'.")
@click.option("--keep", multiple=True, help="Column to take in although it is an identifier or text.")
@click.option("--drop", multiple=True, help="Column to leave out.")
@click.option("--missing", multiple=True, help="Text that stands for a missing value in every column; may be repeated.")
@click.option("--table", help="Table of a dictionary that describes several.")
@click.option("--column", metavar="NAME=LIST", multiple=True, help="SDMX: column that holds a code list: sex=CL_SEX.")
@click.option("--max-rows", type=int, help=f"Maximum number of rows of a table. [default: {DEFAULT_MAX_ROWS}]")
@click.option("--out", type=click.Path(dir_okay=False), help="Write to this file instead of printing.")
def import_(format: str, dictionary: str, out: str | None, max_rows: int | None, **flags: Any) -> None:
    """Make a codebook from a data dictionary that you already have.

    Formats:
      redcap        REDCap data dictionary (CSV)
      frictionless  Frictionless Table Schema or Data Package (JSON)
      csvw          CSV on the Web metadata, CSVW-SAFE too (JSON)
      ddi           DDI-Codebook 2.x (XML)
      sdmx          SDMX structure message with code lists (XML or JSON)
      spss          SPSS or Stata file, its labels only (.sav, .zsav, .dta)
      dictionary    CSV with name, kind, values (a|b|c), low, high, precision, bins

    Identifiers, dates and free text stay out and are listed. What the dictionary does not say is asked, all at once, with the
    flags to add. No row is read.

    Example:
      blindbayes codebook import redcap dictionary.csv --target outcome --bound age=0:120 --out codebook.toml
      blindbayes codebook import dictionary columns.csv --target class --out codebook.toml
    """
    given = [(flag, text) for flag, texts in flags.items() for text in ([texts] if isinstance(texts, str) else texts or ())]
    made = import_codebook(format, dictionary, {**answers_of(given), "max_rows": max_rows})
    _write(made.codebook, out)
    screen = Screen(stderr=True)
    if out is not None and made.left_out:
        table = Table("left out", "why")
        for name, why in made.left_out.items():
            table.add_row(escape(name), escape(why))
        screen.print(table)
    elif made.left_out:
        screen.line(f"left out: {', '.join(made.left_out)}")
    for question in made.open:
        screen.line(f"{question.text}; {question.flag}")
    if out is not None:
        screen.line(
            f"Next: blindbayes codebook check {shlex.quote(out)} --data TABLE" + " --ignore-extra" * bool(made.left_out)
        )


@command.command("export")
@click.argument("format", type=click.Choice(list(EXPORTS)))
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--out", type=click.Path(dir_okay=False), help="Write to this file instead of printing.")
def export(format: str, path: str, out: str | None) -> None:
    """Write a codebook as a Frictionless Table Schema or as CSV on the Web metadata; an import gives the same codebook.

    Example:
      blindbayes codebook export frictionless codebook.toml --out schema.json
    """
    codebook = Codebook.from_toml(path)
    document = codebook.to_frictionless() if format == "frictionless" else codebook.to_csvw()
    if out is None:
        print_json(document)
        return
    write_whole(Path(out), (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode(), private=False, replace=False)
    click.echo(f"{format} written to {out}")


@command.command("check")
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--data", help="CSV or Parquet path, or database URL, to check against the codebook.")
@IGNORE_EXTRA
@table_options
@OMOP
@click.option("--show-codes", is_flag=True, help="List unmapped codes on this screen. They come from rows: do not copy them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (counts only).")
def check(
    path: str, data: str | None, ignore_extra: bool, omop: str | None, show_codes: bool, as_json: bool, **reading: Any
) -> None:
    """Check a codebook, and a table or an OMOP database against it. Nothing leaves this machine.

    Example:
      blindbayes codebook check codebook.toml --data visits.parquet
      blindbayes codebook check codebook.toml --data postgres://reader@db/hospital --omop cdm
    """
    codebook = Codebook.from_toml(path)
    if data is None:
        facts = {"ok": True, "sha256": codebook.sha256}
        print_result(facts, [f"the codebook is well formed; sha256 {codebook.sha256}"], as_json=as_json)
        return
    from blindbayes.cli.screen import progress_bar
    from blindbayes.data import check as check_data

    database = None if omop is None else _omop_report(data, codebook, omop)
    with open_rows(data, codebook, omop, **reading) as source, progress_bar("checking") as source.watch:
        report = check_data(source, codebook, extra_columns="ignore" if ignore_extra else "refuse")
    if as_json:
        print_json(report.to_dict() | ({} if database is None else {"omop": database.to_dict()}))
    else:
        screen = Screen()
        if database is not None:
            screen.line(f"{database.cohort} of {database.persons} persons are in the cohort, one row each")
            for problem in database.problems:
                screen.line(f"  {problem}")
        table = Table("column", "missing", "unmapped", "unreadable", "out of bounds", "problem")
        for column in report.columns:
            numbers = (column.missing, column.unmapped, column.unreadable, column.out_of_bounds)
            table.add_row(
                escape(column.name),
                *(str(number) for number in numbers),
                escape("; ".join(filter(None, (column.problem, column.note)))),
            )
        screen.line(f"{report.rows} rows")
        screen.print(table)
        for name in report.empty:
            screen.line(f"{name}: no row has a value. If that is wrong, look at its --map and at how its dates are written")
        if show_codes:
            for column in report.columns:
                for code, rows in column.unmapped_codes.most_common(20):
                    screen.line(f"  {column.name}: {code!r} in {rows} row{'s' * (rows != 1)}")
    if not report.ok:
        raise DataError("the table does not fit the codebook; correct the columns above, or the codebook")


def _omop_report(data: str, codebook: Codebook, schema: str) -> OmopReport:
    from blindbayes.data.omop import Cdm

    with Cdm(data, schema) as database:
        return database.report(codebook)


def _write(codebook: Codebook, out: str | None, text: str | None = None) -> None:
    text = text or codebook.to_toml()
    if out is None:
        click.echo(text, nl=False)
        return
    require_new_path(Path(out))
    write_whole(Path(out), text.encode(), private=False, replace=False)
    click.echo(f"codebook written to {out}; sha256 {codebook.sha256}")
