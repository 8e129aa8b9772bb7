"""`blindbayes explain`: what a model says, value by value, in the terminal or as a page."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.screen import Screen
from blindbayes.errors import ConfigError

if TYPE_CHECKING:
    from blindbayes.naive_bayes.estimator import NaiveBayes


def load_model(place: str) -> NaiveBayes:
    """The model of a file, or of a release folder, whose checksums are compared first."""
    from blindbayes.io.folder import read_folder
    from blindbayes.naive_bayes.estimator import load
    from blindbayes.report.checksums import verify_files

    if not Path(place).is_dir():
        return load(place)
    files = read_folder(place)
    verify_files(files)
    if "model.json" not in files:
        raise ConfigError("the release holds no model.json: its model is in shares, and nobody can look at it alone")
    return load(Path(place) / "model.json")


@click.command()
@click.argument("model", type=click.Path(exists=True))
@click.option("--feature", help="Every value of this feature, instead of the features by what they tell.")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the page (HTML) here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(model: str, feature: str | None, out: str | None, as_json: bool) -> None:
    """Say what a model file or release folder has learned: features by what they tell, values by what they speak for.

    Example:
      blindbayes explain model.json
      blindbayes explain release --feature age
      blindbayes explain model.json --out explain.html
    """
    from blindbayes.report.page import model_page
    from blindbayes.report.plots import bracket
    from blindbayes.report.weight_of_evidence import information, weights

    fitted = load_model(model)
    record, noise_interval = fitted._record(), fitted._noise_interval()
    parameters, classes = record.parameters, record.parameters.codebook.classes
    if feature is not None and feature not in parameters.terms:
        raise ConfigError(f"the model has no feature {feature!r}; it has {', '.join(parameters.terms)}")
    if out is not None:
        page = model_page(
            parameters,
            noise_interval=noise_interval,
            statistics=record.statistics,
            approved=fitted.approved_codebook_,
            title="What the model says",
        )
        try:
            Path(out).write_text(page, encoding="utf-8")
        except OSError as cause:
            raise ConfigError(f"the page {out!r} cannot be written ({type(cause).__name__})") from None
        click.echo(f"page written to {out}")
        return
    bits = information(parameters)
    found = [weight for weight in weights(parameters, feature, noise_interval, record.statistics) if weight.seen]
    if as_json:
        values = [
            {"feature": each.feature, "value": each.value, "weights": dict(zip(classes, each.values.tolist(), strict=True))}
            for each in found
        ]
        print_json({"bits": bits, "values": values})
        return
    screen = Screen()
    table = Table("value" if feature else "feature", "rows" if feature else "bits", *map(escape, classes))
    if feature is not None:
        for each in found:
            ends = [each.interval(at) for at in range(len(classes))]
            cells = [
                f"{value:+.2f}" + (f" {bracket(*end)}" if end else "") for value, end in zip(each.values, ends, strict=True)
            ]
            table.add_row(escape(each.value), each.rows_in_words, *map(escape, cells))
    else:
        by_feature = defaultdict(list)
        for each in found:
            by_feature[each.feature].append(each)
        for name, amount in bits.items():
            own = by_feature[name]
            best = [
                max((each.values[at] * each.share, each.value) for each in own)[1] if own else "" for at in range(len(classes))
            ]
            table.add_row(escape(name), f"{amount:.4f}", *map(escape, best))
    screen.print(table)
    if feature is None:
        screen.print(
            "Per class: the value that speaks most for it, as often as it occurs. --feature NAME shows all of one.",
            highlight=False,
        )
