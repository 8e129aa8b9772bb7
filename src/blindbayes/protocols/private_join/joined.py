"""A study over columns whose identifiers do not line up, composed: training and joint classification, role by role.

*inner* (two parties): everything is counted over the rows of the SQL join, class counts and the class holder's own columns
included, and stays in shares. *left* (two or more parties): every row of the class holder counts; each attribute holder's
columns are counted over its own join with the class holder and are missing elsewhere; class counts and the class holder's own
columns are its own business, as in `columns`.

Rows stay outside: these roles take entries (keyed digests and words) and return shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.private_join.sums import counts as on_counts
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.private_join.sums.inputs import Entries, class_places
from blindbayes.protocols.private_join.sums.roles import JoinedSumsSetup
from blindbayes.protocols.shared_inference import roles as shared_argmax
from blindbayes.protocols.shared_inference.query import Labelled, SharedArgmaxSetup
from blindbayes.protocols.shared_inference.references import (
    answer_references,
    ask_references,
    look_up_audited,
    restore,
    serve_audited,
)
from blindbayes.protocols.shared_training import shared_model
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.columns import ColumnsSetup, Trained, any_counts, fixed_point, training_name
from blindbayes.protocols.shared_training.shared_model import NO_GUARD, Guard, Noise
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.wire import U64Array

IntArray = npt.NDArray[np.int64]


def require_reachable(min_overlap: int, bounds: Iterable[int]) -> None:
    """Refuse a minimum overlap that no run could have."""
    if min_overlap < 0:
        raise ConfigError("min_overlap is not negative")
    if min_overlap > min(bounds):
        raise ConfigError("min_overlap is larger than the bounds of a join: it could never be reached")


@dataclass(frozen=True)
class JoinSetup:
    """The public facts of a join."""

    codebook: Codebook  # as agreed; features may be declared to be always there
    owners: Mapping[str, tuple[str, ...]]  # party -> its features, in the study's order
    class_holder: str
    bounds: Mapping[str, int]  # party -> what its number of identifiers is padded to
    inner: bool
    duplicates: str = "join"
    max_multiplicity: int = 1  # rows of one identifier at one party
    min_overlap: int = 0
    alpha: float = 1.0
    key: tuple[str, ...] = ()  # identifier columns, where the codebook has no recipe
    overlap_epsilon: float | None = None  # of the noisy estimate of joined identifiers; None: no estimate
    training: str = ""  # which run made the shares, once they are made: shares of two runs do not fit together
    guard: Guard = NO_GUARD  # noise and least cells
    audit_rate: float = 0.0  # share of dummies among look-ups and comparisons
    weights: tuple[float, ...] = ()  # of the classes, where they do not weigh alike

    def __post_init__(self) -> None:
        if self.class_holder not in self.owners or set(self.bounds) != set(self.owners):
            raise ConfigError("a join names its class holder and a bound for each of its parties")
        if len(self.owners) < 2:
            raise ConfigError("a join has two parties or more")
        if self.inner and len(self.owners) != 2:
            raise ConfigError("an inner join is between two parties; with more, take join = 'left'")
        if self.duplicates not in ("join", "first", "reject"):
            raise ConfigError("duplicates is one of join, first, reject")
        if (
            self.max_multiplicity < 1
            or self.max_multiplicity > 2**16
            or (self.duplicates != "join" and self.max_multiplicity != 1)
        ):
            raise ConfigError("multiplicity lies between 1 and 65,536, and is 1 unless duplicates = 'join'")
        for name in self.holders:  # what a run would refuse is refused now
            JoinedSumsSetup(
                self.bounds[name], self.bounds[self.class_holder], 1, len(self.codebook.classes), self.max_multiplicity
            )
        if self.rows >= 1 << 31:
            raise ConfigError("a bound times the multiplicity squared passes 2^31 rows; lower the multiplicity or the bounds")
        require_reachable(self.min_overlap, self.bounds.values())

    @cached_property
    def columns(self) -> ColumnsSetup:
        """The study as `columns` sees it: every feature may be missing, and the number of rows is a bound."""
        book = self.codebook.with_features(
            tuple(
                msgspec.structs.replace(feature, optional=True) if self.guard.acts or self.is_shared(feature.name) else feature
                for feature in self.codebook.features
            )
        )
        return ColumnsSetup(
            book,
            self.rows,
            self.owners,
            (self.class_holder,),
            self.alpha,
            self.training,
            self.guard,
            self.audit_rate,
            self.weights,
        )

    def is_shared(self, feature: str) -> bool:
        """Return True if a feature's statistics are in shares: all but the class holder's own in a left join."""
        return self.inner or feature not in self.owners[self.class_holder]

    @property
    def holders(self) -> tuple[str, ...]:
        return tuple(party for party in self.owners if party != self.class_holder)

    @property
    def rows(self) -> int:
        """Bound on the rows of any of the joins."""
        return self.joined * self.max_multiplicity * self.max_multiplicity

    @property
    def joined(self) -> int:
        """Bound on the identifiers of any of the joins."""
        return max(min(self.bounds[self.class_holder], self.bounds[name]) for name in self.holders)

    @property
    def failure_bits(self) -> int:
        """Any of the study's runs of joined_sums fails, or counts wrongly, with probability below 2 to the minus this."""
        runs = len(self.holders) * (2 if self.is_run_twice else 1)
        return joined_sums.FAILURE_BITS - (runs - 1).bit_length()

    @property
    def counted(self) -> bool:
        """True if joined identifiers are counted: by circuits of both parties, which must agree."""
        return bool(self.min_overlap) or self.overlap_epsilon is not None

    @property
    def is_run_twice(self) -> bool:
        """True if joined_sums runs once more with the roles swapped.

        It does for the class holder's own columns, and where a minimum, an estimate or noise must hold even if a party
        deviates: nobody counts for more than one in both runs.
        """
        return self.own_layout is not None or self.counted or self.guard.noise_bits > 0

    @property
    def own_layout(self) -> RowLayout | None:
        """Words of the class holder's own columns, if they are shared."""
        if not self.inner or not self.owners[self.class_holder]:
            return None
        return self.columns.layout(self.class_holder)

    def shape(self, party: str) -> JoinedSumsSetup:
        """Return the setup in which an attribute holder brings rows and the class holder labels; the last word counts rows."""
        layout, classes = self.columns.layout(party), len(self.codebook.classes)
        facts = layout.facts() + self.facts()
        bounds = self.bounds[party], self.bounds[self.class_holder]
        return JoinedSumsSetup(*bounds, layout.words + 1, classes, self.max_multiplicity, facts, self.counted)

    def own_shape(self, party: str) -> JoinedSumsSetup:
        """Return the setup in which the class holder brings its own columns, if any, and the other its numbers of rows.

        The class holder's columns come class by class, and the classes again.
        """
        bounds, layout = (self.bounds[self.class_holder], self.bounds[party]), self.own_layout
        own, facts = (0, b"") if layout is None else (layout.words * len(self.codebook.classes), layout.facts())
        words = own + self.class_places.shape[1]
        return JoinedSumsSetup(*bounds, words, 1, self.max_multiplicity, facts + self.facts(), self.counted)

    @cached_property
    def class_places(self) -> U64Array:
        """The words by which a row of each class is counted a second time, for the class holder's own columns."""
        return class_places(len(self.codebook.classes), self.rows)

    def noise_bits(self, party: str) -> int:
        """Bits of an estimate of the joined identifiers: as few as hold it (noise is larger with probability e^-64)."""
        if self.overlap_epsilon is None:
            raise LocalProtocolError("the study has no estimate of the joined identifiers")
        return min(64, (self.shape(party).bins + 2 * math.ceil(64 / self.overlap_epsilon)).bit_length() + 1)

    def facts(self) -> bytes:
        """Return the bytes that all must agree on; the recipe of identifiers is in the codebook's hash."""
        parts = (sorted(self.owners.items()), self.class_holder, sorted(self.bounds.items()), self.inner)
        rest = (
            self.duplicates,
            self.max_multiplicity,
            self.min_overlap,
            self.alpha,
            self.key,
            self.overlap_epsilon,
            self.training,
        )
        return repr((self.codebook.sha256, *parts, *rest, self.guard, self.audit_rate, self.weights)).encode()


@dataclass(slots=True)
class Joined(Trained):
    """The result of training at one party; the transfers of both directions are ready for prediction."""

    back_receivers: dict[str, OtReceiver] = field(default_factory=dict, repr=False)  # the class holder's other direction
    local: Mapping[str, Any] | None = field(default=None, repr=False)  # own statistics behind a guard, in a left join
    overlaps: dict[str, int] = field(default_factory=dict)  # other party -> the noisy number of joined identifiers, as opened


class SumNoise(Protocol):
    """One party's noise on the sums of a join: on the class counts, and on each feature's table."""

    @property
    def class_counts(self) -> Sequence[int]: ...
    @property
    def tables(self) -> Noise: ...


@dataclass(frozen=True, slots=True)
class Links:
    """One party's transfers with another, both directions: as sender (keeper) and as chooser (planter)."""

    ot_sender: OtSender = field(repr=False)
    ot_receiver: OtReceiver = field(repr=False)

    @property
    def both(self) -> tuple[OtSender, OtReceiver]:
        return self.ot_sender, self.ot_receiver


def connect(run: Run, other: str, coins: Coins) -> Role[Links]:
    """Set up both directions. The party that comes first in the roster is the sender of the first."""
    if run.parties.index(run.me) < run.parties.index(other):
        ot_sender = yield from transfer.ot_sender(run, other, coins)
        ot_receiver = yield from transfer.ot_receiver(run, other, coins)
    else:
        ot_receiver = yield from transfer.ot_receiver(run, other, coins)
        ot_sender = yield from transfer.ot_sender(run, other, coins)
    return Links(ot_sender, ot_receiver)


# -- training ------------------------------------------------------------------------------------------------------------


def train_class_holder(
    run: Run,
    join: JoinSetup,
    labels: Entries,
    own: Entries | None,
    coins: Coins,
    noise: Mapping[str, int] | None = None,
    sum_noise: SumNoise | None = None,
) -> Role[Joined]:
    """Run the class holder's role with every attribute holder in turn.

    `own` are its columns class by class, in an inner join; `noise` is its noise on each estimate of joined identifiers,
    `sum_noise` that on every table, where the study has any.
    """
    tables_noise, class_noise = (None, None) if sum_noise is None else (sum_noise.tables, sum_noise.class_counts)
    trained = Joined({}, {}, {}, training=training_name(run))
    columns, plan, counts = join.columns, join.columns.plan, {}
    mine: dict[str, joined_sums.RowShares] = {}
    for name in join.holders:
        ot_receiver = yield from transfer.ot_receiver(run, name, coins)
        ot_sender = yield from transfer.ot_sender(run, name, coins)
        both = ot_sender, ot_receiver
        share, matches = yield from joined_sums.label_holder(run, name, join.shape(name), labels, both, coins)
        if join.is_run_twice:
            brought = own if own is not None else Entries(labels.items, labels.words @ join.class_places)
            facts = join.own_shape(name), brought, both, coins, _rows_known(join, share)
            mine[name] = yield from joined_sums.row_holder(run, name, *facts)
            counts[name] = on_counts.Executions(mine[name].matches, matches)  # what one party garbled alone could be anything
        if join.min_overlap:
            yield from on_counts.enough(counts[name], join.min_overlap, True, coins)
        trained.sums[name], trained.ot_senders[name], trained.back_receivers[name] = share, ot_sender, ot_receiver
    for name in join.holders:  # nothing else is opened or used before every join was found large enough
        if join.overlap_epsilon is not None:
            own_noise, bits = require_noise(noise, name), join.noise_bits(name)
            trained.overlaps[name] = yield from on_counts.noisy(counts[name], own_noise, bits, True, coins)
    for name in join.holders:
        share, both = trained.sums[name], (trained.ot_senders[name], trained.back_receivers[name])
        sums, layout = _cut(share), columns.layout(name)
        no_counts = any_counts(columns)
        tables = yield from shared_model.class_holder(run, name, sums, no_counts, (layout, plan), both, coins, tables_noise)
        if join.inner:
            tables[join.codebook.target] = yield from on_counts.prior_class_holder(
                run, name, share[:, -1], plan, both, coins, class_noise
            )
            own_layout = join.own_layout
            if own_layout is not None and name in mine:
                own_sums = _own(join, mine[name].sums)
                tables |= yield from shared_model.class_holder(
                    run, name, own_sums, no_counts, (own_layout, plan), both, coins, tables_noise
                )
                share = np.concatenate([share, own_sums], axis=1)
            sums = share
        trained.sums[name], trained.tables[name] = sums, tables
        if join.audit_rate:
            trained.references |= yield from _refer(run, join, name, tables, Links(*both), coins)
    if join.guard.acts:  # exact sums, put together, would be what the guard keeps back
        trained.sums.clear()
    return trained


def train_attribute_holder(
    run: Run,
    join: JoinSetup,
    rows: Entries,
    numbers: Entries,
    coins: Coins,
    noise: Mapping[str, int] | None = None,
    sum_noise: SumNoise | None = None,
) -> Role[Joined]:
    """Run an attribute holder's role.

    `rows` are its columns and a count per identifier, `numbers` the count alone; `noise` and `sum_noise` as for the class
    holder.
    """
    tables_noise, class_noise = (None, None) if sum_noise is None else (sum_noise.tables, sum_noise.class_counts)
    other, columns, plan = join.class_holder, join.columns, join.columns.plan
    ot_sender = yield from transfer.ot_sender(run, other, coins)
    ot_receiver = yield from transfer.ot_receiver(run, other, coins)
    both = ot_sender, ot_receiver
    share, count = yield from joined_sums.row_holder(run, other, join.shape(run.me), rows, both, coins)
    own_layout, theirs, overlaps = join.own_layout, None, {}
    if join.is_run_twice:
        facts = join.own_shape(run.me), numbers, both, coins, _rows_known(join, share)
        theirs = yield from joined_sums.label_holder(run, other, *facts)
        counts = on_counts.Executions(count, theirs.matches)
    if join.min_overlap:
        yield from on_counts.enough(counts, join.min_overlap, False, coins)
    if join.overlap_epsilon is not None:
        own_noise, bits = require_noise(noise, other), join.noise_bits(run.me)
        overlaps[other] = yield from on_counts.noisy(counts, own_noise, bits, False, coins)
    sums, layout = _cut(share), columns.layout(run.me)
    tables = yield from shared_model.attribute_holder(run, other, sums, (layout, plan), both, coins, tables_noise)
    if join.inner:
        tables[join.codebook.target] = yield from on_counts.prior_attribute_holder(
            run, other, share[:, -1], plan, both, coins, class_noise
        )
        if own_layout is not None and theirs is not None:
            mine = _own(join, theirs.sums)
            tables |= yield from shared_model.attribute_holder(run, other, mine, (own_layout, plan), both, coins, tables_noise)
            share = np.concatenate([share, mine], axis=1)
        sums = share
    class_sums = {} if join.guard.acts else {other: sums}
    trained = Joined({other: tables}, class_sums, {}, ot_receiver, training_name(run), overlaps=overlaps)
    if join.audit_rate:
        trained.references |= yield from _refer(run, join, other, tables, Links(ot_sender, ot_receiver), coins)
    return trained


def _refer(
    run: Run, join: JoinSetup, other: str, tables: Mapping[str, Limbs], links: Links, coins: Coins
) -> Role[dict[str, bytes]]:
    """Ask for and answer reference instances, as the last step of training with audits."""
    plan, holder = join.columns.plan, join.class_holder
    attributes = join.owners[other if run.me == holder else run.me]
    own = join.owners[holder] if join.inner else ()  # the class holder's features, if the other has shares of their tables
    answered, asked = (attributes, own) if run.me == holder else (own, attributes)
    references = {}
    for asks in (run.me != holder, run.me == holder):  # the attribute holder first
        if asks and asked:
            references[other] = yield from ask_references(run, other, plan, tables, asked, links.ot_receiver, coins)
        elif not asks and answered:
            yield from answer_references(run, other, plan, tables, answered, links.ot_sender, coins)
    return references


def require_noise(noise: Mapping[str, int] | None, other: str) -> int:
    """Return the noise of the estimate with one party. Raises without one."""
    if noise is None or other not in noise:
        raise LocalProtocolError("an estimate of the joined identifiers is never opened without noise")
    return noise[other]


def _rows_known(join: JoinSetup, share: U64Array) -> U64Array:
    """Return the share of the joined rows of each class, as the run with the roles swapped counts them."""
    return share[:, -1] @ join.class_places


def _own(join: JoinSetup, sums: U64Array) -> U64Array:
    """Return the sums of the class holder's own columns, class by class, without what counts its rows."""
    return sums[0, : -join.class_places.shape[1]].reshape(len(join.class_places), -1)


def _cut(share: U64Array) -> U64Array:
    """Return the share without the count of rows: what class_sums would have left."""
    return np.ascontiguousarray(share[:, :-1])


# -- prediction over an inner join -----------------------------------------------------------------------------------------


def predict(
    run: Run,
    join: JoinSetup,
    query: SharedArgmaxSetup,
    tables: Mapping[str, Limbs],
    columns: Mapping[str, IntArray],
    links: Links,
    coins: Coins,
    references: bytes = b"",
) -> Role[IntArray | None]:
    """Run the role of either party: both parties' tables are in shares, so each looks up in the other's.

    For a tally the class holder's `columns` hold the classes too, under the name of the target.
    """
    is_holder = run.me == join.class_holder
    other = join.holders[0] if is_holder else join.class_holder
    own, theirs = ({name: tables[name] for name in join.owners[party]} for party in (run.me, other))
    own_references = restore(references, query.plan, tables, tuple(own)) if references else None
    prior = tables[join.codebook.target][0, 1]
    scores = shared_model.score(own, columns, query.plan, query.count)
    scores = lm.add(scores, np.broadcast_to(prior[None], scores.shape))
    if join.weights and is_holder:  # public: added to one of the two shares
        scores = lm.add(scores, np.broadcast_to(fixed_point(query.plan.log_weights[None], query.plan), scores.shape))
    if join.owners[join.class_holder]:
        back = _backwards(join, query)
        session = yield from agree(run, other, "joined look-up", back.facts(), coins)
        hash_ = TweakedHash(session)
        if is_holder:
            stream = links.ot_receiver.session(session)
            own_scores = yield from look_up_audited(run, back, columns, own_references, hash_, stream, coins)
        else:
            answers = links.ot_sender.session(session)
            own_scores = yield from serve_audited(run, back, other, theirs, hash_, answers)
        scores = lm.add(scores, own_scores)
    if not is_holder:
        return (
            yield from shared_argmax.attribute_holder(run, query, scores, columns, links.ot_receiver, coins, own_references)
        )
    senders, labels = {other: links.ot_sender}, columns.get(join.codebook.target)
    entered = scores if labels is None else Labelled(scores, labels)
    return (yield from shared_argmax.class_holder(run, query, entered, {other: theirs}, senders, coins))


def _backwards(join: JoinSetup, query: SharedArgmaxSetup) -> SharedArgmaxSetup:
    """Return the query with the look-ups swapped: the class holder chooses in the attribute holder's tables."""
    holder, other = join.class_holder, join.holders[0]
    features = {holder: join.owners[holder]}
    facts = (query.plan, query.count, other, (holder,), features, (holder,))
    return SharedArgmaxSetup(*facts, audit_rate=query.audit_rate)
