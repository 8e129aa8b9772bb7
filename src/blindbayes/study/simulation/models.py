"""Models that exist only as shares, with every party in this process.

`predict` runs the joint classification, in which only the class is opened. `combine` joins the shares in one place, to compare
with pooled training; it exists for simulation alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.logarithm import ln_error
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.errors import ConfigError, DataError, LocalProtocolError
from blindbayes.naive_bayes.shares import KeptShare, ModelShare
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.private_join.scores.roles import Scope
from blindbayes.protocols.shared_rows.shares import SharedRowsSetup
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.report.leakage import About
from blindbayes.statistics import Statistics, names_of
from blindbayes.study.agreement import Agreement
from blindbayes.study.simulation.driver import run_tasks
from blindbayes.study.simulation.site import MemorySite
from blindbayes.study.study import learner_of
from blindbayes.study.tasks.columns import class_counts_of
from blindbayes.study.tasks.prediction import PredictionTask, PredictionTerms, Request, prediction_run
from blindbayes.study.tasks.public import columns_of, join_of_share, rows_of, setup_of
from blindbayes.study.tasks.result import Prediction, about_columns
from blindbayes.study.tasks.scoring import open_keyed

if TYPE_CHECKING:
    from blindbayes.naive_bayes import estimator as estimators
else:
    estimators = lazy("blindbayes.naive_bayes.estimator")


class JointModel:
    """A model that exists only as shares, one per party."""

    task: ClassVar[type[PredictionTask]] = PredictionTask
    share_class: ClassVar[type[KeptShare]] = ModelShare

    def __init__(
        self,
        shares: Mapping[str, Any],
        reveal_to: str = "all",
        *,
        compare_all: bool = False,
        agreement: Agreement | None = None,
    ) -> None:
        self.shares = dict(shares)
        self.reveal_to = reveal_to
        self.compare_all = compare_all
        self.agreement = agreement  # None: from share files alone
        self._read_public(next(iter(self.shares.values())).public)

    def _read_public(self, public: Mapping[str, Any]) -> None:
        self.columns = columns_of(public)
        self.columns.query(1, self.reveal_to)  # a wrong name is noticed here

    def __repr__(self) -> str:
        return f"JointModel({', '.join(self.shares)})"

    @classmethod
    def load(cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, compare_all: bool = False) -> Self:
        """Read the parties' share files, in one process: for simulation."""
        made = cls(cls.read_shares(files), reveal_to, compare_all=compare_all)
        if set(made.columns.owners) != set(made.shares):
            raise ConfigError("every party of the study must bring its share file")
        return made

    @classmethod
    def read_shares(cls, files: Mapping[str, str | os.PathLike[str]]) -> dict[str, Any]:
        """Read the parties' share files of one training."""
        shares = {name: cls.share_class.load(path) for name, path in files.items()}
        if any(share.party != name for name, share in shares.items()):
            raise ConfigError("a share file belongs to another party")
        first = next(iter(shares.values()), None)
        if first is None or any(share.agreed != first.agreed for share in shares.values()):
            raise ConfigError("the share files are not of one study, or are of two trainings")
        return shares

    @property
    def tie_bound(self) -> float:
        """The difference of the two best scores above which the class equals that of pooled classification."""
        return self.columns.plan.tie_bound

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Class labels, in the codebook's order."""
        return np.array(self.codebook.classes, dtype=str)

    @property
    def codebook(self) -> Codebook:
        return self.columns.codebook

    def predict(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> npt.NDArray[Any]:
        """Return the class of each instance, whose attributes the parties bring in the same order. Opens the class only."""
        labels = self.classify(frames, coins=coins).labels
        return self.classes_[:0] if labels is None else labels

    def classify(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> Prediction:
        """Classify as `predict` does, and return the leak report and the cost with the classes."""
        return self._ask(self._open(frames), coins)

    def evaluate(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> Prediction:
        """Evaluate on labelled instances: totals by true and predicted class are opened, and no single class.

        The class holder's frame has the class column too. The result's `evaluation` has the figures.
        """
        return self._ask(self._open(frames, labelled=True), coins, evaluate=True)

    def _ask(
        self,
        sources: Mapping[str, ColumnSource | int],
        coins: Coins | None,
        *,
        to: str | None = None,
        scope: Scope = "everybody",
        evaluate: bool = False,
    ) -> Prediction:
        """Run the tasks that agents run for a batch, at sites in memory."""
        coins = Coins.system() if coins is None else coins
        first = next(iter(self.shares.values()))
        batch = coins.bytes(16).hex()
        request = Request(first.public.get("run", "0" * 32), batch, to=to, scope=scope, evaluate=evaluate)
        run_id = prediction_run(first.study, request.model, request.batch)
        terms = self._terms(run_id)
        sites = {name: MemorySite(name, each, share=self.shares[name]) for name, each in sources.items()}
        tasks = {name: self.task(terms, site, run_id, request) for name, site in sites.items()}
        outcome = run_tasks(tasks, {name: name for name in tasks}, first.study, run_id, coins)
        learned = {name: classes for name, classes in outcome.outputs.items() if classes is not None}
        known = next(iter(learned.values()))
        if any(not np.array_equal(known, other) for other in learned.values()):
            raise LocalProtocolError("two parties learned different classes")
        return tasks[next(iter(learned))].result(outcome)

    def _terms(self, run_id: str) -> PredictionTerms:
        if self.agreement is not None:
            return PredictionTerms.from_agreement(self.agreement, run_id)
        return PredictionTerms(self._about(next(iter(self.shares.values())).study), self.reveal_to, self.compare_all)

    def _about(self, sha256: str) -> About:
        return about_columns(self.columns, sha256)

    def combine(self) -> estimators.NaiveBayes:
        """Reconstruct the plain model from the shares. For simulation only."""
        plain = estimators.NaiveBayes.from_statistics(self.statistics(), alpha=self.columns.alpha)
        weights = dict(zip(self.columns.codebook.classes, self.columns.weights, strict=False))
        return plain.with_priors(class_weight=weights) if weights else plain

    def _require_sums(self) -> None:
        if self.columns.guard.acts:
            raise ConfigError(
                "a model with noise or a least cell keeps no shares of the exact sums: there is nothing to combine"
            )

    def statistics(self) -> Statistics:
        """Reconstruct the exact statistics from the shares of sums. For simulation only."""
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
        named = names_of(book.by_word, counts, decoded)
        for party in columns.labelled:
            for section in ("counts", "n", "sums", "squares"):
                named[section].update((self.shares[party].local or {})["statistics"].get(section, {}))
        for text in book.texts:
            tables = [named["counts"].pop(each.name) for each in text.by_word]
            uses = [[row[1] for row in by_class] for by_class in zip(*tables, strict=True)]
            named.setdefault("words", {})[text.name] = uses
            named["n"] |= {text.name: [sum(row) for row in tables[0]]} if text.has_documents else {}
        return Statistics.from_names(book, named)

    def _layout(self, party: str) -> RowLayout:
        return self.columns.aligned[party]

    def destroy(self, party: str) -> None:
        """Erase one party's share. Nobody can classify any more."""
        if party not in self.shares:
            raise ConfigError(f"{party!r} holds no share of this model")
        self.shares[party].destroy()

    def _open(self, frames: Mapping[str, Any], *, labelled: bool = False) -> dict[str, ColumnSource | int]:
        if set(frames) != set(self.columns.owners):
            raise ConfigError("predict takes one frame per party: " + ", ".join(self.columns.owners))
        book, owners = self.columns.codebook, self.columns.owners
        brings = {name for name, features in owners.items() if features}
        if labelled:
            brings.add(self.columns.class_holder)
        opened = {name: open_columns(frames[name], book) for name in brings}
        for name, source in opened.items():  # a class column that is not asked for is not read
            source.labelled &= labelled and name == self.columns.class_holder
        sizes = {source.rows for source in opened.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise DataError("all parties must bring the same instances, at least one, in the same order")
        rows = sizes.pop()
        return {name: opened.get(name, rows) for name in self.columns.owners}


class HiddenScores(JointModel):
    """A model over identifiers that do not line up, which can score over the hidden join."""

    def score(
        self, frames: Mapping[str, Any], *, to: str, scope: Scope = "everybody", coins: Coins | None = None
    ) -> Prediction:
        """Classify everybody in the table of `to`, with the others' columns where they have the same identifier.

        Parameters
        ----------
        frames : one table per party, with its identifiers and its columns; other rows and orders than the others'.
        to : the party that learns the classes, alone; one that the study's `reveal_to` allows. The others learn nothing but
            its agreed bound.
        scope : "everybody": each identifier gets a class, computed without the others' columns where they do not have it.
            "shared": only those that the other has get one, and `to` learns which these are.
        """
        if set(frames) != set(self.columns.owners):
            raise ConfigError("score takes one table per party: " + ", ".join(self.columns.owners))
        opened = {name: open_keyed(share, frames[name]) for name, share in self.shares.items()}
        return self._ask(opened, coins, to=to, scope=scope)

    def evaluate(self, frames: Mapping[str, Any], *, to: str | None = None, coins: Coins | None = None) -> Prediction:
        """Evaluate on labelled instances: totals by true and predicted class are opened, and no single class.

        Without `to`, on instances that all parties bring in one order. With `to`, which must be the class holder, on everybody
        in its table, with the others' columns where they have the same identifier; tables as in `score`.
        """
        if to is None:
            return super().evaluate(frames, coins=coins)
        if set(frames) != set(self.columns.owners):
            raise ConfigError("evaluate takes one table per party: " + ", ".join(self.columns.owners))
        opened = {name: open_keyed(share, frames[name]) for name, share in self.shares.items()}
        return self._ask(opened, coins, to=to, evaluate=True)


class JoinedModel(HiddenScores):
    """A model over an inner join: class counts and every table exist only as shares."""

    def _read_public(self, public: Mapping[str, Any]) -> None:
        if self.compare_all:
            raise ConfigError("a model over an inner join has two parties, who compare together anyway")
        self.join = join_of_share(public)
        if not self.join.inner:
            raise ConfigError("the share files are not of a study over an inner join")
        self.columns = self.join.columns
        self.columns.query(1, self.reveal_to)  # a wrong name is noticed here

    @property
    def tie_bound(self) -> float:
        plan = self.columns.plan
        return plan.tie_bound + 4 * ln_error(plan.fraction)  # the priors are fixed-point logarithms too

    def statistics(self) -> Statistics:
        """Reconstruct the exact statistics of the join from the shares. For simulation only."""
        self._require_sums()
        for share in self.shares.values():
            share.require_alive()
        join, holder, other = self.join, self.join.class_holder, self.join.holders[0]
        words = self.shares[holder].sums[other] + self.shares[other].sums[holder]
        layout = join.columns.layout(other)
        counts = words[:, layout.words].astype(np.int64)
        decoded = dict(layout.decode(words[:, : layout.words], counts))
        own = join.own_layout
        if own is not None:
            decoded |= own.decode(words[:, layout.words + 1 :], counts)
        return Statistics.from_names(join.codebook, names_of(join.codebook, counts, decoded))


class LeftJoinedModel(HiddenScores):
    """A model over a left join: the class holder knows its own part, what the others' columns add exists only as shares."""

    def _read_public(self, public: Mapping[str, Any]) -> None:
        self.columns = join_of_share(public).columns
        self.columns.query(1, self.reveal_to)  # a wrong name is noticed here

    def _layout(self, party: str) -> RowLayout:
        return self.columns.layout(party)


class RowModel(JointModel):
    """A model of rows that several parties hold, in shares of some of them.

    Any party may ask for the class of an instance of its own; it alone learns it.
    """

    def _read_public(self, public: Mapping[str, Any]) -> None:
        self.rows = rows_of(public)

    @classmethod
    def load(cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, compare_all: bool = False) -> Self:
        return cls(cls.read_shares(files))

    @property
    def codebook(self) -> Codebook:
        return self.rows.codebook

    @property
    def tie_bound(self) -> float:
        return self.rows.plan.tie_bound

    def _about(self, sha256: str) -> About:
        holds = {party: tuple(self.rows.codebook.names) if party == self.rows.parties[0] else () for party in self.rows.parties}
        return About("", sha256, "", "", tuple(self.rows.parties), holds)

    def predict(self, frames: Any, *, to: str | None = None, coins: Coins | None = None) -> npt.NDArray[Any]:
        """Return the class of each instance, which one party brings whole and alone learns: the one named, or the first."""
        labels = self.classify(frames, to=to, coins=coins).labels
        return self.classes_[:0] if labels is None else labels.astype(str)

    def classify(self, frames: Any, *, to: str | None = None, coins: Coins | None = None) -> Prediction:
        asker = self.rows.parties[0] if to is None else to
        table = open_columns(frames, self.rows.codebook)
        if not table.rows:
            raise DataError("a batch has at least one instance")
        sources = {name: table if name == asker else table.rows for name in self.rows.parties}
        return self._ask(sources, coins, to=asker)

    def statistics(self) -> Statistics:
        """Return the exact statistics of everybody's rows. For simulation only."""
        for share in self.shares.values():
            share.require_alive()
        sums = [words for share in self.shares.values() for words in share.sums.values()]
        return self.rows.statistics(np.sum(sums, axis=0, dtype=np.uint64))

    def combine(self) -> estimators.NaiveBayes:
        return estimators.NaiveBayes.from_statistics(self.statistics(), alpha=self.rows.alpha)


def joint_model(agreement: Agreement, shares: Mapping[str, Any]) -> JointModel:
    """Return the model that training left in shares."""
    study, setup = agreement.study, setup_of(next(iter(shares.values())).public)
    if isinstance(setup, SharedRowsSetup):
        return RowModel(shares, agreement=agreement)
    compare_all = bool(study.options.get("compare_all", False))
    kind: type[JointModel] = JointModel
    if isinstance(setup, JoinSetup):
        kind = JoinedModel if setup.inner else LeftJoinedModel
    return kind(shares, learner_of(study), compare_all=compare_all, agreement=agreement)
