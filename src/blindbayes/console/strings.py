"""The console's English that does not stand in a template: names of pages, of events, and short words used everywhere."""

from __future__ import annotations

from typing import Any

WORD = {
    "site": "Site console",
    "new_site": "A new site",
    "skip": "Skip to the page",
    "nobody": "with the folder's token",
    "sign_out": "Sign out",
    "pages": "Pages",
    "waiting": "waiting for somebody here",
    "too_often": "Five tries a minute are all. Wait a moment, then try again.",
    "wrong": "That was not right. A code is valid once, for ten minutes; whoever has a password needs name and password.",
}

NAVIGATION = (
    ("Now", (("/", "Today"), ("/studies", "Studies"), ("/runs", "Runs"), ("/predictions", "Predictions"))),
    ("What was told", (("/releases", "Releases"), ("/ledger", "Privacy budget"), ("/shares", "Model shares"))),
    ("This site", (("/data", "Data check"), ("/identities", "Identities"), ("/log", "Log"), ("/settings", "Settings"))),
)

EVENTS = {
    "site made": "the site was set up",
    "pinned": "a card was pinned",
    "approval asked": "a first steward said yes",
    "approved": "a study was approved",
    "chains checked": "log and ledger were read anew",
    "revoked": "an approval was taken back",
    "study refused": "a study was refused",
    "refused": "another site's wish was refused",
    "joined": "this site joined a run",
    "computing": "a run began to compute; its price was paid",
    "classifying": "a batch began; its queries were counted",
    "survivors confirmed": "the sites in the sum were confirmed",
    "vector left": "this site's masked numbers left",
    "opened": "a result was opened",
    "ended": "a run ended",
    "burned": "a run was burned: it never goes on",
    "stopped": "people stopped a run",
    "settled": "people settled what a run opened",
    "forgot": "people forgot another site's heads",
    "withdrew": "this site took its rows back",
    "returned": "this site brought its rows again",
    "destroyed": "a share was destroyed",
    "witnessed": "another site showed its logs' heads",
    "older log": "another site showed an older log than before",
    "torn": "a write was cut short, and closed",
    "person added": "a person was added",
    "person removed": "a person was removed",
    "study kept": "a study's file was brought",
    "data checked": "the table was held against a codebook",
    "dry run": "what would leave was looked at",
    "asked for": "a run was asked for",
    "signed in": "somebody signed in",
    "invited": "an invitation was brought",
    "reloaded": "settings were read anew",
}


def plain(value: Any) -> str:
    """A setting's value, for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {plain(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
