"""`blindbayes predict`: classify rows with a model file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import click
import pyarrow as pa
import pyarrow.csv as pacsv

from blindbayes.cli.options import open_data, table_options
from blindbayes.cli.terminal import binary_stdout
from blindbayes.errors import ConfigError


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path(dir_okay=False))
@click.argument("data")
@click.option("--out", type=click.Path(dir_okay=False), help="Write CSV here instead of printing.")
@click.option("--probabilities", is_flag=True, help="Add P(class | row) of every class.")
@click.option(
    "--prior", "priors", multiple=True, metavar="LABEL=P", help="Share of a class where the rows come from; once per class."
)
@click.option("--weight", "weights", multiple=True, metavar="LABEL=W", help="How much more an error in a class costs [1].")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column to stand beside the classes, such as your own number.")
@click.option("--ignore-extra", is_flag=True, help="Leave columns unread that the codebook does not know.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of CSV.")
def command(
    model_path: str,
    data: str,
    out: str | None,
    probabilities: bool,
    priors: tuple[str, ...],
    weights: tuple[str, ...],
    keep: tuple[str, ...],
    ignore_extra: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Classify the rows of a CSV or Parquet path or a database URL with a model file.

    One line per row, in the order of a file (a database gives no order). The class column, if there, is not looked at.

    Example:
      blindbayes predict model.json new_patients.csv --probabilities --keep record_number
      blindbayes predict model.json new_patients.csv --weight ill=10
    """
    from blindbayes.cli.screen import progress_bar
    from blindbayes.data.sources import require_columns
    from blindbayes.naive_bayes.estimator import load

    model = load(model_path)
    if priors or weights:
        model = model.with_priors(_named(priors, "--prior") or None, _named(weights, "--weight") or None)
    if out is not None and Path(out).exists():
        raise ConfigError(f"{out!r} exists; choose another path or move it away")
    codebook = model.codebook_
    scratch = None if out is None else Path(out).with_name(Path(out).name + ".part")  # no half-written answers
    sink = binary_stdout() if scratch is None else _writable(scratch)
    try:
        with open_data(data, partly=True, **reading) as source, progress_bar("classifying") as tell:
            if absent := [name for name in keep if name not in source.columns]:
                raise ConfigError(f"--keep: the table has no column {absent[0]!r}")
            labels = [*model.classes_.astype(str)]
            names = [codebook.target, *(f"P({label})" for label in labels if probabilities)]
            kept = [*dict.fromkeys(keep)]
            if twice := [name for name in kept if name in names]:
                raise ConfigError(f"--keep: a column {twice[0]!r} is written already; rename yours with --map")
            names = [*kept, *names]
            require_columns(
                [name for name in source.columns if name != codebook.target and (name in codebook.names or name not in kept)],
                codebook,
                labels=False,
                extra_columns="ignore" if ignore_extra else "refuse",
            )
            first = True
            done = 0
            own = [name for name in kept if name not in codebook.names]
            for batch in source.batches([*codebook.names, *own], codebook):
                table = pa.table({name: batch[name] for name in codebook.names})
                arrays = [*(batch[name] for name in kept), pa.array(model.predict(table).astype(str))]
                if probabilities:
                    arrays += [pa.array(column) for column in model.predict_proba(table).T]
                answer = pa.table(arrays, names)
                if as_json:
                    sink.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answer.to_pylist()).encode())
                else:
                    pacsv.write_csv(answer, sink, pacsv.WriteOptions(include_header=first))
                first = False
                done += table.num_rows
                tell(done, 0, "")
            if first and not as_json:
                pacsv.write_csv(pa.table([pa.array([], pa.string())] * len(names), names), sink)
        sink.flush()
    except BaseException:
        if scratch is not None:
            sink.close()
            scratch.unlink(missing_ok=True)
        raise
    if scratch is not None and out is not None:
        sink.close()
        scratch.replace(out)


def _writable(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as cause:
        raise ConfigError(f"{os.fspath(path).removesuffix('.part')!r} cannot be written ({type(cause).__name__})") from None


def _named(given: tuple[str, ...], option: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in given:
        label, _, number = each.rpartition("=")
        try:
            found[label] = float(number)
        except ValueError:
            raise ConfigError(f"{option} is a class and a number, such as {option} ill=0.05") from None
    return found
