"""A study over columns in one process: every party's role runs here, each message really encoded and decoded.

`simulate` trains; the result's `model` is a `JointModel`: two or more shares and nothing else. `predict` runs the joint
classification, in which only the class is opened. `combine` joins the shares in one place, to compare with pooled training;
it exists for simulation alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.errors import ConfigError, DataError, LocalProtocolError
from blindbayes.estimators import NaiveBayes
from blindbayes.ledger import Ledger
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.columns import Columns
from blindbayes.protocol.core import Role, Run
from blindbayes.scheme.aligned import (
    Transfers,
    class_counts_of,
    columns_for,
    columns_of,
    options_of,
    require_learner,
    scoring,
    training,
    training_statement,
)
from blindbayes.scheme.guards import charge_noise
from blindbayes.scheme.result import JointResult, Prediction, Result, about_columns, column_report, leakage_of
from blindbayes.statistics import Statistics
from blindbayes.study.study import Study
from blindbayes.transport.memory import Outcome, local_runs, run_in_memory

if TYPE_CHECKING:
    from blindbayes.papers.vaidya2008.columns import PrintedResult


class JointModel:
    """A model that exists only as shares, one per party."""

    def __init__(
        self, columns: Columns, shares: Mapping[str, ModelShare], reveal_to: str = "all", *, together: bool = False
    ) -> None:
        self.columns = columns
        self.shares = dict(shares)
        self.reveal_to = reveal_to
        self.together = together
        self._kept: dict[str, Any] = {}  # transfers of each party, set up once in a process
        columns.query(1, reveal_to)  # a wrong name is noticed here

    def __repr__(self) -> str:
        return f"JointModel({', '.join(self.shares)})"

    @classmethod
    def load(cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, together: bool = False) -> JointModel:
        """From the parties' share files, in one process: for simulation."""
        shares = {name: ModelShare.load(path) for name, path in files.items()}
        first = next(iter(shares.values()), None)
        if first is None or any(share.public != first.public or share.study != first.study for share in shares.values()):
            raise ConfigError("the share files are not of one study")
        if any(share.party != name for name, share in shares.items()):
            raise ConfigError("a share file belongs to another party")
        columns = columns_of(first.public)
        if set(columns.owners) != set(shares):
            raise ConfigError("every party of the study must bring its share file")
        return cls(columns, shares, reveal_to, together=together)

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
        return self.classify(frames, coins=coins).labels

    def classify(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> Prediction:
        """`predict`, with the leak report and the cost of the run."""
        coins = Coins.system() if coins is None else coins
        for share in self.shares.values():
            share.require_alive()
        parts = self._scorings(frames)
        count = next(iter(parts.values())).count
        for share in self.shares.values():  # each party for itself, before it sends anything
            share.charge(count)
        if not self._kept:
            made = {name: part.connect for name, part in parts.items()}
            self._kept = self._run(made, coins).outputs
        for name, part in parts.items():
            part.kept = self._kept[name]
        outcome = self._run({name: part.role for name, part in parts.items()}, coins)
        learned = [outcome.outputs[name] for name in self.columns.query(1, self.reveal_to).learners]
        if any(not np.array_equal(learned[0], other) for other in learned[1:]):
            raise LocalProtocolError("two parties learned different classes")
        return Prediction(self.classes_[learned[0]], leakage_of(outcome), outcome.cost)

    def _scorings(self, frames: Mapping[str, Any]) -> dict[str, Any]:
        """Every party's part of a classification."""
        opened = self._open(frames)
        return {name: self._scoring(share, opened[name]) for name, share in self.shares.items()}

    def _scoring(self, share: ModelShare, source: ColumnSource | int) -> Any:
        return scoring(share, source, self.reveal_to, together=self.together)

    def _run(self, parts: Mapping[str, Callable[[Run, Coins], Role[Any]]], coins: Coins) -> Outcome:
        study = next(iter(self.shares.values())).study
        names = tuple(self.columns.owners)
        runs = local_runs(names, study=study, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
        own = {name: coins.derive(f"prediction {runs[name].run_id} {name}") for name in names}
        return run_in_memory({name: parts[name](runs[name], own[name]) for name in names})

    def combine(self) -> NaiveBayes:
        """Simulation only: join the shares in one place and return the plain model they stand for."""
        return NaiveBayes.from_statistics(self.statistics(), alpha=self.columns.alpha)

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
        named: dict[str, Any] = {
            "class_counts": [int(value) for value in counts],
            "counts": {},
            "n": {},
            "sums": {},
            "squares": {},
        }
        for party, share in self.shares.items():
            if party in columns.labelled:
                for section in ("counts", "n", "sums", "squares"):
                    named[section].update((share.local or {})["statistics"].get(section, {}))
                continue
            words = holder.sums[party] + share.sums[columns.class_holder]
            for name, found in columns.layout(party).decode(words, counts).items():
                if "count" in found:
                    named["counts"][name] = found["count"]
                    continue
                named["sums"][name] = [row[0] for row in found["sum"]]
                named["squares"][name] = [row[0] for row in found["square"]]
                if book.feature(name).optional:
                    named["n"][name] = [row[0] for row in found["n"]]
        return Statistics.from_names(book, named)

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


# -- training ------------------------------------------------------------------------------------------------------------


def simulate(
    study: Study,
    sources: Mapping[str, Any],
    *,
    coins: Coins,
    ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
) -> JointResult | Result | PrintedResult:
    """Train a study over columns with every party in this process. `noisy_histograms` gives a `Result` with a plain model.

    `ledgers` pay for noise in the shares (epsilon), for noisy_histograms, and where joined_sums opens a noisy estimate of
    the overlap.
    """
    if study.protocol == "joined_sums":
        from blindbayes.simulation import joined

        return joined.simulate(study, sources, coins=coins, ledgers=ledgers)
    if study.protocol == "class_sums":
        return _simulate_shared(study, sources, coins, ledgers or {})
    if study.protocol == "noisy_histograms":
        from blindbayes.scheme import histograms

        return histograms.simulate(study, sources, coins=coins, ledgers=ledgers)
    if ledgers:
        raise ConfigError(f"{study.protocol} takes no ledgers: it opens nothing that a ledger could pay for")
    if study.protocol == "scalar_product":
        from blindbayes.papers.vaidya2008 import columns as printed_columns

        return printed_columns.simulate(study, sources, coins=coins)
    raise ConfigError(
        f"there is no columns protocol {study.protocol!r} for rows that line up; known: class_sums, "
        "noisy_histograms, scalar_product"
    )


def _simulate_shared(
    study: Study, sources: Mapping[str, Any], coins: Coins, ledgers: Mapping[str, str | os.PathLike[str]]
) -> JointResult:
    options_of(study)
    keys = (study.key,) if isinstance(study.key, str) else tuple(study.key or ())
    opened = {name: open_columns(source, study.codebook, ignore=keys) for name, source in sources.items()}
    columns = agree_columns(study, opened)
    require_learner(study.reveal_to, columns.owners)
    parts = {name: training(study, columns, name, source) for name, source in opened.items()}
    for name, path in ledgers.items():  # each pays before anything is sent
        if name not in columns.owners:
            raise ConfigError(f"a ledger is named for {name!r}, who is no party")
        charge_noise(Ledger(path), study, columns, study=study.sha256)
    runs = local_runs(tuple(sources), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    own = {name: coins.derive(f"training {runs[name].run_id} {name}") for name in sources}
    outcome = run_in_memory({name: part.role(runs[name], own[name]) for name, part in parts.items()})
    shares = {name: part.share(outcome.outputs[name], study.sha256) for name, part in parts.items()}
    together = study.options.get("together", False)
    model = JointModel(columns, shares, study.reveal_to, together=together)
    if not together:  # what training set up serves prediction too
        model._kept = {name: Transfers.of(outcome.outputs[name]) for name in parts}
    report = column_report(("transfer", "class_sums", "shared_model"), outcome, about=about_columns(columns, study.sha256))
    statement = training_statement(study, columns, study.sha256)
    return JointResult(model, leakage_of(outcome), outcome.cost, statement, tuple(sources), report)


def agree_columns(study: Study, opened: Mapping[str, ColumnSource]) -> Columns:
    sizes = {source.rows for source in opened.values()}
    if len(sizes) != 1:
        raise DataError("the parties' tables have different numbers of rows; line them up by key first, or set aligned=False")
    labelled = tuple(name for name, source in opened.items() if source.labelled)
    owners = {name: tuple(feature.name for feature in source.features) for name, source in opened.items()}
    rows = sizes.pop()
    if rows < 1:
        raise DataError("the tables are empty")
    return columns_for(study, rows, owners, labelled)
