"""A model of everybody's rows that two or more of the parties hold in shares, and classification with it. See SPEC.md.

The total of the parties' counts is in shares of the computing parties after step 1. `shared_model` makes shares of score tables
of it, garbled between two and by `joint_circuit` among more. Any party looks its values up in all of these; then all compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.protocols import joint_circuit
from blindbayes.protocols.core import Role, Run, open_value
from blindbayes.protocols.joint_circuit import Mesh
from blindbayes.protocols.private_join.sums import counts as on_counts
from blindbayes.protocols.shared_inference.compare_all import compare
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup, look_up, serve
from blindbayes.protocols.shared_inference.roles import LABEL
from blindbayes.protocols.shared_rows.joint import Shape, joint_tables
from blindbayes.protocols.shared_rows.split import collect, deal
from blindbayes.protocols.shared_training import shared_model
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.class_sums.layout import HistogramFields
from blindbayes.protocols.shared_training.columns import training_name
from blindbayes.protocols.shared_training.shared_model import ScoreLayout
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import Statistics, names_of
from blindbayes.wire import U64Array

IntArray = npt.NDArray[np.int64]
_LIMB = (1 << 32) - 1


@dataclass(frozen=True)
class SharedRowsSetup:
    """Public facts of the protocol: codebook, parties, and how many of them compute (the first ones and the last)."""

    codebook: Codebook
    parties: tuple[str, ...]
    alpha: float = 1.0
    training: str = ""  # which run made the shares: shares of two runs do not fit together
    computes: int = 2  # how many of the parties compute

    def __post_init__(self) -> None:
        if len(self.parties) < 2:
            raise ConfigError("private_ratio needs at least two parties")
        if self.codebook.max_rows >= 1 << 31:
            raise ConfigError("a model in shares takes a max_rows below 2^31")
        if not 2 <= self.computes <= len(self.parties):
            raise ConfigError(f"of {len(self.parties)} parties 2 to {len(self.parties)} can compute, not {self.computes}")

    @property
    def computing(self) -> tuple[str, ...]:
        """The parties that hold the model: safe while one of them is honest."""
        return *self.parties[: self.computes - 1], self.parties[-1]

    @cached_property
    def _book(self) -> Codebook:
        """Count all values of every feature, so that no number of rows is in clear."""
        features = (msgspec.structs.replace(feature, optional=True) for feature in self.codebook.features)
        return self.codebook.with_features(tuple(features))

    @cached_property
    def plan(self) -> ScoreLayout:
        return ScoreLayout(self._book, self.codebook.max_rows, self.alpha)

    @cached_property
    def layout(self) -> RowLayout:
        """Places of the sums of a class; its number of rows follows them."""
        return RowLayout(self._book.features, self.codebook.max_rows)

    @property
    def length(self) -> int:
        return self.plan.classes * (self.layout.words + 1)

    def vector(self, statistics: Statistics) -> U64Array:
        """Return a party's statistics as words whose sums over parties are those of all rows."""
        words = [[0] * self.layout.words + [int(count)] for count in statistics.class_counts]
        for fields in self.layout.fields:
            name = fields.feature.name
            for at, row in enumerate(words):
                if isinstance(fields, HistogramFields):
                    placed = list(zip(fields.counts, statistics.counts[name][at], strict=True))
                else:
                    left, limbs = int(statistics.squares[name][at]), len(fields.squares)
                    squares = [(left >> 32 * limb) & (_LIMB if limb < limbs - 1 else -1) for limb in range(limbs)]
                    placed = [(fields.present, statistics.n[name][at]), (fields.total, statistics.sums[name][at])]
                    placed += zip(fields.squares, squares, strict=True)
                for place, value in placed:
                    if place is not None:
                        row[place.word] = (row[place.word] + (int(value) << place.shift)) % 2**64
        return np.array(words, dtype=np.uint64).reshape(-1)

    def statistics(self, total: U64Array) -> Statistics:
        """Decode a total, in simulations and tests."""
        words = total.reshape(self.plan.classes, -1)
        counts = words[:, -1].astype(np.int64)
        decoded = self.layout.decode(np.ascontiguousarray(words[:, :-1]), counts)
        return Statistics.from_names(self.codebook, names_of(self.codebook, counts, decoded))

    def comparing(self, asker: str) -> tuple[str, ...]:
        """Return who takes part in the classification of one party's instances."""
        if asker not in self.parties:
            raise ConfigError(f"{asker!r} is no party of the model")
        return tuple(name for name in self.parties if name in (*self.computing, asker))

    def look_up(self, count: int, asker: str, server: str) -> SharedArgmaxSetup:
        """Return the public facts of one party's look-ups in another's tables."""
        return SharedArgmaxSetup(self.plan, count, server, (asker,), {asker: tuple(self.codebook.names)}, (asker,))

    def facts(self) -> bytes:
        """Return the bytes that all parties must agree on."""
        return repr((self.codebook.sha256, self.parties, self.alpha, self.training, self.computes)).encode()


@dataclass(slots=True)
class SharedTables:
    """The result of training at one party; a party that does not compute keeps nothing but the run's name."""

    training: str
    tables: dict[str, Limbs] = field(default_factory=dict, repr=False)
    sums: U64Array | None = field(default=None, repr=False)


def train(run: Run, rows: SharedRowsSetup, vector: U64Array, coins: Coins) -> Role[SharedTables]:
    """Run any party's role in training. Step numbers as in SPEC.md."""
    if vector.dtype != np.uint64 or vector.shape != (rows.length,):
        raise LocalProtocolError("a vector has one word per word of the layout and class")
    made, computing = SharedTables(training_name(run)), rows.computing
    if run.me not in computing:
        yield from deal(vector, computing, coins)  # step 1
        return made
    made.sums = yield from collect(run, vector, computing)
    words, part = made.sums.reshape(rows.plan.classes, -1), replace(run, parties=computing)
    share = np.ascontiguousarray(words[:, :-1]), np.ascontiguousarray(words[:, -1])
    make = _garbled_tables if rows.computes == 2 else joint_tables
    made.tables = yield from make(part, rows.facts(), (rows.layout, rows.plan), share, coins)
    return made


def _garbled_tables(
    run: Run, facts: bytes, shape: Shape, share: tuple[U64Array, U64Array], coins: Coins
) -> Role[dict[str, Limbs]]:
    (layout, plan), (sums, counts), (first, second) = shape, share, run.parties
    other = second if run.me == first else first
    yield from transfer.agree(run, other, "private_ratio", facts, coins)  # step 2
    if run.me == first:
        planter = yield from transfer.ot_receiver(run, other, coins)
        both = (yield from transfer.ot_sender(run, other, coins)), planter
        nobody = np.zeros(plan.classes, dtype=np.int64)  # every denominator is a sum of counters: these are not used
        nobody[0] = layout.rows
        tables = yield from shared_model.class_holder(run, other, sums, nobody, (layout, plan), both, coins)  # step 3
        tables[plan.codebook.target] = yield from on_counts.prior_class_holder(run, other, counts, plan, both, coins)
    else:
        keeper = yield from transfer.ot_sender(run, other, coins)
        both = keeper, (yield from transfer.ot_receiver(run, other, coins))
        tables = yield from shared_model.attribute_holder(run, other, sums, (layout, plan), both, coins)
        tables[plan.codebook.target] = yield from on_counts.prior_attribute_holder(run, other, counts, plan, both, coins)
    return tables


def connect(run: Run, rows: SharedRowsSetup, count: int, asker: str, coins: Coins) -> Role[Mesh]:
    """Agree on the public facts of a classification and set up its transfers.

    A party that neither asks nor computes agrees with all computing parties, since it charges its budget for the instances.
    """
    comparing = rows.comparing(asker)
    others = rows.parties if run.me in rows.computing else rows.computing
    met = {other: "classification" for other in others if other != run.me}
    yield from transfer.agree_all(run, met, rows.facts() + repr((count, asker)).encode(), coins)
    if run.me not in comparing:
        return Mesh()
    return (yield from joint_circuit.connect(replace(run, parties=comparing), coins))


def classify(
    run: Run,
    rows: SharedRowsSetup,
    count: int,
    asker: str,
    tables: Mapping[str, Limbs],
    columns: Mapping[str, IntArray],
    mesh: Mesh,
    coins: Coins,
) -> Role[IntArray | None]:
    """Run any party's role in the classification of a batch: `tables` of a computing party, `columns` of the asker."""
    comparing, plan = rows.comparing(asker), rows.plan
    if run.me not in comparing:
        return None
    part = replace(run, parties=comparing)
    scores = np.zeros((count, plan.classes - 1, plan.limbs), dtype=np.uint64)
    own = {name: tables[name] for name in rows.codebook.names} if tables else {}
    if own:
        scores = lm.add(scores, np.broadcast_to(tables[rows.codebook.target][0, 1][None], scores.shape))
    facts = rows.facts() + repr((count, asker)).encode()
    sessions = yield from transfer.agree_all(part, dict.fromkeys(part.others, "private_ratio batch"), facts, coins)
    if run.me != asker:
        query, session = rows.look_up(count, asker, run.me), sessions[asker]
        served = serve(query, asker, own, TweakedHash(session), mesh.ot_senders[asker].session(session))
        scores = lm.add(scores, (yield from served))
    else:
        if own:
            scores = lm.add(scores, shared_model.score(own, columns, plan, count))
        for server, receiver in mesh.ot_receivers.items():
            query, session = rows.look_up(count, asker, server), sessions[server]
            looked = look_up(query, columns, asker, TweakedHash(session), receiver.session(session))
            scores = lm.add(scores, (yield from looked))
    classes = yield from compare(part, scores, plan.bits, sessions, mesh, (asker,), coins)
    return None if classes is None else (yield from open_value(LABEL, classes))
