"""`blindbayes predict`: classify rows with a model file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.csv as pacsv

from blindbayes.cli.options import IGNORE_EXTRA, open_data, require_new_path, table_options
from blindbayes.cli.terminal import binary_stdout
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data.encode import encode_column
from blindbayes.data.values import Misfits, not_numbers
from blindbayes.errors import ConfigError

if TYPE_CHECKING:
    from blindbayes import NaiveBayes
    from blindbayes.data import Source


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path())
@click.argument("data")
@click.option("--out", type=click.Path(dir_okay=False), help="Write CSV to this file instead of printing it.")
@click.option("--probabilities", is_flag=True, help="Add a column P(class | row) for every class.")
@click.option("--prior", "priors", multiple=True, metavar="LABEL=P", help="Share of a class in the population; once per class.")
@click.option("--weight", "weights", multiple=True, metavar="LABEL=W", help="Relative cost of an error in a class [1].")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Column to copy to the output, such as a record number.")
@IGNORE_EXTRA
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of CSV.")
def command(model_path: str, data: str, out: str | None, as_json: bool, **options: Any) -> None:
    """Classify the rows of a CSV or Parquet path or a database URL with a model file or a release folder.

    Writes one line per row, in the order of a file (a database gives no order). A class column in the table is ignored.

    Example:
      blindbayes predict model.json new_patients.csv --probabilities --keep record_number
      blindbayes predict model.json new_patients.csv --weight ill=10
    """
    from blindbayes.cli.commands.explain import load_model
    from blindbayes.cli.screen import progress_bar

    model = load_model(model_path)
    priors, weights = _numbers(options.pop("priors"), "--prior"), _numbers(options.pop("weights"), "--weight")
    if priors or weights:
        model = model.with_priors(priors or None, weights or None)
    probabilities, ignore_extra = options.pop("probabilities"), options.pop("ignore_extra")
    kept_columns = list(dict.fromkeys(options.pop("keep")))
    with (
        _output(out) as sink,
        open_data(data, partly=True, **options) as source,
        progress_bar("classifying") as progress,
    ):
        answers = _Answers(model, kept_columns, probabilities, workbook=source.label == "excel")
        answers.require_columns(source, ignore_extra)
        rows, header = 0, True
        for table in answers.tables(source):
            if as_json:
                sink.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist()).encode())
            else:
                pacsv.write_csv(table, sink, pacsv.WriteOptions(include_header=header))
            rows, header = rows + table.num_rows, False
            progress(rows, 0, "")
        if header and not as_json:
            pacsv.write_csv(pa.table([pa.array([], pa.string())] * len(answers.names), answers.names), sink)
        sink.flush()
        unreadable = source.unreadable_dates(answers.codebook)
    for name, dates in unreadable.items():
        click.echo(f"note: feature {name!r}: {dates}; it counts as missing", err=True)
    for note in answers.notes():
        click.echo(note, err=True)
    if out is not None:
        click.echo(f"{rows:,} rows classified: {out}", err=True)


class _Answers:
    """The output columns: those to keep, the class, and probabilities."""

    def __init__(self, model: NaiveBayes, keep: list[str], probabilities: bool, *, workbook: bool) -> None:
        self.model, self.keep, self.probabilities = model, keep, probabilities
        self.codebook: Codebook = model.codebook_
        labels = model.classes_.astype(str) if probabilities else ()
        written = [self.codebook.target, *(f"P({label})" for label in labels)]
        if twice := [name for name in keep if name in written]:
            raise ConfigError(f"--keep: a column {twice[0]!r} is written already; rename yours with --map")
        self.names = [*keep, *written]
        self._misfits = Misfits(workbook=workbook)

    def require_columns(self, source: Source, ignore_extra: bool) -> None:
        """Raise unless the table has the columns of the codebook and those to keep, and no unexpected ones."""
        from blindbayes.data.sources import require_columns

        if absent := [name for name in self.keep if name not in source.columns]:
            raise ConfigError(f"--keep: the table has no column {absent[0]!r}")
        book = self.codebook
        features = [each for each in source.columns if each != book.target and (each in book.names or each not in self.keep)]
        require_columns(features, book, labels=False, extra_columns="ignore" if ignore_extra else "refuse")

    @property
    def _checked(self) -> list[Categorical | Numeric]:
        """The features some of whose values may not be used as they are."""
        listed = (each for each in self.codebook.features if isinstance(each, Categorical) and each.other is None)
        return [*listed, *(each for each in self.codebook.features if isinstance(each, Numeric))]

    def notes(self) -> Iterator[str]:
        """Yield a line for each feature with values that are not in the codebook, or out of its bounds."""
        for each in self._checked:
            misfit = self._misfits[each.name]
            if rows := misfit.unmapped:
                hold = "row holds" if rows == 1 else "rows hold"
                yield (
                    f"note: feature {each.name!r}: {rows:,} {hold} a value that the codebook does not list, which counts as "
                    "missing; `blindbayes codebook check` names such columns, and --map recodes them"
                )
            if (rows := misfit.outside) and isinstance(each, Numeric):
                hold = "row holds" if rows == 1 else "rows hold"
                yield (
                    f"note: feature {each.name!r}: {rows:,} {hold} a number out of bounds [{each.low:g}, {each.high:g}], which "
                    "counts as the nearest bound; is the column in the unit of the codebook? --map converts it"
                )

    def tables(self, source: Source) -> Iterator[pa.Table]:
        """Yield the output for each batch of rows."""
        features = self.codebook.names
        for batch in source.batches([*features, *(name for name in self.keep if name not in features)], self.codebook):
            table = pa.table({name: batch[name] for name in features})
            for each in self._checked:
                values = table.column(each.name)
                encode_column(values, each, self.codebook.markers(each), training=True, misfits=self._misfits)
                if rows := self._misfits[each.name].unreadable:
                    raise not_numbers(each.name, rows, workbook=self._misfits[each.name].workbook)
            columns = [*(batch[name] for name in self.keep), pa.array(self.model.predict(table).astype(str))]
            if self.probabilities:
                columns += [pa.array(column) for column in self.model.predict_proba(table).T]
            yield pa.table(columns, self.names)


@contextlib.contextmanager
def _output(out: str | None) -> Iterator[Any]:
    """Open standard output, or a new file that appears only once it is complete."""
    if out is None:
        yield binary_stdout()
        return
    path = Path(out)
    require_new_path(path)
    scratch = path.with_name(path.name + ".part")
    try:
        sink = scratch.open("wb")
    except OSError as cause:
        raise ConfigError(f"{out!r} cannot be written ({type(cause).__name__})") from None
    try:
        with sink:
            yield sink
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _numbers(given: tuple[str, ...], option: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for each in given:
        label, _, number = each.rpartition("=")
        try:
            numbers[label] = float(number)
        except ValueError:
            raise ConfigError(f"{option} takes a class and a number, such as {option} ill=0.05") from None
    return numbers
