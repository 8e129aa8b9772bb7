"""A model of everybody's rows that two of the parties hold in shares, and classification with it. See SPEC.md.

The total of the parties' counts is in shares of the two computing parties after step 1; `shared_model` makes shares of score
tables of it, and `shared_argmax` classifies with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

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
from blindbayes.io.untrusted import read_json_table, well_formed
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.private_join.sums import counts as on_counts
from blindbayes.protocols.shared_inference import roles as shared_argmax
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup, look_up, serve
from blindbayes.protocols.shared_rows.split import collect_masked, collect_masks, deal
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
    """The public facts: the parties, of which the first and the last compute, and the codebook."""

    codebook: Codebook
    parties: tuple[str, ...]
    alpha: float = 1.0
    training: str = ""  # which run made the shares: shares of two runs do not fit together

    def __post_init__(self) -> None:
        if len(self.parties) < 2:
            raise ConfigError("private_ratio needs at least two parties")
        if self.codebook.max_rows >= 1 << 31:
            raise ConfigError("a model in shares takes a max_rows below 2^31")

    @property
    def computing(self) -> tuple[str, str]:
        return self.parties[0], self.parties[-1]

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

    def query(self, count: int, asker: str) -> SharedArgmaxSetup:
        """Return the public facts of a batch of one party's instances, whose classes it alone learns."""
        if asker not in self.parties:
            raise ConfigError(f"{asker!r} is no party of the model")
        first, second = self.computing
        names = tuple(self.codebook.names)
        holder = second if asker == first else first
        holders = (asker,) if asker in self.computing else (asker, second)
        return SharedArgmaxSetup(self.plan, count, holder, holders, {asker: names}, (asker,))

    def to_dict(self) -> dict[str, Any]:
        book = self.codebook.canonical().decode()
        return {"rows_of": list(self.parties), "codebook": book, "alpha": self.alpha, "training": self.training}

    @classmethod
    @well_formed("the share file")
    def from_dict(cls, public: Mapping[str, Any]) -> SharedRowsSetup:
        if "rows_of" not in public:
            raise ConfigError("the share is not of a model of rows that several parties hold")
        book = Codebook.from_dict(read_json_table(public["codebook"], "the codebook of a share"))
        return cls(book, tuple(public["rows_of"]), public["alpha"], public["training"])

    def facts(self) -> bytes:
        """Return the bytes that all parties must agree on."""
        return repr((self.codebook.sha256, self.parties, self.alpha, self.training)).encode()


@dataclass(slots=True)
class SharedTables:
    """The result of training at one party; a party that does not compute keeps nothing but the run's name."""

    training: str
    tables: dict[str, dict[str, Limbs]] = field(default_factory=dict, repr=False)  # under the other's name, as score tables
    sums: dict[str, U64Array] = field(default_factory=dict, repr=False)


def train(run: Run, rows: SharedRowsSetup, vector: U64Array, coins: Coins) -> Role[SharedTables]:
    """Run any party's role in training. Step numbers as in SPEC.md."""
    if vector.dtype != np.uint64 or vector.shape != (rows.length,):
        raise LocalProtocolError("a vector has one word per word of the layout and class")
    made = SharedTables(training_name(run))
    first, second = rows.computing
    if run.me not in rows.computing:
        yield from deal(vector, first, second, coins)  # step 1
        return made
    is_first, plan, layout = run.me == first, rows.plan, rows.layout
    other = second if is_first else first
    share = yield from (collect_masks if is_first else collect_masked)(run, vector, other)
    words = share.reshape(plan.classes, -1)
    sums, counts = np.ascontiguousarray(words[:, :-1]), np.ascontiguousarray(words[:, -1])
    session_facts = rows.facts()
    yield from transfer.agree(run, other, "private_ratio", session_facts, coins)  # step 2
    if is_first:
        planter = yield from transfer.ot_receiver(run, other, coins)
        both = (yield from transfer.ot_sender(run, other, coins)), planter
        nobody = np.zeros(plan.classes, dtype=np.int64)  # every denominator is a sum of counters: these are not used
        nobody[0] = layout.rows
        tables = yield from shared_model.class_holder(run, other, sums, nobody, (layout, plan), both, coins)  # step 3
        tables[rows.codebook.target] = yield from on_counts.prior_class_holder(run, other, counts, plan, both, coins)
    else:
        keeper = yield from transfer.ot_sender(run, other, coins)
        both = keeper, (yield from transfer.ot_receiver(run, other, coins))
        tables = yield from shared_model.attribute_holder(run, other, sums, (layout, plan), both, coins)
        tables[rows.codebook.target] = yield from on_counts.prior_attribute_holder(run, other, counts, plan, both, coins)
    made.tables[other], made.sums[other] = tables, share
    return made


@dataclass(slots=True)
class RowLinks:
    """One party's transfers for the classifications that one party asks for: as sender and as chooser, by peer."""

    ot_senders: dict[str, OtSender] = field(default_factory=dict, repr=False)
    ot_receivers: dict[str, OtReceiver] = field(default_factory=dict, repr=False)


def connect(run: Run, rows: SharedRowsSetup, count: int, asker: str, coins: Coins) -> Role[RowLinks]:
    """Agree on the public facts of a classification and set up its transfers.

    A party that neither asks nor computes agrees with both computing parties, since it charges its budget for the instances.
    """
    query, links = rows.query(count, asker), RowLinks()
    pairs = [(query.class_holder, holder) for holder in query.holders]
    if len(query.holders) > 1:
        pairs.append((query.holders[1], asker))  # the asker looks up in both computing parties' tables
    others = rows.parties if run.me in rows.computing else rows.computing
    met = {other: "classification" for other in others if other != run.me}
    yield from transfer.agree_all(run, met, rows.facts() + repr((count, asker)).encode(), coins)
    for sender, chooser in pairs:
        if run.me not in (sender, chooser):
            continue
        if run.me == sender:
            links.ot_senders[chooser] = yield from transfer.ot_sender(run, chooser, coins)
        else:
            links.ot_receivers[sender] = yield from transfer.ot_receiver(run, sender, coins)
    return links


def classify(
    run: Run,
    rows: SharedRowsSetup,
    query: SharedArgmaxSetup,
    tables: Mapping[str, Limbs],
    columns: Mapping[str, IntArray],
    links: RowLinks,
    coins: Coins,
) -> Role[IntArray | None]:
    """Run any party's role in the classification of a batch: `tables` of a computing party, `columns` of the asker."""
    asker, holder = query.holders[0], query.class_holder
    if run.me not in (holder, *query.holders):
        return None
    scores = np.zeros((query.count, query.plan.classes - 1, query.plan.limbs), dtype=np.uint64)
    if tables:
        scores = lm.add(scores, np.broadcast_to(tables[rows.codebook.target][0, 1][None], scores.shape))
    own = {name: tables[name] for name in rows.codebook.names} if tables else {}
    if run.me == asker and own:
        scores = lm.add(scores, shared_model.score(own, columns, query.plan, query.count))
    if len(query.holders) > 1 and run.me != holder:  # the asker holds no share: it looks up in the other one too
        other = query.holders[1]
        back = SharedArgmaxSetup(query.plan, query.count, other, (asker,), query.shared, (asker,))
        peer = other if run.me == asker else asker
        session = yield from transfer.agree(run, peer, "private_ratio look-up", back.facts(), coins)
        hash_ = TweakedHash(session)
        if run.me == asker:
            own_scores = yield from look_up(back, columns, asker, hash_, links.ot_receivers[other].session(session))
        else:
            own_scores = yield from serve(back, asker, own, hash_, links.ot_senders[asker].session(session))
        scores = lm.add(scores, own_scores)
    if run.me == holder:
        return (yield from shared_argmax.class_holder(run, query, scores, {asker: own}, links.ot_senders, coins))
    return (yield from shared_argmax.attribute_holder(run, query, scores, columns, links.ot_receivers[holder], coins))
