"""The table of calls: everything that the console shows or does. What a call takes, its signature says."""

from __future__ import annotations

from typing import Any

from blindbayes.console import actions, facts, records
from blindbayes.console.calls import Action, Desk, View


def status(desk: Desk) -> dict[str, Any]:
    """The state of the site."""
    return desk.agent.show()


_STUDY, _RUN = "/studies/{study}", "/runs/{run}"

CALLS: tuple[View | Action, ...] = (
    View("/status", status),
    View("/", facts.today, "today.html"),
    View("/studies", facts.studies, "studies.html"),
    View(_STUDY, facts.study, "study.html"),
    View("/runs", facts.runs, "runs.html"),
    View(_RUN, facts.run, "run.html"),
    View("/predictions", facts.predictions, "predictions.html"),
    View("/releases", records.releases, "releases.html"),
    View("/releases/{run}", records.release, "release.html"),
    View("/ledger", records.ledger, "ledger.html"),
    View("/shares", records.shares, "shares.html"),
    View("/data", records.data, "data.html"),
    View("/log", records.log, "log.html"),
    View("/identities", records.identities, "identities.html"),
    View("/settings", records.settings, "settings.html"),
    Action("/runs", actions.begin, "run", "/studies", _RUN),
    Action("/runs/{run}/stop", actions.stop, "stop", _RUN, _RUN, "stopped"),
    Action("/studies", actions.keep_study, back="/studies", then=_STUDY, told="kept"),
    Action("/studies/{study}/approve", actions.approve, "approve", _STUDY, _STUDY),
    Action("/studies/{study}/refuse", actions.refuse, "refuse", _STUDY, _STUDY, "refused"),
    Action("/studies/{study}/revoke", actions.revoke, "revoke", _STUDY, _STUDY, "revoked"),
    Action("/studies/{study}/dry-run", actions.dry_run, act="check", back=_STUDY, page="dry_run.html"),
    Action("/predictions", actions.predict, "run", "/predictions", _RUN),
    Action("/shares/{run}/destroy", actions.destroy, "manage", "/shares", "/shares", "destroyed"),
    Action("/data", records.check_data, act="check", back="/data", page="data.html"),
    Action("/verify", records.verify, back="/log", page="verified.html"),
    Action("/peers", actions.pin_card, "manage", "/identities", "/identities", "pinned"),
    Action("/invitations", actions.invite, "manage", "/identities", "/identities", "invited"),
    Action("/reload", actions.reload, "manage", then="/settings", told="reloaded"),
)
