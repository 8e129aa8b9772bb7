"""Offers for unknown runs: the order of the checks, and each of them refusing, ignoring or letting pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.agent import offers
from blindbayes.agent.agent import Agent
from blindbayes.agent.offers import CHECKS, IGNORE, Asked
from blindbayes.agent.runs.run import NotNow
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, PrivacyError
from blindbayes.net.envelope import EnvelopePair, fresh_key
from blindbayes.testing.loopback import open_policy
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")
RUN = "ab" * 16


@asynccontextmanager
async def asked_of_south(folder: Path, policy: Policy | None = None) -> AsyncIterator[tuple[Agent, Asked]]:
    """The site south, and an offer of north for a run of an approved study."""
    async with Office(folder, NAMES, policy=policy) as office:
        study = office.net.make_study(BOOK)
        office.net.approve(study, runs=2)
        signing = office.net.sites["north"].identity.signing
        pair = EnvelopePair(study.roster.sha256, RUN, "north", "south", study.identity("south"), signing)
        offer = pair.offer(fresh_key(Coins.system()))
        yield office.agents["south"], Asked("north", offer, study, 2, declined=None)


def outcome(agent: Agent, asked: Asked) -> Any:
    """The name of the check that ends an offer, and how; None: a run would start."""
    for check in CHECKS:
        try:
            if check(agent, asked) is IGNORE:
                return check.__name__, IGNORE
        except BlindbayesError as error:
            return check.__name__, type(error)
    return None


def ended(agent: Agent, asked: Asked) -> None:
    agent.home.runs.end(RUN, {"state": "failed", "exit_code": 5})


def computed(agent: Agent, asked: Asked) -> None:
    agent.home.audit.append("computing", run=RUN, study=asked.study.sha256, exact=False)


def used_up(agent: Agent, asked: Asked) -> None:
    asked.runs = 0


def refused(agent: Agent, asked: Asked) -> None:
    asked.declined = "no"


def answered(agent: Agent, asked: Asked) -> None:
    agent.answers._until["north", RUN, "north", "south"] = float("inf")


def running(agent: Agent, asked: Asked) -> None:
    agent.runs[RUN] = None  # type: ignore[assignment]


def restored(agent: Agent, asked: Asked) -> None:
    agent.home.audit.append("restored", of="2026-01-01T00:00:00Z", at=1)


def other_host(agent: Agent, asked: Asked) -> None:
    asked.site = "west"


def forged(agent: Agent, asked: Asked) -> None:
    asked.offer = msgspec.structs.replace(asked.offer, run_id="cd" * 16)


def idle(agent: Agent, asked: Asked) -> None:
    agent.home.audit.append("joined", run="ef" * 16, study=asked.study.sha256, proposed_by="north")


@pytest.mark.parametrize(
    ("spoil", "end"),
    [
        (lambda agent, asked: None, None),
        (other_host, ("hosted_roles", ConfigError)),
        (answered, ("recent_answer", IGNORE)),
        (forged, ("signature", IntegrityError)),
        (refused, ("staff_refusal", PrivacyError)),
        (ended, ("ended_run", PrivacyError)),
        (running, ("open_run", IGNORE)),
        (computed, ("computed_run", PrivacyError)),
        (restored, ("site_is_ready", PrivacyError)),
        (used_up, ("runs_left", offers.ApprovalUsedUp)),
        (idle, ("idle_joins", NotNow)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_check_ends_what_it_names(tmp_path: Path, spoil: Callable[[Agent, Asked], None], end: Any) -> None:
    async def test() -> None:
        async with asked_of_south(tmp_path, open_policy(max_idle_joins_per_day=1)) as (agent, asked):
            spoil(agent, asked)
            assert outcome(agent, asked) == end
            agent.runs.pop(RUN, None)

    bounded(test)


def test_nothing_is_answered_before_the_signature_is_verified() -> None:
    names = [check.__name__ for check in CHECKS]
    silent = {"hosted_roles", "recent_answer", "signature"}
    assert set(names[: names.index("signature") + 1]) == silent
    assert names.index("staff_refusal") < names.index("ended_run") < names.index("computed_run")
