"""The table of calls: everything that the console shows or does."""

from __future__ import annotations

from typing import Any

import msgspec

from blindbayes.console import actions, facts, records
from blindbayes.console.calls import Action, Desk, View


class After(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line of progress that is known: the answer waits until there is another one."""

    after: str | None = None


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of a long list; the first has the newest."""

    page: int = 1


class Entries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which entries of the log."""

    page: int = 1
    event: str | None = None
    about: str | None = None


def status(desk: Desk) -> dict[str, Any]:
    """The state of the site."""
    return desk.agent.show()


_STUDY, _RUN, _SHARES = "/studies/{study}", "/runs/{run}", "/shares"

CALLS: tuple[View | Action, ...] = (
    View("/status", status, "The state of the site"),
    View("/", facts.today, "What waits, what runs, what went wrong, what is left of the budget", "today.html"),
    View("/studies", facts.studies, "Studies by state", "studies.html"),
    View(_STUDY, facts.study, "One study: what people must see before they say yes or no", "study.html"),
    View("/runs", facts.runs, "Every run, the newest first", "runs.html", Page),
    View(_RUN, facts.run, "One run; with `after` it waits for news", "run.html", After),
    View("/predictions", facts.predictions, "Batches that others wish for, and models to ask", "predictions.html"),
    View("/releases", records.releases, "What runs ended in, the newest first", "releases.html", Page),
    View("/releases/{run}", records.release, "One release: files, signatures, statement", "release.html"),
    View("/ledger", records.ledger, "What was spent, over time, and who has seen it", "ledger.html"),
    View(_SHARES, records.shares, "Shares of models over columns", "shares.html"),
    View("/data", records.data, "What this site's table can be held against", "data.html"),
    View("/log", records.log, "The audit log, the newest first", "log.html", Entries),
    View("/identities", records.identities, "Own words, pinned sites, people", "identities.html"),
    View("/settings", records.settings, "What this site allows", "settings.html"),
    Action("/runs", actions.begin, "Begin a run of an approved study", actions.Begin, "run", "/studies", _RUN),
    Action(
        "/runs/{run}/stop",
        actions.stop,
        "Stop a run, at every site",
        actions.Stop,
        "stop",
        back=_RUN,
        then=_RUN,
        told="stopped",
    ),
    Action("/studies", actions.keep_study, "Bring a study's file", actions.Text, back="/studies", then=_STUDY, told="kept"),
    Action("/studies/{study}/approve", actions.approve, "Approve a study", actions.Approve, "approve", _STUDY, _STUDY),
    Action("/studies/{study}/refuse", actions.refuse, "Refuse a study", actions.Why, "refuse", _STUDY, _STUDY, "refused"),
    Action("/studies/{study}/revoke", actions.revoke, "Take a yes back", actions.MaybeWhy, "revoke", _STUDY, _STUDY, "revoked"),
    Action("/studies/{study}/dry-run", actions.dry_run, "What would leave this site", back=_STUDY, page="dry_run.html"),
    Action("/predictions", actions.predict, "Ask to classify a batch", actions.Predict, "run", "/predictions", _RUN),
    Action("/material", actions.precompute, "Make material for a later batch", actions.Precompute, "run", "/predictions", _RUN),
    Action(
        "/shares/{run}/destroy", actions.destroy, "Destroy a share", actions.Sure, "manage", "/shares", "/shares", "destroyed"
    ),
    Action("/data", records.check_data, "Hold the table against a codebook", actions.Of, back="/data", page="data.html"),
    Action("/verify", records.verify, "Read and check the whole log and ledger", back="/log", page="verified.html"),
    Action("/peers", actions.pin_card, "Pin a card", actions.Pin, "manage", "/identities", "/identities", "pinned"),
    Action("/invitations", actions.invite, "Bring cards", actions.Text, "manage", "/identities", "/identities", "invited"),
    Action("/reload", actions.reload, "Take up changed settings and pins", act="manage", then="/settings", told="reloaded"),
)
