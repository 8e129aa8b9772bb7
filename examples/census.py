"""A statistics office: accuracy against epsilon, one private release, the ledger before and after.

python examples/census.py --out census
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click
import numpy as np
from rich.table import Table

from blindbayes import Ledger, NaiveBayes, PrivateNaiveBayes
from blindbayes.cli.commands.demo import fresh_folder
from blindbayes.cli.screen import Screen
from blindbayes.datasets import census as generate
from blindbayes.report.cover_sheet import Cover


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(file_okay=False), help="Write the release and the ledger here.")
@click.option("--rows", type=click.IntRange(500, 5_000_000), default=50_000, show_default=True, help="People in the census.")
def census(as_json: bool, out: str | None, rows: int) -> None:
    """One statistics office: accuracy against epsilon, one private release, the ledger before and after.

    Example:
      python examples/census.py --out census
    """
    data, later = generate(rows), generate(20_000, seed=41)
    table, test = data.tables["office"], later.tables["office"]
    truth = test.column(data.codebook.target).to_pylist()
    queries = test.drop_columns([data.codebook.target])
    lines: list[tuple[str, float]] = [("not private", float(NaiveBayes(data.codebook).fit(table).score(queries, truth)))]
    # The proxy for planning is a synthetic census of another seed: looking at it costs nothing.
    proxy = generate(rows, seed=7).tables["office"]
    for epsilon in (0.01, 0.1, 1.0):
        model = PrivateNaiveBayes(data.codebook, epsilon=epsilon).fit(proxy)
        lines.append((f"epsilon = {epsilon:g}, on the proxy", float(model.score(queries, truth))))
    folder = fresh_folder(out)
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch) if folder is None else folder
        where.mkdir(parents=True, exist_ok=True)
        path = where / "ledger.jsonl"
        Ledger.create(path, epsilon=1.0, delta=0.0)
        before = Ledger(path).balance().left
        release = PrivateNaiveBayes(data.codebook, epsilon=0.1, ledger=path).fit(table)
        after = Ledger(path).balance().left
        # Another census is public here: its score is no release of private rows, which `score` under a ledger would charge.
        right = np.asarray(release.predict(queries)) == np.asarray(truth)
        lines.append(("epsilon = 0.1, the release", float(right.mean())))
        if folder is not None:
            release.release(where / "release", cover=Cover(title="Census: a private model", owner="A statistics office"))
    facts = {
        "accuracy": {name: round(score, 4) for name, score in lines},
        "epsilon left": {"before": before, "after": after},
        "privacy": {name: value for name, value in release.privacy_.items() if name != "released"},
        "release": None if folder is None else str(folder),
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2, default=str))
        return
    console = Screen()
    console.print(f"\n[bold]A census of {rows:,} people, one private release[/]\n")
    shown = Table("model", "accuracy on another census")
    for name, score in lines:
        shown.add_row(name, f"{score:.1%}")
    console.print(shown)
    console.print(f"epsilon left in the ledger: {before:g} before, {after:g} after", highlight=False)
    if folder is not None:
        page = folder / "release" / "explain.html"
        console.print(f"release folder: {folder / 'release'}  (open {page} in a browser)", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    census()
