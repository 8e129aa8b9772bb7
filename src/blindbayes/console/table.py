"""The table of calls: everything that the console shows or does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from blindbayes.console.calls import Action, Desk, Missing, View
from blindbayes.console.door import ANALYST, ROLES
from blindbayes.site.client import substance

_NEWS_SECONDS = 20.0


class After(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line of progress that is known: the answer waits until there is another one."""

    after: str | None = None


class Begin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of an approved study; with a base one that adds to the result of that run."""

    study: str
    base: str | None = None


class Predict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A batch to classify with a model over columns; see `blindbayes study predict`."""

    study: str
    model: str
    batch: str
    rows: str | None = None
    table: str | None = None
    count: int | None = None
    keep: tuple[str, ...] = ()
    to: str | None = None
    scope: str = "everybody"


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reason for the log, and who says so: with the folder's token that is the command's word."""

    why: str
    who: str | None = None


async def stop(desk: Desk, run: str, why: str, who: str | None) -> dict[str, Any]:
    by = desk.agent.home.people.require("stop", who)
    return (await desk.agent.stop_run(run, why, by)).show()


def status(desk: Desk) -> dict[str, Any]:
    return desk.agent.show()


async def one_run(desk: Desk, run: str, after: str | None = None) -> dict[str, Any]:
    found = desk.agent.runs.get(run)
    if found is None:
        raise Missing("no such run")
    if after is not None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _NEWS_SECONDS
        while not found.done.is_set() and substance(found.text()) == substance(after) and loop.time() < until:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(found.done.wait(), 0.1)
    return found.show()


def begin(desk: Desk, study: str, base: str | None) -> dict[str, Any]:
    return desk.agent.begin(study, base).show()


def predict(desk: Desk, study: str, **asked: Any) -> dict[str, Any]:
    return desk.agent.predict(study, asked).show()


CALLS: tuple[View | Action, ...] = (
    View("/status", status, "The state of the site"),
    View("/runs/{run}", one_run, "One run; with `after` it waits for news", query=After),
    Action("/runs", begin, "Begin a run of an approved study", Begin, (ANALYST,), "/runs/{run}"),
    Action("/runs/{run}/stop", stop, "Stop a run; every site is told", Stop),
    Action("/predictions", predict, "Classify a batch with a model over columns", Predict, (ANALYST,), "/runs/{run}"),
)
__all__ = ["CALLS", "ROLES"]
