"""A study over columns, composed: training and joint classification, role by role.

The parties are the *class holder* (the first party that has the class column), and *attribute holders*. An attribute holder
that has the class column too (class known to all, or held by some) counts its own columns itself; any other goes through
`class_sums` and `shared_model` with the class holder. All of them take part in `shared_argmax`.

Rows stay outside: these roles take blocks of integer codes and return shares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Feature, Text
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.joint_circuit import Mesh
from blindbayes.protocols.shared_inference import roles as shared_argmax
from blindbayes.protocols.shared_inference.query import Labelled, SharedArgmaxSetup
from blindbayes.protocols.shared_inference.references import answer_references, ask_references, restore
from blindbayes.protocols.shared_training import class_sums, shared_model
from blindbayes.protocols.shared_training.class_sums import ClassSumsSetup, Coded, RowLayout
from blindbayes.protocols.shared_training.shared_model import NO_GUARD, Guard, Noise, ScoreLayout
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import CodedRows
from blindbayes.wire import U64Array

IntArray = npt.NDArray[np.int64]


def require_holders(owners: Mapping[str, tuple[str, ...]], codebook: Codebook) -> None:
    """Refuse a study in which a feature has two holders or no holder."""
    holder_of: dict[str, str] = {}
    for party, names in owners.items():
        for name in names:
            if name in holder_of:
                raise ConfigError(f"feature {name!r} is held by {holder_of[name]} and by {party}; one of them must drop it")
            holder_of[name] = party
    if missing := [name for name in codebook.names if name not in holder_of]:
        raise ConfigError(f"feature {missing[0]!r} of the codebook is held by no party")


@dataclass(frozen=True)
class ColumnsSetup:
    """The public facts of a study over columns."""

    codebook: Codebook
    rows: int
    owners: Mapping[str, tuple[str, ...]]  # party -> its features, in the study's order of parties
    labelled: tuple[str, ...]  # parties that have the class column; the first is the class holder
    alpha: float = 1.0
    training: str = ""  # which run made the shares, once they are made: shares of two runs do not fit together
    guard: Guard = NO_GUARD  # noise and least cells; with one, every feature of the codebook is optional
    audit_rate: float = 0.0  # share of dummies among look-ups and comparisons
    weights: tuple[float, ...] = ()  # of the classes, where they do not weigh alike

    def __post_init__(self) -> None:
        if len(self.owners) < 2:
            raise ConfigError("a model in shares needs at least two parties")
        if not self.labelled or not set(self.labelled) <= set(self.owners):
            raise ConfigError(f"who has the class column {self.codebook.target!r}? No party of the study does")
        require_holders(self.owners, self.codebook)
        for party in self.holders:
            if not self.owners[party]:
                raise ConfigError(f"{party} brings no column")

    @property
    def class_holder(self) -> str:
        return self.labelled[0]

    @property
    def holders(self) -> tuple[str, ...]:
        """The attribute holders, in the study's order."""
        return tuple(party for party in self.owners if party != self.class_holder)

    def shared(self, party: str) -> tuple[str, ...]:
        """Return the features of a party whose statistics are shared: all, unless it knows the class."""
        return () if party in self.labelled else self.coded(party)

    def coded(self, party: str) -> tuple[str, ...]:
        """Return a party's features as they are counted: a text has one per word."""
        return tuple(feature.name for feature in self.features(party))

    def features(self, party: str) -> tuple[Feature, ...]:
        own = (self.codebook.feature(name) for name in self.owners[party])
        split = (each.by_word if isinstance(each, Text) else (each,) for each in own)
        return tuple(each for part in split for each in part)

    @cached_property
    def plan(self) -> ScoreLayout:
        return ScoreLayout(self.codebook.by_word, self.rows, self.alpha, self.guard, self.weights)

    def layout(self, party: str) -> RowLayout:
        return RowLayout(self.features(party), self.rows, noise_bits=self.guard.noise_bits)

    @cached_property
    def aligned(self) -> dict[str, RowLayout]:
        """Words of the rows that go through class_sums, by party; rows are lined up."""
        shared, classes = (party for party in self.holders if self.shared(party)), len(self.codebook.classes)
        noise = self.guard.noise_bits
        return {party: RowLayout.thrifty(self.features(party), self.rows, classes, noise) for party in shared}

    def shape(self, party: str) -> ClassSumsSetup:
        """Return the setup of class_sums with a party."""
        layout = self.aligned[party]
        return ClassSumsSetup(self.rows, layout.words, len(self.codebook.classes), layout.facts(), layout.stretch)

    def query(self, count: int, reveal_to: str = "all", *, compare_all: bool = False, tally: bool = False) -> SharedArgmaxSetup:
        """Return the public facts of a batch.

        A named attribute holder evaluates, so that nobody else sees the class; with `compare_all` all parties compare, so that
        no pair of them is trusted.
        """
        holders = self.holders
        if reveal_to == "all":
            learners: tuple[str, ...] = tuple(self.owners)
        elif reveal_to in self.owners:
            learners = (reveal_to,)
            if reveal_to in holders:
                holders = (reveal_to, *(name for name in holders if name != reveal_to))
        else:
            raise ConfigError(f"reveal_to is 'all' or a party of the study; {reveal_to!r} is not one")
        shared = {name: self.shared(name) for name in holders}
        facts = self.plan, count, self.class_holder, holders, shared, learners, compare_all, self.audit_rate
        return SharedArgmaxSetup(*facts, tally=tally)


@dataclass(slots=True)
class Trained:
    """The result of training at one party."""

    tables: dict[str, dict[str, Limbs]] = field(repr=False)  # per other party: shares of score tables
    sums: dict[str, U64Array] = field(repr=False)  # per other party: shares of sums
    ot_senders: dict[str, OtSender] = field(repr=False)  # transfers ready for prediction: the class holder's side
    ot_receiver: OtReceiver | None = field(default=None, repr=False)  # an attribute holder's side
    training: str = ""  # the name of this run, the same for all its parties
    references: dict[str, bytes] = field(default_factory=dict, repr=False)  # per other party, where look-ups are audited


# -- training ------------------------------------------------------------------------------------------------------------


def train_class_holder(
    run: Run,
    columns: ColumnsSetup,
    class_counts: IntArray,
    labels: Callable[[], Iterable[IntArray]],
    coins: Coins,
    noise: Noise | None = None,
) -> Role[Trained]:
    """Run the class holder's role with every attribute holder in turn.

    `labels` reads the class column anew each time; `noise` is this party's noise on every table, if the study has noise.
    """
    if columns.guard.acts:
        class_counts = any_counts(columns)
    trained = Trained({}, {}, {}, training=training_name(run))
    for name in columns.holders:
        if columns.shared(name):
            ot_receiver = yield from transfer.ot_receiver(run, name, coins)
            trained.ot_senders[name] = yield from transfer.ot_sender(run, name, coins)
            share = yield from class_sums.class_holder(run, name, columns.shape(name), labels(), ot_receiver, coins)
            if not columns.guard.acts:
                trained.sums[name] = share
            trained.tables[name] = yield from shared_model.class_holder(
                run,
                name,
                share,
                class_counts,
                (columns.aligned[name], columns.plan),
                (trained.ot_senders[name], ot_receiver),
                coins,
                noise,
            )
            if columns.audit_rate:
                features, ot_sender = columns.shared(name), trained.ot_senders[name]
                yield from answer_references(run, name, columns.plan, trained.tables[name], features, ot_sender, coins)
        else:
            trained.ot_senders[name] = yield from transfer.ot_sender(run, name, coins)
    return trained


def train_attribute_holder(
    run: Run, columns: ColumnsSetup, blocks: Iterable[CodedRows], coins: Coins, noise: Noise | None = None
) -> Role[Trained]:
    """Run an attribute holder's role. One that knows the class only sets up its transfers. `noise` as above."""
    other = columns.class_holder
    if not columns.shared(run.me):
        ot_receiver = yield from transfer.ot_receiver(run, other, coins)
        return Trained({}, {}, {}, ot_receiver, training_name(run))
    ot_sender = yield from transfer.ot_sender(run, other, coins)
    ot_receiver = yield from transfer.ot_receiver(run, other, coins)
    layout = columns.aligned[run.me]
    words = (Coded(layout, block) for block in blocks)
    share = yield from class_sums.attribute_holder(run, other, columns.shape(run.me), words, ot_sender, coins)
    tables = yield from shared_model.attribute_holder(
        run, other, share, (layout, columns.plan), (ot_sender, ot_receiver), coins, noise
    )
    sums = {} if columns.guard.acts else {other: share}  # exact sums, put together, would be what the guard keeps back
    references = {}
    if columns.audit_rate:
        asked = ask_references(run, other, columns.plan, tables, columns.shared(run.me), ot_receiver, coins)
        references[other] = yield from asked
    return Trained({other: tables}, sums, {}, ot_receiver, training_name(run), references)


def any_counts(columns: ColumnsSetup) -> IntArray:
    """Return class counts that add up to the rows: shared_model wants them even where it does not use them."""
    counts = np.zeros(len(columns.codebook.classes), dtype=np.int64)
    counts[0] = columns.rows
    return counts


def training_name(run: Run) -> str:
    """Return the name of a training run in the files of its shares."""
    return hashlib.sha256(run.context("training")).hexdigest()


# -- prediction ----------------------------------------------------------------------------------------------------------


def fixed_point(scores: npt.NDArray[np.float64], plan: ScoreLayout) -> Limbs:
    """Convert finite scores in clear (rows, K) to differences to class 0 in the plan's fixed point."""
    if not np.isfinite(scores).all():
        raise LocalProtocolError("local scores must be finite")
    scaled = np.rint((scores[:, 1:] - scores[:, :1]) * 2.0**plan.fraction)
    return lm.cut(lm.from_floats(scaled, plan.limbs), plan.bits)


def prior(class_counts: IntArray, plan: ScoreLayout) -> npt.NDArray[np.float64]:
    """Return the weighted ln of the class counts; a class without rows lies below everything."""
    with np.errstate(divide="ignore"):
        logs = np.log(class_counts.astype(np.float64)) - np.log(max(1, int(class_counts.sum())))
    return np.where(class_counts > 0, logs + plan.log_weights, plan.below)


def predict_class_holder(
    run: Run,
    query: SharedArgmaxSetup,
    local: npt.NDArray[np.float64] | Labelled,
    tables: Mapping[str, Mapping[str, Limbs]],
    ot_senders: Mapping[str, OtSender],
    coins: Coins,
    mesh: Mesh | None = None,
) -> Role[IntArray | None]:
    """Run the class holder's role. `local` is the prior and its own features, (rows, K), in clear to itself."""
    scores: Limbs | Labelled
    if isinstance(local, Labelled):
        scores = Labelled(fixed_point(local.scores, query.plan), local.labels)
    else:
        scores = fixed_point(local, query.plan)
    return (yield from shared_argmax.class_holder(run, query, scores, tables, ot_senders, coins, mesh))


@dataclass(frozen=True, slots=True)
class Instances:
    """An attribute holder's part of a batch: coded columns, and scores (rows, K) in clear if it knows the classes."""

    columns: Mapping[str, IntArray] = field(repr=False)
    scores: npt.NDArray[np.float64] | None = field(default=None, repr=False)


def predict_attribute_holder(
    run: Run,
    query: SharedArgmaxSetup,
    tables: Mapping[str, Limbs],
    instances: Instances,
    ot_receiver: OtReceiver,
    coins: Coins,
    mesh: Mesh | None = None,
    references: bytes = b"",
) -> Role[IntArray | None]:
    """Run an attribute holder's role, with shares of tables, or with local scores if it knows the classes.

    `references` are what training left for audits.
    """
    plan, columns, local = query.plan, instances.columns, instances.scores
    own_references = restore(references, plan, tables, query.shared.get(run.me, ())) if references else None
    scores = shared_model.score(tables, columns, plan, query.count)
    if local is not None:
        scores = lm.add(scores, fixed_point(local, plan))
    return (yield from shared_argmax.attribute_holder(run, query, scores, columns, ot_receiver, coins, own_references, mesh))
