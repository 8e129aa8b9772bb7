"""A model of rows that several parties hold, in shares of two of them (private_ratio), in one process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import open_columns
from blindbayes.errors import DataError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.shared_rows.shares import SharedRowsSetup
from blindbayes.simulation.columns import JointModel
from blindbayes.statistics import Statistics
from blindbayes.study.agreement import Agreement
from blindbayes.study.tasks.classify import RowsAsked
from blindbayes.study.tasks.result import Prediction


class RowModel(JointModel):
    """Any party may ask for the class of an instance of its own; it alone learns it."""

    def __init__(self, rows: SharedRowsSetup, shares: Mapping[str, ModelShare], agreement: Agreement | None = None) -> None:
        as_columns: Any = RowsAsked(rows, rows.parties[0])
        super().__init__(as_columns, shares, agreement=agreement)
        self.rows = rows

    @classmethod
    def of(cls, agreement: Agreement | None, shares: Mapping[str, ModelShare]) -> RowModel:
        """From every party's share."""
        return cls(SharedRowsSetup.from_dict(next(iter(shares.values())).public), shares, agreement)

    @classmethod
    def load(cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, compare_all: bool = False) -> Self:
        shares = cls.read_shares(files)
        return cls(SharedRowsSetup.from_dict(next(iter(shares.values())).public), shares)

    @property
    def tie_bound(self) -> float:
        return self.rows.plan.tie_bound

    def predict(self, frames: Any, *, to: str | None = None, coins: Coins | None = None) -> npt.NDArray[Any]:
        """The class of each instance, which one party brings whole and alone learns: the one named, or the first."""
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
        """Simulation only: the exact statistics of everybody's rows."""
        first, second = self.rows.computing
        for share in self.shares.values():
            share.require_alive()
        return self.rows.statistics(self.shares[first].sums[second] + self.shares[second].sums[first])
