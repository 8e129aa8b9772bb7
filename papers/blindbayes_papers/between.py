"""A paper's protocols between agents: one process per site on this machine, each with its own keys, table and policy.

Everything between the sites is as between organisations (`blindbayes.testing.loopback`); the tables are made up from a seed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from blindbayes import NaiveBayes, load
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError, ProtocolError
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, Privacy
from blindbayes.testing.loopback import Loopback, open_policy

SITES = ("north", "south", "west")
BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (
        Categorical("smoker", ("no", "yes")),
        Numeric("age", 0, 99, bins=4, optional=True),
        Numeric("dose", 0, 9, 0.5, bins=3),
    ),
    max_rows=6000,
)
ROWS = 900
NO_SITES = "It is about one table and has no protocol between sites: `blindbayes train-smooth` runs it."
PATIENT = Deadlines(step=120, join=60, run=900)


@dataclass(frozen=True)
class Case:
    """One protocol of a paper, and how a study names it."""

    protocol: str
    partition: str = "rows"  # or "columns", all of which know the class; or "keyed": by an identifier, north knows it
    fields: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False


CASES = {
    "azimian2022": (Case("chain_sum"),),
    "huai2015": (
        Case("oblivious_sum"),
        Case("oblivious_sum", fields={"privacy": Privacy(epsilon=8.0, delta=1e-6), "options": {"noise": "diluted"}}),
        Case("private_maximum", fields={"options": {"bits": 16}, "hosts": {"miner": "north"}}),
        Case("noisy_histograms", "columns", fields={"privacy": Privacy(epsilon=8.0), "hosts": {"miner": "north"}}),
    ),
    "kikuchi2011": tuple(
        Case(protocol, "keyed", fields={"options": {"queries": 1000}})
        for protocol in ("set_intersection", "distorted_intersection")
    ),
    "vaidya2008": (
        Case("ring_sum"),
        Case("opened_ratio", fields={"options": {"opening": "coarse", "minimum": 128}}),
        Case("scalar_product", fields={"options": {"opening": "printed"}, "hosts": {}}, slow=True),
    ),
}


@dataclass(frozen=True)
class Ran:
    """The outcome of a run: the folder of each site's release, and the labels that were opened to each role."""

    protocol: str
    releases: Mapping[str, Path]
    opened: Mapping[str, tuple[str, ...]]
    compared: str  # of the model with pooled training; empty without a model

    def __str__(self) -> str:
        """One line for people."""
        views = "; ".join(f"{seat}: {', '.join(labels) or 'nothing'}" for seat, labels in self.opened.items())
        first = next(iter(self.releases.values()))
        return f"{self.protocol}: done at {', '.join(self.releases)}. Opened to {views}. {self.compared}See {first}"


def run_between_sites(paper: str, out: Path, *, quick: bool = False) -> Iterator[Ran]:
    """Run every protocol of a paper, site folders and releases under `out`; `quick` leaves out those that take minutes."""
    out = out.resolve()  # a path in site.toml counts from the site's folder
    if paper not in CASES:
        raise ConfigError(f"{paper}: {NO_SITES}")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty: choose another folder")
    for partition in ("rows", "columns", "keyed"):
        cases = [case for case in CASES[paper] if case.partition == partition and not (quick and case.slow)]
        if cases:
            policy = open_policy(protocols=tuple(case.protocol for case in cases), min_overlap=0, min_cell=0)
            sources = write_tables(out / partition / "tables", partition)
            with Loopback(out / partition / "sites", sources, policy=policy) as sites:
                for case in cases:
                    yield _run(sites, case)


def made_up(rows: int, seed: int = 5) -> list[dict[str, str]]:
    """Rows of people; the classes differ in all three columns."""
    rng, table = np.random.default_rng(seed), []
    for at in range(rows):
        ill = bool(rng.random() < 0.4)
        age = "" if rng.random() < 0.05 else str(int(np.clip(rng.normal(40 + 20 * ill, 15), 0, 99)))
        dose = str(round(2 * float(np.clip(rng.normal(3 + 2 * ill, 1.5), 0, 9))) / 2)
        smoker = ill if rng.random() < 0.8 else not ill
        words = {True: "yes", False: "no"}
        table.append({"id": f"p{at}", "smoker": words[smoker], "age": age, "dose": dose, "ill": words[ill]})
    return table


def write_tables(folder: Path, partition: str, rows: int = ROWS) -> dict[str, str | None]:
    """Write each site's table; return the sources by site."""
    people, features = made_up(rows), BOOK.names
    folder.mkdir(parents=True)
    for at, site in enumerate(SITES):
        if partition == "rows":
            part, names = people[at * rows // 3 : (at + 1) * rows // 3], [*features, "ill"]
        elif partition == "columns":
            part, names = people, [features[at], "ill"]
        else:
            part, names = people, ["id", features[at], *(["ill"] if site == SITES[0] else [])]
        with (folder / f"{site}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(part)
    return {site: str(folder / f"{site}.csv") for site in SITES}


def _run(sites: Loopback, case: Case) -> Ran:
    given: dict[str, Any] = {"title": case.protocol, "protocol": case.protocol, "deadlines": PATIENT, **case.fields}
    if case.partition != "rows":
        holdings: dict[str, tuple[str, ...]] = {site: (feature,) for site, feature in zip(SITES, BOOK.names, strict=True)}
        keyed = case.partition == "keyed"
        given |= {"kind": "columns", "columns": Holdings(holdings, SITES[:1] if keyed else SITES)}
        given |= {"kind": "join", "key": ("id",), "duplicates": "first"} if keyed else {}
    study = sites.make_study(BOOK, **given)
    sites.approve(study)
    ended = sites.run(study)
    if failed := {site: each.get("message", each["state"]) for site, each in ended.items() if each["state"] != "done"}:
        raise ProtocolError(f"{case.protocol}: {'; '.join(f'{site}: {why}' for site, why in failed.items())}")
    releases = {site: Path(each["release"]) for site, each in ended.items()}
    opened: dict[str, tuple[str, ...]] = {}
    for folder in releases.values():
        report = json.loads((folder / "leakage.json").read_text("utf-8"))
        for seat, view in report["parties"].items():
            opened[seat] = tuple(dict.fromkeys(view["opened"])) or opened.get(seat, ())
    return Ran(case.protocol, releases, opened, _compared(releases))


def _compared(releases: Mapping[str, Path]) -> str:
    """Compare the models of a run with one of the rows of all sites."""
    models = [load(path) for folder in releases.values() if (path := folder / "model.json").exists()]
    if not models:
        return ""
    rows = pd.DataFrame(made_up(ROWS)).replace("", None)
    features, pooled = rows[list(BOOK.names)], NaiveBayes(BOOK).fit(rows[list(BOOK.names)], rows[BOOK.target])
    if all(getattr(model, "statistics_", None) == pooled.statistics_ for model in models):
        return "Its model has the statistics of pooled training. "
    same = min(float((model.predict(features) == pooled.predict(features)).mean()) for model in models)
    return f"Its model classifies {same:.1%} of the rows as pooled training does. "
