"""The table of calls: everything that the console shows or does. The signature of each function is its schema."""

from __future__ import annotations

from blindbayes.console import actions, records, views
from blindbayes.console.calls import Action, View

_STUDY, _RUN = "/studies/{study}", "/runs/{run}"

CALLS: tuple[View | Action, ...] = (
    View("/status", views.status),
    View("/", views.today, "today.html"),
    View("/studies", views.studies, "studies.html"),
    View(_STUDY, views.study, "study.html"),
    View("/runs", views.runs, "runs.html"),
    View(_RUN, views.run, "run.html"),
    View("/predictions", views.predictions, "predictions.html"),
    View("/releases", records.releases, "releases.html"),
    View("/releases/{run}", records.release, "release.html"),
    View("/ledger", records.ledger, "ledger.html"),
    View("/shares", records.shares, "shares.html"),
    View("/data", records.data, "data.html"),
    View("/log", records.log, "log.html"),
    View("/identities", records.identities, "identities.html"),
    View("/settings", records.settings, "settings.html"),
    Action("/runs", actions.begin, "run", "/studies", _RUN),
    Action("/evaluations", actions.evaluate, "run", "/studies", _RUN),
    Action("/runs/{run}/stop", actions.stop, "stop", _RUN, _RUN, "stopped"),
    Action("/studies", actions.keep_study, back="/studies", then=_STUDY, notice="kept"),
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
    Action("/reload", actions.reload, "manage", then="/settings", notice="reloaded"),
)
