"""`blindbayes predict`: classify rows with a model file."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv as pacsv

from blindbayes.errors import ConfigError


@click.command()
@click.argument("model_path", metavar="MODEL", type=click.Path(dir_okay=False))
@click.argument("data")
@click.option("--out", type=click.Path(dir_okay=False), help="Write CSV here instead of printing.")
@click.option("--probabilities", is_flag=True, help="Add P(class | row) of every class.")
@click.option("--ignore-extra", is_flag=True, help="Leave columns unread that the codebook does not know.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of CSV.")
def command(model_path: str, data: str, out: str | None, probabilities: bool, ignore_extra: bool, as_json: bool) -> None:
    """Classify the rows of a CSV or Parquet path or a database URL with a model file.

    One line per row, in the order of a file (a database gives no order). The class column, if there, is not looked at.

    \b
    Example:
      blindbayes predict model.json new_patients.csv --probabilities
    """
    from blindbayes.cli.progress import counting
    from blindbayes.data.sources import open_source, require_columns
    from blindbayes.estimators import load

    model = load(model_path)
    if out is not None and Path(out).exists():
        raise ConfigError(f"{out!r} exists; choose another path or move it away")
    codebook = model.codebook_
    sink = sys.stdout.buffer if out is None else Path(out).open("wb")  # noqa: SIM115
    try:
        with open_source(data, ordered=True) as source, counting("classifying") as tell:
            require_columns(
                [name for name in source.columns if name != codebook.target],
                codebook,
                labels=False,
                extra_columns="ignore" if ignore_extra else "refuse",
            )
            first = True
            done = 0
            for batch in source.table.select(*codebook.names).to_pyarrow_batches(chunk_size=65_536):
                table = pa.Table.from_batches([batch])
                labels = model.classes_
                columns: dict[str, pa.Array] = {codebook.target: pa.array(model.predict(table).astype(str))}
                if probabilities:
                    shares = model.predict_proba(table)
                    columns |= {f"P({label})": pa.array(shares[:, at]) for at, label in enumerate(labels)}
                answer = pa.table(columns)
                if as_json:
                    import json

                    sink.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answer.to_pylist()).encode())
                else:
                    pacsv.write_csv(answer, sink, pacsv.WriteOptions(include_header=first))
                first = False
                done += table.num_rows
                tell(done, 0, "")
        sink.flush()
    finally:
        if out is not None:
            sink.close()
