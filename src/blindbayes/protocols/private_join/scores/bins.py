"""The joint random choice of bins by the scorer and every helper. Step numbers as in SPEC.md.

The bins are the same with every helper, so they cannot follow from the session with one of them. The scorer commits to its part
before it hears anything, each helper answers with a part of its own, and the scorer opens: no party can search for placements.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, receive_marked
from blindbayes.protocols.private_join.scores.messages import BinsCommitted, BinsFixed, BinsOffered

SEED_BYTES = 32


def _context(run: Run, scorer: str, helper: str) -> bytes:
    return run.context("joined_scores bins", scorer, helper)


def _commitment(seed: bytes) -> bytes:
    return hashlib.sha256(b"blindbayes joined_scores commitment" + seed).digest()


def _name(mine: bytes, offered: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"blindbayes joined_scores bins" + mine + b"".join(offered)).digest()


def commit_bins(run: Run, helper: str, seed: bytes) -> Role[None]:
    """Commit to the scorer's part, before anything else."""
    place = mark(_context(run, run.me, helper), BinsCommitted, 0)
    yield Send(helper, BinsCommitted(place, _commitment(seed)))


def hear_commitment(run: Run, scorer: str) -> Role[bytes]:
    heard = yield from receive_marked(scorer, BinsCommitted, _context(run, scorer, run.me), 0)
    return heard.commitment


def offer_bins(session: bytes, scorer: str, coins: Coins) -> Role[bytes]:
    """Send a helper's part."""
    mine = coins.bytes(SEED_BYTES)
    yield Send(scorer, BinsOffered(mark(session, BinsOffered, 0), mine))
    return mine


def hear_bins(session: bytes, scorer: str, committed: bytes, mine: bytes, place: tuple[int, int]) -> Role[bytes]:
    """Receive the name of the bins at a helper. `place` is its index and the number of helpers."""
    at, helpers = place
    fixed = yield from receive_marked(scorer, BinsFixed, session, 0)
    parts = [fixed.offered[low : low + SEED_BYTES] for low in range(0, len(fixed.offered), SEED_BYTES)]
    if len(fixed.offered) != helpers * SEED_BYTES or len(fixed.seed) != SEED_BYTES:
        raise PeerProtocolError("the parts of the bins have the wrong length", party=scorer)
    if parts[at] != mine or not hmac.compare_digest(_commitment(fixed.seed), committed):
        raise IntegrityError(party=scorer)
    return _name(fixed.seed, parts)


def fix_bins(sessions: Sequence[tuple[bytes, str]], mine: bytes) -> Role[bytes]:
    """Collect every helper's part and send the scorer's own to all."""
    offered = []
    for session, helper in sessions:
        part = yield from receive_marked(helper, BinsOffered, session, 0)
        if len(part.seed) != SEED_BYTES:
            raise PeerProtocolError("a part of the bins has the wrong length", party=helper)
        offered.append(part.seed)
    for session, helper in sessions:
        yield Send(helper, BinsFixed(mark(session, BinsFixed, 0), mine, b"".join(offered)))
    return _name(mine, offered)
