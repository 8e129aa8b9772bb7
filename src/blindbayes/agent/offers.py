"""Signed words to sites that ask for a run that is not to be: it has ended here, or people refused its study.

One word at a time to each role, at most one a second: whoever asks again and again costs little.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

from blindbayes.errors import BlindbayesError, LocalProtocolError, public_code
from blindbayes.net.envelope import Ended, EnvelopePair, Refused, pack
from blindbayes.net.identity import Identity
from blindbayes.net.router import Router
from blindbayes.study.file import StudyFile

_KEEP_TOLD = 64  # answers to one site that are under way
_TELL_SECONDS = 1.0


class Answers:
    """See the module's docstring."""

    def __init__(self, board: Router, identity: Identity) -> None:
        self._board, self._identity = board, identity
        self._telling: dict[tuple[str, ...], float] = {}  # (site, run, its role, ours): until when it is not told again
        self._tasks: set[asyncio.Task[None]] = set()

    def was_told(self, site: str, run_id: str, peer: str, me: str) -> bool:
        """It was told a moment ago, or is being told."""
        return self._telling.get((site, run_id, peer, me), 0.0) > asyncio.get_running_loop().time()

    def tell(self, site: str, pair: EnvelopePair, word: Ended | Refused) -> None:
        """Send it, if the site is not told too much already."""
        key, now = (site, pair.run_id, pair.peer, pair.me), asyncio.get_running_loop().time()
        self._telling = {each: until for each, until in self._telling.items() if until > now}
        if key in self._telling or sum(each[0] == site for each in self._telling) >= _KEEP_TOLD:
            return
        self._telling[key] = math.inf

        async def send() -> None:
            try:
                with contextlib.suppress(BlindbayesError):
                    await self._board.route(site).send(pack(word))
            finally:
                self._telling[key] = asyncio.get_running_loop().time() + _TELL_SECONDS

        self._tasks.add(task := asyncio.get_running_loop().create_task(send()))
        task.add_done_callback(self._tasks.discard)

    def tell_ended(self, site: str, pair: EnvelopePair, outcome: dict[str, Any]) -> None:
        """A party of the study asks for a run that has ended here: it need not wait for its deadline."""
        is_done = outcome.get("told", outcome["state"]) == "done"
        code = 0 if is_done else public_code(int(outcome.get("exit_code", LocalProtocolError.code)))
        self.tell(site, pair, pair.ended(code | (int(outcome.get("about", -1)) + 1) << 8))

    def tell_all_ended(self, study: StudyFile, run_id: str, outcome: dict[str, Any]) -> None:
        """Every role elsewhere hears from every role here."""
        mine = [seat for seat in study.seats if study.host(seat) == self._identity.name]
        for peer in study.seats:
            if (site := study.host(peer)) != self._identity.name:
                for me in mine:
                    bound, identity = study.roster.sha256, study.identity(peer)
                    self.tell_ended(site, EnvelopePair(bound, run_id, me, peer, identity, self._identity.signing), outcome)
