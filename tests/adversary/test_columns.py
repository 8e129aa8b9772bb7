"""The protocols for columns against a party that changes any field of any message it sends.

What a change does is one of three things. It is *caught*: the other party ends with a typed error that names who deviated. It
is the deviator's *own* matter: its rows, its tables, its list are its to choose, and another choice is what was sent (`OWN`
lists these fields; each page says so). Or nothing depends on it, and the result is right. Anything else is a finding: an error
that names nobody or the wrong party, a bug, a wrong result without error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import ProtocolError
from blindbayes.primitives.cuckoo import MIN_ITEMS
from blindbayes.protocol import class_sums, joined_sums, matching
from blindbayes.protocol.joined_sums import counts
from blindbayes.protocol.joined_sums.inputs import Entries
from blindbayes.transport.memory import Replace, local_runs, run_in_memory
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.argmax import Setup, with_classes
from support.columns import Case, book, connect, draw_block
from support.hidden import Case as Hidden
from support.two_party import anew, coins, transfer_pair

OWN = {
    ("RowsMasked", "levels"),  # class_sums: the attribute holder's rows
    ("RowsMasked", "rows"),
    ("EntriesMasked", "entries"),  # shared_argmax: the class holder's tables
    ("ScoresHanded", "shares"),
    ("ScoresBlinded", "blinds"),
    ("ClassesTold", "classes"),
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
}


def sums_roles(classes: int = 3, seed: str = "") -> dict[str, Any]:
    runs = local_runs(["class", "attributes"], coins=coins("run"))
    ot_sender, ot_receiver = (anew(state) for state in transfer_pair("sums"))
    shape = class_sums.ClassSumsSetup(70, 2, classes)
    rows, labels = coins("rows").words(140).reshape(70, 2), np.arange(70) % classes
    return {
        "class": class_sums.class_holder(runs["class"], "attributes", shape, [labels], ot_receiver, coins("c" + seed)),
        "attributes": class_sums.attribute_holder(runs["attributes"], "class", shape, [rows], ot_sender, coins("a" + seed)),
    }


def model_roles(seed: str = "") -> dict[str, Any]:
    small = book([Categorical("v", ("0", "1")), Numeric("x", 0, 8)], classes=("a", "b"))
    return Case(small, draw_block(small, 20)).model_roles(mine=coins("g" + seed))


def argmax_roles(classes: int = 3, holders: tuple[str, ...] = ("attributes",), seed: str = "") -> Any:
    setup = Setup(with_classes(classes), 4, holders=holders)
    return lambda **options: setup.run(run_id="run" + seed, **options)


def join_roles(seed: str = "") -> dict[str, Any]:
    shape = joined_sums.JoinedSumsSetup(MIN_ITEMS, MIN_ITEMS, 1, 2, counted=True)
    back = joined_sums.JoinedSumsSetup(MIN_ITEMS, MIN_ITEMS, 0, 0, counted=True)
    runs = local_runs(["rows", "labels"], coins=coins("run"))
    forth, again = (tuple(anew(state) for state in transfer_pair(name)) for name in ("join", "join back"))
    items = coins("items").words(80).reshape(-1, 2)

    def entries(own: Any, words: int) -> Entries:
        return Entries(own, np.ones((30, words), dtype=np.uint64))

    def first() -> Any:
        me, coined = runs["rows"], coins("r" + seed)
        share = yield from joined_sums.row_holder(me, "labels", shape, entries(items[:30], 1), forth[0], coined)
        other = yield from joined_sums.label_holder(me, "labels", back, entries(items[:30], 0), again[1], coined)
        both = counts.Executions(share.matches, other.matches)
        yield from counts.enough(both, 5, False, coined)
        return (yield from counts.noisy(both, 3, 20, False, coined))

    def second() -> Any:
        me, coined = runs["labels"], coins("l" + seed)
        share = yield from joined_sums.label_holder(me, "rows", shape, entries(items[10:], 2), forth[1], coined)
        other = yield from joined_sums.row_holder(me, "rows", back, entries(items[10:], 0), again[0], coined)
        both = counts.Executions(other.matches, share.matches)
        yield from counts.enough(both, 5, True, coined)
        return (yield from counts.noisy(both, -1, 20, True, coined))

    return {"rows": first(), "labels": second()}


def prior_roles(seed: str = "") -> dict[str, Any]:
    small = book([Categorical("v", ("0", "1"))], classes=("a", "b"))
    plan = Case(small, draw_block(small, 20)).plan
    runs = local_runs(["class", "attributes"], coins=coins("run"))
    words = [np.array(pair, dtype=np.uint64) for pair in ([5, 6], [3, 6])]

    def first() -> Any:
        both = yield from connect(runs["class"], "attributes", coins("k"))
        return (yield from counts.prior_class_holder(runs["class"], "attributes", words[0], plan, both, coins("c" + seed)))

    def second() -> Any:
        both = yield from connect(runs["attributes"], "class", coins("p"))
        return (yield from counts.prior_attribute_holder(runs["attributes"], "class", words[1], plan, both, coins("a" + seed)))

    return {"class": first(), "attributes": second()}


def match_roles(seed: str = "") -> dict[str, Any]:
    runs = local_runs(["alice", "bob"], coins=coins("run"))
    ot_sender, ot_receiver = (anew(state) for state in transfer_pair("match"))
    items, sizes = coins("items").words(40).reshape(-1, 2), matching.MatchingSetup(MIN_ITEMS, MIN_ITEMS)
    return {
        "alice": matching.asker(runs["alice"], "bob", sizes, items[:12], ot_sender, coins("a" + seed)),
        "bob": matching.owner(runs["bob"], "alice", sizes, items[5:], ot_receiver, coins("b" + seed)),
    }


def scored_roles(to: str, seed: str = "") -> dict[str, Any]:
    return Hidden(to, "shared", sizes=(10, 10), overlap=4).roles(keys=("s" + seed, "h" + seed))


def fought(make: Callable[..., dict[str, Any]], *given: Any) -> Callable[..., Any]:
    def run(seed: str = "", **options: Any) -> Any:
        return run_in_memory(make(*given, seed=seed), **options)

    return run


def batch(classes: int, holders: tuple[str, ...] = ("attributes",)) -> Callable[..., Any]:
    def run(seed: str = "", **options: Any) -> Any:
        return argmax_roles(classes, holders, seed)(**options)

    return run


ARENAS: dict[str, Callable[..., Any]] = {
    "class_sums, 3 classes": fought(sums_roles, 3),
    "class_sums, 4 classes": fought(sums_roles, 4),
    "shared_model": fought(model_roles),
    "priors": fought(prior_roles),
    "shared_argmax, 2 classes": batch(2),
    "shared_argmax, 7 classes": batch(7),
    "shared_argmax, three parties": batch(3, ("first", "second")),
    "joined_sums": fought(join_roles),
    "matching": fought(match_roles),
}
LARGE = {
    "joined_scores to the class holder": fought(scored_roles, "bank"),
    "joined_scores to the other": fought(scored_roles, "telecom"),
}


def changes(value: Any, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """What a field may be replaced by: flipped bits, something shorter, something longer."""
    if isinstance(value, bool):
        yield "other", not value
    elif isinstance(value, int):
        yield "other", value ^ 1
    elif isinstance(value, bytes):
        if value:
            at = int(rng.integers(len(value)))
            yield "flipped", value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
            yield "short", value[:-1]
        yield "long", value + b"\0"
    else:
        if len(value):
            flipped = value.copy()
            flipped[int(rng.integers(len(value)))] ^= np.uint64(1) << np.uint64(int(rng.integers(64)))
            yield "flipped", flipped
            yield "short", value[:-1]
        yield "long", np.concatenate([value, np.zeros(1, dtype=np.uint64)])


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if hasattr(left, "_fields"):
        return all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(np.array_equal(np.asarray(left), np.asarray(right)))


def verdict(run: Callable[..., Any], honest: Any, entry: Any, change: Callable[[Any], Any], own: bool) -> str | None:
    """None, or what is wrong with how the honest party ended."""
    fault = Replace(lambda other: other.index == entry.index, change)
    try:
        outcome = run(faults=[fault], check=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if outcome.error is not None:
        if not isinstance(outcome.error, ProtocolError):
            return None if type(outcome.error).__name__ == "PrivacyError" and own else f"untyped {outcome.error!r}"
        if outcome.failed == entry.sender:
            return None  # the shipped code in the deviator's seat noticed that it was not understood; the victim has no result
        return None if outcome.error.party == entry.sender else f"names {outcome.error.party}: {outcome.error}"
    victim = entry.to
    if own or same(outcome.outputs[victim], honest.outputs[victim]):
        return None
    return "a wrong result, and no error"


def findings(run: Callable[..., Any], *, every: int = 1) -> list[str]:
    honest, earlier = run(keep=Keep.FRAMES), run(seed=" earlier", keep=Keep.FRAMES)
    rng, found, number = np.random.default_rng(4), [], 0
    seen: set[tuple[str, str]] = set()
    for entry in honest.transcript.entries:
        kind = entry.kind.__name__
        if (kind, entry.sender) in seen:
            continue  # one message of each kind and sender
        seen.add((kind, entry.sender))
        message = decode(entry.frame, entry.kind, sender=entry.sender)
        tries = [
            (name, title, lambda _, name=name, new=new: msgspec.structs.replace(message, **{name: new}))  # noqa: B023
            for name in message.__struct_fields__
            for title, new in changes(getattr(message, name), rng)
        ]
        old = next(other for other in earlier.transcript.entries if other.kind is entry.kind and other.sender == entry.sender)
        if kind != "SessionOffered" and old.frame != entry.frame:
            tries.append(("all", "of another run", lambda _, old=old: decode(old.frame, old.kind, sender=old.sender)))
        for name, title, change in tries:
            number += 1
            if number % every:
                continue
            own = (kind, name) in OWN and title == "flipped"
            problem = verdict(run, honest, entry, change, own or kind == "SessionOffered")
            if problem:
                found.append(f"{kind} from {entry.sender}, {name} {title}: {problem}")
    return found


@pytest.mark.parametrize("name", ARENAS)
def test_no_changed_message_gets_through_or_frames_another(name: str) -> None:
    assert findings(ARENAS[name], every=3 if name.startswith(("class", "priors", "shared_argmax, 2")) else 8) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ARENAS | LARGE)
def test_no_changed_message_gets_through_or_frames_another_whole(name: str) -> None:
    assert findings((ARENAS | LARGE)[name]) == []


def test_the_search_finds_what_a_missing_mark_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blindbayes.protocol.shared_argmax.query.require_mark", lambda *given: None)
    assert any("of another run" in each or "mark" in each for each in findings(ARENAS["shared_argmax, 2 classes"]))
