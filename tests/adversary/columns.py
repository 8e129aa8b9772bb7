"""The protocols for columns as arenas: any seat deviates, at any step, in any field; parties' data come from coins by name.

What a change may do is one of three things. It is *caught*: the honest end with a typed error that names who deviated. It is
the deviator's *own* matter: its rows, tables and lists are its to choose, and another choice is what was sent (`OWN` lists
these fields; each page says so). Or nothing depends on it, and the result is right. And whether it is caught must not hang on
what the honest bring (`tells`): a failure that does would be an answer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from adversary.arena import Arena, Change, Fight
from adversary.deviations import systematic
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.psi.cuckoo import MIN_ITEMS
from blindbayes.errors import PrivacyError
from blindbayes.protocols import joint_circuit
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.joint_circuit import Mesh
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join import matching
from blindbayes.protocols.private_join.sums import counts
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.private_join.sums.inputs import Entries, class_places
from blindbayes.protocols.shared_inference import references
from blindbayes.protocols.shared_inference import roles as shared_argmax
from blindbayes.protocols.shared_inference.compare_all import UNREADABLE, compare
from blindbayes.protocols.shared_inference.query import Labelled
from blindbayes.protocols.shared_training import class_sums, shared_model
from blindbayes.protocols.shared_training.shared_model import NO_GUARD, Guard
from blindbayes.protocols.two_party.transfer.roles import agree_all
from blindbayes_papers.huai2015 import noisy_histograms
from support.argmax import Setup, with_classes
from support.columns import Case, book, connect, draw_block
from support.hidden import Case as HiddenCase
from support.two_party import anew, transfer_pair

OWN = {
    ("RowsMasked", "levels"),  # class_sums: the attribute holder's rows
    ("RowsMasked", "rows"),
    ("EntriesMasked", "entries"),  # shared_argmax: the class holder's tables, where nothing is audited
    ("DummiesPlaced", "places"),  # which look-ups an asker gives away
    ("ScoresHanded", "shares"),
    ("ScoresBlinded", "blinds"),
    ("ClassesTold", "classes"),
    ("TotalsShared", "shares"),  # a tally: wrong totals, unless they are of another number of instances
    ("TriplesMasked", "bits"),  # compare_all: another bit flips a class
    ("GatesMasked", "bits"),
    ("OutputsShared", "bits"),
    ("StoreFilled", "cells"),  # joined_sums, joined_scores: whom the label holder or helper knows
    ("BinsCompared", "tables"),  # the row holder's circuit (SPEC: nothing catches it) and rows
    ("BinsCompared", "rows"),
    ("ValuesListed", "values"),  # matching: whom the owner knows
    ("CodesCompared", "tables"),
    ("CodesCompared", "entries"),
    ("CodesAnswered", "entries"),
    ("ScoresGated", "entries"),
    ("SharedTold", "bits"),
    ("ArgmaxGarbled", "tables"),  # where the garbler learns nothing, the classes are the evaluator's to read
    ("HistogramsReleased", "counts"),  # noisy_histograms: a contributor's counts
    ("SessionOffered", "nonce"),  # another session: another run
}
AUDITED = {("EntriesMasked", "entries")}  # no longer its own, where dummies stand among the look-ups
Data = Callable[[str], Coins]
Players = Callable[[Mapping[str, Run], Coins, Data], dict[str, Role[Any]]]
_pair, _setup = (
    functools.cache(transfer_pair),
    functools.cache(lambda *given: Setup(with_classes(given[0]), 6, holders=given[1])),
)
TRIES = 10  # runs after which a failure counts as an answer


@dataclass
class ColumnArena(Arena):
    """An arena whose law is about results and about failures."""

    players: Players = lambda runs, coins, data: {}
    own: frozenset[tuple[str, str]] = frozenset(OWN)
    other: tuple[str, ...] = ()  # seats that bring other data than usual
    expected: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, seats: Sequence[str], players: Players, own: Any = frozenset(OWN)) -> ColumnArena:
        """Of a function that makes the roles from runs, coins, and each seat's data."""
        arena = cls(name, (), tuple(seats), None, lambda runs, coins: {}, {}, 0, lambda colluders: 1, watched=False)
        arena.players, arena.own = players, frozenset(own)
        return arena

    def roles(self, runs: Mapping[str, Run], coins: Coins) -> dict[str, Role[Any]]:
        """With this arena's data."""
        return self.players(runs, coins, lambda seat: Coins.seeded(bytes(32)).derive(f"{seat} {seat in self.other}"))

    def wrong(self, fight: Fight) -> Iterator[str]:
        """Honest parties with another result than without deviation."""
        if fight.outcome is None or fight.errors:
            return
        if not self.expected:
            outcome = self.fight().outcome
            self.expected = {} if outcome is None else dict(outcome.outputs)
        for name, found in fight.outcome.outputs.items():
            if name not in fight.coalition and found is not None and not same(found, self.expected[name], unread=True):
                yield f"{name} ends with a wrong result, and no error"

    def judge_change(self, title: str, coalition: Sequence[str], change: Change) -> list[str]:
        """What is wrong after one deviation."""
        fight = self.fight(coalition, change)
        named = re.search(r": (\w+)\.(\w+) ", title)
        is_own = named is not None and named.groups() in self.own
        if is_own and (not fight.errors or isinstance(fight.errors[0][1], PrivacyError)):
            return []
        found = [*fight.frames(), *self.wrong(fight)]
        if found and not fight.errors and named is not None and named.groups() in AUDITED - self.own:
            return [] if self.is_caught(coalition, change) else found
        return found if found or is_own else list(self.tells(fight, coalition, change))

    def is_caught(self, coalition: Sequence[str], change: Change) -> bool:
        """Whether audits find it more often than not: their dummies and decoys are a sample, drawn from the coins.

        Six instances out of another table escape with probability (1 - r q)^6 at most, 0.26 at a rate of 0.3 with three
        classes (`shared_inference/SPEC.md`, "What it catches"); more than half of the tries then in one case of forty.
        """
        others = (replace(self, seed=bytes([at]) * 32) for at in range(1, TRIES + 1))
        return 2 * sum(bool(other.fight(coalition, change).errors) for other in others) >= TRIES

    def tells(self, fight: Fight, coalition: Sequence[str], change: Change) -> Iterator[str]:
        """A failure that hangs on what the honest bring: always with these data, never with those."""
        honest = tuple(seat for seat in self.seats if seat not in coalition)
        outcomes = []
        for at in range(TRIES):
            arena = replace(self, seed=bytes([at]) * 32) if at else self
            mine = fight if not at else arena.fight(coalition, change)
            other = replace(arena, other=honest).fight(coalition, change)
            outcomes.append((bool(mine.errors), bool(other.errors)))
            if len(set(outcomes)) > 1 or outcomes[0][0] == outcomes[0][1]:
                return
        yield f"whether {' and '.join(honest)} fails says what it brought"

    def deviations(self, coalition: Sequence[str]) -> Iterator[tuple[str, Change]]:
        """Every field of every message."""
        yield from systematic(self, coalition)

    def findings(self, *, every: int = 1, coalitions: Sequence[tuple[str, ...]] | None = None) -> list[str]:
        """All that is wrong, from every seat alone (and these coalitions); of the deviations, one in `every`."""
        found, number = [f"{self.name}, nobody deviates: {name}: {error!r}" for name, error in self.fight().errors], 0
        for coalition in coalitions or [(seat,) for seat in self.seats]:
            for title, change in self.deviations(coalition):
                number += 1
                if number % every == 0:
                    found += [f"{self.name}, {title}: {words}" for words in self.judge_change(title, coalition, change)]
        return found


def same(left: Any, right: Any, *, unread: bool = False) -> bool:
    """Equal results, of any kind; with `unread`, a class that could not be read is none that is wrong (its learner's site ends
    the run alone and untold: tests/attacks/test_shared_inference_selective_failure.py)."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key], unread=unread) for key in left)
    if hasattr(left, "_fields"):
        return all(same(a, b, unread=unread) for a, b in zip(left, right, strict=True))
    left, right = np.asarray(left), np.asarray(right)
    if unread and left.shape == right.shape:
        left = np.where(left == UNREADABLE, right, left)
    return bool(np.array_equal(left, right))


# -- the protocols -----------------------------------------------------------------------------------------------------------


def sums(classes: int) -> ColumnArena:
    """class_sums."""

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        sender, receiver = (anew(state) for state in _pair("sums"))
        shape = class_sums.ClassSumsSetup(70, 2, classes)
        rows = data("attributes").words(140).reshape(70, 2)
        labels = (data("class").words(70) % np.uint64(classes)).astype(np.int64)
        return {
            "class": class_sums.class_holder(runs["class"], "attributes", shape, [labels], receiver, coins.derive("c")),
            "attributes": class_sums.attribute_holder(runs["attributes"], "class", shape, [rows], sender, coins.derive("a")),
        }

    return ColumnArena.of(f"class_sums, {classes} classes", ("class", "attributes"), players)


def model(classes: int, *, first: str = "class", numeric: bool = False, guard: Guard = NO_GUARD) -> ColumnArena:
    """shared_model, on transfers from before."""
    may = guard.acts
    features = [Categorical("v", ("0", "1"), optional=may), *([Numeric("x", 0, 8, optional=may)] if numeric else [])]
    small = book(features, classes=tuple("abcdefg"[:classes]))
    noise = {"v": np.full((classes, 2), 2), "x": np.full((classes, 3), -3)} if guard.noise_bits else None

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        case = Case(small, draw_block(small, 20), guard=guard)
        base, rest = case.shares()
        moved = {
            seat: Case(small, draw_block(small, 20, str(data(seat).bits(32))), guard=guard).words - case.words
            for seat in ("class", "attributes")
        }
        usual = Coins.seeded(bytes(32))
        shares = {
            seat: share + (moved[seat] if data(seat).bytes(8) != usual.derive(f"{seat} False").bytes(8) else np.uint64(0))
            for seat, share in (("class", base), ("attributes", rest))
        }

        (mine, theirs), (back, forth) = ([anew(state) for state in _pair(name)] for name in ("forth", "back"))
        layout, plan = case.layout, case.plan
        given = {
            "class": (shares["class"], case.counts, (layout, plan), (mine, forth)),
            "attributes": (shares["attributes"], (layout, plan), (back, theirs)),
        }
        return {
            "class": shared_model.class_holder(runs["class"], "attributes", *given["class"], coins.derive("g"), noise),
            "attributes": shared_model.attribute_holder(
                runs["attributes"], "class", *given["attributes"], coins.derive("e"), noise
            ),
        }

    seats = ("class", "attributes") if first == "class" else ("attributes", "class")
    title = f"shared_model, {classes} classes, {first} first{', numbers' * numeric}{', noise' * may}"
    return ColumnArena.of(title, seats, players)


def priors(guard: Guard = NO_GUARD) -> ColumnArena:
    """Priors of an inner join."""
    small = book([Categorical("v", ("0", "1"), optional=guard.acts)], classes=("a", "b"))
    noise = [2, -1] if guard.noise_bits else None

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        plan = Case(small, draw_block(small, 20), guard=guard).plan
        words = {seat: data(seat).words(2) % np.uint64(9) for seat in ("class", "attributes")}

        def first() -> Role[Any]:
            both = yield from connect(runs["class"], "attributes", coins.derive("k"))
            return (
                yield from counts.prior_class_holder(
                    runs["class"], "attributes", words["class"], plan, both, coins.derive("c"), noise
                )
            )

        def second() -> Role[Any]:
            both = yield from connect(runs["attributes"], "class", coins.derive("p"))
            return (
                yield from counts.prior_attribute_holder(
                    runs["attributes"], "class", words["attributes"], plan, both, coins.derive("a"), noise
                )
            )

        return {"class": first(), "attributes": second()}

    return ColumnArena.of("priors" + ", noise" * guard.acts, ("class", "attributes"), players)


def argmax(
    classes: int,
    holders: tuple[str, ...] = ("attributes",),
    *,
    learners: tuple[str, ...] = (),
    rate: float = 0.0,
    tally: bool = False,
) -> ColumnArena:
    """shared_argmax; with a rate, the references of training and the audits; with a tally, totals in place of classes."""

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        setup = _setup(classes, holders)
        query = replace(setup.query(learners or None), audit_rate=rate, tally=tally)
        senders = {holder: anew(link[0]) for holder, link in setup.links.items()}
        tables = {holder: {name: setup.mine[name] for name in names} for holder, names in setup.shared.items()}
        local = setup.local() + data("class").words(setup.rows)[:, None, None] % np.uint64(4)

        def class_holder() -> Role[Any]:
            for holder, names in setup.shared.items() if rate else ():
                given = setup.plan, tables[holder], names, senders[holder], coins.derive("c" + holder)
                yield from references.answer_references(runs["class"], holder, *given)
            truth = (data("class").derive("truth").words(setup.rows) % np.uint64(classes)).astype(np.int64)
            given = query, Labelled(local, truth) if tally else local, tables, senders, coins.derive("c")
            return (yield from shared_argmax.class_holder(runs["class"], *given))

        def attribute_holder(holder: str) -> Role[Any]:
            own, receiver = {name: setup.theirs[name] for name in setup.shared[holder]}, anew(setup.links[holder][1])
            values = draw_block(with_classes(classes), setup.rows, str(data(holder).bits(32))).columns
            kept = None
            if rate:
                given = setup.plan, own, setup.shared[holder], receiver, coins.derive("r" + holder)
                stored = yield from references.ask_references(runs[holder], "class", *given)
                kept = references.restore(stored, setup.plan, own, setup.shared[holder])
            share = shared_model.score(own, values, setup.plan, setup.rows)
            given = query, share, values, receiver, coins.derive(holder), kept
            return (yield from shared_argmax.attribute_holder(runs[holder], *given))

        return {"class": class_holder(), **{holder: attribute_holder(holder) for holder in holders}}

    title = f"shared_argmax, {classes} classes, {len(holders) + 1} parties" + ", audited" * bool(rate)
    title += f", {' and '.join(learners)} alone" * bool(learners) + ", tally" * tally
    return ColumnArena.of(title, ("class", *holders), players, OWN - AUDITED if rate and not tally else OWN)


@functools.cache
def _meshes(names: tuple[str, ...]) -> dict[str, Mesh]:
    coins = Coins.seeded(bytes(32))
    runs = local_runs(names, coins=coins)
    return run_in_memory({name: joint_circuit.connect(runs[name], coins.derive(name)) for name in names}).outputs


def all_compare(parties: int) -> ColumnArena:
    """compare_all: shares of all parties."""
    names = ("class", "first", "second", "third")[:parties]

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        def role(name: str) -> Role[Any]:
            kept = _meshes(names)[name]
            mesh = Mesh({o: anew(x) for o, x in kept.ot_senders.items()}, {o: anew(x) for o, x in kept.ot_receivers.items()})
            others = dict.fromkeys(runs[name].others, "compare")
            sessions = yield from agree_all(runs[name], others, b"facts", coins.derive("s" + name))
            share = data(name).words(6).reshape(3, 2, 1)
            return (yield from compare(runs[name], share, 12, sessions, mesh, names, coins.derive("c" + name)))

        return {name: role(name) for name in names}

    return ColumnArena.of(f"compare_all of {parties}", names, players)


def joins() -> ColumnArena:
    """joined_sums, with the bit and the estimate of joined identifiers, counted in both directions, and rows of each class."""
    shape = joined_sums.JoinedSumsSetup(MIN_ITEMS, MIN_ITEMS, 2, 2, counted=True)
    back = joined_sums.JoinedSumsSetup(MIN_ITEMS, MIN_ITEMS, 1, 1, counted=True)
    places, one = class_places(2, MIN_ITEMS), np.ones((30, 1), dtype=np.uint64)

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        forth, again = (tuple(anew(state) for state in _pair(name)) for name in ("join", "join back"))
        items = Coins.seeded(bytes(32)).derive("items").words(80).reshape(-1, 2)
        rows = Entries(items[:30], np.concatenate([data("rows").words(30).reshape(30, 1) % np.uint64(9), one], axis=1))
        labels = Entries(items[10:], np.eye(2, dtype=np.uint64)[data("labels").words(30) % np.uint64(2)])

        def first() -> Role[Any]:
            me, own = runs["rows"], coins.derive("r")
            links = forth[0], again[1]
            share = yield from joined_sums.row_holder(me, "labels", shape, rows, links, own)
            known = share.sums[:, -1] @ places
            other = yield from joined_sums.label_holder(me, "labels", back, Entries(items[:30], one), links, own, known)
            both = counts.Executions(share.matches, other.matches)
            yield from counts.enough(both, 5, False, own)
            return (yield from counts.noisy(both, 3, 20, False, own))

        def second() -> Role[Any]:
            me, own = runs["labels"], coins.derive("l")
            links = again[0], forth[1]
            share = yield from joined_sums.label_holder(me, "rows", shape, labels, links, own)
            again_rows, known = Entries(items[10:], labels.words @ places), share.sums[:, -1] @ places
            other = yield from joined_sums.row_holder(me, "rows", back, again_rows, links, own, known)
            both = counts.Executions(other.matches, share.matches)
            yield from counts.enough(both, 5, True, own)
            return (yield from counts.noisy(both, -1, 20, True, own))

        return {"rows": first(), "labels": second()}

    return ColumnArena.of("joined_sums", ("rows", "labels"), players)


def matches() -> ColumnArena:
    """matching."""

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        sender, receiver = (anew(state) for state in _pair("match"))
        common, sizes = (
            Coins.seeded(bytes(32)).derive("items").words(20).reshape(-1, 2),
            matching.MatchingSetup(MIN_ITEMS, MIN_ITEMS),
        )
        items = {seat: np.concatenate([common, data(seat).words(8).reshape(-1, 2)]) for seat in ("alice", "bob")}
        return {
            "alice": matching.asker(runs["alice"], "bob", sizes, items["alice"], sender, coins.derive("a")),
            "bob": matching.owner(runs["bob"], "alice", sizes, items["bob"], receiver, coins.derive("b")),
        }

    return ColumnArena.of("matching", ("alice", "bob"), players)


def scores(to: str, *, inner: bool = True) -> ColumnArena:
    """joined_scores, transfers and the comparison included."""

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        case = HiddenCase(to, "shared", inner=inner, sizes=(10, 10), overlap=4)
        for party in ("bank", "telecom"):
            case.rng = np.random.default_rng(data(party).bits(32))
            features = {feature.name: feature for feature in case.join.codebook.features}
            case.codes[party] = {name: case.draw(features[name], len(case.items[party])) for name in case.codes[party]}
        keys = tuple(str(coins.derive(name).bits(64)) for name in ("scorer", "helper"))
        return case.roles(keys=keys, runs=runs)

    return ColumnArena.of(f"joined_scores to {to}, {'inner' if inner else 'left'}", ("bank", "telecom"), players)


def histograms() -> ColumnArena:
    """noisy_histograms."""
    names = ("alfa", "bravo")
    facts = noisy_histograms.NoisyHistogramsSetup("miner", dict.fromkeys(names, 4), dict.fromkeys(names, "hash"))

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        roles: dict[str, Role[Any]] = {
            name: noisy_histograms.contributor(runs[name], facts, (data(name).words(4) >> np.uint64(50)).astype(np.int64))
            for name in names
        }
        return {**roles, "miner": noisy_histograms.miner(runs["miner"], facts)}

    return ColumnArena.of("noisy_histograms", (*names, "miner"), players)


PAIR = ("first", "second")
NOISE = Guard(noise_bits=6)
ARENAS: dict[str, tuple[ColumnArena, int]] = {  # and how many deviations the short form leaves out for each that it tries
    arena.name: (arena, every)
    for arena, every in (
        (sums(3), 5),
        (sums(4), 7),
        (model(2), 11),
        (model(2, guard=NOISE), 13),
        (priors(), 29),
        (argmax(2), 7),
        (argmax(7), 11),
        (argmax(3, PAIR), 13),
        (argmax(3, tally=True), 7),
        (argmax(3, rate=0.3), 9),
        (argmax(3, learners=("class",), rate=0.3), 23),
        (all_compare(3), 19),
        (joins(), 17),
        (matches(), 11),
        (histograms(), 1),
    )
}
LARGE: dict[str, tuple[ColumnArena, int]] = {
    arena.name: (arena, 1)
    for arena in (
        *(sums(classes) for classes in (2, 5, 7, 12)),
        model(3, first="attributes", numeric=True),
        model(3, numeric=True, guard=NOISE),
        priors(NOISE),
        argmax(5, PAIR, rate=0.3),
        argmax(2, PAIR, tally=True),
        argmax(3, learners=("attributes",), tally=True),
        argmax(3, rate=0.3, tally=True),
        argmax(4, learners=("attributes",), rate=0.5),
        argmax(4, ("attributes",), learners=("attributes",)),
        all_compare(4),
        scores("bank"),
        scores("telecom"),
        scores("bank", inner=False),
    )
}
