"""`blindbayes bench`: what each protocol costs on this machine, for your codebook and your number of parties."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import msgspec
import numpy as np
import pyarrow as pa
from rich.box import SIMPLE
from rich.table import Table

from blindbayes import kernels
from blindbayes.cli import print_json
from blindbayes.cli.progress import counting
from blindbayes.cli.screen import Screen
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.forecast import synthetic_proxy
from blindbayes.protocol import registry
from blindbayes.statistics import CodedRows, Layout, count_block
from blindbayes.study import schemes
from blindbayes.wire.transcript import Cost, Keep

COLUMNS = schemes.known("columns", shares=True, between_sites=True)
_KEY = "blindbayes_bench_id"


@click.command()
@click.option("--codebook", "path", type=click.Path(exists=True, dir_okay=False), help="A codebook; by default the demo's.")
@click.option("--parties", default=3, show_default=True, type=click.IntRange(3, 1000), help="Sites of the rows protocols.")
@click.option("--rows", default=10_000, show_default=True, type=click.IntRange(100, 10_000_000), help="Rows per site.")
@click.option("--instances", default=1000, show_default=True, type=click.IntRange(1, 1_000_000), help="To classify jointly.")
@click.option(
    "--protocol",
    "chosen",
    multiple=True,
    type=click.Choice([*registry.known(), *COLUMNS]),
    help="Only this protocol; may be repeated. `reference` is the baseline that protects nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    path: str | None,
    parties: int,
    rows: int,
    instances: int,
    chosen: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure every protocol with all parties in this process, on made-up rows of your codebook: CPU, rounds, bytes.

    Networks add their round trips: rounds times latency, bytes over bandwidth. Key sizes are the real ones.

    Example:
      blindbayes bench
      blindbayes bench --codebook codebook.toml --parties 10 --protocol reference --protocol masked_sum
    """
    from blindbayes.datasets import hospitals

    codebook = (
        msgspec.structs.replace(hospitals(rows=100).codebook, variance_floor=0.01) if path is None else Codebook.from_toml(path)
    )
    names = chosen or (*registry.known(), *COLUMNS)
    lines: list[dict[str, Any]] = []
    with counting("measuring") as tell:
        for at, name in enumerate(names):
            tell(at, len(names), name)
            lines += _measured(name, codebook, parties, rows, instances)
    base = next((line["cpu_seconds"] for line in lines if not schemes.scheme(line["protocol"]).facts.allowed), None)
    for line in lines:
        if base and line["protocol"] in registry.known() and "cpu_seconds" in line:
            line["times_reference"] = round(line["cpu_seconds"] / base, 1)
    if as_json:
        about = {"codebook": codebook.sha256, "kernels": kernels.describe(), "rows": rows}
        print_json({**about, "measured": lines})
    else:
        _show(lines, rows)


def _measured(name: str, codebook: Codebook, parties: int, rows: int, instances: int) -> list[dict[str, Any]]:
    try:
        if name in registry.known():
            return [_rows(name, codebook, parties, rows)]
        return _columns(name, codebook, rows, instances)
    except BlindbayesError as error:  # such as a codebook that fits no study over columns: the others are measured still
        return [{"protocol": name, "why": str(error)}]


def _rows(name: str, codebook: Codebook, parties: int, rows: int) -> dict[str, Any]:
    from blindbayes.study import Study

    layout, coins = Layout(codebook), Coins.seeded(bytes(32))
    sources = {f"site-{at}": count_block(layout, synthetic_proxy(codebook, rows, coins)) for at in range(parties)}
    study = Study(codebook, protocol=name)
    return _line(name, "the sum", parties, lambda: study.simulate(sources, keep=Keep.COUNTS).cost)


def _columns(name: str, codebook: Codebook, rows: int, instances: int) -> list[dict[str, Any]]:
    """Two parties: the first has the class and half of the features, the second the rest."""
    from blindbayes.study import Study

    if len(codebook.features) < 2:
        raise ConfigError("a study over columns needs two features or more")
    if codebook.variance_floor is None and any(not feature.counted for feature in codebook.features):
        raise ConfigError("a study over columns with numbers needs a codebook with variance_floor")
    aligned = schemes.scheme(name).facts.aligned
    if not aligned:
        codebook = msgspec.structs.replace(codebook, identifier=IdRecipe((IdPart(_KEY, "exact"),)))
    half = len(codebook.features) // 2
    held = {"first": codebook.names[:half], "second": codebook.names[half:]}
    table = _table(codebook, synthetic_proxy(codebook, max(rows, instances), Coins.seeded(bytes(32))))
    key = () if aligned else (_KEY,)
    frames = {
        "first": table.select([*held["first"], codebook.target, *key]).slice(0, rows),
        "second": table.select([*held["second"], *key]).slice(0, rows),
    }
    options = {} if aligned else {"multiplicity": 1}
    study = Study(codebook, partition="columns", aligned=aligned, options=options, duplicates="join" if aligned else "reject")
    kept: list[Any] = []

    def train() -> Cost:
        kept.append(study.simulate(frames))
        cost: Cost = kept[0].cost
        return cost

    lines = [_line(name, "training", 2, train)]
    queries = {party: table.select(list(names)).slice(0, instances) for party, names in held.items()}

    def classify() -> Cost:
        cost: Cost = kept[0].model.classify(queries).cost
        return cost

    lines.append(_line(name, f"{instances:,} classes", 2, classify))
    return lines


def _line(name: str, what: str, parties: int, run: Callable[[], Cost]) -> dict[str, Any]:
    begun, cpu = time.perf_counter(), time.process_time()
    cost = run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - begun
    return {
        "protocol": name,
        "what": what,
        "parties": parties,
        "cpu_seconds": round(cpu, 4),
        "wall_seconds": round(wall, 4),
        "slowest_party_seconds": round(max(party.seconds for party in cost.parties.values()), 4),
        "rounds": cost.rounds,
        "messages": cost.messages,
        "bytes": cost.bytes,
    }


def _table(codebook: Codebook, block: CodedRows) -> pa.Table:
    """The rows of a block as values, as a party would have them in its table."""
    columns: dict[str, Any] = {}
    for feature in codebook.features:
        codes = block.columns[feature.name]
        if isinstance(feature, Categorical):
            columns[feature.name] = pa.array(np.array(feature.values, dtype=object)[codes])
        elif isinstance(feature, Numeric):
            codes = codes if feature.bins is None else np.array(feature.starts)[codes]
            columns[feature.name] = pa.array((codes + feature.centre) / feature.scale)
    if block.labels is not None:
        columns[codebook.target] = pa.array(np.array(codebook.classes, dtype=object)[block.labels])
    columns[_KEY] = pa.array(range(block.rows)).cast(pa.string())
    return pa.table(columns)


def _show(lines: list[dict[str, Any]], rows: int) -> None:
    console = Screen()
    table = Table(title=f"Made-up rows, {rows:,} per site, all parties here", box=SIMPLE)
    table.add_column("protocol", no_wrap=True)
    table.add_column("computes", no_wrap=True)
    for name in ("CPU s", "slowest", "x plain", "rounds", "KB"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        if "why" not in line:
            table.add_row(
                line["protocol"],
                line["what"],
                f"{line['cpu_seconds']:.3f}",
                f"{line['slowest_party_seconds']:.3f}",
                f"{line['times_reference']:,}" if "times_reference" in line else "",
                f"{line['rounds']:,}",
                f"{line['bytes'] / 1000:,.1f}",
            )
    console.print(table)
    console.print(kernels.describe(), markup=False)
    for line in lines:
        if "why" in line:
            console.print(f"{line['protocol']} was not measured: {line['why']}", markup=False)
