"""`blindbayes demo`: see it work, on synthetic data with a known truth. Nothing is downloaded."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from blindbayes.errors import ConfigError


@click.group()
def command() -> None:
    """See it work: three hospitals, or a census office.

    \b
    Example:
      blindbayes demo hospitals --out demo
    """


def _fresh(out: str | None) -> Path | None:
    if out is None:
        return None
    folder = Path(out)
    if folder.exists() and any(folder.iterdir()):
        for number in range(2, 1000):
            candidate = folder.with_name(f"{folder.name}-{number}")
            if not candidate.exists():
                return candidate
        raise ConfigError(f"{out!r} and its successors exist; choose another folder")
    return folder


@command.command("hospitals")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(file_okay=False), help="Write the release folder here (a new name is found if taken).")
@click.option("--rows", type=click.IntRange(300, 5_000_000), default=6000, show_default=True, help="Patients in all.")
def hospitals(as_json: bool, out: str | None, rows: int) -> None:
    """Three hospitals train one model of readmission; no row leaves its hospital.

    \b
    Example:
      blindbayes demo hospitals --out demo
    """
    from blindbayes import NaiveBayes, Study
    from blindbayes.datasets import hospitals as generate

    begun = time.perf_counter()
    data, later = generate(rows), generate(9000, seed=77)
    test = pa.concat_tables(later.tables.values())
    truth = test.column(data.codebook.target).to_pylist()

    def accuracy(model: Any) -> float:
        return float(model.score(test.drop_columns([data.codebook.target]), truth))

    lines: list[tuple[str, int, float]] = []
    for site, table in data.tables.items():
        lines.append((f"{site} alone", table.num_rows, accuracy(NaiveBayes(data.codebook).fit(table))))
    joint = Study(data.codebook, partition="rows", protocol="masked_sum").simulate(data.tables)
    pooled = NaiveBayes(data.codebook).fit(pa.concat_tables(data.tables.values()))
    private = Study(data.codebook, partition="rows", protocol="masked_sum", epsilon=1.0).simulate(data.tables)
    total = sum(table.num_rows for table in data.tables.values())
    lines.append(("joint, masked sum", total, accuracy(joint.model)))
    lines.append(("pooled (nobody may)", total, accuracy(pooled)))
    lines.append(("joint, epsilon = 1", total, accuracy(private.model)))
    equal = joint.statistics == pooled.statistics_
    folder = _fresh(out)
    if folder is not None:
        joint.save(folder)
    facts = {
        "accuracy": {name: round(score, 4) for name, _, score in lines},
        "joint equals pooled": equal,
        "leakage": {
            party: {"opened": list(leak.opened), "received": {kind: list(value) for kind, value in leak.received.items()}}
            for party, leak in joint.leakage.items()
        },
        "messages": joint.cost.messages,
        "bytes": joint.cost.bytes,
        "seconds": round(time.perf_counter() - begun, 2),
        "release": None if folder is None else str(folder),
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    console = Console()
    console.print("\n[bold]Three hospitals, one model of readmission within 30 days[/]")
    console.print("Each keeps its own patients; they differ in size, in readmissions and in missing laboratory values.\n")
    table = Table("trained by", "rows", "accuracy on new patients")
    for name, count, score in lines:
        table.add_row(name, f"{count:,}", f"{score:.1%}")
    console.print(table)
    console.print(f"joint statistics equal pooled ones, cell by cell: [bold]{'yes' if equal else 'NO'}[/]\n")
    leak = Table("party", "received", "opened", title="Who learned what", title_justify="left")
    for party, got in joint.leakage.items():
        kinds = sorted({trust for trust, _ in got.received.values()})
        count = sum(number for _, number in got.received.values())
        leak.add_row(party, f"{count} messages: {', '.join(kinds)}", ", ".join(got.opened) or "nothing")
    console.print(leak)
    console.print(f"{joint.cost.messages} messages, {joint.cost.bytes:,} bytes, {facts['seconds']} s in all", highlight=False)
    if folder is not None:
        console.print(f"release folder: {folder}", highlight=False)


@command.command("census")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(file_okay=False), help="Write the model, the statement and the ledger here.")
@click.option("--rows", type=click.IntRange(500, 5_000_000), default=50_000, show_default=True, help="People in the census.")
def census(as_json: bool, out: str | None, rows: int) -> None:
    """One statistics office: accuracy against epsilon, one private release, the ledger before and after.

    \b
    Example:
      blindbayes demo census --out census
    """
    import tempfile

    from blindbayes import NaiveBayes
    from blindbayes.datasets import census as generate
    from blindbayes.ledger import Ledger

    data, later = generate(rows), generate(20_000, seed=41)
    table, test = data.tables["office"], later.tables["office"]
    truth = test.column(data.codebook.target).to_pylist()
    queries = test.drop_columns([data.codebook.target])
    lines: list[tuple[str, float]] = [("not private", float(NaiveBayes(data.codebook).fit(table).score(queries, truth)))]
    # The proxy for planning is a synthetic census of another seed: looking at it costs nothing.
    proxy = generate(rows, seed=7).tables["office"]
    for epsilon in (0.01, 0.1, 1.0):
        model = NaiveBayes(data.codebook, epsilon=epsilon).fit(proxy)
        lines.append((f"epsilon = {epsilon:g}, on the proxy", float(model.score(queries, truth))))
    folder = _fresh(out)
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch) if folder is None else folder
        where.mkdir(parents=True, exist_ok=True)
        path = where / "ledger.jsonl"
        Ledger.create(path, epsilon=1.0, delta=0.0)
        before = Ledger(path).balance().left
        release = NaiveBayes(data.codebook, epsilon=0.1, ledger=path).fit(table)
        after = Ledger(path).balance().left
        lines.append(("epsilon = 0.1, the release", float(release.score(queries, truth))))
        if folder is not None:
            release.save(where / "model.json")
            (where / "statement.md").write_text(release.statement_.text, encoding="utf-8")
    facts = {
        "accuracy": {name: round(score, 4) for name, score in lines},
        "epsilon left": {"before": before, "after": after},
        "privacy": release.privacy_,
        "release": None if folder is None else str(folder),
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2, default=str))
        return
    console = Console()
    console.print(f"\n[bold]A census of {rows:,} people, one private release[/]\n")
    shown = Table("model", "accuracy on another census")
    for name, score in lines:
        shown.add_row(name, f"{score:.1%}")
    console.print(shown)
    console.print(f"epsilon left in the ledger: {before:g} before, {after:g} after", highlight=False)
    if folder is not None:
        console.print(f"release folder: {folder}", highlight=False)
