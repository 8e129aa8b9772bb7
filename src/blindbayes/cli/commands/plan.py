"""`blindbayes plan`: forecast accuracy against epsilon, before any private data is read."""

from __future__ import annotations

import csv
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import CODEBOOK, DELTA, IGNORE_EXTRA, JSON, LARGE_DELTA, LEDGER, open_data, table_options
from blindbayes.cli.screen import Screen, progress_bar
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.release.forecast import EPSILONS, Forecast, Quality, forecast, plan_fits, private_forecast, synthetic_proxy
from blindbayes.dp.release.private_fit import MAX_READ
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import CodedRows

_LINE = ("epsilon", "mean", "low", "high", "mechanism")


@click.command()
@CODEBOOK
@click.option("--proxy", help="PUBLIC table that resembles the private one, with its class column.")
@click.option("--synthetic", is_flag=True, help="Use a made-up table, which only shows how the noise scales.")
@click.option("--private", "private_path", help="The private table itself. This is a release and costs budget.")
@LEDGER
@click.option("--expected-rows", type=int, help="Declared number of rows of the private table.")
@click.option("--epsilon", "epsilons", type=float, multiple=True, help="Epsilon to try; may be repeated.")
@DELTA
@LARGE_DELTA
@click.option("--rows-per-person", type=int, help="Maximum rows per person; --private samples them by the identifier.")
@click.option("--repetitions", type=int, default=20, show_default=True, help="Simulated releases per epsilon.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for plan.csv and plan.png.")
@IGNORE_EXTRA
@table_options
@JSON
def command(codebook_path: str, private_path: str | None, out: Path | None, as_json: bool, **given: Any) -> None:
    """Forecast accuracy, AUC, balanced accuracy and recall against epsilon on a public or synthetic proxy.

    The figures without privacy are shown beside them, and models no better than the majority class are marked.

    Example:
      blindbayes plan --codebook codebook.toml --proxy public_sample.csv --expected-rows 50000
      blindbayes plan --codebook codebook.toml --synthetic --expected-rows 2000
    """
    proxy, synthetic = given.pop("proxy"), given.pop("synthetic")
    if (proxy is not None) + synthetic + (private_path is not None) != 1:
        raise ConfigError("choose one: --proxy with a public table, --synthetic, or --private (which costs budget)")
    codebook = Codebook.from_toml(codebook_path)
    ledger, epsilons, repetitions = (given.pop(name) for name in ("ledger", "epsilons", "repetitions"))
    expected_rows, rows_per_person = given.pop("expected_rows"), given.pop("rows_per_person")
    settings: dict[str, Any] = {
        "epsilons": tuple(sorted(set(epsilons))) or EPSILONS,
        "delta": given.pop("delta"),
        "rows": expected_rows,
        "rows_per_unit": rows_per_person or 1,
        "max_read": MAX_READ,  # as `blindbayes train` reads a table
    }
    cost, allow_large_delta = None, given.pop("allow_large_delta")
    if private_path is not None:
        if ledger is None:
            raise PrivacyError("a forecast on the private table is a release: name the ledger that pays for it with --ledger")
        if not epsilons:
            raise ConfigError("on the private table name each --epsilon: their sum is what it costs")
        settings["allow_large_delta"] = allow_large_delta
        result, cost = _on_private_table(private_path, codebook, settings, ledger, given, rows_per_person)
    elif proxy is not None:
        with progress_bar("plan") as progress:
            table = _read(proxy, codebook, given)
            plans = plan_fits(codebook, **settings)
            result = forecast(plans, table, coins=Coins.system(), repetitions=repetitions, progress=progress)
    else:
        coins, rows = Coins.seeded(bytes(32)), expected_rows or codebook.expected_rows or min(2000, codebook.max_rows)
        with progress_bar("plan") as progress:
            plans, table = plan_fits(codebook, **{**settings, "rows": rows}), synthetic_proxy(codebook, max(rows, 2000), coins)
            running: dict[str, Any] = {"coins": coins, "repetitions": repetitions, "progress": progress}
            result = forecast(plans, table, proxy="synthetic table", **running)
    files = _write(result, out) if out is not None else []
    if as_json:
        print_json({**_facts(result, codebook), "cost": cost, "files": files})
    else:
        _show(result, codebook, cost, files)


def _on_private_table(
    path: str, codebook: Codebook, settings: dict[str, Any], ledger: str, reading: dict[str, Any], rows_per_person: int | None
) -> tuple[Forecast, str]:
    """Charge the ledger, then forecast on the private table; return the forecast and its cost."""
    from blindbayes.dp.accounting.ledger import Ledger

    planned = private_forecast(codebook, **settings)
    table = _read(path, codebook, reading, lenient=True, rows_per_person=rows_per_person)
    Ledger(ledger).charge(planned, purpose="plan on the private table", codebook=codebook.sha256)
    return planned.run(table, Coins.system()), str(planned.price)


def _read(
    path: str, codebook: Codebook, reading: dict[str, Any], *, lenient: bool = False, rows_per_person: int | None = None
) -> CodedRows:
    from blindbayes.data.contribution_bound import ContributionBound, require_identifier
    from blindbayes.data.table import read_block

    bound = None
    if rows_per_person is not None:
        require_identifier(codebook)
        bound = ContributionBound(rows_per_person, Coins.system().bytes(32))
    extra_columns = "ignore" if reading.pop("ignore_extra") else "refuse"
    with open_data(path, **reading) as source:
        return read_block(source, codebook, lenient=lenient, bound=bound, extra_columns=extra_columns)


def _measures(quality: Quality | None, codebook: Codebook) -> dict[str, Any]:
    """Return the measures other than accuracy; a private forecast has none, since only accuracies were paid for."""
    if quality is None:
        return {}
    recall = {label: _known(value) for label, value in zip(codebook.classes, quality.recall, strict=True)}
    return {"auc": _known(quality.auc), "balanced_accuracy": _known(quality.balanced), "recall": recall}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _facts(result: Forecast, codebook: Codebook) -> dict[str, Any]:
    return {
        "proxy": result.proxy,
        "rows": result.rows,
        "not_private": result.not_private,
        "majority": result.majority,
        "not_private_measures": _measures(result.quality, codebook),
        "smallest_epsilon_within_one_point": result.smallest,
        "below_majority": [line.epsilon for line in result.lines if result.is_below_majority(line)],
        "lines": [{name: getattr(line, name) for name in _LINE} | _measures(line.quality, codebook) for line in result.lines],
    }


def _show(result: Forecast, codebook: Codebook, cost: str | None, files: Sequence[str]) -> None:
    screen = Screen()
    screen.print(_table(result, codebook))
    if result.not_private is not None:
        for line in _comments(result, codebook):
            screen.print(line, markup=False, highlight=False)
    if result.proxy == "synthetic table":
        screen.line("made-up data: this shows how noise scales with rows and epsilon, not what your data will say")
    if cost is not None:
        screen.line(f"this forecast was a release of the private table and cost {cost}; bands are of the noise in the counts")
    for name in files:
        screen.line(f"written: {name}")


def _table(result: Forecast, codebook: Codebook) -> Table:
    table = Table(title=f"Accuracy forecast on a {result.proxy}, planned for {result.rows} rows")
    rarest = _rarest(result)
    marks = ["!" * result.is_below_majority(line) + "*" * result.is_close(line) for line in result.lines]
    headings = ["epsilon", "accuracy", "10% to 90%", *[""] * any(marks)]
    headings += ["mechanism"] if result.quality is None else ["AUC", "balanced", f"recall {codebook.classes[rarest]}"]
    rows = []
    for line, mark in zip(result.lines, marks, strict=True):
        more = [line.mechanism]
        if line.quality is not None:
            more = [f"{value:.3f}" for value in (line.quality.auc, line.quality.balanced, line.quality.recall[rarest])]
        rows.append(
            [f"{line.epsilon:g}", f"{line.mean:.3f}", f"{line.low:.3f} to {line.high:.3f}", *[mark] * any(marks), *more]
        )
    # At 80 columns a long class name is shortened, and never a number.
    columns = list(zip(headings, *rows, strict=True))[:-1]
    width = max(80 - 4 - sum(3 + max(map(len, column)) for column in columns), len("mechanism"))
    for heading in headings:
        table.add_column(escape(heading if len(heading) <= width else f"{heading[: width - 1]}…"), no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _comments(result: Forecast, codebook: Codebook) -> list[str]:
    lines = [
        f"not private {result.not_private:.3f}, majority class {result.majority:.3f}",
        f"mechanism: {', '.join(dict.fromkeys(line.mechanism for line in result.lines))}",
    ]
    if any(result.is_below_majority(line) for line in result.lines):
        lines.append("! no more often right than always answering the largest class")
    if (plain := result.quality) is not None:
        recalls = ", ".join(f"{label} {value:.3f}" for label, value in zip(codebook.classes, plain.recall, strict=True))
        lines.append(f"not private: AUC {plain.auc:.3f}, balanced accuracy {plain.balanced:.3f}, recall {recalls}")
    if result.is_below_majority():
        lines.append(
            "without privacy too this model is no more often right than always answering the largest class: judge it by "
            "AUC, balanced accuracy and recall, and weigh the classes (class_weight) if a rare one matters"
        )
    if result.smallest is not None:
        lines.append(f"smallest epsilon within one point of not private: {result.smallest:g} (*)")
    else:
        lines.append("no epsilon tried comes within one point of not private: more rows or a larger epsilon are needed")
    return lines


def _rarest(result: Forecast) -> int:
    """Return the class with the lowest recall without privacy."""
    recall = () if result.quality is None else result.quality.recall
    return min(range(len(recall)), key=lambda index: math.inf if math.isnan(recall[index]) else recall[index]) if recall else 0


def _write(result: Forecast, out: Path) -> list[str]:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "plan.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        measures = [] if result.quality is None else ["auc", "balanced_accuracy"]
        writer.writerow(["epsilon", "accuracy", "low", "high", "mechanism", "not_private", "majority", *measures])
        for line in result.lines:
            more = [] if line.quality is None else [line.quality.auc, line.quality.balanced]
            known = [line.epsilon, line.mean, line.low, line.high, line.mechanism, result.not_private, result.majority]
            writer.writerow([*known, *more])
    files = [str(path)]
    if importlib.util.find_spec("matplotlib"):
        files.append(str(_plot(result, out / "plan.png")))
    return files


def _plot(result: Forecast, path: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    x = [line.epsilon for line in result.lines]
    axes.fill_between(
        x, [line.low for line in result.lines], [line.high for line in result.lines], alpha=0.2, label="10% to 90%"
    )
    axes.plot(x, [line.mean for line in result.lines], marker="o", label="private")
    if result.not_private is not None and result.majority is not None:
        axes.axhline(result.not_private, color="0.2", linestyle="--", label="not private")
        axes.axhline(result.majority, color="0.6", linestyle=":", label="majority class")
    if result.smallest is not None:
        axes.axvline(result.smallest, color="tab:green", linewidth=1, label=f"within one point from {result.smallest:g}")
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.minorticks_off()
    axes.set_xlabel("epsilon")
    axes.set_ylabel("accuracy")
    axes.set_title(f"Forecast on a {result.proxy}, {result.rows} rows")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8, loc="lower right")
    drawing.savefig(path, dpi=140)
    plt.close(drawing)
    return path
