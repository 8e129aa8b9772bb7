"""What an agent says of itself, and what it does when no run is under way: it keeps material for classifications ready, as
`ahead_batches` says."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from blindbayes.errors import BlindbayesError, IntegrityError
from blindbayes.model.shares import ModelShare
from blindbayes.scheme.ahead import Plan
from blindbayes.transport.versions import VERSIONS

if TYPE_CHECKING:
    from blindbayes.site.agent import Agent

PAUSE = 15.0  # seconds between looks
_KEEP_SHOWN = 16
_REST = 600.0  # after a run that failed; for good, where the other deviated


async def keep_ready(agent: Agent) -> None:
    """Until it is cancelled."""
    rests: dict[str, float] = {}
    while True:
        await asyncio.sleep(PAUSE)
        if not agent.home.config.ahead_batches or any(not run.done.is_set() for run in agent.runs.values()):
            continue
        with contextlib.suppress(BlindbayesError, OSError):  # such as a disk that is full, or a study that ended
            wanted = await asyncio.to_thread(_wanting, agent, rests)
            if wanted is None:
                continue
            rests[wanted[0]] = time.monotonic() + _REST
            run = agent.precompute(*wanted)
            await run.done.wait()
            rests[wanted[0]] = math.inf if isinstance(run.error, IntegrityError) else rests[wanted[0]] if run.error else 0.0


def _wanting(agent: Agent, rests: dict[str, float]) -> tuple[str, int] | None:
    """A model for which material is missing, and for how many instances."""
    home, ready = agent.home, agent.home.ahead.ready()
    for share in home.shares.all():
        model, found = share["run"], home.approvals.find(share["study"])
        if found is None or rests.get(model, 0.0) > time.monotonic():
            continue
        with contextlib.suppress(BlindbayesError):  # a model for which nothing is made ahead
            plan = Plan.of(home.shares.load(model, ModelShare), found[0].study.reveal_to, compare_all=False)
            if plan.columns.class_holder == agent.name:
                for size, count in sorted(Counter(home.config.ahead_batches).items()):
                    if ready.get(model, Counter())[size] < count * len(plan.others):
                        return model, size
    return None


def show_site(agent: Agent) -> dict[str, Any]:
    """The state of the site."""
    home, board = agent.home, agent.board
    return {
        "site": agent.name,
        "fingerprint": agent.identity.card.words,
        "peers": {name: board.courier.is_up(name) for name in sorted(home.peers())},
        "versions": {agent.name: dict(VERSIONS)} | {name: dict(told) for name, told in sorted(board.versions.items())},
        "approved": [
            {"study": study.sha256, "title": study.title, "roster": study.roster.sha256} for study in home.approvals.all()
        ],
        "proposed": [{"study": sha256, "by": site} for sha256, site in agent.proposed_studies.items()],
        "waiting_approvals": home.decisions.waiting(),
        "refused": home.audit.of("event", "refused")[-_KEEP_SHOWN:],
        "pending_predictions": list(agent.pending_predictions.values()),
        "runs": [run.show() for run in agent.runs.values()],
        "ahead": home.ahead.show(home.config.ahead_mb),
        "audit_head": home.audit.head,
        "ledger_head": str(home.ledger.head),
    }
