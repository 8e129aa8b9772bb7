"""The party that asks in a test of equality knows the outcome first. If it leaves before its proof, it counts as caught.

Before, it read one bit per run (whether a person of its choice is in the join), left where it would have been caught, and was
merely "lost": six of six right, caught never.
"""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path
from typing import Any

import pytest

from blindbayes.crypto import ristretto
from blindbayes.errors import DataError, IntegrityError, LocalProtocolError, PeerLost, ProtocolError, RunStopped
from blindbayes.protocols.core import Receive, Send, fail, mark, receive_marked, settle, step
from blindbayes.protocols.memory import run_in_memory
from blindbayes.protocols.private_join.sums import counts
from blindbayes.protocols.private_join.sums import roles as sums
from blindbayes.protocols.two_party import garbled
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines
from support.joined_people import BOOK, HOLDS, people, tables
from support.sites import Office, bounded
from support.two_party import coins

SESSION = b"session"


def peek(other: str, session: bytes, secret: bytes, source: Any) -> Any:
    """The asker as far as it gets without showing anything: whether it would pass."""
    scalar, point = garbled._point(session, secret, source)
    yield Send(other, garbled.EqualityAsked(mark(session, garbled.EqualityAsked, 0), point))
    answered = yield from receive_marked(other, garbled.EqualityAnswered, session, 0)
    theirs, _ = garbled._proofs(session, point, answered.point, ristretto.multiply(scalar, answered.point))
    return hmac.compare_digest(theirs, answered.proof)


@pytest.mark.parametrize("same", [True, False])
def test_an_asker_that_leaves_is_named_whatever_it_saw(same: bool) -> None:
    seen = []

    def looking() -> Any:
        seen.append((yield from peek("bank", SESSION, b"a", coins("asks"))))

    answerer = garbled.answer_equality("telecom", SESSION, b"a" if same else b"b", coins("answers"))
    with pytest.raises(IntegrityError, match="telecom"):
        run_in_memory({"telecom": looking(), "bank": answerer})
    assert seen == [same]


def waiting() -> Any:
    """An answerer that waits for the proof."""
    role = garbled.answer_equality("telecom", SESSION, b"a", coins("answers"))
    step(role)
    point = garbled._point(SESSION, b"a", coins("asks"))[1]
    step(role, garbled.EqualityAsked(mark(SESSION, garbled.EqualityAsked, 0), point))
    assert step(role) == Receive("telecom", garbled.EqualityProved)
    return role


@pytest.mark.parametrize(
    ("ends", "suspects"),
    [
        (PeerLost("no answer", party="telecom"), ("telecom",)),
        (PeerLost("was given up by telecom", party="bank"), ("telecom",)),  # by the word of the one that leaves
        (RunStopped("by its people", party="telecom"), ("telecom",)),
        (RunStopped("by its people", party="shop"), ("telecom", "shop")),  # a third party that ends the run at that moment
        (IntegrityError(party="telecom"), ("telecom",)),
    ],
)
def test_whatever_ends_the_wait_for_the_proof_is_a_failed_check(ends: ProtocolError, suspects: tuple[str, ...]) -> None:
    with pytest.raises(IntegrityError) as caught:
        fail(waiting(), ends)
    assert caught.value.suspects == suspects
    settled = settle(waiting(), ends)  # a driver that ends the run itself
    assert isinstance(settled, IntegrityError)
    assert settled.suspects == suspects


def test_an_error_of_ones_own_accuses_nobody() -> None:
    with pytest.raises(LocalProtocolError):
        fail(waiting(), LocalProtocolError("the disk is full", party="bank"))
    role = garbled.ask_equality("bank", SESSION, b"a", coins("asks"))
    step(role)
    lost = PeerLost("no answer", party="bank")
    assert settle(role, lost) is lost  # nothing was shown to the one that did not answer


# -- between agents --------------------------------------------------------------------------------------------------------

ASKERS = {
    "the row holder of joined_sums": (sums, "telecom"),
    "who compares the counts of min_overlap": (counts, "bank"),
    "the attribute holder of shared_model": (garbled, "telecom"),
}
LEAVES = ("gives up", "is stopped by its people", "is killed", "stalls")


@pytest.mark.parametrize(
    ("asker", "leaves"),
    [*((asker, "gives up") for asker in ASKERS), *(("the row holder of joined_sums", way) for way in LEAVES[1:])],
)
def test_a_site_that_leaves_is_logged_as_caught_and_the_next_run_needs_an_approval(
    tmp_path: Path, asker: str, leaves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, liar = ASKERS[asker]
    (victim,) = set(HOLDS) - {liar}
    peeked = asyncio.Event()
    loop: list[asyncio.AbstractEventLoop] = []

    def leaving(other: str, session: bytes, secret: bytes, source: Any) -> Any:
        yield from peek(other, session, secret, source)
        loop[0].call_soon_threadsafe(peeked.set)
        if leaves == "gives up":
            raise DataError("a made-up reason")
        yield from receive_marked(other, garbled.EqualityProved, session, 1)  # which never comes

    async def test() -> None:
        loop.append(asyncio.get_running_loop())
        rows = {}
        for name, frame in tables(people()).items():
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
            rows[name] = str(tmp_path / f"{name}.csv")
        async with Office(tmp_path, tuple(rows), rows=rows) as office:
            study = office.net.make_study(
                BOOK,
                kind="join",
                key=("id",),
                duplicates="first",
                columns=Holdings(HOLDS, ("bank",)),
                options={"bounds": dict.fromkeys(HOLDS, sums.MIN_BOUND), "queries": 20_000, "min_overlap": 10, "join": "left"},
                deadlines=Deadlines(step=2, join=12, run=12),
            )
            office.net.approve(study, runs=5)
            monkeypatch.setattr(module, "ask_equality", leaving)
            run = office.agents[victim].begin(study.sha256)
            await peeked.wait()
            if leaves == "is stopped by its people":
                await office.agents[liar].stop_run(run.run_id, "curious", "eve")
            elif leaves == "is killed":
                await office.stop(liar)
            await run.done.wait()
            assert isinstance(run.error, IntegrityError)
            assert run.error.party == liar
            home = office.net.sites[victim].home
            (ended,) = [entry for entry in home.history.entries_of(run.run_id) if entry["event"] == "ended"]
            assert (ended["state"], ended["why"]) == ("burned", f"{liar}: an integrity check failed")
            assert home.approvals.find(study.sha256) is None
            (revoked,) = home.audit.where("event", "revoked")
            assert liar in revoked["why"]

    bounded(test, 90)
