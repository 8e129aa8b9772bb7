"""`blindbayes explain`: the weight of evidence of a model, in the terminal or as a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import JSON, open_data, table_options
from blindbayes.cli.screen import Screen
from blindbayes.errors import ConfigError

if TYPE_CHECKING:
    from blindbayes.report.weight_of_evidence import Weight


@click.command()
@click.argument("model", type=click.Path(exists=True))
@click.option("--feature", help="Show every value of this feature instead of the ranked features.")
@click.option("--out", type=click.Path(dir_okay=False), help="Write an HTML page to this file.")
@click.option("--data", help="Explain the class of one row of this table, which --row names.")
@click.option("--row", type=click.IntRange(min=1), help="With --data: the number of the row. [default: 1]")
@click.option("--ignore-extra", is_flag=True, help="As in train and predict; here further columns are ignored in any case.")
@table_options
@JSON
def command(
    model: str,
    feature: str | None,
    out: str | None,
    data: str | None,
    row: int | None,
    ignore_extra: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Explain a model file or release folder: features by information, values by weight of evidence.

    With --data, explain one row: what each of its values adds to the score of every class.

    Example:
      blindbayes explain model.json
      blindbayes explain model.json --data visits.csv --row 3
      blindbayes explain release --feature age
      blindbayes explain model.json --out explain.html
    """
    from blindbayes.report.weight_of_evidence import information, weights

    if row is not None and data is None:
        raise ConfigError("--row is the number of a row in a table: name the table by --data")
    fitted = load_model(model)
    record, noise_interval = fitted._record(), fitted._noise_interval()
    parameters, classes = record.parameters, record.parameters.codebook.classes
    if feature is not None and feature not in parameters.terms:
        raise ConfigError(f"the model has no feature {feature!r}; it has {', '.join(parameters.terms)}")
    if out is not None:
        _write_page(fitted, out)
        return
    if data is not None:
        _explain_row(fitted, data, row or 1, as_json, reading)
        return
    bits = information(parameters)
    evidence = [weight for weight in weights(parameters, feature, noise_interval, record.statistics) if weight.seen]
    if as_json:
        values = [
            {"feature": each.feature, "value": each.value, "weights": dict(zip(classes, each.values.tolist(), strict=True))}
            for each in evidence
        ]
        print_json({"bits": bits, "values": values})
    elif feature is not None:
        screen = Screen()
        screen.print(_table_of_values(evidence, classes))
        if noise_interval is not None:
            screen.line(
                "In brackets: between these ends lies the number that the same table gives without noise, in 90 of 100 "
                "releases. The number itself may lie outside: smoothing or a selected rule moved it."
            )
    else:
        screen = Screen()
        screen.print(_table_of_features(evidence, bits, classes))
        screen.line("Per class: the value with the most evidence, weighted by its frequency. --feature NAME shows all values.")
        if hidden := {name for name, amount in bits.items() if amount == 0} - {each.feature for each in evidence}:
            screen.line(
                f"Without a value: nothing about {', '.join(sorted(hidden))} is in the model (hidden by the noise, if private)."
            )


def _explain_row(fitted: Any, data: str, row: int, as_json: bool, reading: Mapping[str, Any]) -> None:
    """Print what every value of one row adds to the scores, compared with the mean over the classes."""
    import numpy as np
    import pyarrow as pa

    from blindbayes.data.sources import require_columns

    book = fitted.codebook_
    with open_data(data, **reading) as source:
        require_columns(source.columns, book, labels=False, extra_columns="ignore")
        start = 0
        for batch in source.batches(list(book.names), book):
            table = pa.table(batch)
            if row <= start + table.num_rows:
                table = table.slice(row - 1 - start, 1)
                break
            start += table.num_rows
        else:
            raise ConfigError(f"the table has {start:,} rows, and no row {row:,}")
    explanation = fitted.explain(table)
    terms = explanation.terms[0]
    centred = terms - terms.mean(axis=1, keepdims=True)
    probabilities = fitted.predict_proba(table)[0]
    predicted = str(fitted.predict(table)[0])
    values = {name: _plain(table.column(name)[0].as_py()) for name in book.names}
    if as_json:
        parts = {
            part: dict(zip(explanation.classes, each, strict=True))
            for part, each in zip(explanation.parts, centred.tolist(), strict=True)
        }
        shown = dict(zip(explanation.classes, probabilities.tolist(), strict=True))
        print_json({"row": row, "class": predicted, "probabilities": shown, "values": values, "evidence": parts})
        return
    view = Table("part", "value", *map(escape, explanation.classes))
    for part, each in zip(explanation.parts, centred, strict=True):
        value = values.get(part)
        text = "" if part not in values else "missing" if value is None else str(value)
        view.add_row(escape(part), escape(text), *(f"{number:+.2f}" for number in each))
    view.add_row("(sum)", "", *(f"{number:+.2f}" for number in centred.sum(axis=0)), end_section=True)
    view.add_row("probability", "", *(f"{number:.3f}" for number in np.asarray(probabilities)))
    screen = Screen()
    screen.line(f"row {row:,}: {book.target} = {predicted}")
    screen.print(view)
    screen.line("Each number is a weight of evidence: above 0 the value raises the score of the class.")
    if "(offset)" in explanation.parts:
        screen.line(
            "The prior is the share of the class by the noisy counts. The offset is what rules against the noise add to it."
        )


def _plain(value: Any) -> Any:
    """Return a cell as a value of JSON: decimal numbers and dates as text."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def load_model(place: str) -> Any:
    """Load a model file, or the model of a release folder after its checksums are verified."""
    from blindbayes import load
    from blindbayes.io.files import read_folder
    from blindbayes.report.checksums import verify_files

    if not Path(place).is_dir():
        return load(place)
    files = read_folder(place)
    verify_files(files)
    if "model.json" not in files:
        raise ConfigError("the release holds no model.json: the model exists in shares only, and no party can show it")
    return load(Path(place) / "model.json")


def _write_page(fitted: Any, out: str) -> None:
    from blindbayes.report.page import model_page

    record = fitted._record()
    page = model_page(
        record.parameters,
        noise_interval=fitted._noise_interval(),
        statistics=record.statistics,
        approved=fitted.approved_codebook_,
        title="Explanation of the model",
    )
    if Path(out).exists():
        raise ConfigError(f"{out!r} exists; choose another path or move it away")
    try:
        Path(out).write_text(page, encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"the page {out!r} cannot be written ({type(cause).__name__})") from None
    click.echo(f"page written to {out}")


def _table_of_values(evidence: Sequence[Weight], classes: Sequence[str]) -> Table:
    from blindbayes.report.plots import bracket

    table = Table("value", "rows", *map(escape, classes))
    for weight in evidence:
        intervals = [weight.interval(index) for index in range(len(classes))]
        cells = [
            f"{value:+.2f}" + (f" {bracket(*ends)}" if ends else "")
            for value, ends in zip(weight.values, intervals, strict=True)
        ]
        table.add_row(escape(weight.value), weight.rows_in_words, *map(escape, cells))
    return table


def _table_of_features(evidence: Sequence[Weight], bits: Mapping[str, float], classes: Sequence[str]) -> Table:
    table, by_feature = Table("feature", "bits", *map(escape, classes)), defaultdict(list)
    for weight in evidence:
        by_feature[weight.feature].append(weight)
    for name, amount in bits.items():
        best = [
            max(((each.values[index] * each.share, each.value) for each in by_feature[name]), default=(0, ""))[1]
            for index in range(len(classes))
        ]
        table.add_row(escape(name), f"{amount:.4f}", *map(escape, best))
    return table
