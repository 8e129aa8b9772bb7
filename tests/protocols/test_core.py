"""The in-memory driver: what it counts, how it ends, whom it names."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from blindbayes.errors import LocalProtocolError, PeerLost, PeerProtocolError
from blindbayes.protocols.core import Done, Open, Receive, ReceiveAll, Role, Run, Send, fail, receive, receive_all, step
from blindbayes.protocols.memory import Drop, Duplicate, Outcome, Replace, Swap, Tamper, Vanish, run_in_memory
from blindbayes.wire import Message, Trust, U64Array, encode
from blindbayes.wire.transcript import Keep
from support.replay import replay


class NumberSent(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.SHARE
    value: int


class WordsSent(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.CLEAR
    words: U64Array


def leaf(value: int) -> Role[int]:
    yield Send("hub", NumberSent(value))
    answer = yield from receive("hub", WordsSent)
    return int(answer.words[0])


def hub(leaves: tuple[str, ...], quorum: int | None = None) -> Role[tuple[str, ...]]:
    came = yield from receive_all(leaves, NumberSent, quorum=quorum)
    total = sum(message.value for message in came.values())
    total = yield Open("sum", total)
    for name in came:
        yield Send(name, WordsSent(np.array([total], np.uint64)))
    return tuple(came)


LEAVES = ("a", "b", "c")


def star(quorum: int | None = None, **how: Any) -> Outcome:
    return run_in_memory({"hub": hub(LEAVES, quorum), "a": leaf(1), "b": leaf(2), "c": leaf(4)}, **how)


def held(outcome: Outcome, party: str) -> dict[Trust, int]:
    return {kind.trust: count for kind, count in outcome.transcript.received[party].items()}


def test_a_run_reports_outputs_cost_and_openings() -> None:
    outcome = star(keep=Keep.FRAMES)
    assert outcome.outputs == {"hub": LEAVES, "a": 7, "b": 7, "c": 7}
    assert outcome.opened == {"hub": ("sum",), "a": (), "b": (), "c": ()}
    assert (outcome.cost.rounds, outcome.cost.messages, outcome.unread) == (2, 6, 0)
    assert outcome.cost.bytes == sum(len(entry.frame or b"") for entry in outcome.transcript.entries)
    assert outcome.cost.parties["a"].sent_bytes == len(encode(NumberSent(1)))
    assert held(outcome, "hub") == {Trust.SHARE: 3}
    assert held(outcome, "a") == {Trust.CLEAR: 1}
    assert [entry.depth for entry in outcome.transcript.entries] == [1, 1, 1, 2, 2, 2]


def test_rounds_are_the_longest_chain_of_messages() -> None:
    def relay(before: str | None, after: str | None) -> Role[None]:
        if before:
            yield Receive(before, NumberSent)
        if after:
            yield Send(after, NumberSent(0))

    ring = {
        f"p{index}": relay(f"p{index - 1}" if index else None, f"p{index + 1}" if index < 9 else None) for index in range(10)
    }
    assert run_in_memory(ring).cost.rounds == 9


def test_less_is_kept_when_less_is_asked_for() -> None:
    assert star(keep=Keep.COUNTS).transcript.entries == []
    assert all(entry.frame is None for entry in star(keep=Keep.HEADERS).transcript.entries)


@pytest.mark.parametrize("missing", LEAVES)
def test_a_lost_party_is_named_and_nothing_is_opened(missing: str) -> None:
    outcome = star(faults=[Vanish(missing, 0)], check=False)
    assert isinstance(outcome.error, PeerLost)
    assert outcome.error.party == missing
    assert set(outcome.opened.values()) == {()}


def test_a_quorum_goes_on_without_the_lost() -> None:
    outcome = star(2, faults=[Vanish("b", 0)])
    assert outcome.outputs == {"hub": ("a", "c"), "a": 5, "c": 5}


def test_below_the_quorum_the_missing_are_named() -> None:
    outcome = star(2, faults=[Vanish("a", 0), Vanish("c", 0)], check=False)
    assert isinstance(outcome.error, PeerLost)
    assert "a, c" in str(outcome.error)
    assert outcome.failed == "hub"


def test_whoever_was_left_out_does_not_end_the_run() -> None:
    outcome = star(2, faults=[Drop(lambda entry: entry.sender == "a")])
    assert outcome.outputs == {"hub": ("b", "c"), "b": 6, "c": 6}
    assert isinstance(outcome.lost["a"], PeerLost)


def test_a_chain_of_waits_blames_the_party_at_its_end() -> None:
    def waits(for_whom: str) -> Role[None]:
        yield Receive(for_whom, NumberSent)

    def silent() -> Role[None]:
        yield Send("a", NumberSent(0))
        yield Receive("a", NumberSent)

    outcome = run_in_memory({"a": waits("b"), "b": waits("c"), "c": silent()}, faults=[Vanish("c", 0)], check=False)
    assert isinstance(outcome.error, PeerLost)
    assert outcome.error.party == "c"


def test_a_lost_message_names_its_sender() -> None:
    outcome = star(faults=[Drop(lambda entry: entry.sender == "hub" and entry.to == "b")], check=False)
    assert isinstance(outcome.error, PeerLost)
    assert (outcome.failed, outcome.error.party) == ("b", "hub")


@pytest.mark.parametrize(
    "fault",
    [
        Tamper(1, lambda frame: frame[:-1]),
        Tamper(1, lambda frame: b"\xff" + frame[1:]),
        Tamper(1, lambda frame: b""),
        Tamper(1, lambda frame: frame + bytes(70_000_000)),
        Replace(1, lambda message: WordsSent(np.zeros(1, np.uint64))),
    ],
    ids=["short", "version", "empty", "oversize", "kind"],
)
def test_a_bad_frame_names_its_sender_and_ends_the_run(fault: Any) -> None:
    outcome = star(faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == "b"
    assert set(outcome.opened.values()) == {()}


def test_a_message_sent_twice_meets_the_next_wait() -> None:
    def twice() -> Role[None]:
        yield Receive("b", NumberSent)
        yield Receive("b", WordsSent)

    def sender() -> Role[None]:
        yield Send("a", NumberSent(1))
        yield Send("a", WordsSent(np.zeros(1, np.uint64)))

    for fault in (Duplicate(0), Swap(0)):
        outcome = run_in_memory({"a": twice(), "b": sender()}, faults=[fault], check=False)
        assert isinstance(outcome.error, PeerProtocolError)
        assert outcome.error.party == "b"
    assert star(faults=[Duplicate(0)]).unread == 1


def test_an_error_in_one_role_closes_the_others_before_they_open() -> None:
    def broken() -> Role[None]:
        yield Send("hub", NumberSent(1))
        raise LocalProtocolError("a bug")

    closed = []

    def watched() -> Role[None]:
        try:
            yield from leaf(1)
        finally:
            closed.append(True)

    roles = {"a": broken(), "hub": hub(("a", "b")), "b": watched()}
    outcome = run_in_memory(roles, check=False)
    assert isinstance(outcome.error, LocalProtocolError)
    assert outcome.failed == "a"
    assert set(outcome.opened.values()) == {()}
    assert closed == []  # it had not begun: closing a role that never ran runs none of it
    with pytest.raises(LocalProtocolError):
        run_in_memory({"a": broken(), "hub": hub(("a", "b")), "b": watched()})


def test_a_bug_in_one_role_closes_the_others_and_passes_through() -> None:
    closed = []

    def watched() -> Role[None]:
        try:
            yield from leaf(1)
        finally:
            closed.append(True)

    def buggy() -> Role[None]:
        yield Receive("b", NumberSent)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_in_memory({"hub": buggy(), "b": watched()})
    assert closed == [True]


def test_a_role_may_handle_the_loss_of_a_party() -> None:
    def patient() -> Role[str]:
        try:
            yield Receive("b", NumberSent)
        except PeerLost as lost:
            return f"without {lost.party}"
        return "with"

    def silent() -> Role[None]:
        yield Send("a", NumberSent(1))

    assert run_in_memory({"a": patient(), "b": silent()}, faults=[Vanish("b", 0)]).outputs == {"a": "without b"}


@pytest.mark.parametrize(
    "effect",
    [
        Send("a", NumberSent(1)),
        Send("nobody", NumberSent(1)),
        Receive("a", NumberSent),
        ReceiveAll(("b", "b"), NumberSent),
        ReceiveAll(("nobody",), NumberSent),
        "no effect",
    ],
)
def test_a_role_that_breaks_the_rules_is_told_so(effect: Any) -> None:
    def wrong() -> Role[None]:
        yield effect

    def idle() -> Role[None]:
        return
        yield

    with pytest.raises(LocalProtocolError):
        run_in_memory({"a": wrong(), "b": idle()})


def test_waiting_again_for_somebody_left_out_is_a_bug() -> None:
    def stubborn() -> Role[None]:
        yield ReceiveAll(("b", "c"), NumberSent, 1)
        yield Receive("b", NumberSent)

    def one() -> Role[None]:
        yield Send("a", NumberSent(1))

    with pytest.raises(LocalProtocolError):
        run_in_memory({"a": stubborn(), "b": one(), "c": one()}, faults=[Vanish("b", 0)])


def test_ten_thousand_parties_take_seconds() -> None:
    many = tuple(f"p{index}" for index in range(10_000))
    outcome = run_in_memory({"hub": hub(many), **{name: leaf(1) for name in many}}, keep=Keep.COUNTS)
    assert outcome.outputs["p77"] == 10_000
    assert outcome.cost.messages == 20_000


def test_a_step_hands_back_what_a_role_returns() -> None:
    def short() -> Role[int]:
        value = yield Open("x", 3)
        try:
            yield Open("y", value)
        except PeerLost:
            return 5
        return 4

    role = short()
    assert step(role) == Open("x", 3)
    assert step(role, 3) == Open("y", 3)
    assert fail(role, PeerLost("gone", party="b")) == Done(5)


def test_replay_reaches_the_same_state() -> None:
    outcome = star(keep=Keep.FRAMES)
    deliveries = outcome.transcript.deliveries["hub"]
    again = replay(hub(LEAVES), deliveries)
    assert again.now == Done(LEAVES)
    assert again.opened == ["sum"]
    sent = [(entry.to, entry.frame) for entry in outcome.transcript.entries if entry.sender == "hub"]
    assert again.sends == sent
    halfway = replay(hub(LEAVES), [])
    assert halfway.now == ReceiveAll(LEAVES, NumberSent)
    assert halfway.sends == []


def test_a_record_that_does_not_fit_is_refused() -> None:
    frame = encode(NumberSent(1))
    with pytest.raises(LocalProtocolError):
        replay(hub(LEAVES), [(("a", frame), ("b", frame))])  # too few
    with pytest.raises(LocalProtocolError):
        replay(leaf(1), [(("a", frame),)])  # from another sender
    with pytest.raises(PeerProtocolError):
        replay(leaf(1), [(("hub", frame),)])  # of another kind


def test_a_roster_is_checked() -> None:
    with pytest.raises(LocalProtocolError):
        Run("s", "r", ("a", "a"), "a")
    with pytest.raises(LocalProtocolError):
        Run("s", "r", ("a", "b"), "c")
    run = Run("s", "r", ("a", "b"), "a")
    assert run.context("x", "y") != run.context("xy")
    assert run.others == ("b",)
