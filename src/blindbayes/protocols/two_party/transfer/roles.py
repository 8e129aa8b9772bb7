"""Roles of the transfer setup. Step numbers as in SPEC.md."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender, OtSenderSetup, plant
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, receive, receive_marked, require_mark
from blindbayes.protocols.two_party.transfer.messages import (
    CoinsAnswered,
    CoinsCommitted,
    CoinsOpened,
    PointsChosen,
    SessionOffered,
    TreesPlanted,
)

NONCE_BYTES = 16
COIN_BYTES = 32


def agree(run: Run, other: str, step: str, facts: bytes, coins: Coins) -> Role[bytes]:
    """Agree on a fresh session name, bound to the study, the run, the step and the public `facts`.

    A party whose facts differ (another codebook, another number of rows, ...) is refused before anything secret is sent.
    """
    return (yield from agree_all(run, {other: step}, facts, coins))[other]


def agree_all(run: Run, steps: Mapping[str, str], facts: bytes, coins: Coins) -> Role[dict[str, bytes]]:
    """Run `agree` with several parties in one round; `steps` maps party to step.

    With a party of a standing session nothing is sent: the new session is a hash of it, of the step and of the facts, so that
    other facts give marks that fit no message.
    """
    digests = {other: hashlib.sha256(run.context(step) + facts).digest() for other, step in steps.items()}
    nonces = {other: coins.bytes(NONCE_BYTES) for other in steps if other not in run.standing}
    for other, nonce in nonces.items():
        yield Send(other, SessionOffered(nonce, digests[other]))
    sessions = {}
    for other, digest in digests.items():
        mine_first = run.parties.index(run.me) < run.parties.index(other)
        if other in nonces:
            offered = yield from receive(other, SessionOffered)
            if len(offered.nonce) != NONCE_BYTES or offered.digest != digest:
                raise PeerProtocolError(
                    "the parties do not agree on the public facts of this step, such as the number of rows", party=other
                )
            fresh = nonces[other] + offered.nonce if mine_first else offered.nonce + nonces[other]
        else:
            fresh = b"standing" + run.standing[other]
        first, second = (run.me, other) if mine_first else (other, run.me)
        sessions[other] = hashlib.sha256(run.context(steps[other], first, second) + digest + fresh).digest()
    return sessions


def standing(run: Run, sessions: Mapping[str, bytes], part: str) -> Run:
    """Return the same run in one named part of what was agreed on; its steps need no round. A name is used once."""
    named = {other: hashlib.sha256(session + part.encode()).digest() for other, session in sessions.items()}
    return replace(run, standing=named)


# A random choice of both parties: the *first* commits to its part and opens it when it has the other's. Neither can search for
# what it would like, as the one that speaks last in `agree` could with its nonce.


def commit_coins(session: bytes, other: str, coins: Coins) -> Role[bytes]:
    """Commit to the first party's part; return it."""
    mine = coins.bytes(COIN_BYTES)
    yield Send(other, CoinsCommitted(mark(session, CoinsCommitted, 0), _commitment(session, mine)))
    return mine


def answer_coins(session: bytes, other: str, coins: Coins) -> Role[tuple[bytes, bytes]]:
    """Receive the commitment; send and return the second party's part."""
    committed = yield from receive_marked(other, CoinsCommitted, session, 0)
    mine = coins.bytes(COIN_BYTES)
    yield Send(other, CoinsAnswered(mark(session, CoinsAnswered, 0), mine))
    return committed.commitment, mine


def open_coins(session: bytes, other: str, mine: bytes) -> Role[bytes]:
    """Open the first party's part; return the joint choice."""
    answered = yield from receive_marked(other, CoinsAnswered, session, 0)
    if len(answered.part) != COIN_BYTES:
        raise PeerProtocolError("a part of a random choice has the wrong length", party=other)
    choice = hashlib.sha256(session + mine + answered.part).digest()
    yield Send(other, CoinsOpened(mark(choice, CoinsOpened, 0), mine))
    return choice


def hear_coins(session: bytes, other: str, answered: tuple[bytes, bytes]) -> Role[bytes]:
    """Receive the opened part; return the joint choice if it is the committed one."""
    opened = yield from receive(other, CoinsOpened)
    commitment, mine = answered
    if len(opened.part) != COIN_BYTES or not hmac.compare_digest(_commitment(session, opened.part), commitment):
        raise IntegrityError(party=other)
    choice = hashlib.sha256(session + opened.part + mine).digest()
    require_mark(opened, choice, 0, other)  # both chose the same
    return choice


def _commitment(session: bytes, part: bytes) -> bytes:
    return hashlib.sha256(b"blindbayes coins" + session + part).digest()


def ot_sender(run: Run, other: str, coins: Coins) -> Role[OtSender]:
    """Set up a later sender: it draws the offset and chooses in the base transfers."""
    session = yield from agree(run, other, f"transfer from {run.me}", b"softspoken k=4", coins)  # step 1
    setup = OtSenderSetup.begin(session, coins)
    yield Send(other, PointsChosen(mark(session, PointsChosen, 0), setup.choice.points))  # step 2
    planted = yield from receive_marked(other, TreesPlanted, session, 0)
    return setup.finish(planted.point, planted.corrections, other)  # step 4


def ot_receiver(run: Run, other: str, coins: Coins) -> Role[OtReceiver]:
    """Set up a later chooser: it plants the trees."""
    session = yield from agree(run, other, f"transfer from {other}", b"softspoken k=4", coins)  # step 1
    chosen = yield from receive_marked(other, PointsChosen, session, 0)
    planted, point, corrections = plant(chosen.points, session, coins, other)
    yield Send(other, TreesPlanted(mark(session, TreesPlanted, 0), point, corrections))  # step 3
    return planted
