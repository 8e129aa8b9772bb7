"""`blindbayes demo`: three hospitals train one model, on synthetic data with a known truth. Nothing is downloaded."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup
from rich.table import Table

from blindbayes.cli.options import JSON
from blindbayes.cli.screen import Screen
from blindbayes.data.encode import encode
from blindbayes.errors import ConfigError, PeerLost
from blindbayes.io.untrusted import read_json_table
from blindbayes.report.plots import evaluation_plot
from blindbayes.report.theme import render
from blindbayes.statistics.evaluation import Evaluation, evaluate_rows

if TYPE_CHECKING:
    from blindbayes.datasets import Synthetic
    from blindbayes.study.file import StudyFile
    from blindbayes.testing.loopback import Loopback

Outcomes = Mapping[str, Mapping[str, Any]]  # site -> how a run ended there


@dataclass(frozen=True)
class Story:
    """The texts of a demo, and the epsilon of its private variant."""

    who: str
    title: str
    measure: str
    differ: str
    epsilon: float


@click.command()
@JSON
@click.option("--out", type=click.Path(file_okay=False), help="Folder for the hospitals' releases (numbered if in use).")
@click.option("--rows", type=click.IntRange(300, 5_000_000), default=1500, show_default=True, help="Total number of patients.")
def command(as_json: bool, out: str | None, rows: int) -> None:
    """Three hospitals train one model of readmission; no row leaves its hospital.

    Each hospital is a process of its own with its own table, keys and policy; they talk over mutual TLS on loopback.

    Example:
      blindbayes demo --out demo
    """
    from blindbayes.datasets import hospitals

    title, measure = "one model of readmission within 30 days", "accuracy on new patients"
    differ = "Each treats other patients and hardly sees some diagnoses, so each alone learns little about those"
    story = Story("hospitals", title, measure, differ, 1.0)
    train_together(hospitals(rows), hospitals(9000, seed=77), story, as_json, fresh_folder(out))


def fresh_folder(out: str | None) -> Path | None:
    """Return the folder to write to: `out`, or a numbered sibling if it is in use."""
    if out is None:
        return None
    folder = Path(out)
    candidates = [folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)]
    if not folder.exists() or not any(folder.iterdir()):
        return folder
    if (free := next((each for each in candidates if not each.exists()), None)) is None:
        raise ConfigError(f"{out!r} and its successors exist; choose another folder")
    return free


def train_together(data: Synthetic, later: Synthetic, story: Story, as_json: bool, folder: Path | None) -> None:
    """Train at three sites together, at each alone and on pooled rows; print or write the comparison."""
    from blindbayes import Estimation, NaiveBayes

    begun = time.perf_counter()
    test = pa.concat_tables(later.tables.values()).combine_chunks()
    columns = {name: test.column(name).combine_chunks() for name in test.column_names}

    def evaluation(model: Any) -> Evaluation:
        own = model.parameters_.codebook  # a private model may have its own cells
        rows = encode(columns, own, training=True, labels=columns[own.target])
        return evaluate_rows(model.parameters_, [rows], Estimation().score_bins)

    pooled = NaiveBayes(data.codebook).fit(pa.concat_tables(data.tables.values()))
    progress: Callable[[str], None] = (lambda _: None) if as_json else Screen(stderr=True).line
    progress(f"Starting three {story.who}: one process each, with keys that the others have pinned ...")
    joint, private = _run_sites(data, folder, story.epsilon, progress)
    progress(f"Comparing the models on {test.num_rows:,} new rows ...")
    total = sum(table.num_rows for table in data.tables.values())
    alone = {site: evaluation(NaiveBayes(data.codebook).fit(table)).accuracy for site, table in data.tables.items()}
    good = evaluation(joint.model)
    lines = [
        *((f"{site} alone", table.num_rows, alone[site]) for site, table in data.tables.items()),
        ("joint, masked sum", total, good.accuracy),
        ("pooled (not allowed)", total, evaluation(pooled).accuracy),
        (f"joint, epsilon = {story.epsilon:g}", total, evaluation(private.model).accuracy),
    ]
    winner, smallest = min(alone, key=lambda site: alone[site]), min(data.tables, key=lambda site: data.tables[site].num_rows)
    note = ", the smallest," if winner == smallest else ""
    facts = {
        "gain": f"{winner}{note} gains most: {100 * (good.accuracy - alone[winner]):+.1f} points.",
        "accuracy": {name: round(score, 4) for name, _, score in lines},
        "joint equals pooled": joint.model.statistics_ == pooled.statistics_,
        "cells": pooled.statistics_.words.size,
        "evaluation": good.figures,
        "leakage": joint.leakage,
        "bytes": joint.bytes,
        "protocol seconds": joint.seconds,
        "seconds": round(time.perf_counter() - begun, 1),
        "release": None if folder is None else str(folder),
        "signed by": list(joint.signed),
    }
    if folder is not None:
        _write_index(folder, story, facts, lines, good)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _show(story, lines, facts, list(data.tables))


def _wire(leakage: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return for every role what it received and what it could open."""
    rows = []
    for party, view in leakage.items():
        kinds = ", ".join(sorted({trust for trust, _ in view["received"].values()}))
        count = sum(number for _, number in view["received"].values())
        rows.append((party, f"{count} messages: {kinds}", ", ".join(view["opened"]) or "nothing"))
    return rows


def _program() -> str:
    """Return the command as the reader can paste it: with its path, unless it is on the path of commands."""
    return "blindbayes" if shutil.which("blindbayes") or Path(sys.argv[0]).name != "blindbayes" else sys.argv[0]


def _verify_command(folder: Path, sites: Sequence[str]) -> str:
    cards = " ".join(f"--card {folder / 'cards' / f'{site}.toml'}" for site in sites)
    return f"{_program()} report verify {folder / 'exact' / 'release'} {cards}"


def _write_index(
    folder: Path, story: Story, facts: Mapping[str, Any], lines: list[tuple[str, int, float]], good: Evaluation
) -> None:
    """Write the page that opens the story, above the folders of the releases."""
    sites = [name.removesuffix(" alone") for name, _, _ in lines if name.endswith(" alone")]
    gains = [{"site": site, "rows": rows, "alone": score} for site, (_, rows, score) in zip(sites, lines, strict=False)]
    largest = int(good.base_rate.argmax())
    page = render(
        "demo.html",
        title=f"Three {story.who}, {story.title}",
        story=story,
        gain=facts["gain"],
        gains=sorted(gains, key=lambda each: each["rows"]),
        joint=good.accuracy,
        private=lines[-1][2],
        equal=facts["joint equals pooled"],
        cells=f"{facts['cells']:,}",
        wire=_wire(facts["leakage"]),
        bytes=facts["bytes"],
        evaluation=good,
        usual=good.classes[largest],
        base=float(good.base_rate[largest]),
        plot=Markup(evaluation_plot(good)),  # noqa: S704 - it escapes every text
        sites=sites,
        first=sites[0],
        verify=_verify_command(folder, sites),
        program=_program(),
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


def _show(story: Story, lines: list[tuple[str, int, float]], facts: Mapping[str, Any], sites: list[str]) -> None:
    screen = Screen()
    screen.print(f"\n[bold]Three {story.who}, {story.title}[/]", highlight=False)
    screen.line(f"{story.differ}.\n")
    table = Table("trained by", "rows", story.measure)
    for name, count, score in lines:
        table.add_row(name, f"{count:,}", f"{score:.1%}")
    screen.print(table)
    screen.line(facts["gain"])
    screen.line(f"Joint statistics equal pooled ones, cell by cell: {'yes' if facts['joint equals pooled'] else 'NO'}\n")
    leakage = Table("role", "received", "opened", title="Who learned what", title_justify="left")
    for row in _wire(facts["leakage"]):
        leakage.add_row(*row)
    screen.print(leakage)
    screen.line(f"{facts['bytes']:,} bytes sent; {facts['seconds']} s in total, including the start of the processes")
    screen.line(f"The release folder is signed by {', '.join(facts['signed by'])}, after each compared it with its own.")
    if facts["release"] is not None:
        folder = Path(facts["release"])
        screen.line(f"\nOpen the story in a browser: {folder / 'index.html'}")
        screen.line(f"Check the signatures yourself: {_verify_command(folder, sites)}")
    screen.line("\nNext, with your own CSV, whose column `outcome` is to be predicted:")
    screen.line(f"  {_program()} codebook draft your.csv --target outcome --out codebook.toml")


@dataclass(frozen=True)
class _Joint:
    model: Any
    leakage: dict[str, Any]
    bytes: int
    seconds: float
    signed: tuple[str, ...]


def _run_sites(data: Synthetic, folder: Path | None, epsilon: float, progress: Callable[[str], None]) -> tuple[_Joint, _Joint]:
    """Run the exact study and the private one between real processes; the sites' releases are copied to `folder`."""
    from blindbayes import load
    from blindbayes.study.file import Privacy
    from blindbayes.testing.loopback import Loopback

    with tempfile.TemporaryDirectory(prefix="blindbayes-demo-") as scratch:
        target = Path(scratch) / "releases" if folder is None else folder
        (target / "cards").mkdir(parents=True)
        sources: dict[str, str | None] = {site: str(Path(scratch) / f"{site}.parquet") for site in data.tables}
        for site, table in data.tables.items():
            pq.write_table(table, sources[site])
        with Loopback(Path(scratch) / "sites", sources) as sites:
            for each in sites.sites.values():
                (target / "cards" / f"{each.name}.toml").write_text(each.identity.card.to_toml(), encoding="utf-8")
            results = []
            for name, title, privacy in (
                ("exact", "exact sum", Privacy()),
                ("private", f"epsilon = {epsilon:g}", Privacy(epsilon=epsilon)),
            ):
                progress(f"Training together: {title} ...")
                study = sites.make_study(data.codebook, title=title, protocol="masked_sum", privacy=privacy)
                sites.approve(study)
                ended = done(sites.run(study))
                for site, outcome in ended.items():
                    shutil.copytree(outcome["release"], target / name / site)
                signed = _sign_by_all(ended, sites, study, target / name / "release")
                model = load(target / name / "release" / "model.json")
                seconds = max(outcome["protocol_seconds"] for outcome in ended.values())
                results.append(_Joint(model, leakage_of(ended), bytes_sent(ended), seconds, signed))
        return results[0], results[1]


def _sign_by_all(ended: Outcomes, sites: Loopback, study: StudyFile, folder: Path) -> tuple[str, ...]:
    """Copy the first site's release; let each site compare it with its own and sign it; return the signers."""
    from blindbayes.io.files import read_folder
    from blindbayes.report.checksums import verify_files
    from blindbayes.report.manifest import COMMON_SIGNATURES, add_signature, read_manifest, verified_signatures

    shutil.copytree(next(iter(ended.values()))["release"], folder)
    for name, outcome in ended.items():
        key = sites.sites[name].identity.signing
        signatures = add_signature(read_folder(folder), read_folder(outcome["release"]), name, key)
        (folder / COMMON_SIGNATURES).write_bytes(signatures)
    files = read_folder(folder)
    verify_files(files)
    return verified_signatures(files, read_manifest(files), study.identities)


def done(ended: Outcomes) -> Outcomes:
    """Return the outcomes of a run. Raises unless it succeeded at every site."""
    for name, outcome in ended.items():
        if outcome.get("state") != "done":
            raise PeerLost(f"the run ended with {outcome.get('text') or outcome.get('message')}", party=name)
    return ended


def leakage_of(ended: Outcomes) -> dict[str, Any]:
    """Merge the leak reports of the sites: what every party received, and what was opened to it."""
    parties: dict[str, Any] = {}
    for outcome in ended.values():
        parties |= read_json_table((Path(outcome["release"]) / "leakage.json").read_bytes(), "leakage.json")["parties"]
    return parties


def bytes_sent(ended: Outcomes) -> int:
    return sum(role["bytes_out"] for outcome in ended.values() for role in outcome["roles"].values())
