"""A model that exists only as shares, with every party's role in this process, each message really encoded and decoded.

`predict` runs the joint classification, in which only the class is opened. `combine` joins the shares in one place, to compare
with pooled training; it exists for simulation alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.errors import ConfigError, DataError, LocalProtocolError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.simulation.run import run_jobs
from blindbayes.simulation.site import MemorySite
from blindbayes.statistics import Statistics, names_of
from blindbayes.study.agreement import Agreement
from blindbayes.study.tasks.aligned import class_counts_of, columns_of
from blindbayes.study.tasks.prediction import PredictionJob, PredictionTerms, Request, prediction_run
from blindbayes.study.tasks.result import Prediction, about_columns

if TYPE_CHECKING:
    from blindbayes.naive_bayes import estimator as estimators
else:
    estimators = lazy("blindbayes.naive_bayes.estimator")


class JointModel:
    """A model that exists only as shares, one per party."""

    job: type[PredictionJob] = PredictionJob  # what classifies; a model of another scheme may bring its own
    share_kind: type[Any] = ModelShare  # what its share files are read as

    def __init__(
        self,
        columns: ColumnsSetup,
        shares: Mapping[str, Any],
        reveal_to: str = "all",
        *,
        compare_all: bool = False,
        agreement: Agreement | None = None,
    ) -> None:
        self.columns = columns
        self.shares = dict(shares)
        self.reveal_to = reveal_to
        self.compare_all = compare_all
        self.agreement = agreement  # None: from share files alone
        columns.query(1, reveal_to)  # a wrong name is noticed here

    def __repr__(self) -> str:
        return f"JointModel({', '.join(self.shares)})"

    @classmethod
    def load(cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, compare_all: bool = False) -> Self:
        """From the parties' share files, in one process: for simulation."""
        shares = cls.read_shares(files)
        columns = columns_of(next(iter(shares.values())).public)
        if set(columns.owners) != set(shares):
            raise ConfigError("every party of the study must bring its share file")
        return cls(columns, shares, reveal_to, compare_all=compare_all)

    @classmethod
    def read_shares(cls, files: Mapping[str, str | os.PathLike[str]]) -> dict[str, Any]:
        """The parties' share files, of one training."""
        shares = {name: cls.share_kind.load(path) for name, path in files.items()}
        if any(share.party != name for name, share in shares.items()):
            raise ConfigError("a share file belongs to another party")
        first = next(iter(shares.values()), None)
        if first is None or any(share.agreed != first.agreed for share in shares.values()):
            raise ConfigError("the share files are not of one study, or are of two trainings")
        return shares

    @property
    def tie_bound(self) -> float:
        """The class equals that of pooled classification wherever its two best scores differ by more than this."""
        return self.columns.plan.tie_bound

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Class labels, in the codebook's order."""
        return np.array(self.columns.codebook.classes, dtype=str)

    def predict(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> npt.NDArray[Any]:
        """The class of each instance, whose attributes the parties bring in the same order. Opens the class only."""
        labels = self.classify(frames, coins=coins).labels
        return self.classes_[:0] if labels is None else labels

    def classify(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> Prediction:
        """`predict`, with the leak report and the cost of the run."""
        return self._ask(self._open(frames), coins)

    def _ask(self, sources: Mapping[str, ColumnSource | int], coins: Coins | None, **question: Any) -> Prediction:
        """The jobs that agents run for a batch, at sites in memory."""
        coins = Coins.system() if coins is None else coins
        first = next(iter(self.shares.values()))
        request = Request(first.public.get("run", "0" * 32), coins.bytes(16).hex(), **question)
        run_id = prediction_run(first.study, request.model, request.batch)
        terms = self._terms(run_id)
        sites = {name: MemorySite(name, each, share=self.shares[name]) for name, each in sources.items()}
        jobs = {name: self.job(terms, site, run_id, request) for name, site in sites.items()}
        outcome = run_jobs(jobs, {name: name for name in jobs}, first.study, run_id, coins)
        learned = {name: found for name, found in outcome.outputs.items() if found is not None}
        known = next(iter(learned.values()))
        if any(not np.array_equal(known, other) for other in learned.values()):
            raise LocalProtocolError("two parties learned different classes")
        return jobs[next(iter(learned))].result(outcome)

    def _terms(self, run_id: str) -> PredictionTerms:
        if self.agreement is not None:
            return PredictionTerms.of(self.agreement, run_id)
        about = about_columns(self.columns, next(iter(self.shares.values())).study)
        return PredictionTerms(about, self.reveal_to, self.compare_all)

    def combine(self) -> estimators.NaiveBayes:
        """Simulation only: join the shares in one place and return the plain model they stand for."""
        plain = estimators.NaiveBayes.from_statistics(self.statistics(), alpha=self.columns.alpha)
        weights = dict(zip(self.columns.codebook.classes, self.columns.weights, strict=False))
        return plain.with_priors(class_weight=weights) if weights else plain

    def _require_sums(self) -> None:
        if self.columns.guard.acts:
            raise ConfigError(
                "a model with noise or a least cell keeps no shares of the exact sums: there is nothing to combine"
            )

    def statistics(self) -> Statistics:
        """Simulation only: the exact statistics that the shares of sums stand for."""
        self._require_sums()
        columns, book = self.columns, self.columns.codebook
        for share in self.shares.values():
            share.require_alive()
        holder = self.shares[columns.class_holder]
        counts = class_counts_of(holder.local)
        decoded: dict[str, Any] = {}
        for party in set(self.shares) - set(columns.labelled):
            words = holder.sums[party] + self.shares[party].sums[columns.class_holder]
            decoded |= self._layout(party).decode(words, counts)
        named = names_of(book, counts, decoded)
        for party in columns.labelled:
            for section in ("counts", "n", "sums", "squares"):
                named[section].update((self.shares[party].local or {})["statistics"].get(section, {}))
        return Statistics.from_names(book, named)

    def _layout(self, party: str) -> RowLayout:
        """Of the sums that training left with a party."""
        return self.columns.aligned[party]

    def destroy(self, party: str) -> None:
        """One party erases its share. Nobody can classify any more."""
        if party not in self.shares:
            raise ConfigError(f"{party!r} holds no share of this model")
        self.shares[party].destroy()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self, frames: Mapping[str, Any]) -> dict[str, ColumnSource | int]:
        if set(frames) != set(self.columns.owners):
            raise ConfigError("predict takes one frame per party: " + ", ".join(self.columns.owners))
        opened = {name: open_columns(frames[name], self.columns.codebook) for name, held in self.columns.owners.items() if held}
        sizes = {source.rows for source in opened.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise DataError("all parties must bring the same instances, at least one, in the same order")
        rows = sizes.pop()
        return {name: opened.get(name, rows) for name in self.columns.owners}
