"""A bank and a telecom train on the customers they share; neither learns who they are.

python examples/bank_telecom.py --out joint
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import duckdb
import pyarrow as pa
from rich.table import Table

from blindbayes import NaiveBayes
from blindbayes.cli.commands.demo import bytes_sent, done, fresh_folder, leakage_of
from blindbayes.cli.screen import Screen
from blindbayes.datasets import Synthetic
from blindbayes.datasets import bank_telecom as generate
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Limits
from blindbayes.testing.loopback import Loopback

HOLDER, OTHER = "bank", "telecom"
_QUERIES = 100_000
_MIN_CELL = 10  # as sites ask for by default


@dataclass(frozen=True)
class Story:
    """What happened, for the screen and for machines."""

    data: Synthetic
    lines: list[tuple[str, int, float]]  # who trained, rows counted, accuracy
    agree: float  # share of the new customers whose class is that of a model of the plain join
    leakage: dict[str, dict[str, Any]]  # stage -> party -> what it received and what was opened to it
    sent: dict[str, int]  # stage -> bytes
    everybody: int  # customers of the bank that got a class, over the hidden join
    seconds: float
    folder: Path | None

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {
            "customers": {key: value for key, value in self.data.truth.items() if isinstance(value, int)},
            "accuracy": {name: round(score, 4) for name, _, score in self.lines},
            "classes that are those of the plain join": round(self.agree, 4),
            "leakage": self.leakage,
            "bytes": self.sent,
            "customers scored without saying whom": self.everybody,
            "seconds": self.seconds,
            "release": None if self.folder is None else str(self.folder),
        }


def tell_story(rows: int, scored: int, folder: Path | None, tell: Callable[[str], None]) -> Story:
    """Run it all. `folder` keeps what each company's agent wrote, and its share file."""
    begun = time.perf_counter()
    data, later = generate(rows), generate(6 * scored, seed=77)
    codebook, target = data.codebook, data.codebook.target
    plain, new = joined_in_clear(data.tables), joined_in_clear(later.tables).slice(0, scored)
    truth = new.column(target).to_pylist()
    own = {party: [name for name in codebook.names if name in table.column_names] for party, table in data.tables.items()}
    pooled = NaiveBayes(codebook).fit(plain)
    with tempfile.TemporaryDirectory(prefix="blindbayes-demo-") as scratch:
        sources = {
            party: write_duckdb(Path(scratch) / f"{party}.duckdb", {"customers": table, "asked": new.select(own[party])})
            for party, table in data.tables.items()
        }
        tell("starting the two companies ...")
        with Loopback(Path(scratch) / "sites", {party: f"{url}#customers" for party, url in sources.items()}) as sites:
            study = sites.make_study(
                codebook,
                title="defaults",
                kind="join",
                columns=Holdings({party: tuple(names) for party, names in own.items()}, (HOLDER,)),
                reveal_to=HOLDER,
                limits=Limits(min_cell=_MIN_CELL),
                duplicates="first",
                options={"queries": _QUERIES, "min_overlap": 10, "bounds": dict.fromkeys(own, max(4096, rows + rows // 4))},
            )
            sites.approve(study)
            tell("training on shares ...")
            trained = done(sites.run(study))
            model = Path(trained[HOLDER]["release"]).name
            tell("scoring together ...")
            asked = {party: {"rows": f"{url}#asked"} for party, url in sources.items()}
            classified = done(sites.predict(study, model, "new customers", asked))
            labels = _classes(Path(classified[HOLDER]["release"]) / "classes.csv", target)
            tell("scoring every customer of the bank, without saying whom ...")
            everybody = {party: {"rows": f"{url}#customers", "to": HOLDER} for party, url in sources.items()}
            hidden = done(sites.predict(study, model, "every customer", everybody))
            classes = _classes(Path(hidden[HOLDER]["release"]) / "classes.csv", target)
            files = {party: site.home.folder / "shares" / f"{model}.share" for party, site in sites.sites.items()}
            if folder is not None:
                for party in own:
                    for stage, ended in (("training", trained), ("new-customers", classified), ("every-customer", hidden)):
                        shutil.copytree(ended[party]["release"], folder / party / stage)
                    shutil.copy(files[party], folder / party / f"{party}.share")
        stages = {"training": trained, "new customers": classified, "every customer": hidden}
        leakage = {stage: leakage_of(ended) for stage, ended in stages.items()}
        sent = {stage: bytes_sent(ended) for stage, ended in stages.items()}
    bank_book = codebook.with_features(codebook.feature(name) for name in own[HOLDER])
    bank = data.tables[HOLDER].select([*own[HOLDER], target])
    lines = [
        ("bank alone", bank.num_rows, float(NaiveBayes(bank_book).fit(bank).score(new.select(own[HOLDER]), truth))),
        (
            "both, in shares only",
            plain.num_rows,
            sum(one == true for one, true in zip(labels, truth, strict=True)) / len(truth),
        ),
        ("joined (nobody may)", plain.num_rows, float(pooled.score(new.select(list(codebook.names)), truth))),
    ]
    plain_labels = pooled.predict(new.select(list(codebook.names)))
    agree = sum(one == other for one, other in zip(labels, map(str, plain_labels), strict=True)) / len(labels)
    scored_all = sum(label != "" for label in classes)
    return Story(data, lines, agree, leakage, sent, scored_all, round(time.perf_counter() - begun, 1), folder)


def show_story(story: Story, console: Screen) -> None:
    """On a terminal."""
    truth, rows = story.data.truth, story.data.tables[HOLDER].num_rows
    console.print("\n[bold]A bank knows who defaulted; a telecom knows other things about some of the same people[/]")
    console.print(
        f"Two processes, each with its own DuckDB file, keys and policy. {rows:,} customers each, "
        f"{truth['shared customers']:,} in common; neither learns which, or how many."
    )
    console.print(
        f"{truth['rows of shared customers']:,} of the telecom's rows are theirs (of a customer who stands twice the first "
        "row counts). "
        f"{truth['of them misspelt']} of them have a misspelt address that no normalisation repairs, "
        f"{truth['of them without an address']} have none: these do not join. {story.lines[1][1]:,} customers do.\n"
    )
    table = Table("trained by", "rows counted", "accuracy on new customers")
    for name, count, score in story.lines:
        table.add_row(name, f"{count:,}", f"{score:.1%}")
    console.print(table)
    console.print(
        f"classes that are those of a model of the plain join: [bold]{story.agree:.1%}[/]. Counters below {_MIN_CELL} people "
        "are set to 0 in shares.\n"
    )
    leaks = Table("party", "while", "messages received", "opened to it", title="Who learned what", title_justify="left")
    for stage, parties in story.leakage.items():
        for party, got in parties.items():
            kinds = ", ".join(sorted({trust for trust, _ in got["received"].values()}))
            count = sum(number for _, number in got["received"].values())
            opened = ", ".join(dict.fromkeys(got["opened"])) or "nothing"
            leaks.add_row(party, stage, f"{count}: {kinds}", opened)
    console.print(leaks)
    console.print(
        f"New customers are those whom both companies have, in one order. Every customer: the bank scored all its "
        f"{story.everybody:,} without saying whom; a class that its own columns do not give shows it that the telecom knows "
        "the person."
    )
    sizes = ", ".join(f"{stage} {size / 1e6:.1f} MB" for stage, size in story.sent.items())
    console.print(f"{sizes}; {story.seconds} s in all, start of the processes included", highlight=False)
    if story.folder is not None:
        for line in (
            "what each company wrote, and its share of the model:",
            f"  {story.folder / HOLDER / 'training' / 'leakage.html'}  (open it in a browser)",
            f"  {story.folder / HOLDER / f'{HOLDER}.share'}, {story.folder / OTHER / f'{OTHER}.share'}",
            f"  blindbayes report {story.folder / HOLDER / 'training'} {story.folder / OTHER / 'training'}",
        ):
            console.print(line, highlight=False, soft_wrap=True)


def write_duckdb(path: Path, tables: Mapping[str, pa.Table]) -> str:
    """Write a new DuckDB file with these tables and return its URL."""
    with duckdb.connect(str(path)) as connection:
        for name, table in tables.items():
            connection.register("given", table)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            connection.unregister("given")
    return f"duckdb:///{path}"


def joined_in_clear(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the plain join on the normalised address, of first rows only, which no party may compute: for comparison."""
    first, second = tables[HOLDER], tables[OTHER]
    row_of: dict[str, int] = {}
    for at, text in enumerate(second.column("email").to_pylist()):
        if text is not None:
            row_of.setdefault(text.strip().lower(), at)
    emails = first.column("email").to_pylist()
    keys = [(at, text.strip().lower()) for at, text in enumerate(emails) if text is not None]
    pairs = [(at, row_of[key]) for at, key in keys if key in row_of]
    left = first.drop_columns(["email"]).take([at for at, _ in pairs])
    right = second.drop_columns(["email"]).take([other for _, other in pairs])
    return pa.table({name: table.column(name) for table in (left, right) for name in table.column_names})


def _classes(path: Path, target: str) -> list[str]:
    from pyarrow import csv

    texts = csv.ConvertOptions(column_types={target: pa.string()}, strings_can_be_null=False)
    found: list[str] = csv.read_csv(path, convert_options=texts).column(target).to_pylist()
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(file_okay=False), help="Write each company's releases and share file here.")
@click.option("--rows", type=click.IntRange(1000, 200_000), default=4000, show_default=True, help="Customers of each.")
@click.option("--scored", type=click.IntRange(10, 5000), default=1500, show_default=True, help="New customers to score.")
def bank_telecom(as_json: bool, out: str | None, rows: int, scored: int) -> None:
    """Train a model of a bank and a telecom on the customers they share; neither learns who they are.

    The customer lists do not line up: addresses in different spellings, some misspelt beyond repair, some twice, some absent,
    18% in common. Each company is a process of its own with its own DuckDB file, keys and policy; they talk over mutual TLS
    on loopback. The model exists in two shares; a score opens the class, to the bank, and nothing else.

    Example:
      python examples/bank_telecom.py --out joint
    """
    folder = fresh_folder(out)
    with Screen(stderr=True, quiet=as_json).status("starting two companies ...") as status:
        story = tell_story(rows, scored, folder, status.update)
    if as_json:
        click.echo(json.dumps(story.facts(), indent=2))
        return
    show_story(story, Screen())


if __name__ == "__main__":
    bank_telecom()
