"""Models over identifiers that do not line up, in one process. See protocol/joined_sums/SPEC.md.

Training leaves a `LeftJoinedModel` or a `JoinedModel` (inner join), which exists only as shares. `predict` classifies
instances that the parties bring in one order, as for rows that line up; `score` everybody that one party knows, over the
hidden join. What one party does is in `scheme.joined` and `scheme.scoring`, used unchanged by a site's agent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.keys import rows_at
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.circuits import ln_error
from blindbayes.primitives.coins import Coins
from blindbayes.protocol import matching, transfer
from blindbayes.protocol.core import Role
from blindbayes.protocol.joined import Joined, JoinSetup, Links
from blindbayes.protocol.joined_scores import NONE, Scope
from blindbayes.protocol.joined_sums import merge
from blindbayes.report import LeakReport
from blindbayes.scheme.aligned import Transfers
from blindbayes.scheme.columns import keys_of, require_learner
from blindbayes.scheme.joined import JoinedScoring, digests_of, padded, params_of, require_bound
from blindbayes.scheme.result import JointResult, Leak, Prediction, about_columns, column_report, leakage_of
from blindbayes.scheme.scoring import describe_prediction, hidden_scoring, open_keyed
from blindbayes.simulation.columns import JointModel
from blindbayes.statistics import Statistics
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.transport.memory import local_runs, run_in_memory
from blindbayes.wire.transcript import Cost, PartyCost


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
        coins = Coins.system() if coins is None else coins
        if set(frames) != set(self.columns.owners):
            raise ConfigError("score takes one table per party: " + ", ".join(self.columns.owners))
        if self.reveal_to not in ("all", to):
            raise ConfigError(f"the study gives classes to {self.reveal_to} alone, so they cannot go to {to!r}")
        parts = {
            name: hidden_scoring(share, open_keyed(share, frames[name]), to, scope, compare_all=self.compare_all)
            for name, share in self.shares.items()
        }
        for name, share in self.shares.items():  # each party for itself, before it sends anything
            share.charge(parts[name].count)
        outcome = self._run({name: part.role for name, part in parts.items()}, coins)
        found = outcome.outputs[to]
        labels = self.classes_.astype(object)[found]
        labels[found == NONE] = None
        about = about_columns(self.columns, self.shares[to].study)
        report, statement = describe_prediction(outcome, about, to, hidden=parts[to].hidden)
        return Prediction(labels, leakage_of(outcome), outcome.cost, report, statement)


class JoinedModel(HiddenScores):
    """A model over an inner join: class counts and every table exist only as shares."""

    def __init__(self, join: JoinSetup, shares: Mapping[str, ModelShare], reveal_to: str = "all") -> None:
        super().__init__(join.columns, shares, reveal_to)
        self.join = join

    @classmethod
    def load(
        cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, compare_all: bool = False
    ) -> JoinedModel:
        """From the parties' share files, in one process: for simulation."""
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

    def _scoring(self, share: ModelShare, source: ColumnSource | int) -> JoinedScoring:
        return JoinedScoring(share, source, self.reveal_to)

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
        named: dict[str, Any] = {"class_counts": counts.tolist(), "counts": {}, "n": {}, "sums": {}, "squares": {}}
        for name, kinds in found.items():
            if "count" in kinds:
                named["counts"][name] = kinds["count"]
                continue
            named["sums"][name] = [row[0] for row in kinds["sum"]]
            named["squares"][name] = [row[0] for row in kinds["square"]]
            if join.codebook.feature(name).optional:
                named["n"][name] = [row[0] for row in kinds["n"]]
        return Statistics.from_names(join.codebook, named)


class LeftJoinedModel(HiddenScores):
    """A model over a left join: the class holder knows its own part, what the others' columns add exists only as shares."""


# -- training ------------------------------------------------------------------------------------------------------------


def simulate_matched(
    study: Study, sources: Mapping[str, Any], *, coins: Coins, ledgers: Mapping[str, str | os.PathLike[str]]
) -> JointResult:
    """With reveal = "matching": both learn whom they share, line their rows up, and go on with class_sums."""
    params = params_of(study)
    opened = {name: open_columns(source, study.codebook, ignore=keys_of(study)) for name, source in sources.items()}
    require_learner(study.reveal_to, opened)
    for name, source in opened.items():
        if source.rows < study.min_rows:
            raise PrivacyError(f"{name}: the study asks for at least {study.min_rows} rows per party")
    if len(opened) != 2:
        raise ConfigError("the matching is revealed between two parties; with more, leave the option reveal out")
    if study.duplicates == "join":
        raise ConfigError("rows that are to line up need duplicates = 'first' or 'reject'")
    if params.min_overlap or params.join == "left" or params.overlap_epsilon is not None:
        raise ConfigError(
            "reveal = 'matching' takes neither min_overlap nor overlap_epsilon nor join: the overlap is known then"
        )
    digests = {name: digests_of(study, source) for name, source in opened.items()}
    first, second = opened
    entries = {
        name: merge(digests[name], np.arange(source.rows, dtype=np.uint64)[:, None], study.duplicates, 1)
        for name, source in opened.items()
    }
    bounds = padded(study, digests)
    for name, found in entries.items():
        require_bound(name, len(found), bounds[name])
    sizes = matching.MatchingSetup(bounds[first], bounds[second], study.codebook.sha256.encode())
    runs = local_runs((first, second), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    own = {name: coins.derive(f"matching {runs[name].run_id} {name}") for name in opened}

    def asker() -> Role[Any]:
        ot_sender = yield from transfer.ot_sender(runs[first], second, own[first])
        return (yield from matching.asker(runs[first], second, sizes, entries[first].items, ot_sender, own[first]))

    def owner() -> Role[Any]:
        ot_receiver = yield from transfer.ot_receiver(runs[second], first, own[second])
        return (yield from matching.owner(runs[second], first, sizes, entries[second].items, ot_receiver, own[second]))

    outcome = run_in_memory({first: asker(), second: owner()})
    if not len(outcome.outputs[first]):
        raise DataError("the parties share no identifier")
    aligned = {}
    for name, source in opened.items():
        # Entries stand in the order of their digests at both parties, so what matches lines up.
        places = entries[name].words[outcome.outputs[name], 0].astype(np.int64)
        aligned[name] = rows_at(source, places)
    kept = {key: value for key, value in study.options.items() if key in ("queries", "compare_all")}
    lined_up = study.replace(protocol=None, aligned=True, options=kept, key=None, duplicates="join").agreed_as(study.sha256)
    result: JointResult = lined_up.simulate(aligned, coins=coins, ledgers=ledgers)
    before, leakage = leakage_of(outcome), {}
    for name, leak in result.leakage.items():
        received = {**before[name].received, **leak.received}
        for kind in set(before[name].received) & set(leak.received):
            trust, count = leak.received[kind]
            received[kind] = (trust, count + before[name].received[kind][1])
        leakage[name] = Leak(received, before[name].opened + leak.opened)
    statement = (
        f"Study {study.sha256}\n\nBefore training, both parties learned which identifiers they share (matching): who is a "
        "customer of both is known to both. What follows is the training on those rows.\n\n" + result.statement
    )
    told = column_report(("transfer", "matching"), outcome)
    report = None if result.report is None else _after_matching(told, result.report)
    return JointResult(result.model, leakage, _in_turn(outcome.cost, result.cost), statement, result.included, report)


def _after_matching(before: LeakReport, after: LeakReport) -> LeakReport:
    """One report of the matching and of what followed."""
    views = []
    for view in after.views:
        first = next(other for other in before.views if other.party == view.party)
        received = {item.kind: item for item in first.received}
        for item in view.received:
            known = received.get(item.kind)
            received[item.kind] = item if known is None else replace(item, count=item.count + known.count)
        views.append(replace(view, received=tuple(received.values()), opened=first.opened + view.opened))
    depth = max(flow.depth for flow in before.flows)
    follows = (
        "Both parties know which of their people the other has too, from now on and whatever becomes of the model.",
        *after.follows,
    )
    return replace(
        after,
        protocols=tuple(dict.fromkeys(before.protocols + after.protocols)),
        views=tuple(views),
        flows=(*before.flows, *(replace(flow, depth=flow.depth + depth) for flow in after.flows)),
        follows=follows,
    )


def _in_turn(first: Cost, second: Cost) -> Cost:
    """The cost of two runs, one after the other."""
    parties = {
        name: PartyCost(*(getattr(first.parties[name], item.name) + getattr(own, item.name) for item in fields(own)))
        for name, own in second.parties.items()
    }
    return Cost(first.rounds + second.rounds, first.messages + second.messages, first.bytes + second.bytes, parties)


def model_of(agreement: Agreement, shares: Mapping[str, ModelShare], outputs: Mapping[str, Any]) -> JointModel:
    """The model that training left in shares; the transfers that it set up serve prediction too."""
    study, public = agreement.study, agreement.public
    compare_all = bool(study.options.get("compare_all", False))
    if isinstance(public, JoinSetup) and public.inner:
        inner = JoinedModel(public, shares, study.reveal_to)
        inner._kept = {name: _links(trained) for name, trained in outputs.items()}
        return inner
    if isinstance(public, JoinSetup):
        model: JointModel = LeftJoinedModel(public.columns, shares, study.reveal_to, compare_all=compare_all)
    else:
        model = JointModel(public, shares, study.reveal_to, compare_all=compare_all)
    if not compare_all:
        model._kept = {name: Transfers.of(trained) for name, trained in outputs.items()}
    return model


def _links(trained: Joined) -> Links:
    """The transfers that training over an inner join set up."""
    ot_sender = next(iter(trained.ot_senders.values()), trained.back_keeper)
    ot_receiver = next(iter(trained.back_planters.values()), trained.ot_receiver)
    if ot_sender is None or ot_receiver is None:
        raise LocalProtocolError("training sets up the transfers of both directions")
    return Links(ot_sender, ot_receiver)
