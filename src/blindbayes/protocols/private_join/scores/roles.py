"""Roles of joined_scores. Step numbers as in SPEC.md.

The *scorer* has identifiers whose class it is to learn; each *helper* has features of some of them. The bins are scored in
blocks, so that memory per identifier is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.tweaks import Block128
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols import joint_circuit
from blindbayes.protocols.core import Role, Run, Send, mark, open_value, receive_marked
from blindbayes.protocols.joint_circuit import Mesh
from blindbayes.protocols.private_join import joined
from blindbayes.protocols.private_join.joined import JoinSetup, Links
from blindbayes.protocols.private_join.scores import blocks as on_blocks
from blindbayes.protocols.private_join.scores.bins import (
    SEED_BYTES,
    commit_bins,
    fix_bins,
    hear_bins,
    hear_commitment,
    offer_bins,
)
from blindbayes.protocols.private_join.scores.blocks import BinBlock, ScoringPair
from blindbayes.protocols.private_join.scores.match import answer, ask
from blindbayes.protocols.private_join.scores.messages import SharedTold
from blindbayes.protocols.private_join.scores.shape import LookupSetup, common_block
from blindbayes.protocols.private_join.sums.roles import cut, place, require_size
from blindbayes.protocols.shared_inference import roles as shared_argmax
from blindbayes.protocols.shared_inference.query import Labelled, SharedArgmaxSetup, look_up, serve
from blindbayes.protocols.shared_training.shared_model.score_layout import GaussianLayout
from blindbayes.protocols.two_party import digits
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.statistics import MISSING

LABEL = "shared_identifiers"
NONE = -1  # in place of a class
BATCH = 1 << 14  # bins whose scores are compared at once
Scope: TypeAlias = Literal["everybody", "shared"]
IntArray = npt.NDArray[np.int64]
Columns: TypeAlias = Mapping[str, IntArray]
Tables: TypeAlias = Mapping[str, Limbs]


@dataclass(frozen=True)
class JoinedScoresSetup:
    """The public facts of scoring over a hidden join."""

    join: JoinSetup
    to: str  # the scorer, who alone learns classes
    scope: Scope = "everybody"
    compare_all: bool = False  # whether all parties compare, so that no pair is trusted
    tally: bool = False  # whether the scorer learns totals by true and predicted class, and no class

    def __post_init__(self) -> None:
        if self.to not in self.join.owners:
            raise ConfigError(f"the class goes to a party of the study; {self.to!r} is not one")
        if self.scope not in get_args(Scope):
            raise ConfigError("the scope is 'everybody' or 'shared'")
        if len(self.join.owners) > 2 and self.to != self.join.class_holder:
            raise ConfigError(
                f"with more than two parties each is joined with {self.join.class_holder} alone, "
                "so the class can go to no other"
            )
        if len(self.join.owners) > 2 and self.scope == "shared":
            raise ConfigError("scope = 'shared' is for two parties; with more, take 'everybody'")
        if self.tally:
            self._require_tally()

    def _require_tally(self) -> None:
        holder = self.join.class_holder
        if self.to != holder or self.scope != "everybody" or self.compare_all:
            raise ConfigError(
                f"an evaluation over a hidden join opens totals over everybody whom {holder} knows, to it alone, and not with "
                "compare_all: name it with --to, and leave --scope out"
            )
        if self.bins > BATCH:
            raise ConfigError(
                f"an evaluation over a hidden join is one opening of at most {BATCH} places, and the agreed bound of "
                f"{self.count} takes {self.bins}: agree on one of at most {BATCH * 100 // 132 - 64}"
            )

    @property
    def helpers(self) -> tuple[str, ...]:
        return tuple(name for name in self.join.owners if name != self.to)

    @property
    def count(self) -> int:
        """The public bound on the scorer's identifiers."""
        return self.join.bounds[self.to]

    @property
    def charged(self) -> int:
        """The charge to a query budget: the bins, as a scorer that fills them all would get classes of all."""
        return self.bins

    @property
    def own(self) -> tuple[str, ...]:
        """The scorer's features that are looked up because their tables are in shares."""
        return tuple(name for name in self.join.owners[self.to] if self.join.is_shared(name))

    @cached_property
    def shapes(self) -> dict[str, LookupSetup]:
        agreed = (self.to, self.scope, self.compare_all, self.tally)
        join, facts = self.join, self.join.facts() + repr(agreed).encode()
        shapes = {}
        for name in self.helpers:
            names = join.owners[name]
            both = any(join.is_shared(feature) for feature in names)
            bounds = join.bounds[self.to], join.bounds[name]
            shapes[name] = LookupSetup(join.columns.plan, names, *bounds, both, self.scope == "shared", facts)
        return shapes

    @property
    def bins(self) -> int:
        return self.shapes[self.helpers[0]].bins

    def parts(self) -> list[slice]:
        return list(cut(self.bins, common_block(list(self.shapes.values()))))

    def own_query(self, count: int) -> SharedArgmaxSetup:
        """Return the look-ups of the scorer's own features, in the one helper's shares."""
        plan = self.join.columns.plan
        return SharedArgmaxSetup(plan, count, self.helpers[0], (self.to,), {self.to: self.own}, (self.to,))

    def query(self, count: int) -> SharedArgmaxSetup:
        """Return the comparison of a block: every look-up is done before, so that no feature is named."""
        holder = self.join.class_holder
        holders = tuple(name for name in self.join.owners if name != holder)
        return SharedArgmaxSetup(
            self.join.columns.plan,
            count,
            holder,
            holders,
            dict.fromkeys(holders, ()),
            (self.to,),
            self.compare_all,
            tally=self.tally,
        )


@dataclass(frozen=True, slots=True)
class ScorerInput:
    """The scorer's input."""

    items: Block128 = field(repr=False)  # (n, 2) digests, all different
    known: Limbs = field(repr=False)  # (n, K - 1, limbs): what it knows of the scores, or its shares
    columns: Columns = field(repr=False)  # codes (n,) of its features that are looked up
    tables: Mapping[str, Tables] = field(repr=False)  # per helper: its shares of the tables of the helper's features
    nobody: Limbs = field(
        repr=False
    )  # (K - 1, limbs): what it knows of a score without any value; its share of a prior in shares
    labels: IntArray | None = field(default=None, repr=False)  # (n,) of a tally: the true classes


@dataclass(frozen=True, slots=True)
class HelperInput:
    """A helper's input."""

    items: Block128 = field(repr=False)  # (n, 2) digests, all different
    columns: Columns = field(repr=False)  # codes (n,) of its features
    known: Limbs = field(repr=False)  # (K - 1, limbs): what it adds to every score (a prior, or a share of it)
    tables: Tables = field(repr=False)  # of its own features: shares, or whole where the scorer has none
    theirs: Tables = field(repr=False)  # its shares of the tables of the scorer's features that are looked up


def connect(run: Run, hidden: JoinedScoresSetup, coins: Coins) -> Role[dict[str, Links]]:
    """Set up transfers of both directions between the scorer and each helper; if all compare, between every two."""
    if hidden.compare_all:
        mesh = yield from joint_circuit.connect(run, coins)
        return {name: Links(mesh.ot_senders[name], mesh.ot_receivers[name]) for name in run.others}
    links = {}
    for name in hidden.helpers if run.me == hidden.to else (hidden.to,):
        links[name] = yield from joined.connect(run, name, coins)
    return links


def scorer(run: Run, hidden: JoinedScoresSetup, asked: ScorerInput, links: Mapping[str, Links], coins: Coins) -> Role[IntArray]:
    """Return the class of each identifier, in the order of `asked.items`; -1 for an identifier without one.

    In a tally, the totals of identifiers by true and predicted class.
    """
    require_size(len(asked.items), hidden.count)
    plan = hidden.join.columns.plan
    if asked.known.shape != (len(asked.items), plan.classes - 1, plan.limbs):
        raise LocalProtocolError("the known scores have the wrong shape")
    if asked.nobody.shape != asked.known.shape[1:]:
        raise LocalProtocolError("the score without any value has the wrong shape")
    pairs = []
    mine = coins.bytes(SEED_BYTES)
    for name in hidden.helpers:  # before anything is heard
        yield from commit_bins(run, name, mine)
    for name, shape in hidden.shapes.items():  # step 1
        session = yield from agree(run, name, "joined_scores", shape.agreed(), coins)
        pairs.append(ScoringPair.start(session, name, shape, links[name]))
    bins = yield from fix_bins([(pair.session, pair.other) for pair in pairs], mine)
    items, occupant = place(bins, hidden.bins, pairs[0].shape.scorer_ids, asked.items, coins)  # step 2
    learned = []
    for pair in pairs:  # steps 3 to 6
        learned.append((yield from ask(pair.session, pair.other, pair.shape, items, pair.sends)))
    tables = [pair.shape.stacked(asked.tables[pair.other]) if pair.shape.both else [] for pair in pairs]
    here, last = occupant >= 0, pairs[-1]
    scores = np.empty((hidden.bins, plan.classes - 1, plan.limbs), dtype=np.uint64)
    scores[:] = asked.nobody  # so that a bin without identifier has a score too, and not the helper's share of one
    scores[here] = asked.known[occupant[here]]
    equal = np.zeros(hidden.bins, dtype=np.uint8)
    for index, part in enumerate(hidden.parts()):
        count = part.stop - part.start
        for pair, words, own_tables in zip(pairs, learned, tables, strict=True):
            block = BinBlock.start(pair, index, count)
            added = yield from on_blocks.scorer_block(block, words[part], own_tables)
            scores[part] = lm.add(scores[part], added)
        if hidden.own:  # step 9
            own = {name: _in_bins(asked.columns[name], occupant[part], hidden, name) for name in hidden.own}
            added = yield from look_up(hidden.own_query(count), own, run.me, block.hash_, block.chooses)
            scores[part] = lm.add(scores[part], added)
        if hidden.scope == "shared":  # step 10
            scores[part] = yield from on_blocks.scorer_gate(block, scores[part])
            equal[part] = block.equal_share
    classes = np.full(len(asked.items), NONE, dtype=np.int64)
    truth = _true_classes(asked, occupant)
    for index, part in enumerate(cut(hidden.bins, BATCH)):
        learnt = yield from _compare(run, hidden, lm.cut(scores[part], plan.bits), links, coins, truth[part])  # step 11
        if learnt is None:
            raise LocalProtocolError("the scorer learns the class")
        if hidden.tally:
            return learnt
        if hidden.scope == "shared":  # step 12
            there = yield from _hear_shared(last, index, equal[part])
            learnt = np.where((yield from open_value(LABEL, there)), learnt, NONE)
        classes[occupant[part][here[part]]] = learnt[here[part]]
    return classes


def helper(run: Run, hidden: JoinedScoresSetup, helped: HelperInput, links: Mapping[str, Links], coins: Coins) -> Role[None]:
    """Give this party's part and learn nothing."""
    shape, plan = hidden.shapes[run.me], hidden.join.columns.plan
    committed = yield from hear_commitment(run, hidden.to)
    session = yield from agree(run, hidden.to, "joined_scores", shape.agreed(), coins)  # step 1
    pair = ScoringPair.start(session, hidden.to, shape, links[hidden.to])
    choices = shape.choices(helped.columns, len(helped.items))
    mine = yield from offer_bins(session, hidden.to, coins)
    bins = hear_bins(session, hidden.to, committed, mine, (hidden.helpers.index(run.me), len(hidden.helpers)))
    secret = yield from answer(bins, session, hidden.to, shape, helped.items, choices, pair.chooses, coins)  # steps 3 to 5
    tables = shape.stacked(helped.tables)
    scores = np.zeros((hidden.bins, plan.classes - 1, plan.limbs), dtype=np.uint64)
    scores[:] = helped.known
    equal = np.zeros(hidden.bins, dtype=np.uint8)
    for index, part in enumerate(hidden.parts()):
        block = BinBlock.start(pair, index, part.stop - part.start)
        added = yield from on_blocks.helper_block(block, secret[part], tables)
        scores[part] = lm.add(scores[part], added)
        if hidden.own:  # step 9
            added = yield from serve(hidden.own_query(block.count), block.other, helped.theirs, block.hash_, block.sends)
            scores[part] = lm.add(scores[part], added)
        if hidden.scope == "shared":  # step 10
            scores[part] = yield from on_blocks.helper_gate(block, scores[part])
            equal[part] = block.equal_share
    for index, part in enumerate(cut(hidden.bins, BATCH)):
        learnt = yield from _compare(run, hidden, lm.cut(scores[part], plan.bits), links, coins)  # step 11
        if learnt is not None:
            raise LocalProtocolError("a helper learns no class")
        if hidden.scope == "shared":  # step 12
            yield Send(hidden.to, SharedTold(mark(session, SharedTold, index), digits.pack(equal[part])))


def _compare(
    run: Run,
    hidden: JoinedScoresSetup,
    scores: Limbs,
    links: Mapping[str, Links],
    coins: Coins,
    truth: IntArray | None = None,
) -> Role[IntArray | None]:
    """Run step 11: shared_argmax on shares of whole scores; the class goes to the scorer."""
    query = hidden.query(len(scores))
    ot_senders = {name: link.ot_sender for name, link in links.items()}
    mesh = Mesh(ot_senders, {name: link.ot_receiver for name, link in links.items()}) if hidden.compare_all else None
    if run.me == query.class_holder:
        local = Labelled(scores, truth) if hidden.tally and truth is not None else scores
        return (yield from shared_argmax.class_holder(run, query, local, {}, ot_senders, coins, mesh=mesh))
    ot_receiver = links[query.class_holder].ot_receiver
    return (yield from shared_argmax.attribute_holder(run, query, scores, {}, ot_receiver, coins, mesh=mesh))


def _true_classes(asked: ScorerInput, occupant: IntArray) -> IntArray:
    """Return the true class in each bin, for a tally. A bin without identifier has -1 and is in no total."""
    truth = np.full(len(occupant), NONE, dtype=np.int64)
    if asked.labels is not None:
        truth[occupant >= 0] = asked.labels[occupant[occupant >= 0]]
    return truth


def _in_bins(codes: IntArray, occupant: IntArray, hidden: JoinedScoresSetup, name: str) -> IntArray:
    """Return the codes of the identifiers in a block of bins; missing for empty bins."""
    gap = MISSING if isinstance(hidden.join.columns.plan.features[name], GaussianLayout) else -1
    if not len(codes):
        return np.full(len(occupant), gap, dtype=np.int64)
    return np.where(occupant >= 0, codes[np.maximum(occupant, 0)], gap)


def _hear_shared(pair: ScoringPair, index: int, equal: npt.NDArray[np.uint8]) -> Role[npt.NDArray[np.bool_]]:
    """Run step 12 of the scorer: return which bins hold an identifier that the helper has."""
    reply = yield from receive_marked(pair.other, SharedTold, pair.session, index)
    if len(reply.bits) != len(equal) // 64:
        raise PeerProtocolError("the shares of the matches have the wrong length", party=pair.other)
    theirs = np.unpackbits(reply.bits.astype("<u8").view(np.uint8), bitorder="little")
    shared: npt.NDArray[np.bool_] = (theirs ^ equal) == 1
    return shared
