"""How a study ended: the model or its shares, and the answers for a privacy officer: who learned what, at what cost, under
which promise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.signatures import SigningKey
from blindbayes.data.libraries import pa, pacsv
from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement
from blindbayes.io.files import write_folder
from blindbayes.naive_bayes.model_file import dump_model
from blindbayes.naive_bayes.release import model_files, run_files
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.report.checksums import seal_files
from blindbayes.report.leakage import About, LeakReport, PartyView, ReceivedKind, leak_report
from blindbayes.report.prose import to_html
from blindbayes.statistics import Statistics
from blindbayes.study.agreement import Agreement
from blindbayes.wire.transcript import Cost

if TYPE_CHECKING:
    from blindbayes.naive_bayes.base import BaseNaiveBayes


@dataclass(frozen=True, slots=True)
class Leak:
    """What one party got out of a run."""

    received: Mapping[str, tuple[str, int]]  # message kind -> (trust, how many)
    opened: tuple[str, ...]  # labels, in order


class RunResult:
    """What every run leaves, whoever asks: who learned what, at what cost, under which promise; and its release."""

    leakage: Mapping[str, Leak]
    cost: Cost
    statement: str
    report: LeakReport | None  # None: only what `leakage` says is known

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Every file of the release but the checksums. A deployment adds the record of the OpenDP Deployments Registry."""
        return run_files(self.report or report_of((), self.leakage), self.cost, self.statement)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        signers: Mapping[str, SigningKey] | None = None,
        deployment: Deployment | None = None,
    ) -> Path:
        """Write the release and its checksums; beside them a model that is in shares leaves one share file per party, which
        goes to that party alone. The folder must be new or empty. `signers` maps parties to the keys that sign the checksums.
        """
        return write_folder(folder, seal_files(self.files(deployment), signers))

    def _repr_html_(self) -> str:
        """For notebooks: the promise, and who learned what."""
        return to_html(self.statement) + (self.report or report_of((), self.leakage))._repr_html_()


@dataclass(frozen=True)
class Learned(RunResult):
    """The end of a run at a site that learned no model: the reports, and nothing else."""

    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    report: LeakReport = field(repr=False)
    known: Mapping[str, Any] = field(default_factory=dict)  # public facts for the run.json of a site


class Earlier(Protocol):
    """What a run may add to: an earlier result, or what a site kept of one."""

    @property
    def statistics(self) -> Statistics:
        """Over all releases that it adds up."""

    @property
    def total(self) -> npt.NDArray[Any] | None:
        """Noisy integers as opened; None without noise."""

    @property
    def shares(self) -> int:
        """Shares of noise in it."""

    @property
    def runs(self) -> int:
        """How many releases it adds up."""

    @property
    def spent(self) -> tuple[float, float]:
        """Epsilon and delta of all of them."""


@dataclass(frozen=True)
class Result(RunResult):
    """How a study ended that opens statistics: with a model in the open."""

    model: BaseNaiveBayes = field(repr=False)
    statistics: Statistics | None = field(repr=False)  # exact, or noisy if the study has an epsilon; None: only ratios opened
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]  # whose rows are in the sum of this run
    spent: tuple[float, float]  # epsilon and delta of this run and of those it builds on, added up
    runs: int = 1  # how many releases the statistics add up
    total: npt.NDArray[Any] | None = field(default=None, repr=False)  # noisy integers as opened, over all those releases
    shares: int = 0  # parties' shares of noise in it

    report: LeakReport | None = field(default=None, repr=False)  # of this run; None: only what `leakage` says is known
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)  # public facts for the model card

    @property
    def known(self) -> dict[str, Any]:
        """Public facts for the run.json of a site."""
        return {"included": list(self.included)}

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Reports and the model, with its card, explanation and plots."""
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


def report_of(protocols: Sequence[str], leakage: Mapping[str, Leak]) -> LeakReport:
    """The leak report of a run of which no more is known than what each party received."""
    views = tuple(
        PartyView(
            name, tuple(ReceivedKind(kind, trust, count, "") for kind, (trust, count) in leak.received.items()), leak.opened
        )
        for name, leak in leakage.items()
    )
    return LeakReport(tuple(protocols), len(views), views, ())


@dataclass(frozen=True)
class JointResult(RunResult):
    """How a study over columns ended: with a model that nobody has."""

    model: Any = field(repr=False)  # shares, one per party
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]
    report: LeakReport | None = field(default=None, repr=False)
    overlaps: Mapping[str, int] = field(default_factory=dict)  # of a hidden join: noisy numbers of identifiers joined with each

    @property
    def known(self) -> dict[str, Any]:
        """Public facts for the run.json of a site."""
        return {"included": list(self.included)}

    def save(self, folder: str | os.PathLike[str], **options: Any) -> Path:
        """The release, and one share file per party."""
        where = super().save(folder, **options)
        for name, share in self.model.shares.items():
            share.save(where / f"{name}.share")
        return where


@dataclass(frozen=True)
class Prediction(Learned):
    """One batch of joint classification."""

    labels: npt.NDArray[Any] | None = None  # None for who may not learn them; over a hidden join None where a row got none
    target: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict, repr=False)  # own columns, for the release

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """The reports, and the classes for a learner."""
        made = super().files()
        return made if self.labels is None else {**made, "classes.csv": classes_csv(self.labels, self.target, self.beside)}


def classes_csv(labels: npt.NDArray[Any], target: str, beside: Mapping[str, Any]) -> bytes:
    """The classes of a batch by row, with its own columns beside them."""
    numbers = pa.Array.from_buffers(pa.int64(), len(labels), [None, pa.py_buffer(np.arange(1, len(labels) + 1))])
    return csv_of({"row": numbers, **beside, target: _texts(labels.tolist())})


def _texts(values: Sequence[str | None]) -> Any:
    """Strings as Arrow has them, not by `pa.array`: that loads pandas, a quarter of a second, wherever it is installed."""
    raw = [b"" if value is None else value.encode() for value in values]
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int64)
    held = np.packbits(np.array([value is not None for value in values], dtype=bool), bitorder="little")
    buffers = [pa.py_buffer(each) for each in (held, ends, b"".join(raw))]
    return pa.Array.from_buffers(pa.large_string(), len(raw), buffers)


def csv_of(named: Mapping[str, Any]) -> bytes:
    """Columns as CSV."""
    sink = pa.BufferOutputStream()
    pacsv.write_csv(pa.table(dict(named)), sink)
    return bytes(sink.getvalue())


def leakage_of(outcome: Outcome) -> dict[str, Leak]:
    return {
        name: Leak({kind.__name__: (kind.trust.value, count) for kind, count in received.items()}, outcome.opened[name])
        for name, received in outcome.transcript.received.items()
    }


def about_run(agreement: Agreement, run: str = "") -> About:
    """Which run it was, for the leak report: who takes part, and over columns who brings which."""
    today = time.strftime("%Y-%m-%d", time.gmtime()) if agreement.identities else ""
    holds = {}
    if agreement.held is not None:
        labelled, target = agreement.held.labelled, agreement.book.target
        own = {name: (*held, *((target,) if name in labelled else ())) for name, held in agreement.owners.items()}
        holds = {name: held for name, held in own.items() if held}
    return About(agreement.title, agreement.sha256, run, today, agreement.names, holds, agreement.hosts)


def about_columns(columns: ColumnsSetup, sha256: str) -> About:
    """The same of a model, where the study is not at hand."""
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
    """The leak report of a run, from what its driver recorded."""
    seen, labels = outcome.transcript, outcome.opened if opened is None else opened
    return leak_report(protocols, contributors, seen.received, labels, seen.entries, follows, seen.traffic, about)


def column_report(
    protocols: tuple[str, ...],
    outcome: Outcome,
    parties: int | None = None,
    about: About | None = None,
    more: Sequence[str] = (),
) -> LeakReport:
    """The leak report of a run over columns; `parties` where the outcome is that of one site."""
    follows: tuple[str, ...] = (
        "A share alone is uniform: whoever holds one, and the messages above, learns nothing of the other's columns beyond "
        "what was opened.",
        "Both parties' shares together are the model. Each classification tells something of it; limit their number.",
        *more,
    )
    size = len(outcome.transcript.received) if parties is None else parties
    opened = {name: tuple(dict.fromkeys(labels)) for name, labels in outcome.opened.items()}  # once, not once per batch
    return report_run(protocols, size, outcome, follows, about, opened)
