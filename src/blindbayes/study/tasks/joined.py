"""The task of studies over columns whose rows are matched by an identifier: training by joined_sums."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, cast

import msgspec
import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.data.identifiers import read_digests, recipe_of, rows_at
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure, Leaving, Overlap
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.overlap import OverlapNoise
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.private_join import joined as roles
from blindbayes.protocols.private_join.joined import Joined, JoinSetup
from blindbayes.protocols.private_join.sums.inputs import Entries, merge, one_hot
from blindbayes.protocols.private_join.sums.roles import MAX_BOUND, MIN_BOUND
from blindbayes.protocols.registry import U64Array
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import JoinStudy, Study, join_study, learner_of
from blindbayes.study.tasks.audits import ScoringParams, describe_audits
from blindbayes.study.tasks.columns import (
    count_local,
    describe_coalitions,
    describe_queries,
    holdings_of,
    keyed_digest,
    require_bound,
    require_held,
    require_learner,
)
from blindbayes.study.tasks.guards import counted, describe_guard, guard_local, guarded, noise_of
from blindbayes.study.tasks.labels import require_randomised
from blindbayes.study.tasks.prediction import PredictionTask, Request
from blindbayes.study.tasks.public import public_of
from blindbayes.study.tasks.shared import ShareTask
from blindbayes.study.tasks.task import UNIT, AnsweringSite, LocalSite, StudyTask
from blindbayes.study.tasks.traits import Support

Digests = list[bytes | None]


class JoinedSumsParams(ScoringParams, frozen=True, forbid_unknown_fields=True):
    """Options of joined_sums."""

    bounds: Annotated[dict[str, int], f"number to which each party's identifiers are padded, from {MIN_BOUND:,}"] = (
        msgspec.field(default_factory=dict)
    )
    join: Annotated[Literal["inner", "left"] | None, "`inner` or `left`; default: inner between two parties, else left"] = None
    min_overlap: Annotated[int, "minimum number of common identifiers; below it the run stops and reveals only that"] = 0
    multiplicity: Annotated[int | None, "maximum number of rows of an identifier; default: 4 if duplicates join, else 1"] = None
    overlap_epsilon: Annotated[float | None, "opens a noisy estimate of the number of common identifiers at this price"] = None
    reveal: Annotated[Literal["nothing", "matching"], "`matching`: both parties learn whom they share"] = "nothing"

    def __post_init__(self) -> None:
        if self.overlap_epsilon is not None and not (math.isfinite(self.overlap_epsilon) and self.overlap_epsilon > 0):
            raise PrivacyError("the option overlap_epsilon is a positive number, or left out: then no estimate is opened")
        if any(not MIN_BOUND <= bound <= MAX_BOUND for bound in self.bounds.values()):
            raise ConfigError(
                f"the option bounds says what each party's number of identifiers is padded to, {MIN_BOUND:,} to {MAX_BOUND:,}"
            )


def params_of(study: Study) -> JoinedSumsParams:
    """Return the study's options, typed."""
    return cast(JoinedSumsParams, study.params)


def key_of(study: JoinStudy) -> tuple[str, ...]:
    """Return the identifier columns that the study names, if the codebook has no recipe."""
    if study.codebook.identifier is not None:
        return ()
    return tuple(part.column for part in recipe_of(study.codebook, study.key or None).parts)


def join_of(study: JoinStudy, owners: Mapping[str, tuple[str, ...]], class_holder: str, bounds: Mapping[str, int]) -> JoinSetup:
    """Return what is public about the join: options, who holds which features, what identifiers are padded to."""
    params = params_of(study)
    inner = len(owners) == 2 if params.join is None else params.join == "inner"
    max_multiplicity = params.multiplicity if params.multiplicity is not None else 4 if study.duplicates == "join" else 1
    if inner and params.compare_all:
        raise ConfigError("an inner join has two parties, who compare together anyway; leave the option compare_all out")
    require_bounds(bounds, owners)
    agreed = JoinSetup(
        study.codebook,
        dict(owners),
        class_holder,
        {name: bounds[name] for name in owners},
        inner,
        study.duplicates,
        max_multiplicity,
        params.min_overlap,
        study.estimation.alpha,
        key_of(study),
        None if params.overlap_epsilon is None else float(params.overlap_epsilon),
    )
    return guarded(study, replace(agreed, audit_rate=params.audit_rate, weights=study.weights))


def require_bounds(bounds: Mapping[str, int], parties: Iterable[str]) -> None:
    """Raise unless there is a number for each party, and for nobody else."""
    names = tuple(parties)
    if missing := [name for name in names if name not in bounds]:
        raise ConfigError(
            f"bounds give no number for {', '.join(missing)}: say what identifiers are padded to, from {MIN_BOUND:,}"
        )
    if unknown := sorted(set(bounds) - set(names)):
        raise ConfigError(f"bounds name {unknown[0]!r}, who is no party")


def overlap_noise(join: JoinSetup, party: str) -> OverlapNoise | None:
    """Return the noise of a party's estimates of joined identifiers, whose `price` its ledger pays; None without estimate."""
    if join.overlap_epsilon is None:
        return None
    joins = len(join.holders) if party == join.class_holder else 1
    return OverlapNoise(budget_floor(join.overlap_epsilon, "overlap_epsilon"), joins)


def overlap_charge(join: JoinSetup, party: str) -> Charge | None:
    """Return what a party pays for its estimates of the overlap, or None without estimates.

    One identifier with all its rows is a record and a person.
    """
    law = overlap_noise(join, party)
    return None if law is None else Charge(Spend.for_release(law), UNIT, ("one record", "one person"), law.name)


def _counted(join: JoinSetup, source: ColumnSource, digests: Digests) -> ColumnSource:
    """Return the class holder's rows that count in a left join: all, or under `first` one per identifier."""
    if join.duplicates != "first":
        return source
    seen: set[bytes] = set()
    places: list[int] = []
    for at, digest in enumerate(digests):
        if digest is None or digest not in seen:
            places.append(at)
        if digest is not None:
            seen.add(digest)
    if len(places) == len(digests):
        return source
    return rows_at(source, np.array(places, dtype=np.int64), source.codebook)


def digests_of(study: JoinStudy, sha256: str, source: ColumnSource) -> Digests:
    """Return digests of a table's identifiers, row by row, under the hash that the parties agreed on."""
    return read_digests(source, recipe_of(study.codebook, study.key or None), bytes.fromhex(sha256))


def padded(study: Study, digests: Mapping[str, Digests]) -> dict[str, int]:
    """Return what each party's identifiers are padded to: as agreed, or their number rounded up to a power of two."""
    bounds = params_of(study).bounds
    if unknown := sorted(set(bounds) - set(digests)):
        raise ConfigError(f"bounds name {unknown[0]!r}, who is no party")
    padded_to = {}
    for name, own in digests.items():
        count = len({digest for digest in own if digest is not None})
        padded_to[name] = bounds.get(name, min(MAX_BOUND, max(MIN_BOUND, 1 << max(0, count - 1).bit_length())))
    return padded_to


def _entries(join: JoinSetup, party: str, source: ColumnSource, digests: Digests) -> tuple[Entries, Entries | None]:
    """Return the class holder's labels and own columns, class by class, or another party's rows and counts."""
    classes = len(join.codebook.classes)
    if party != join.class_holder:
        layout = join.columns.layout(party)
        counted = [
            np.concatenate([layout.encode(block), np.ones((block.rows, 1), dtype=np.uint64)], axis=1)
            for block in source.blocks()
        ]
        entries = merge(digests, _stack(counted, layout.words + 1), join.duplicates, join.max_multiplicity)
        return entries, Entries(entries.items, np.ascontiguousarray(entries.words[:, -1:]))
    own = join.own_layout
    labels: list[U64Array] = []
    rows: list[U64Array] = []
    for block in source.blocks():
        hot = one_hot(block.known_labels, classes)
        labels.append(hot)
        if own is not None:
            words = (hot[:, :, None] * own.encode(block)[:, None, :]).reshape(block.rows, -1)
            rows.append(np.concatenate([words, hot @ join.class_places], axis=1))
    first = merge(digests, _stack(labels, classes), join.duplicates, join.max_multiplicity)
    if own is None:
        return first, None
    width = classes * own.words + join.class_places.shape[1]
    return first, merge(digests, _stack(rows, width), join.duplicates, join.max_multiplicity)


def _stack(parts: list[U64Array], width: int) -> U64Array:
    return np.concatenate(parts) if parts else np.zeros((0, width), dtype=np.uint64)


class JoinedTask(ShareTask[Joined]):
    """Training by joined_sums: rows are matched by an identifier, and nobody learns which."""

    name = "joined_sums"
    description = "shares of all sums over the hidden join. Nobody learns who is in it, nobody gets the model."
    params = JoinedSumsParams
    aligned = False
    protocols = ("transfer", "joined_sums", "shared_model")
    supports = frozenset({Support.MIN_CELL, Support.LABEL_EPSILON, Support.CLASS_WEIGHT})
    leaving = Leaving.ENCRYPTED
    messages = (
        "identifiers leave as keyed digests inside an oblivious store, padded to the agreed bound",
        "rows and labels leave under pads that open only where the other side has the same identifier, into shares",
        "garbled circuits and masked shares turn sums into shares of scores",
    )
    setup: JoinSetup

    @classmethod
    def variant(cls, study: Study) -> type[StudyTask]:
        """Return the matching task for reveal = "matching": parties learn whom they share, then their rows line up."""
        if params_of(study).reveal == "nothing":
            return cls
        from blindbayes.study.tasks.matched import MatchedTask  # it imports this module

        return MatchedTask

    @classmethod
    def agree_locally(cls, study: Study, sites: Mapping[str, LocalSite]) -> Agreement:
        """Read the identifiers. Without an agreed bound their number is rounded up to a power of two, which all see."""
        tables = {name: site.table(study) for name, site in sites.items()}
        bounds, keyed = params_of(study).bounds, join_study(study)
        if set(tables) - set(bounds):
            bounds = padded(study, {name: digests_of(keyed, study.sha256, table) for name, table in tables.items()})
        agreed = study.replace(options={**study.options, "bounds": bounds})
        return Agreement(agreed, study.sha256, tuple(sites), tuple(sites), columns=holdings_of(tables))

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        holdings, study = agreement.holdings, join_study(self.study)
        if holdings.n_rows is not None:
            raise ConfigError(
                "rows that do not line up have no common number; leave [columns] rows out, and give options.bounds"
            )
        if len(holdings.labelled) != 1:
            raise ConfigError(
                f"one party, and only one, must have the class column {study.codebook.target!r} where identifiers do not "
                "line up"
            )
        require_learner(learner_of(study), agreement.names)
        self.setup = join_of(study, agreement.owners, holdings.labelled[0], params_of(study).bounds)
        self.setup.columns.plan  # noqa: B018 - raises what ColumnsSetup refuses, and unless scores fit
        self._party = ""
        self._first: Entries | None = None  # the class holder's labels, or another's rows
        self._second: Entries | None = None  # the class holder's own columns class by class, or another's counts
        self._local: Mapping[str, Any] | None = None  # statistics that the class holder keeps to itself in a left join

    def max_bytes(self) -> int | None:
        return link_bytes.joined_training(self.setup)

    def cost(self, party: str) -> Charge | None:
        """Return one charge for the noise in the shares and for the estimates that the party's identifiers are in."""
        noise, estimates = super().cost(party), overlap_charge(self.setup, party)
        if noise is None or estimates is None:
            return noise or estimates
        return noise.plus(estimates)

    def overlap_partners(self, party: str) -> tuple[str, ...]:
        join = self.setup
        if not join.min_overlap:
            return ()
        return tuple(join.holders) if party == join.class_holder else (join.class_holder,)

    # -- one party, one run --------------------------------------------------------------------------------------------

    def bring(self, party: str, source: ColumnSource) -> None:
        join, study = self.setup, join_study(self.study)
        digests = digests_of(study, self.agreement.sha256, source)
        require_held(join.columns, party, source)
        is_holder = party == join.class_holder
        if source.labelled != is_holder:
            raise ConfigError(
                f"one party, and only one, must have the class column {study.codebook.target!r} where identifiers do not "
                "line up"
            )
        if is_holder:
            require_randomised(study, source)
        source = counted(study, join, source)
        first, second = _entries(join, party, source, digests)
        require_bound(party, len(first), join.bounds[party])
        if is_holder and not join.inner:
            self._local = count_local(join.columns, party, _counted(join, source, digests))
        self._party, self._first, self._second = party, first, second

    def _read_entries(self) -> Entries:
        if self._first is None:
            raise LocalProtocolError("the rows were not read")
        return self._first

    def input_digest(self, key: bytes) -> bytes:
        first = self._read_entries()
        arrays = [first.items, first.words]
        if self._second is not None:
            arrays += [self._second.items, self._second.words]
        return keyed_digest(key, json.dumps(self._local, sort_keys=True).encode() + self.setup.facts(), arrays)

    def role(self, name: str, run: Run, coins: Coins) -> Role[Joined]:
        join, party, first = self.setup, self._party, self._read_entries()
        is_holder = party == join.class_holder
        law, overlap_noises = overlap_noise(join, party), None
        if law is not None:
            others = join.holders if is_holder else (join.class_holder,)
            overlap_noises = {other: law.draw(coins.derive(f"noise on the overlap with {other}")) for other in others}
        noise = noise_of(self.study, join)
        own_noise = None if noise is None else noise.draw(party, coins.derive("noise in the shares"))
        if is_holder:
            trained = yield from roles.train_class_holder(run, join, first, self._second, coins, overlap_noises, own_noise)
            if self._local is not None and join.guard.acts:
                trained.local = guard_local(self._local, join.columns, own_noise, join.bounds[party])
            return trained
        if self._second is None:
            raise LocalProtocolError("an attribute holder counts its rows")
        train = roles.train_attribute_holder
        return (yield from train(run, join, first, self._second, coins, overlap_noises, own_noise))

    def share(self, trained: Joined) -> ModelShare:
        public, sha256 = public_of(replace(self.setup, training=trained.training)), self.agreement.sha256
        local = trained.local if self.setup.guard.acts else self._local
        queries = params_of(self.study).queries
        return ModelShare(sha256, self._party, public, trained.tables, trained.sums, local, queries, trained.references)

    def prediction(self, site: AnsweringSite, run_id: str, request: Request) -> PredictionTask:
        if request.to is not None and request.rows is None:
            raise ConfigError("to score people by identifier every site names its table with --table")
        return super().prediction(site, run_id, request)

    def overlaps(self, outcome: Outcome) -> Mapping[str, int]:
        names = (self.setup.class_holder, *self.agreement.names)
        trained: list[Joined] = [outcome.outputs[name] for name in names if name in outcome.outputs]
        return next((each.overlaps for each in trained if each.overlaps), {})

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        params = params_of(self.study)
        return replace(super().disclosure, overlap=Overlap(params.min_overlap, params.overlap_epsilon or 0.0))

    def outputs(self) -> list[str]:
        params, names = params_of(self.study), []
        if params.min_overlap:
            names.append(f"one bit per pair of parties: whether at least {params.min_overlap} identifiers match")
        if params.overlap_epsilon is not None:
            names.append(f"the number of matching identifiers with noise, epsilon {params.overlap_epsilon:g}")
        return names

    def conclusions(self) -> tuple[str, ...]:
        return (*super().conclusions(), *ways_of_scoring(learner_of(self.study)))

    def sizes(self) -> dict[str, Json]:
        return {"identifiers_padded_to": [f"{name}: {bound}" for name, bound in self.setup.bounds.items()]}

    def security(self) -> tuple[str, str]:
        return (
            "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, "
            f"computational; wrong results with probability below 2^-{self.setup.failure_bits}.",
            "A party that deviates cannot read the other's list or rows, since transfers, questions and the training circuit "
            "are checked; what it can bend stands in the threat model.",
        )

    def statement(self, overlaps: Mapping[str, int]) -> str:
        study, join, plan = self.study, self.setup, self.setup.columns.plan
        compare_all = bool(study.options.get("compare_all", False))
        kind = (
            "Counted: the rows of the SQL inner join on the identifier, class counts and all columns; all of it stays in "
            "shares."
            if join.inner
            else "Counted: every row of the class holder (its class counts and own columns are known to it alone), and for "
            "each attribute holder the rows of its own SQL join with the class holder; elsewhere its columns are missing."
        )
        bounds = ", ".join(f"{name} {bound}" for name, bound in join.bounds.items())
        lines = [
            f"Study {self.agreement.sha256}",
            f"Codebook {study.codebook.sha256}",
            f"Protocols joined_sums, shared_model, shared_argmax. Class holder: {join.class_holder}.",
            kind,
            "Who is in the join, and how many, was not opened"
            + (
                f"; one bit was: that at least {join.min_overlap} identifiers joined (per pair of parties). Anyone who knows "
                f"of {join.min_overlap - 1} matches learns from it about one more: limit how often such studies run."
                if join.min_overlap
                else ". No minimum was set (min_overlap): a party that brings few identifiers gets a model about those, and "
                "its classes tell who of them is shared and what the other knows of them."
            ),
            *_describe_overlaps(join, overlaps),
            *describe_guard(study, join),
            *describe_audits(join.columns, compare_all=compare_all),
            f"Public: the numbers that identifiers are padded to ({bounds}), at most {join.max_multiplicity} rows per "
            f"identifier and party, duplicates: {join.duplicates}. Identifiers and their digests never left a site.",
            f"A classification opens the class, to {learner_of(study)}; where the parties bring the same instances in one "
            "order, each knows whom they score together; a party that brings nulls learns the number of instances alone. "
            "Scoring over the hidden join (joined_scores) names nobody: one party learns a class for each of its identifiers, "
            "and which of them are shared only if that is the scope; the others learn what it is padded to. "
            + describe_queries(study.options.get("queries")),
            f"Scores: {plan.bits} bits, {plan.fraction} after the point.",
            " ".join(self.security()),
        ]
        if len(join.holders) > 1:
            lines.append(describe_coalitions(join.columns, compare_all=compare_all))
        return "\n\n".join(lines)


def _describe_overlaps(join: JoinSetup, overlaps: Mapping[str, int]) -> list[str]:
    """Describe the promise of the noisy estimate."""
    law, holder = overlap_noise(join, join.holders[0]), overlap_noise(join, join.class_holder)
    if law is None or holder is None:
        return []
    estimates = "; ".join(f"with {name} {count}" for name, count in overlaps.items())
    words = (
        "An estimate of the number of joined identifiers was opened to both parties of each join (noisy_overlap"
        f"{': ' if estimates else ''}{estimates}). Each party added discrete Laplace noise of its own, of scale "
        f"{float(law.scale):g} (standard deviation {law.deviation:.3g}), drawn exactly. So whatever the other party, or "
        "anybody, concludes from it about one identifier of its table, with all rows of it, is "
        f"{float(law.epsilon):g}-differentially private (add or remove; sensitivity 1), as far as joined_sums hides its "
        f"inputs, that is computationally. Charged: epsilon = {holder.price.epsilon:g} to the ledger of {join.class_holder}, "
        f"{law.price.epsilon:g} to that of each other party."
    )
    if join.min_overlap:
        words += " The bit about the minimum is exact and is not covered by this epsilon."
    return [words]


def ways_of_scoring(reveal_to: str) -> tuple[str, ...]:
    """Describe what each way of scoring with a model over a hidden join reveals."""
    classes = "all parties" if reveal_to == "all" else reveal_to
    return (
        "To score over the hidden join names nobody. The party that asks learns a class for each person in its table, the "
        "others learn what its number of persons is padded to. With scope 'shared' only people known to both get a class, and "
        "the party that asks learns who they are.",
        f"To score the same people in one order shows each party whom they score together. Their classes go to {classes}.",
        f"A party that brings nulls learns how many are scored, and not whom; its columns do not count. The classes go to "
        f"{classes}.",
    )


TASK = JoinedTask
