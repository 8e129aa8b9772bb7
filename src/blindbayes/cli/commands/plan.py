"""`blindbayes plan`: accuracy against epsilon, before any private data is read."""

from __future__ import annotations

import csv
import importlib.util
import math
from pathlib import Path
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import open_data, table_options
from blindbayes.cli.screen import Screen, progress_bar
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.release.forecast import EPSILONS, Forecast, Quality, forecast, private_forecast, synthetic_proxy
from blindbayes.dp.release.staged import MOST_READ
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import CodedRows

_OF_LINE = ("epsilon", "mean", "low", "high", "mechanism")


@click.command()
@click.option("--codebook", "codebook_path", required=True, type=click.Path(dir_okay=False), help="The codebook file.")
@click.option("--proxy", type=str, help="A PUBLIC table that resembles the private one, with its class column.")
@click.option("--synthetic", is_flag=True, help="No public table: a made-up one shows how noise scales.")
@click.option("--private", "private_path", type=str, help="The private table itself. This is a release: it costs budget.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger that pays for --private.")
@click.option("--expected-rows", type=int, help="Declared number of rows of the private table.")
@click.option("--epsilon", "epsilons", type=float, multiple=True, help="An epsilon to try; may be repeated.")
@click.option("--delta", type=float, default=0.0, show_default=True, help="Second privacy parameter; 0 for pure privacy.")
@click.option(
    "--rows-per-person",
    type=int,
    help="How many rows of a person count; with --private they are drawn by the codebook's identifier.",
)
@click.option("--repetitions", type=int, default=20, show_default=True, help="Simulated releases per epsilon.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for plan.csv and plan.png.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    codebook_path: str,
    proxy: str | None,
    synthetic: bool,
    private_path: str | None,
    ledger: str | None,
    expected_rows: int | None,
    epsilons: tuple[float, ...],
    delta: float,
    rows_per_person: int | None,
    repetitions: int,
    out: Path | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Forecast accuracy, AUC, balanced accuracy and recall against epsilon on a public or synthetic proxy, beside those without
    privacy; says where a model is no better than the majority class.

    Example:
      blindbayes plan --codebook codebook.toml --proxy public_sample.csv --expected-rows 50000
      blindbayes plan --codebook codebook.toml --synthetic --expected-rows 2000
    """
    if (proxy is not None) + synthetic + (private_path is not None) != 1:
        raise ConfigError("choose one: --proxy with a public table, --synthetic, or --private (which costs budget)")
    codebook = Codebook.from_toml(codebook_path)
    tried = tuple(sorted(set(epsilons))) or EPSILONS
    public: dict[str, Any] = {
        "delta": delta,
        "rows": expected_rows,
        "rows_per_unit": rows_per_person or 1,
        "most_read": MOST_READ,  # as `blindbayes train` reads a table
    }
    cost = None
    if private_path is not None:
        if ledger is None:
            raise PrivacyError("a forecast on the private table is a release: name the ledger that pays for it with --ledger")
        if not epsilons:
            raise ConfigError("on the private table name each --epsilon: their sum is what it costs")
        planned = private_forecast(codebook, epsilons=tried, **public)
        from blindbayes.dp.accounting.ledger import Ledger

        cost = str(planned.price)
        block = _read(private_path, codebook, reading, lenient=True, rows_per_person=rows_per_person)
        Ledger(ledger).charge(planned, purpose="plan on the private table", codebook=codebook.sha256)
        found = planned.run(block, Coins.system())
    elif proxy is not None:
        block = _read(proxy, codebook, reading)
        with progress_bar("plan") as tell:
            public["progress"] = tell
            found = forecast(codebook, block, epsilons=tried, repetitions=repetitions, coins=Coins.system(), **public)
    else:
        coins = Coins.seeded(bytes(32))
        size = expected_rows or 2000
        block = synthetic_proxy(codebook, max(size, 2000), coins)
        public["rows"] = size
        with progress_bar("plan") as tell:
            public |= {"progress": tell, "proxy": "synthetic table"}
            found = forecast(codebook, block, epsilons=tried, repetitions=repetitions, coins=coins, **public)
    files = _write(found, out) if out is not None else []
    if as_json:
        print_json({**_facts(found, codebook), "cost": cost, "files": files})
    else:
        _show(found, codebook, cost, files)


def _read(
    path: str, codebook: Codebook, reading: dict[str, Any], *, lenient: bool = False, rows_per_person: int | None = None
) -> CodedRows:
    from blindbayes.data.contribution_bound import ContributionBound, require_identifier
    from blindbayes.data.table import read_block

    bound = None
    if rows_per_person is not None:
        require_identifier(codebook)
        bound = ContributionBound(rows_per_person, Coins.system().bytes(32))
    with open_data(path, **reading) as source:
        return read_block(source, codebook, lenient=lenient, bound=bound)


def _measures(quality: Quality | None, codebook: Codebook) -> dict[str, Any]:
    """What is not accuracy, by name; nothing on a private table, where only accuracies were paid for."""
    if quality is None:
        return {}
    recall = {label: _known(value) for label, value in zip(codebook.classes, quality.recall, strict=True)}
    return {"auc": _known(quality.auc), "balanced_accuracy": _known(quality.balanced), "recall": recall}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _facts(found: Forecast, codebook: Codebook) -> dict[str, Any]:
    return {
        "proxy": found.proxy,
        "rows": found.rows,
        "not_private": found.not_private,
        "majority": found.majority,
        "not_private_measures": _measures(found.quality, codebook),
        "smallest_epsilon_within_one_point": found.smallest,
        "below_majority": [line.epsilon for line in found.lines if found.is_below_majority(line)],
        "lines": [{name: getattr(line, name) for name in _OF_LINE} | _measures(line.quality, codebook) for line in found.lines],
    }


def _show(found: Forecast, codebook: Codebook, cost: str | None, files: list[str]) -> None:
    table = Table(title=f"Accuracy forecast on a {found.proxy}, planned for {found.rows} rows")
    rare = _rarest(found)
    wide = found.quality is not None
    recall = [f"recall {escape(codebook.classes[rare])}"] if wide else []
    for heading in ("epsilon", "accuracy", "10% to 90%", "", *(["AUC", "balanced", *recall] if wide else ["mechanism"])):
        table.add_column(heading, no_wrap=True)
    for line in found.lines:
        mark = "!" * found.is_below_majority(line) + "*" * found.is_close(line)
        more = [line.mechanism]
        if line.quality is not None:
            more = [f"{value:.3f}" for value in (line.quality.auc, line.quality.balanced, line.quality.recall[rare])]
        table.add_row(f"{line.epsilon:g}", f"{line.mean:.3f}", f"{line.low:.3f} to {line.high:.3f}", mark, *more)
    console = Screen()
    console.print(table)
    if found.not_private is not None:
        console.print(f"not private {found.not_private:.3f}, majority class {found.majority:.3f}")
        console.print(f"mechanism: {', '.join(dict.fromkeys(line.mechanism for line in found.lines))}")
        if any(found.is_below_majority(line) for line in found.lines):
            console.print("! no more often right than always answering the largest class")
        if (plain := found.quality) is not None:
            recalls = ", ".join(f"{label} {value:.3f}" for label, value in zip(codebook.classes, plain.recall, strict=True))
            console.print(
                f"not private: AUC {plain.auc:.3f}, balanced accuracy {plain.balanced:.3f}, recall {recalls}", markup=False
            )
        if found.is_below_majority():
            console.print(
                "without privacy too this model is no more often right than always answering the largest class: judge it by "
                "AUC, balanced accuracy and recall, and weigh the classes (class_weight) if a rare one matters"
            )
        if found.smallest is not None:
            console.print(f"smallest epsilon within one point of not private: {found.smallest:g} (*)")
        else:
            console.print("no epsilon tried comes within one point of not private: more rows or a larger epsilon are needed")
    if found.proxy == "synthetic table":
        console.print("made-up data: this shows how noise scales with rows and epsilon, not what your data will say")
    if cost is not None:
        console.print(f"this forecast was a release of the private table and cost {cost}; bands are of the noise in the counts")
    for name in files:
        console.print(f"written: {name}")


def _rarest(found: Forecast) -> int:
    """The class that is found least often without privacy: the one to look at."""
    recall = () if found.quality is None else found.quality.recall
    return min(range(len(recall)), key=lambda at: math.inf if math.isnan(recall[at]) else recall[at]) if recall else 0


def _write(found: Forecast, out: Path) -> list[str]:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "plan.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        measures = [] if found.quality is None else ["auc", "balanced_accuracy"]
        writer.writerow(["epsilon", "accuracy", "low", "high", "mechanism", "not_private", "majority", *measures])
        for line in found.lines:
            more = [] if line.quality is None else [line.quality.auc, line.quality.balanced]
            known = [line.epsilon, line.mean, line.low, line.high, line.mechanism, found.not_private, found.majority]
            writer.writerow([*known, *more])
    files = [str(path)]
    if importlib.util.find_spec("matplotlib"):
        files.append(str(_plot(found, out / "plan.png")))
    return files


def _plot(found: Forecast, path: Path) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    x = [line.epsilon for line in found.lines]
    axes.fill_between(x, [line.low for line in found.lines], [line.high for line in found.lines], alpha=0.2, label="10% to 90%")
    axes.plot(x, [line.mean for line in found.lines], marker="o", label="private")
    if found.not_private is not None and found.majority is not None:
        axes.axhline(found.not_private, color="0.2", linestyle="--", label="not private")
        axes.axhline(found.majority, color="0.6", linestyle=":", label="majority class")
    if found.smallest is not None:
        axes.axvline(found.smallest, color="tab:green", linewidth=1, label=f"within one point from {found.smallest:g}")
    axes.set_xscale("log")
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.minorticks_off()
    axes.set_xlabel("epsilon")
    axes.set_ylabel("accuracy")
    axes.set_title(f"Forecast on a {found.proxy}, {found.rows} rows")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8, loc="lower right")
    drawing.savefig(path, dpi=140)
    plt.close(drawing)
    return path
