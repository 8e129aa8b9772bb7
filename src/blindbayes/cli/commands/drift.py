"""`blindbayes drift`: compare current rows with the model in use."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.cli.options import JSON, print_result


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("current", type=click.Path(exists=True, path_type=Path))
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write the indices as a picture (SVG).")
@JSON
def command(model: Path, current: Path, plot: Path | None, as_json: bool) -> None:
    """Tell whether MODEL should be trained again, from CURRENT rows.

    MODEL is a model file or a release folder. CURRENT is a table of this site (CSV or Parquet; nothing leaves the site), or the
    model file or release of a later run of the study, which compares the rows of all sites. With a class column the
    model's calibration on these rows is part of the answer.

    Example:
      blindbayes drift release/model.json patients-2027.csv --plot drift.svg
    """
    from blindbayes.naive_bayes.drift import measure_drift
    from blindbayes.report.plots import drift_plot

    drift = measure_drift(_file(model), _file(current))
    if plot is not None:
        plot.write_text(drift_plot(drift), encoding="utf-8")
    ranked = sorted(drift.features.items(), key=lambda each: -each[1])
    lines = [f"{name}: {value:.3f}" for name, value in ranked]
    lines += [] if drift.classes is None else [f"(classes): {drift.classes:.3f}"]
    if drift.evaluation is not None:
        lines += ["", drift.evaluation.sentence.replace("held-out", "current")]
    print_result(drift.to_dict(), ["Population stability index, by feature:", *lines, "", drift.sentence], as_json=as_json)


def _file(path: Path) -> Path:
    return path / "model.json" if path.is_dir() else path
