"""Text of the console that is not in a template: names of pages, notices, names of log events."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from markupsafe import Markup, escape

STRINGS = {
    "site": "Site console",
    "new_site": "A new site",
    "skip": "Skip to the page",
    "nobody": "with the folder's token",
    "sign_out": "Sign out",
    "pages": "Pages",
    "waiting": "waiting for a decision",
    "too_often": "Too many attempts: five a minute are allowed. Wait a moment, then try again.",
    "too_often_organisation": "Too many attempts to sign in by the organisation. Wait a minute, or use a code or password.",
    "no_organisation": "This site has no sign-in by the organisation ([sign_in] in site.toml). Use a code or password.",
    "not_begun": "this sign-in was not begun in this browser, or is over: begin again",
    "wrong": "The code or password is wrong. A code works once, for ten minutes; a password needs the name too.",
}

NAVIGATION = (
    ("Now", (("/", "Today"), ("/studies", "Studies"), ("/runs", "Runs"), ("/predictions", "Predictions"))),
    ("Results", (("/releases", "Releases"), ("/ledger", "Privacy budget"), ("/shares", "Model shares"))),
    ("Data", (("/table", "Table"), ("/data", "Data check"))),
    ("This site", (("/identities", "Identities"), ("/log", "Log"), ("/settings", "Settings"))),
)

NOTICES = {
    "invited": "The cards were added. Pin each one after you have compared its words by telephone.",
    "approved": "Approved. The run starts when one of the sites requests it.",
    "sent": "The invitation is on its way. Sites that are not connected receive it when they are.",
    "asked": "Your approval is recorded. A second steward has to approve too.",
    "refused": "Refused.",
    "revoked": "The approval is revoked.",
    "stopped": "The run is being stopped at all sites.",
    "destroyed": "The share is destroyed. Nobody can classify with that model any more.",
    "pinned": "Pinned.",
    "kept": "The study file was added. Nothing is approved yet.",
    "saved": "Saved.",
    "signatures": "The signatures are added. Each fits this result.",
    "made": "The study is made. Nothing is sent or approved yet: send it to the other sites, compare the words, then approve.",
    "discarded": "The draft is deleted.",
    "reloaded": "The settings were reloaded.",
    "stricter": "The rule is stricter now, in site.toml and in force.",
    "uploaded": "The file is in the data folder. Match its columns, check, then save: until then nothing uses it.",
    "table": "Saved. The table is in use from now on.",
    "unfinished": "Saved, but a run of this study would be refused: mend what is marked below, and save again.",
    "same": "Nothing changed: site.toml says this already.",
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
    "policy": "the rules in force were recorded",
    "study kept": "a study file was added",
    "data checked": "the table was checked against a codebook",
    "setting changed": "a setting was made stricter",
    "signatures added": "signatures of other sites were added to a release",
    "drift measured": "the table was compared with a model",
    "table uploaded": "a table was uploaded",
    "table set": "the table, or how it is read, was changed",
    "rows shown": "a steward saw the first rows of the table",
    "dry run": "a dry run was made",
    "asked for": "a run was requested",
    "signed in": "a person signed in",
    "sign-in refused": "a sign-in by the organisation was refused",
    "invited": "an invitation was added",
    "study written": "a study was written here",
    "codebook drafted": "a codebook was drafted from this site's table",
    "invitation": "another site sent an invitation to a study",
    "invitation sent": "an invitation to a study was sent",
    "reloaded": "the settings were reloaded",
    "acknowledged": "a person accepted the state of a restored folder",
    "backed up": "a backup was made",
    "restored": "the folder was restored from a backup",
    "release removed": "an old release was deleted",
    "rotated": "the connection keys were renewed",
    "signed change": "a change of a study's parties was signed",
}


_DATES = (
    "dates. To use them, add a column below, such as month with the values 1 to 12; each site takes it from its dates on "
    "the page Table"
)
_IN_CONSOLE = (  # what messages of the readers say to programmers and on the command line, and what helps in the console
    (r"'/[^'\n]*/([^'/\n]+)'", r"'\1'"),  # a path of this machine: the name says enough
    (r"extra_columns='ignore' \(--ignore-extra on the command line\)", "tick 'Leave other columns unread' on the page Table"),
    (r'extra_columns = "ignore" under \[rows\] in site\.toml', "tick 'Leave other columns unread' on the page Table"),
    (r"drop it, declare it, or leave it unread: ", "leave it unread: "),
    (
        r"(?<=are missing from the table; )add or rename them, change the codebook, or derive them by a map: "
        r"map=\{'NEW': 'OLD'\} \(--map on the command line, \[rows\.map\] in site\.toml\)",
        "choose their columns on the page Table",
    ),
    (
        r"add or rename them, change the codebook, or derive them by a map: map=\{'NEW': 'OLD'\} \(--map on the command line, "
        r"\[rows\.map\] in site\.toml\)",
        "choose its column on the page Table",
    ),
    (r"Dialect\(decimal=','\) \(--decimal , on the command line\)", "the decimal sign on the page Table"),
    (
        r"--decimal , reads decimal commas, --thousands \. separated thousands; a map \(--map\) makes numbers of dates; "
        r"\[missing\] lists markers",
        "on the page Table, set the decimal sign, the separator of thousands and the texts that mean no value; read dates as a "
        "part of them, such as the year",
    ),
    (r"Dialect\(thousands='\.'\) \(--thousands \.\)", "its separator of thousands"),
    (r"derive numbers from dates by a map \(--map\)", "read dates as a part of them on the page Table"),
    (
        r"a map \(--map\) makes numbers of dates; \[missing\] lists markers",
        "on the page Table, read dates as a part of them, such as the year, and list the texts that mean no value",
    ),
    (r"add these flags, with the parts in capitals replaced:\n[\s\S]*", "answer them below, then Continue"),
    (r"Add a marker to missing in the codebook", "Add a marker to 'Texts that mean no value' on the page Table"),
    (
        r"declare another encoding: Dialect\(encoding='latin-1'\) \(--encoding latin-1 on the command line\)",
        "choose its encoding on the page Table, for example Windows (cp1252)",
    ),
    (r"Dialect\(delimiter=';'\) \(--delimiter ';' on the command line\)", "choose the separator on the page Table"),
    (r"such as open_table\(frame, map=\{.*\}\);", "chosen on the page Table;"),
    (r"add it to values or map it before", "recode it on the page Table, or ask the authors of the study to list it"),
    (r"give them a class of their own by a map \(--map\)", "recode them on the page Table"),
    (r"dates: a map derives features from them \(--map\)", _DATES),
    (r"site\.toml names no rows; add \[rows\] source = \.\.\.", "this site has no table yet: bring one in on the page Table"),
)


def in_console(message: str) -> str:
    """Replace options of the command line in a message by what can be done in the console."""
    for pattern, words in _IN_CONSOLE:
        message = re.sub(pattern, words, message)
    return message


def on_table_page(message: str) -> str:
    """Return `in_console` of a message that the page Table itself shows."""
    return re.sub(r"(?<=[:;])( )on the page Table, |,? on the page Table\b", r"\1", in_console(message))


def words_on(page: str) -> Callable[[str], str]:
    """Return what words a message for a page by its template."""
    return on_table_page if page == "table.html" else in_console


def linked(message: str) -> Markup:
    """Return a message escaped, with a link to the page that it names."""
    return Markup(str(escape(message)).replace("the page Table", 'the page <a href="/table">Table</a>'))  # noqa: S704 - escaped


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
