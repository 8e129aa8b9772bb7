"""Tables split by columns among sites: one file per site, the study, and the pooled model to compare with."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from blindbayes import Codebook, NaiveBayes
from blindbayes.agent.runs.run import AgentRun
from blindbayes.errors import BlindbayesError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.simulation.models import JointModel
from blindbayes.testing.loopback import Loopback
from support.sites import Office

QUICK = Deadlines(step=20, join=20, run=300)
HURRY = Deadlines(step=1.5, join=1.5, run=30)


@dataclass(frozen=True)
class Split:
    """A table, its codebook, and who holds which of its features."""

    frame: pd.DataFrame
    target: str
    holds: Mapping[str, Sequence[str]]
    labelled: tuple[str, ...]
    missing: tuple[str, ...] = ()

    @property
    def book(self) -> Codebook:
        found = Codebook.from_frame(self.frame, target=self.target, missing=self.missing)
        numbers = self.frame.drop(columns=self.target).select_dtypes("number")
        return msgspec.structs.replace(
            found, variance_floor=float(1e-9 * numbers.var(ddof=0).max()) if len(numbers.columns) else None
        )

    def write(self, folder: Path) -> dict[str, str | None]:
        """Every site's rows as a file; the sources by site."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, held in self.holds.items():
            columns = [*held, *([self.target] if name in self.labelled else [])]
            self.frame[columns].to_csv(folder / f"{name}.csv", index=False)
        return {name: str(folder / f"{name}.csv") for name in self.holds}

    def study(self, net: Loopback, **fields: Any) -> StudyFile:
        held = Holdings({name: tuple(names) for name, names in self.holds.items()}, self.labelled, len(self.frame))
        given: dict[str, Any] = {"kind": "columns", "columns": held, "deadlines": QUICK, "options": {"queries": 10_000}}
        return net.make_study(self.book, **{**given, **fields})

    def ask(
        self, folder: Path, rows: pd.DataFrame, name: str = "batch", *, number: str | None = None
    ) -> dict[str, dict[str, Any]]:
        """Every site's file of instances; `number` is a column of row numbers beside the features."""
        asked: dict[str, dict[str, Any]] = {}
        for site, held in self.holds.items():
            if not held:
                asked[site] = {"count": len(rows)}
                continue
            path = folder / f"{site}-{name}.csv"
            rows[[*held, *([number] if number else [])]].to_csv(path, index=False)
            asked[site] = {"rows": str(path)}
        return asked

    def pooled(self) -> NaiveBayes:
        return NaiveBayes(self.book).fit(self.frame[self.features], self.frame[self.target].astype(str))

    @property
    def features(self) -> list[str]:
        return [name for name in self.frame.columns if name != self.target]


def joined(net: Loopback, model: str, **options: Any) -> JointModel:
    """The model that the sites' share files stand for, all in one place: only a test does this."""
    return JointModel.load(
        {name: site.home.folder / "shares" / f"{model}.share" for name, site in net.sites.items()}, **options
    )


def shares(net: Loopback, model: str) -> dict[str, ModelShare]:
    return {name: site.home.shares.load(model) for name, site in net.sites.items()}


def classes(net: Loopback, run_id: str, name: str) -> pd.DataFrame:
    """What a learner's release says."""
    return pd.read_csv(net.sites[name].home.folder / "releases" / run_id / "classes.csv", keep_default_na=False)


def small(rows: int = 120, seed: int = 11) -> pd.DataFrame:
    """Mixed columns that tell something of the class."""
    rng = np.random.default_rng(seed)
    label = rng.choice(["ill", "well"], rows)
    shift = (label == "ill") * 2
    return pd.DataFrame(
        {
            "age": np.clip(rng.normal(50 + 10 * shift, 12, rows), 0, 120).round(1),
            "colour": np.array(["red", "green", "blue"])[(rng.integers(0, 3, rows) + shift) % 3],
            "weight": np.clip(rng.normal(70 + 5 * shift, 9, rows), 20, 200).round(1),
            "smokes": np.array(["no", "yes"])[(rng.random(rows) < 0.3 + 0.15 * shift).astype(int)],
            "class": label,
        }
    )


def pair(rows: int = 120) -> Split:
    return Split(small(rows), "class", {"hospital": ("age", "colour"), "insurer": ("weight", "smokes")}, ("hospital",))


# -- agents of one process ---------------------------------------------------------------------------------------------


def office_of(folder: Path, split: Split, **options: Any) -> Office:
    """Agents of all sites of a split table."""
    return Office(folder, tuple(split.holds), rows=split.write(folder / "rows"), **options)


async def train(office: Office, study: StudyFile, runs: int = 1) -> str:
    """Train, and see that every site is done; the run."""
    office.net.approve(study, runs=runs)
    ended = await office.run(study)
    assert {name: run.text() for name, run in ended.items()} == dict.fromkeys(study.names, "done")
    return next(iter(ended.values())).run_id


@contextlib.asynccontextmanager
async def trained(folder: Path, split: Split, runs: int = 1, **fields: Any) -> AsyncIterator[tuple[Office, StudyFile, str]]:
    """Agents of all sites of a split table, their study and the model that they trained."""
    async with office_of(folder, split) as office:
        study = split.study(office.net, **fields)
        yield office, study, await train(office, study, runs)


def ask(office: Office, name: str, study: StudyFile, model: str, batch: str, **fields: Any) -> AgentRun:
    """One site asks for a batch."""
    return office.agents[name].predict(study.sha256, {"model": model, "batch": batch, **fields})


async def predict(
    office: Office, study: StudyFile, model: str, asked: dict[str, dict[str, Any]], batch: str = "monday"
) -> dict[str, AgentRun]:
    """Every site of `asked` asks; how it ended at each."""
    begun = {name: ask(office, name, study, model, batch, **fields) for name, fields in asked.items()}
    for run in begun.values():
        await run.done.wait()
    return begun


def errors(runs: Mapping[str, AgentRun]) -> dict[str, type[BlindbayesError] | None]:
    """How a run failed at each site."""
    return {name: None if run.error is None else type(run.error) for name, run in runs.items()}
