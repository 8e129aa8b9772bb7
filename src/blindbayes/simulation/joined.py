"""A study over columns whose identifiers do not line up, in one process. See protocol/joined_sums/SPEC.md.

`simulate` trains; the result's `model` is a `LeftJoinedModel` or a `JoinedModel` (inner join), which exists only as shares.
`predict` classifies instances that the parties bring in one order, as for rows that line up; `score` everybody that one party
knows, over the hidden join.

What one party does is in `scheme.joined`; it is used unchanged by a site's agent.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.keys import recipe_of, rows_at
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.ledger import Ledger
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.circuits import ln_error
from blindbayes.primitives.coins import Coins
from blindbayes.protocol import matching, transfer
from blindbayes.protocol.core import Role
from blindbayes.protocol.joined import Join, Joined, Links
from blindbayes.protocol.joined_scores import NONE, Scope
from blindbayes.protocol.joined_sums import LEAST, MOST, merge
from blindbayes.report import LeakReport
from blindbayes.scheme.aligned import Transfers
from blindbayes.scheme.joined import (
    Digests,
    JoinedScoring,
    charge_training,
    digests_of,
    join_of,
    options_of,
    require_bound,
    scoring,
    training,
    training_of,
    training_statement,
)
from blindbayes.scheme.result import JointResult, Leak, Prediction, about_columns, column_report, leakage_of
from blindbayes.scheme.scoring import PROTOCOLS, hidden_scoring, open_keyed, scoring_statement, ways_of_scoring, what_follows
from blindbayes.simulation.columns import JointModel
from blindbayes.simulation.columns import simulate as simulate_aligned
from blindbayes.statistics import Statistics
from blindbayes.study.study import Study
from blindbayes.transport.memory import local_runs, run_in_memory
from blindbayes.wire.transcript import Cost, PartyCost

__all__ = [
    "JoinedModel",
    "JoinedResult",
    "LeftJoinedModel",
    "hidden_scoring",
    "join_of",
    "open_keyed",
    "scoring",
    "simulate",
    "training",
    "training_statement",
]


@dataclass(frozen=True)
class HiddenPrediction(Prediction):
    """Classes over a hidden join: `labels` has one per row of the scorer, None where a row got none."""

    report: LeakReport = field(repr=False)
    statement: str = field(repr=False)


class HiddenScores(JointModel):
    """A model over identifiers that do not line up, which can score over the hidden join."""

    def score(
        self, frames: Mapping[str, Any], *, to: str, scope: Scope = "everybody", coins: Coins | None = None
    ) -> HiddenPrediction:
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
            name: hidden_scoring(share, open_keyed(share, frames[name]), to, scope, together=self.together)
            for name, share in self.shares.items()
        }
        for name, share in self.shares.items():  # each party for itself, before it sends anything
            share.charge(parts[name].count)
        outcome = self._run({name: part.role for name, part in parts.items()}, coins)
        found = outcome.outputs[to]
        labels = self.classes_.astype(object)[found]
        labels[found == NONE] = None
        hidden, sha256 = parts[to].hidden, self.shares[to].study
        report = column_report(PROTOCOLS, outcome, about=about_columns(self.columns, sha256))
        report = replace(report, follows=what_follows(hidden))
        return HiddenPrediction(labels, leakage_of(outcome), outcome.cost, report, scoring_statement(hidden))


class JoinedModel(HiddenScores):
    """A model over an inner join: class counts and every table exist only as shares."""

    def __init__(self, join: Join, shares: Mapping[str, ModelShare], reveal_to: str = "all") -> None:
        super().__init__(join.columns, shares, reveal_to)
        self.join = join

    @classmethod
    def load(
        cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, together: bool = False
    ) -> JoinedModel:
        """From the parties' share files, in one process: for simulation."""
        if together:
            raise ConfigError("a model over an inner join has two parties, who compare together anyway")
        plain = JointModel.load(files, reveal_to)
        join = Join.from_dict(next(iter(plain.shares.values())).public)
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


@dataclass(frozen=True)
class JoinedResult(JointResult):
    """How a study over a hidden join ended."""

    overlaps: Mapping[str, int] = field(default_factory=dict)  # attribute holder -> noisy number of identifiers joined with it


def simulate(
    study: Study,
    sources: Mapping[str, Any],
    *,
    coins: Coins,
    ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
) -> JointResult:
    """Train a study over columns whose identifiers do not line up, with every party in this process.

    `ledgers` pay for noise in the shares (epsilon) and for a noisy estimate of the overlap (option overlap_epsilon) before
    anything is sent.
    """
    options = options_of(study)
    ignored = tuple(part.column for part in recipe_of(study.codebook, study.key).parts)
    opened = {name: open_columns(source, study.codebook, ignore=ignored) for name, source in sources.items()}
    if study.reveal_to != "all" and study.reveal_to not in opened:
        raise ConfigError(f"reveal_to is 'all' or a party; {study.reveal_to!r} is none")
    for name, source in opened.items():
        if source.rows < study.min_rows:
            raise PrivacyError(f"{name}: the study asks for at least {study.min_rows} rows per party")
    digests = {name: digests_of(study, source) for name, source in opened.items()}
    if options["reveal"] == "matching":
        return _simulate_matched(study, opened, digests, options, coins, ledgers)
    join = _agree(study, opened, digests, options)
    parts = {name: training_of(study, join, name, source, digests[name]) for name, source in opened.items()}
    _charge(study, join, ledgers or {})
    runs = local_runs(tuple(sources), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    own = {name: coins.derive(f"training {runs[name].run_id} {name}") for name in sources}
    outcome = run_in_memory({name: part.role(runs[name], own[name]) for name, part in parts.items()})
    shares = {name: part.share(outcome.outputs[name], study.sha256) for name, part in parts.items()}
    model = _model(join, shares, study, options, outcome.outputs)
    about = about_columns(join.columns, study.sha256)
    report = column_report(("transfer", "joined_sums", "shared_model"), outcome, about=about)
    report = replace(report, follows=(*report.follows, *ways_of_scoring(study.reveal_to)))
    overlaps = outcome.outputs[join.class_holder].overlaps
    statement = training_statement(study, join, study.sha256, overlaps)
    return JoinedResult(model, leakage_of(outcome), outcome.cost, statement, tuple(sources), report, overlaps)


def _charge(study: Study, join: Join, ledgers: Mapping[str, str | os.PathLike[str]]) -> None:
    """Every party's ledger pays for noise in the shares and for the estimates that its identifiers are in. Refused by one,
    nothing is sent."""
    for party, path in ledgers.items():
        if party not in join.owners:
            raise ConfigError(f"a ledger is named for {party!r}, who is no party")
        charge_training(Ledger(path), study, join, party, study=study.sha256)


def _simulate_matched(
    study: Study,
    opened: Mapping[str, ColumnSource],
    digests: Mapping[str, Digests],
    options: Mapping[str, Any],
    coins: Coins,
    ledgers: Mapping[str, str | os.PathLike[str]] | None,
) -> JointResult:
    """With reveal = "matching": both learn whom they share, line their rows up, and go on with class_sums."""
    if len(opened) != 2:
        raise ConfigError("the matching is revealed between two parties; with more, leave the option reveal out")
    if study.duplicates == "join":
        raise ConfigError("rows that are to line up need duplicates = 'first' or 'reject'")
    if options["min_overlap"] or options["join"] == "left" or options["overlap_epsilon"] is not None:
        raise ConfigError(
            "reveal = 'matching' takes neither min_overlap nor overlap_epsilon nor join: the overlap is known then"
        )
    first, second = opened
    entries = {
        name: merge(digests[name], np.arange(source.rows, dtype=np.uint64)[:, None], study.duplicates, 1)
        for name, source in opened.items()
    }
    bounds = _bounds(opened, digests, options)
    for name, found in entries.items():
        require_bound(name, len(found), bounds[name])
    sizes = matching.Sizes(bounds[first], bounds[second], study.codebook.sha256.encode())
    runs = local_runs((first, second), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    own = {name: coins.derive(f"matching {runs[name].run_id} {name}") for name in opened}

    def asker() -> Role[Any]:
        keeper = yield from transfer.keeper(runs[first], second, own[first])
        return (yield from matching.asker(runs[first], second, sizes, entries[first].items, keeper, own[first]))

    def owner() -> Role[Any]:
        planter = yield from transfer.planter(runs[second], first, own[second])
        return (yield from matching.owner(runs[second], first, sizes, entries[second].items, planter, own[second]))

    outcome = run_in_memory({first: asker(), second: owner()})
    if not len(outcome.outputs[first]):
        raise DataError("the parties share no identifier")
    aligned = {}
    for name, source in opened.items():
        # Entries stand in the order of their digests at both parties, so what matches lines up.
        places = entries[name].words[outcome.outputs[name], 0].astype(np.int64)
        aligned[name] = rows_at(source, places)
    kept = {key: value for key, value in study.options.items() if key in ("queries", "together")}
    lined_up = copy.copy(study)
    lined_up.protocol, lined_up.options, lined_up.key, lined_up.aligned = "class_sums", kept, None, True
    result = simulate_aligned(lined_up, aligned, coins=coins, ledgers=ledgers)
    if not isinstance(result, JointResult):
        raise LocalProtocolError("class_sums gives a joint result")
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


def _bounds(opened: Mapping[str, ColumnSource], digests: Mapping[str, Digests], options: Mapping[str, Any]) -> dict[str, int]:
    if unknown := sorted(set(options["bounds"]) - set(opened)):
        raise ConfigError(f"bounds name {unknown[0]!r}, who is no party")
    bounds = {}
    for name in opened:
        # Without an agreed bound the number of identifiers is rounded up to a power of two, and that is what the others see.
        count = len({digest for digest in digests[name] if digest is not None})
        bounds[name] = options["bounds"].get(name, min(MOST, max(LEAST, 1 << max(0, count - 1).bit_length())))
    return bounds


def _agree(
    study: Study, opened: Mapping[str, ColumnSource], digests: Mapping[str, Digests], options: Mapping[str, Any]
) -> Join:
    labelled = [name for name, source in opened.items() if source.labelled]
    if len(labelled) != 1:
        raise ConfigError(
            f"one party, and only one, must have the class column {study.codebook.target!r} where identifiers do not line up"
        )
    owners = {name: tuple(feature.name for feature in source.features) for name, source in opened.items()}
    return join_of(study, owners, labelled[0], _bounds(opened, digests, options))


def _model(
    join: Join, shares: Mapping[str, ModelShare], study: Study, options: Mapping[str, Any], outputs: Mapping[str, Joined]
) -> JointModel:
    if join.inner:
        inner = JoinedModel(join, shares, study.reveal_to)
        inner._kept = {name: _links(trained) for name, trained in outputs.items()}
        return inner
    model = LeftJoinedModel(join.columns, shares, study.reveal_to, together=options["together"])
    if not options["together"]:  # what training set up serves prediction too
        model._kept = {name: Transfers.of(trained) for name, trained in outputs.items()}
    return model


def _links(trained: Joined) -> Links:
    """The transfers that training over an inner join set up."""
    keeper = next(iter(trained.keepers.values()), trained.back_keeper)
    planter = next(iter(trained.back_planters.values()), trained.planter)
    if keeper is None or planter is None:
        raise LocalProtocolError("training sets up the transfers of both directions")
    return Links(keeper, planter)
