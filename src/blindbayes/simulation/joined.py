"""Models over identifiers that do not line up, in one process. See protocols/private_join/sums/SPEC.md.

Training leaves a `LeftJoinedModel` or a `JoinedModel` (inner join), which exists only as shares. `predict` classifies
instances that the parties bring in one order, as for rows that line up; `score` everybody that one party knows, over the
hidden join. What one party does is in `scheme.joined` and `scheme.scoring`, used unchanged by a site's agent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.logarithm import ln_error
from blindbayes.errors import ConfigError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.private_join.scores.roles import Scope
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.simulation.columns import JointModel
from blindbayes.simulation.rows import RowModel
from blindbayes.statistics import Statistics, names_of
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import learner_of
from blindbayes.study.tasks.aligned import columns_of
from blindbayes.study.tasks.result import Prediction
from blindbayes.study.tasks.scoring import open_keyed


class HiddenScores(JointModel):
    """A model over identifiers that do not line up, which can score over the hidden join."""

    def score(
        self, frames: Mapping[str, Any], *, to: str, scope: Scope = "everybody", coins: Coins | None = None
    ) -> Prediction:
        """The class of everybody in the table of `to`, with the others' columns where they have the same identifier.

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


class JoinedModel(HiddenScores):
    """A model over an inner join: class counts and every table exist only as shares."""

    def __init__(
        self, join: JoinSetup, shares: Mapping[str, ModelShare], reveal_to: str = "all", agreement: Agreement | None = None
    ) -> None:
        super().__init__(join.columns, shares, reveal_to, agreement=agreement)
        self.join = join

    @classmethod
    def load(
        cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, compare_all: bool = False
    ) -> JoinedModel:
        if compare_all:
            raise ConfigError("a model over an inner join has two parties, who compare together anyway")
        plain = JointModel.load(files, reveal_to)
        join = JoinSetup.from_dict(next(iter(plain.shares.values())).public)
        if not join.inner:
            raise ConfigError("the share files are not of a study over an inner join")
        return cls(join, plain.shares, reveal_to)

    @property
    def tie_bound(self) -> float:
        """The class equals that of the plain model of the join wherever its two best scores differ by more than this."""
        plan = self.columns.plan
        return plan.tie_bound + 4 * ln_error(plan.fraction)  # the priors are fixed-point logarithms too

    def statistics(self) -> Statistics:
        """Simulation only: the exact statistics of the join that the shares stand for."""
        self._require_sums()
        for share in self.shares.values():
            share.require_alive()
        join, holder, other = self.join, self.join.class_holder, self.join.holders[0]
        words = self.shares[holder].sums[other] + self.shares[other].sums[holder]
        layout = join.columns.layout(other)
        counts = words[:, layout.words].astype(np.int64)
        found = dict(layout.decode(words[:, : layout.words], counts))
        own = join.own_layout
        if own is not None:
            found |= own.decode(words[:, layout.words + 1 :], counts)
        return Statistics.from_names(join.codebook, names_of(join.codebook, counts, found))


class LeftJoinedModel(HiddenScores):
    """A model over a left join: the class holder knows its own part, what the others' columns add exists only as shares."""

    def _layout(self, party: str) -> RowLayout:
        """Of the sums over the join."""
        return self.columns.layout(party)


def model_of(agreement: Agreement, shares: Mapping[str, Any]) -> JointModel:
    """The model that training left in shares."""
    study, first = agreement.study, next(iter(shares.values()))
    if "rows_of" in first.public:
        return RowModel.of(agreement, shares)
    compare_all = bool(study.options.get("compare_all", False))
    join = JoinSetup.from_dict(first.public) if "join" in first.public else None
    if join is not None and join.inner:
        return JoinedModel(join, shares, learner_of(study), agreement)
    kind, columns = (JointModel, columns_of(first.public)) if join is None else (LeftJoinedModel, join.columns)
    return kind(columns, shares, learner_of(study), compare_all=compare_all, agreement=agreement)
