"""The table of calls: everything that the console shows or does. The signature of each function is its schema."""

from __future__ import annotations

from typing import Any

from blindbayes.console import actions, records, table, views, writing
from blindbayes.console.calls import Action, View

_TABLE: dict[str, Any] = {"back": "/table", "form": table.from_form, "again": table.again, "again_page": "table.html"}
_BEGUN: dict[str, Any] = {"again": writing.start_again, "again_page": "write.html"}
_STUDY, _RUN, _DRAFT, _RELEASE = "/studies/{study}", "/runs/{run}", "/write/{draft}", "/releases/{run}"

CALLS: tuple[View | Action, ...] = (
    View("/status", views.status),
    View("/", views.today, "today.html"),
    View("/studies", views.studies, "studies.html"),
    View(_STUDY, views.study, "study.html"),
    View("/studies/{study}/answers", views.answers, "answers.html"),
    View("/write", writing.start, "write.html"),
    View(_DRAFT, writing.draft, "draft.html"),
    View("/runs", views.runs, "runs.html"),
    View(_RUN, views.run, "run.html"),
    View("/predictions", views.predictions, "predictions.html"),
    View("/releases", records.releases, "releases.html"),
    View("/releases/{run}", records.release, "release.html"),
    View("/ledger", records.ledger, "ledger.html"),
    View("/shares", records.shares, "shares.html"),
    View("/table", table.table, "table.html"),
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
    Action("/write", writing.begin, "run", "/write", _DRAFT, form=writing.from_form, **_BEGUN),
    Action(_DRAFT, writing.save, "run", _DRAFT, _DRAFT, "saved", form=writing.gathered),
    Action("/write/{draft}/forecast", writing.forecast, "run", _DRAFT, _DRAFT + "#privacy", form=writing.gathered),
    Action("/write/{draft}/make", writing.make, "run", _DRAFT, _STUDY, "made", form=writing.gathered),
    Action("/write/{draft}/delete", writing.discard, "run", "/write", "/write", "discarded"),
    Action("/studies/{study}/send", actions.send_study, "run", _STUDY, _STUDY, "sent"),
    Action("/studies/{study}/dry-run", actions.dry_run, act="check", back=_STUDY, page="dry_run.html"),
    Action("/predictions", actions.predict, "run", "/predictions", _RUN),
    Action("/shares/{run}/destroy", actions.destroy, "manage", "/shares", "/shares", "destroyed"),
    Action("/table/columns", table.columns, act="check", page="table.html", **_TABLE),
    Action("/table/preview", table.preview, act="preview", page="table.html", has_api=False, **_TABLE),
    Action("/table/check", table.check, act="check", page="table.html", **_TABLE),
    Action("/table", table.save, act="manage", then="/table?study={study}", **_TABLE),
    Action("/data", records.check_data, act="check", back="/data", page="data.html"),
    Action("/releases/{run}/drift", records.drift, act="check", back="/releases/{run}", page="drift.html"),
    Action("/releases/{run}/signatures", records.add_signatures, "manage", _RELEASE, _RELEASE, "signatures"),
    Action("/verify", records.verify, back="/log", page="verified.html"),
    Action("/peers", actions.pin_card, "manage", "/identities", "/identities", "pinned"),
    Action("/invitations", actions.invite, "manage", "/identities", "/identities", "invited"),
    Action("/settings", records.change_setting, "manage", "/settings", "/settings"),
    Action("/reload", actions.reload, "manage", then="/settings", notice="reloaded"),
)
