"""Text of the console that is not in a template: names of pages, notices, names of log events."""

from __future__ import annotations

from typing import Any

STRINGS = {
    "site": "Site console",
    "new_site": "A new site",
    "skip": "Skip to the page",
    "nobody": "with the folder's token",
    "sign_out": "Sign out",
    "pages": "Pages",
    "waiting": "waiting for a decision",
    "too_often": "Too many attempts: five a minute are allowed. Wait a moment, then try again.",
    "wrong": "The code or password is wrong. A code works once, for ten minutes; a password needs the name too.",
}

NAVIGATION = (
    ("Now", (("/", "Today"), ("/studies", "Studies"), ("/runs", "Runs"), ("/predictions", "Predictions"))),
    ("Results", (("/releases", "Releases"), ("/ledger", "Privacy budget"), ("/shares", "Model shares"))),
    ("This site", (("/data", "Data check"), ("/identities", "Identities"), ("/log", "Log"), ("/settings", "Settings"))),
)

NOTICES = {
    "invited": "The cards were added. Pin each one after you have compared its words by telephone.",
    "approved": "Approved. The run starts when one of the sites requests it.",
    "asked": "Your approval is recorded. A second steward has to approve too.",
    "refused": "Refused. Sites that request a run of this study receive your reason.",
    "revoked": "The approval is revoked.",
    "stopped": "The run is being stopped at all sites.",
    "destroyed": "The share is destroyed. Nobody can classify with that model any more.",
    "pinned": "Pinned.",
    "kept": "The study file was added. Nothing is approved yet.",
    "reloaded": "The settings were reloaded.",
}

EVENTS = {
    "site made": "the site was set up",
    "pinned": "a card was pinned",
    "approval asked": "the first steward approved",
    "approved": "a study was approved",
    "chains checked": "log and ledger were verified",
    "revoked": "an approval was revoked",
    "study refused": "a study was refused",
    "refused": "a request of another site was refused",
    "joined": "this site joined a run",
    "computing": "a run started to compute; its cost was charged",
    "classifying": "a batch started; its queries were counted",
    "survivors confirmed": "the sites in the sum were confirmed",
    "vector left": "this site sent its masked statistics",
    "opened": "a result was opened",
    "ended": "a run ended",
    "burned": "a run was ended for good",
    "stopped": "a person stopped a run",
    "settled": "a person recorded what a run opened",
    "forgot": "a person accepted another site's older log",
    "withdrew": "this site withdrew its rows",
    "returned": "this site contributes its rows again",
    "destroyed": "a share was destroyed",
    "witnessed": "another site showed the heads of its logs",
    "older log": "another site showed an older log than before",
    "torn": "an interrupted write was closed",
    "person added": "a person was added",
    "person removed": "a person was removed",
    "study kept": "a study file was added",
    "data checked": "the table was checked against a codebook",
    "dry run": "a dry run was made",
    "asked for": "a run was requested",
    "signed in": "a person signed in",
    "invited": "an invitation was added",
    "reloaded": "the settings were reloaded",
}


def plain(value: Any) -> str:
    """Format the value of a setting for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {plain(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
