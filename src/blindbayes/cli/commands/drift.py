"""`blindbayes drift`: compare current rows with the model in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from blindbayes.cli.commands.explain import load_model
from blindbayes.cli.options import IGNORE_EXTRA, JSON, open_data, print_result, require_new_path, table_options


@click.command()
@click.argument("model", type=click.Path(exists=True))
@click.argument("current")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write the indices as a picture (SVG).")
@IGNORE_EXTRA
@table_options
@JSON
def command(model: str, current: str, plot: Path | None, as_json: bool, ignore_extra: bool, **reading: Any) -> None:
    """Tell whether MODEL should be trained again, from CURRENT rows.

    MODEL is a model file or a release folder. CURRENT is a table of this site (a path or a database URL; nothing leaves the
    site), or the model file or release of a later run of the study, which compares the rows of all sites. With a class column
    the model's calibration on these rows is part of the answer. What noise of a private model or few rows explain is no drift.

    Example:
      blindbayes drift release/model.json patients-2027.csv --plot drift.svg
    """
    from blindbayes.naive_bayes.drift import measure_drift
    from blindbayes.report.plots import drift_plot

    if plot is not None:
        require_new_path(plot, "--plot")
    fitted = load_model(model)
    if current.endswith(".json") or (Path(current) / "model.json").is_file():
        drift = measure_drift(fitted, load_model(current))
    else:
        with open_data(current, **reading) as rows:
            drift = measure_drift(fitted, rows, extra_columns="ignore" if ignore_extra else "refuse")
    if plot is not None:
        plot.write_text(drift_plot(drift), encoding="utf-8")
    ranked = sorted(drift.features.items(), key=lambda each: -each[1])
    lines = [f"{name}: {round(value, 3) + 0.0:.3f}, by chance up to {drift.chance[name]:.3f}" for name, value in ranked]
    lines += [] if drift.classes is None else [f"(classes): {drift.classes:.3f}, by chance up to {drift.chance_of_classes:.3f}"]
    if drift.evaluation is not None:
        lines += ["", drift.evaluation.sentence.replace("held-out", "current")]
    print_result(drift.to_dict(), ["Population stability index, by feature:", *lines, "", drift.sentence], as_json=as_json)
