"""Results of runs: the model or its shares, and for the privacy officer who learned what, at what cost, under which promise."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.signatures import SigningKey
from blindbayes.data.libraries import pa, pacsv
from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement
from blindbayes.io.files import write_folder
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.model_file import dump_model
from blindbayes.naive_bayes.release import model_files, run_files
from blindbayes.protocols.memory import Cost, Outcome
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.report.checksums import seal_files
from blindbayes.report.leakage import About, LeakReport, leak_report
from blindbayes.report.model_card import evaluation_lines
from blindbayes.report.output_check import DISCLOSURE, OutputCheck
from blindbayes.report.prose import to_html
from blindbayes.statistics import Statistics
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.study.agreement import Agreement

if TYPE_CHECKING:
    from blindbayes.naive_bayes.base import BaseNaiveBayes
    from blindbayes.study.simulation.models import JointModel


@dataclass(frozen=True, slots=True)
class Leak:
    """The messages and outputs that one party received in a run."""

    received: Mapping[str, tuple[str, int]]  # message kind -> (trust, how many)
    opened: tuple[str, ...]  # labels, in order


class RunResult:
    """The result of any run: who learned what, at what cost, under which promise, and the files of its release."""

    leakage: Mapping[str, Leak]
    cost: Cost
    statement: str
    report: LeakReport
    checked: ClassVar[OutputCheck | None] = None  # of an instance: set once the task's disclosure is at hand

    def with_checks(self, checked: OutputCheck) -> Self:
        """Return the same result with the checks of its outputs."""
        made = copy(self)
        object.__setattr__(made, "checked", checked)
        return made

    @property
    def known(self) -> Mapping[str, Json]:
        """Public facts for the run.json of a site."""
        return {}

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Return every file of the release but the checksums; `deployment` adds the OpenDP Deployments Registry record."""
        checked = {} if self.checked is None else {DISCLOSURE: self.checked.text}
        return {**run_files(self.report, self.cost, self.statement), **checked}

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        signers: Mapping[str, SigningKey] | None = None,
        deployment: Deployment | None = None,
    ) -> Path:
        """Write the release and its checksums to a new or empty folder.

        A model in shares also leaves one share file per party, which goes to that party alone. `signers` maps parties to the
        keys that sign the checksums.
        """
        return write_folder(folder, seal_files(self.files(deployment), signers))

    def _repr_html_(self) -> str:
        """Return the privacy statement and the leak report as HTML, for notebooks."""
        return to_html(self.statement) + self.report._repr_html_()


@dataclass(frozen=True)
class ContributorResult(RunResult):
    """The result at a site that learned no model: the reports, and nothing else."""

    leakage: Mapping[str, Leak] = field(repr=False)
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    report: LeakReport = field(repr=False)
    facts: Mapping[str, Json] = field(default_factory=dict)  # public facts for the run.json of a site

    @property
    def known(self) -> Mapping[str, Json]:
        return self.facts


class PreviousTotal(Protocol):
    """A total that a run may add to: an earlier result, or what a site stored of one."""

    @property
    def statistics(self) -> Statistics | None:
        """The statistics over all releases that it adds up; None: only ratios were opened."""

    @property
    def total(self) -> npt.NDArray[Any] | None:
        """The noisy integers as opened; None without noise."""

    @property
    def shares(self) -> int:
        """The number of noise shares in the opened total."""

    @property
    def runs(self) -> int:
        """The number of releases that it adds up."""

    @property
    def spent(self) -> tuple[float, float]:
        """The epsilon and delta of all of them."""


@dataclass(frozen=True)
class Result(RunResult):
    """The result of a study that opens statistics: a model in clear."""

    model: BaseNaiveBayes = field(repr=False)
    statistics: Statistics | None = field(repr=False)  # exact, or noisy if the study has an epsilon; None: only ratios opened
    leakage: Mapping[str, Leak] = field(repr=False)
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]  # whose rows are in the sum of this run
    spent: tuple[float, float]  # epsilon and delta of this run and of those it builds on, added up
    report: LeakReport = field(repr=False)
    runs: int = 1  # how many releases the statistics add up
    total: npt.NDArray[Any] | None = field(default=None, repr=False)  # noisy integers as opened, over all those releases
    shares: int = 0  # parties' shares of noise in it
    facts: Mapping[str, Json] = field(default_factory=dict, repr=False)  # public facts for the model card

    @property
    def known(self) -> dict[str, Json]:
        """Public facts for the run.json of a site."""
        return {"included": list(self.included)}

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Return reports and the model, with its card, explanation and plots."""
        record = self.model._record()
        promise = (
            PrivacyStatement.from_dict(record.privacy["statement"])
            if record.privacy and "statement" in record.privacy
            else None
        )
        known = None if self.spent[0] else self.statistics
        rows = {} if known is None else {"rows": int(known.class_counts.sum())}
        privacy = {"epsilon": self.spent[0], "delta": self.spent[1]} if self.spent[0] else {"differential privacy": "none"}
        facts = {**self.facts, "included": ", ".join(self.included), **rows, **privacy, "releases added up": self.runs}
        return {
            "model.json": dump_model(record).encode(),
            **super().files(),
            **model_files(record.parameters, facts, promise, deployment, self.model._noise_interval(), record.statistics),
        }


@dataclass(frozen=True)
class JointResult(RunResult):
    """The result of a study whose model stays in shares."""

    model: JointModel = field(repr=False)
    leakage: Mapping[str, Leak] = field(repr=False)
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]
    report: LeakReport = field(repr=False)
    overlaps: Mapping[str, int] = field(default_factory=dict)  # of a hidden join: noisy numbers of identifiers joined with each

    @property
    def known(self) -> dict[str, Json]:
        """Public facts for the run.json of a site."""
        return {"included": list(self.included)}

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        signers: Mapping[str, SigningKey] | None = None,
        deployment: Deployment | None = None,
    ) -> Path:
        """Write the release, and one share file per party."""
        where = super().save(folder, signers=signers, deployment=deployment)
        for name, share in self.model.shares.items():
            share.save(where / f"{name}.share")
        return where


@dataclass(frozen=True)
class Prediction(ContributorResult):
    """The result of one batch of joint classification."""

    labels: npt.NDArray[Any] | None = None  # None for who may not learn them; over a hidden join None where a row got none
    target: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict, repr=False)  # own columns, for the release
    evaluation: Evaluation | None = field(default=None, repr=False)  # where totals alone were opened, for a learner

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Return the reports, and the classes or their totals for a learner."""
        made = super().files()
        if self.evaluation is not None:
            made["evaluation.json"] = (json.dumps(self.evaluation.to_dict(), indent=2, allow_nan=False) + "\n").encode()
            made["evaluation.md"] = ("# Evaluation\n\n" + "\n".join(evaluation_lines(self.evaluation)) + "\n").encode()
        return made if self.labels is None else {**made, "classes.csv": classes_csv(self.labels, self.target, self.beside)}


def classes_csv(labels: npt.NDArray[Any], target: str, beside: Mapping[str, Any]) -> bytes:
    """Return the classes of a batch by row as CSV, with the site's own columns beside them."""
    numbers = pa.Array.from_buffers(pa.int64(), len(labels), [None, pa.py_buffer(np.arange(1, len(labels) + 1))])
    return csv_of({"row": numbers, **beside, target: texts(labels.tolist())})


def texts(values: Sequence[str | None]) -> Any:
    """Return strings as an Arrow array, without `pa.array`, which loads pandas if it is installed (0.25 s)."""
    raw = [b"" if value is None else value.encode() for value in values]
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int64)
    valid = np.packbits(np.array([value is not None for value in values], dtype=bool), bitorder="little")
    buffers = [pa.py_buffer(each) for each in (valid, ends, b"".join(raw))]
    return pa.Array.from_buffers(pa.large_string(), len(raw), buffers)


def csv_of(named: Mapping[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pacsv.write_csv(pa.table(dict(named)), sink)
    return bytes(sink.getvalue())


def leakage_of(outcome: Outcome) -> dict[str, Leak]:
    return {
        name: Leak({kind.__name__: (kind.trust.value, count) for kind, count in received.items()}, outcome.opened[name])
        for name, received in outcome.transcript.received.items()
    }


def about_run(agreement: Agreement, run: str = "") -> About:
    """Return what identifies the run in its leak report: the parties, and over columns who brings which."""
    today = time.strftime("%Y-%m-%d", time.gmtime()) if agreement.identities else ""
    holds = {}
    if agreement.columns is not None:
        labelled, target = agreement.columns.labelled, agreement.book.target
        own = {name: (*names, *((target,) if name in labelled else ())) for name, names in agreement.owners.items()}
        holds = {name: names for name, names in own.items() if names}
    return About(agreement.title, agreement.sha256, run, today, agreement.names, holds, agreement.hosts)


def about_columns(columns: ColumnsSetup, sha256: str) -> About:
    """Return the same of a model, if the study is not at hand."""
    holds = {
        name: (*features, *((columns.codebook.target,) if name in columns.labelled else ()))
        for name, features in columns.owners.items()
    }
    return About("", sha256, "", "", tuple(columns.owners), holds)


def report_run(
    protocols: Sequence[str],
    contributors: int,
    outcome: Outcome,
    follows: Sequence[str] = (),
    about: About | None = None,
    opened: Mapping[str, Sequence[str]] | None = None,
) -> LeakReport:
    """Return the leak report of a run, from what its driver recorded."""
    seen, labels = outcome.transcript, outcome.opened if opened is None else opened
    return leak_report(protocols, contributors, seen.received, labels, seen.entries, follows, seen.traffic, about)


SHARES_TOGETHER = (
    "The shares of all parties together are the model. Each classification reveals something about it; limit their number."
)
SHARES_CONCLUSIONS = (  # only for protocols whose shares are uniform
    "A share alone is uniform: a party that holds one, and the messages above, learns nothing of the other's columns beyond "
    "what was opened.",
    SHARES_TOGETHER,
)


def column_report(
    protocols: tuple[str, ...], outcome: Outcome, follows: Sequence[str], parties: int, about: About
) -> LeakReport:
    """Return the leak report of a run over columns, which names each opened label once, not once per batch."""
    opened = {name: tuple(dict.fromkeys(labels)) for name, labels in outcome.opened.items()}
    return report_run(protocols, parties, outcome, follows, about, opened)
