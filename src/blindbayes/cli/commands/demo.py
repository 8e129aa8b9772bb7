"""`blindbayes demo`: three hospitals train one model, on synthetic data with a known truth. Nothing is downloaded."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from blindbayes.cli.screen import Screen
from blindbayes.errors import ConfigError, PeerLost
from blindbayes.io.untrusted import read_json_table

if TYPE_CHECKING:
    from blindbayes.study.file import StudyFile
    from blindbayes.testing.loopback import Loopback


def fresh_folder(out: str | None) -> Path | None:
    """Return the folder to write to: `out`, or a numbered sibling if it is in use."""
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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(file_okay=False), help="Write the hospitals' releases here (a new name if taken).")
@click.option("--rows", type=click.IntRange(300, 5_000_000), default=1500, show_default=True, help="Patients in all.")
def command(as_json: bool, out: str | None, rows: int) -> None:
    """Three hospitals train one model of readmission; no row leaves its hospital.

    Each hospital is a process of its own with its own table, keys and policy; they talk over mutual TLS on loopback.

    Example:
      blindbayes demo --out demo
    """
    from blindbayes.datasets import hospitals as generate

    train_together(
        generate(rows),
        generate(9000, seed=77),
        Story(
            "hospitals",
            "one model of readmission within 30 days",
            "accuracy on new patients",
            "They differ in size and in their patients",
            1.0,
        ),
        as_json,
        fresh_folder(out),
    )


@dataclass(frozen=True)
class Story:
    """The words of a demo, and the epsilon of its private variant."""

    who: str
    title: str
    measure: str
    differ: str
    epsilon: float


def train_together(data: Any, later: Any, story: Story, as_json: bool, folder: Path | None) -> None:
    """Train at three sites together, at each alone and on pooled rows; print or write the comparison."""
    from blindbayes import NaiveBayes

    begun = time.perf_counter()
    console = Screen(stderr=True, quiet=as_json)
    test = pa.concat_tables(later.tables.values())
    truth = test.column(data.codebook.target).to_pylist()

    def accuracy(model: Any) -> float:
        return float(model.score(test.drop_columns([data.codebook.target]), truth))

    lines: list[tuple[str, int, float]] = []
    for site, table in data.tables.items():
        lines.append((f"{site} alone", table.num_rows, accuracy(NaiveBayes(data.codebook).fit(table))))
    pooled = NaiveBayes(data.codebook).fit(pa.concat_tables(data.tables.values()))
    with console.status(f"starting three {story.who} ...") as status:
        joint, private = _run_sites(data, folder, story.epsilon, lambda text: status.update(text))
    total = sum(table.num_rows for table in data.tables.values())
    lines.append(("joint, masked sum", total, accuracy(joint.model)))
    lines.append(("pooled (nobody may)", total, accuracy(pooled)))
    lines.append((f"joint, epsilon = {story.epsilon:g}", total, accuracy(private.model)))
    equal = joint.model.statistics_ == pooled.statistics_
    facts = {
        "accuracy": {name: round(score, 4) for name, _, score in lines},
        "joint equals pooled": equal,
        "leakage": joint.leakage,
        "bytes": joint.bytes,
        "protocol seconds": joint.seconds,
        "seconds": round(time.perf_counter() - begun, 1),
        "release": None if folder is None else str(folder),
        "signed by": list(joint.signed),
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    console = Screen()
    console.print(f"\n[bold]Three {story.who}, {story.title}[/]", highlight=False)
    console.print(f"Three processes, each with its own table, keys and policy. {story.differ}.\n")
    table = Table("trained by", "rows", story.measure)
    for name, count, score in lines:
        table.add_row(name, f"{count:,}", f"{score:.1%}")
    console.print(table)
    console.print(f"joint statistics equal pooled ones, cell by cell: [bold]{'yes' if equal else 'NO'}[/]\n")
    leak = Table("seat", "received", "opened", title="Who learned what", title_justify="left")
    for party, got in joint.leakage.items():
        kinds = sorted({trust for trust, _ in got["received"].values()})
        count = sum(number for _, number in got["received"].values())
        leak.add_row(party, f"{count} messages: {', '.join(kinds)}", ", ".join(got["opened"]) or "nothing")
    console.print(leak)
    console.print(f"{joint.bytes:,} bytes sent; {facts['seconds']} s in all, start of the processes included", highlight=False)
    console.print(f"the release folder, signed by {', '.join(joint.signed)} after each compared it with its own: verified")
    if folder is not None:
        first = next(iter(data.tables))
        sites = " ".join(str(folder / "exact" / site) for site in data.tables)
        cards = " ".join(f"--card {folder / 'cards' / f'{site}.toml'}" for site in data.tables)
        for line in (
            f"  blindbayes report verify {folder / 'exact' / 'release'} {cards}",
            f"  {folder / 'exact' / 'release' / 'explain.html'}  (open it in a browser)",
            "what each of them wrote itself, who learned what included:",
            f"  blindbayes report {sites}",
            f"  {folder / 'exact' / first / 'leakage.html'}  (open it in a browser)",
        ):
            console.print(line, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class _Joint:
    model: Any
    leakage: dict[str, Any]
    bytes: int
    seconds: float
    signed: tuple[str, ...]


def _run_sites(data: Any, folder: Path | None, epsilon: float, tell: Callable[[str], None]) -> tuple[_Joint, _Joint]:
    """The exact study and the private one, each over real processes; what each site wrote goes to `folder`."""
    from blindbayes.study.file import Privacy
    from blindbayes.testing.loopback import Loopback

    with tempfile.TemporaryDirectory(prefix="blindbayes-demo-") as scratch:
        sources: dict[str, str | None] = {}
        for site, table in data.tables.items():
            sources[site] = str(Path(scratch) / f"{site}.parquet")
            pq.write_table(table, sources[site])
        with Loopback(Path(scratch) / "sites", sources) as sites:
            results = []
            for title, privacy in (("exact sum", Privacy()), (f"epsilon = {epsilon:g}", Privacy(epsilon=epsilon))):
                tell(f"running the study: {title} ...")
                study = sites.make_study(data.codebook, title=title, protocol="masked_sum", privacy=privacy)
                sites.approve(study)
                ended = sites.run(study)
                kept = Path(scratch) / "kept" if folder is None else folder
                where = kept / ("private" if privacy.epsilon else "exact")
                for name, site in sites.sites.items():
                    (kept / "cards").mkdir(parents=True, exist_ok=True)
                    (kept / "cards" / f"{name}.toml").write_text(site.identity.card.to_toml(), encoding="utf-8")
                results.append(_collected(ended, sites, study, where / "release"))
                for site, outcome in ended.items():
                    shutil.copytree(outcome["release"], where / site)
            return results[0], results[1]


def _signed_by_all(ended: dict[str, dict[str, Any]], sites: Loopback, study: StudyFile, where: Path) -> tuple[str, ...]:
    """One folder, made from the first site's release; each site compares it with its own and signs; who has signed."""
    from blindbayes.io.files import read_folder
    from blindbayes.report.checksums import verify_files
    from blindbayes.report.manifest import COMMON_SIGNATURES, add_signature, read_manifest, verified_signatures

    shutil.copytree(next(iter(ended.values()))["release"], where)
    for name, outcome in ended.items():
        identity = sites.sites[name].identity
        signatures = add_signature(read_folder(where), read_folder(outcome["release"]), name, identity.signing)
        (where / COMMON_SIGNATURES).write_bytes(signatures)
    files = read_folder(where)
    verify_files(files)
    return verified_signatures(
        files, read_manifest(files), {party.name: bytes.fromhex(party.identity) for party in study.members}
    )


def _collected(ended: dict[str, dict[str, Any]], sites: Loopback, study: StudyFile, where: Path) -> _Joint:
    """What all sites report of one run, and the folder that they sign together, at `where`."""
    from blindbayes import load

    release = Path(next(iter(done(ended).values()))["release"])
    seconds = max(outcome["protocol_seconds"] for outcome in ended.values())
    signed = _signed_by_all(ended, sites, study, where)
    return _Joint(load(release / "model.json"), leakage_of(ended), bytes_sent(ended), seconds, signed)


def done(ended: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """How a run ended at each site, if it did so well at all of them."""
    for name, outcome in ended.items():
        if outcome.get("state") != "done":
            raise PeerLost(f"the run ended with {outcome.get('text') or outcome.get('message')}", party=name)
    return ended


def leakage_of(ended: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What every party received and what was opened to it, by the sites' own reports."""
    found: dict[str, Any] = {}
    for outcome in ended.values():
        found |= read_json_table((Path(outcome["release"]) / "leakage.json").read_bytes(), "leakage.json")["parties"]
    return found


def bytes_sent(ended: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(seat["bytes_out"] for outcome in ended.values() for seat in outcome["seats"].values())
