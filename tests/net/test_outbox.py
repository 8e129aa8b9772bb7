"""The outbox: any mix of sending, acknowledging and new sessions delivers every message once and in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.net.envelope import PART_BYTES
from blindbayes.net.journal import SentDigest
from blindbayes.net.outbox import Outbox


def account() -> SentDigest:
    return SentDigest("ab" * 32, "run-1", "north", "south")


def test_large_messages_are_cut_and_the_window_holds() -> None:
    outbox = Outbox(window=1000, account=account())
    assert outbox.fits(10**9)
    outbox.add("Vector", bytes(PART_BYTES + 1))
    assert not outbox.fits(1)
    first, second = outbox.next_part(), outbox.next_part()
    assert first is not None
    assert second is not None
    assert (first.part, first.parts, len(first.body)) == (0, 2, PART_BYTES)
    assert (second.part, second.parts, len(second.body)) == (1, 2, 1)
    assert outbox.next_part() is None
    outbox.acknowledge(1)
    assert outbox.is_empty
    assert outbox.fits(10**9)


def test_an_empty_message_is_one_part() -> None:
    outbox = Outbox(window=1000, account=account())
    outbox.add("Nothing", b"")
    part = outbox.next_part()
    assert part is not None
    assert (part.parts, part.body) == (1, b"")


@given(st.lists(st.sampled_from(["add", "send", "ack", "session"]), max_size=60), st.data())
@settings(max_examples=200, deadline=None)
def test_any_order_of_events_delivers_once_and_in_order(events: list[str], data: st.DataObject) -> None:
    outbox, stream, received, queued = Outbox(window=10**6, account=account()), account(), [], []
    digests = [stream.digest]
    for event in events:
        if event == "add":
            payload = bytes([len(queued)]) * 3
            outbox.add("Step", payload)
            queued.append(payload)
            stream.add("Step", payload)
            digests.append(stream.digest)
        elif event == "send":
            part = outbox.next_part()
            if part is not None and part.index == len(received):
                received.append(part.body)
            elif part is not None:
                assert part.index < len(received)  # sent again after a new session: the receiver has it
                assert received[part.index] == part.body
        elif event == "ack":
            outbox.acknowledge(data.draw(st.integers(outbox.acked, len(received))))
        else:
            outbox.rewind(len(received))
    while (part := outbox.next_part()) is not None:
        if part.index == len(received):
            received.append(part.body)
    assert received == queued
    assert [outbox.digest(count) for count in range(len(queued) + 1)] == digests
