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
from blindbayes.cli.options import JSON
from blindbayes.cli.screen import Screen
from blindbayes.errors import ConfigError

if TYPE_CHECKING:
    from blindbayes.report.weight_of_evidence import Weight


@click.command()
@click.argument("model", type=click.Path(exists=True))
@click.option("--feature", help="Show every value of this feature instead of the ranked features.")
@click.option("--out", type=click.Path(dir_okay=False), help="Write an HTML page to this file.")
@JSON
def command(model: str, feature: str | None, out: str | None, as_json: bool) -> None:
    """Explain a model file or release folder: features by information, values by weight of evidence.

    Example:
      blindbayes explain model.json
      blindbayes explain release --feature age
      blindbayes explain model.json --out explain.html
    """
    from blindbayes.report.weight_of_evidence import information, weights

    fitted = load_model(model)
    record, noise_interval = fitted._record(), fitted._noise_interval()
    parameters, classes = record.parameters, record.parameters.codebook.classes
    if feature is not None and feature not in parameters.terms:
        raise ConfigError(f"the model has no feature {feature!r}; it has {', '.join(parameters.terms)}")
    if out is not None:
        _write_page(fitted, out)
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
        Screen().print(_table_of_values(evidence, classes))
    else:
        screen = Screen()
        screen.print(_table_of_features(evidence, bits, classes))
        screen.line("Per class: the value with the most evidence, weighted by its frequency. --feature NAME shows all values.")


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
