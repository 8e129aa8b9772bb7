"""A model that exists only as shares, with every party's role in this process, each message really encoded and decoded.

`predict` runs the joint classification, in which only the class is opened. `combine` joins the shares in one place, to compare
with pooled training; it exists for simulation alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.errors import ConfigError, DataError, LocalProtocolError
from blindbayes.lazy import lazy
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.columns import ColumnsSetup
from blindbayes.protocol.core import Role, Run
from blindbayes.scheme.aligned import class_counts_of, columns_of, scoring
from blindbayes.scheme.result import Prediction, about_columns, leakage_of
from blindbayes.scheme.scoring import describe_prediction
from blindbayes.statistics import Statistics
from blindbayes.transport.memory import Outcome, local_runs, run_in_memory

if TYPE_CHECKING:
    from blindbayes import estimators
else:
    estimators = lazy("blindbayes.estimators")


class JointModel:
    """A model that exists only as shares, one per party."""

    def __init__(
        self, columns: ColumnsSetup, shares: Mapping[str, ModelShare], reveal_to: str = "all", *, compare_all: bool = False
    ) -> None:
        self.columns = columns
        self.shares = dict(shares)
        self.reveal_to = reveal_to
        self.compare_all = compare_all
        self._kept: dict[str, Any] = {}  # transfers of each party, set up once in a process
        columns.query(1, reveal_to)  # a wrong name is noticed here

    def __repr__(self) -> str:
        return f"JointModel({', '.join(self.shares)})"

    @classmethod
    def load(
        cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, compare_all: bool = False
    ) -> JointModel:
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
        return cls(columns, shares, reveal_to, compare_all=compare_all)

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
        about = about_columns(self.columns, next(iter(self.shares.values())).study)
        report, statement = describe_prediction(outcome, about, self.reveal_to, count=count)
        return Prediction(self.classes_[learned[0]], leakage_of(outcome), outcome.cost, report, statement)

    def _scorings(self, frames: Mapping[str, Any]) -> dict[str, Any]:
        """Every party's part of a classification."""
        opened = self._open(frames)
        return {name: self._scoring(share, opened[name]) for name, share in self.shares.items()}

    def _scoring(self, share: ModelShare, source: ColumnSource | int) -> Any:
        return scoring(share, source, self.reveal_to, compare_all=self.compare_all)

    def _run(self, parts: Mapping[str, Callable[[Run, Coins], Role[Any]]], coins: Coins) -> Outcome:
        study = next(iter(self.shares.values())).study
        names = tuple(self.columns.owners)
        runs = local_runs(names, study=study, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
        own = {name: coins.derive(f"prediction {runs[name].run_id} {name}") for name in names}
        return run_in_memory({name: parts[name](runs[name], own[name]) for name in names})

    def combine(self) -> estimators.NaiveBayes:
        """Simulation only: join the shares in one place and return the plain model they stand for."""
        return estimators.NaiveBayes.from_statistics(self.statistics(), alpha=self.columns.alpha)

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
