"""The page Table: bring this site's table in without a shell. The agent reads rows; this module passes settings and facts on.

Only the preview holds values of rows: it is a call of its own, for stewards in a browser, sent with `Cache-Control: no-store`,
logged as an event without any value, and neither kept nor offered under `/api`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from blindbayes.agent import table_setup
from blindbayes.agent.approvals.people import MAY
from blindbayes.agent.table_rules import DATE_PARTS, ORDERS, SPANS, ColumnRule
from blindbayes.agent.table_setup import TableSettings
from blindbayes.console.calls import Context, Missing, validated
from blindbayes.console.records import known_studies
from blindbayes.console.strings import on_table_page
from blindbayes.console.views import find_study
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.untrusted import convert
from blindbayes.study.file import StudyFile

READINGS = {
    "": "as it is",
    "number": "number",
    "lower": "text in lower case",
    "year": "year of a date",
    "month": "month of a date",
    "day": "day of a date",
    "weekday": "weekday of a date (Monday is 1)",
    "hour": "hour of a time",
    "days": "days between two dates",
    "years": "full years between two dates",
    "expression": "formula",
}
_ORDER_WORDS = {
    "YMD": "2024-12-31",
    "DMY": "31.12.2024",
    "MDY": "12/31/2024",
    "DMY or YMD": "31.12.2024 or 2024-12-31",
    "MDY or YMD": "12/31/2024 or 2024-12-31",
}
_ASKED = ("column", "reading", "order", "second", "values", "other", "expression")
_MAX_MARKERS = 50


def from_form(fields: dict[str, str], *, lenient: bool = False) -> dict[str, Any]:
    """Turn the fields of the form into those of the call: `rule-3-column` and the like become `map`, `show-2` `show`.

    With `lenient`, rules that cannot be made are left out.
    """
    given: dict[str, Any] = {name: value for name, value in fields.items() if "-" not in name}
    given["missing"] = list(filter(None, map(str.strip, given.get("missing", "").splitlines())))[:_MAX_MARKERS]
    given["delimiter"] = {"tab": "\t"}.get(given.get("delimiter", ""), given.get("delimiter", ""))
    given["thousands"] = {"blank": " "}.get(given.get("thousands", ""), given.get("thousands", ""))
    given["show"] = [value for name, value in fields.items() if name.startswith("show-")]
    rules: dict[str, Any] = {}
    for column, answers in _typed_rules(fields).items():
        with contextlib.suppress(*([ConfigError] if lenient else [])):
            rule = convert(answers, ColumnRule, "the request").rule(column)
            rules |= {} if rule is None else {column: rule}
    return {**given, "map": rules}


def _typed_rules(fields: dict[str, str]) -> dict[str, dict[str, str]]:
    rules = {}
    for name, column in fields.items():
        if name.startswith("rule-") and name.endswith("-name"):
            typed = {each: fields.get(name.removesuffix("name") + each, "") for each in _ASKED}
            rules[column] = {each: "\n".join(text.splitlines()) for each, text in typed.items() if text}  # browsers send CR LF
    return rules


def _study(context: Context, sha256: str) -> StudyFile | None:
    return find_study(context.agent.home, sha256) if sha256 else None


async def table(context: Context, file: str = "", study: str = "") -> dict[str, Any]:
    """This site's table: where it is, the files to choose from, how it is read, and the columns of a file that was uploaded."""
    home = context.agent.home
    given = table_setup.current_settings(home)
    if file:
        studies = known_studies(home)
        study = study or (studies[0]["study"] if len(studies) == 1 else "")
        given = TableSettings(source=f"file:{file}", extra_columns="ignore", version=given.version)  # its settings are its own
    given = msgspec.structs.replace(given, study=study)
    if not (file or study) or not context.user.roles & set(MAY["check"]):
        return await _facts(context, given)
    try:
        return await _facts(context, given, compared=await _compared(context, given))
    except BlindbayesError as error:
        return await _facts(context, given, unread=on_table_page(str(error)))


async def _facts(context: Context, given: TableSettings, **more: Any) -> dict[str, Any]:
    home = context.agent.home
    files, bound = await asyncio.gather(
        asyncio.to_thread(home.data.files),
        asyncio.to_thread(table_setup.exact_sums, home, context.agent.identity.card.identity.hex()),
    )
    settings, rows = home.config.console, home.config.rows
    facts = {
        "given": msgspec.to_builtins(given),
        "now": await asyncio.to_thread(table_setup.describe_source, home),
        "name": "rows" if rows is None else rows.name,
        "files": files,
        "folder": settings.data,
        "max_upload_mb": settings.max_upload_mb,
        "preview_rows": settings.preview_rows,
        "databases": list(settings.databases),
        "secrets": await asyncio.to_thread(table_setup.secret_names, home) if settings.databases else [],
        "studies": known_studies(home),
        "bound": bound,
        "readings": READINGS,
        "dates": [*DATE_PARTS, *SPANS],
        "orders": {order: _ORDER_WORDS[order] for order in ORDERS},
        "compared": None,
        "unread": "",
        "preview": None,
        "report": None,
        "has_rows": rows is not None,
        "is_saved": rows is not None and _how_read(given) == _how_read(table_setup.current_settings(home)),
    }
    return facts | more


def _how_read(given: TableSettings) -> TableSettings:
    return msgspec.structs.replace(given, study="", show=(), version="")


async def _compared(context: Context, given: TableSettings) -> dict[str, Any]:
    study = _study(context, given.study)
    facts = await asyncio.to_thread(table_setup.compare_columns, context.agent.home, given, study, context.agent.name)
    for line in facts["wanted"]:
        line["form"] = msgspec.to_builtins(line["form"] or ColumnRule(line["name"] if line["state"] == "matched" else ""))
    return facts


async def again(context: Context, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the page after a refusal, including what was typed."""
    typed = _typed_rules(fields)
    try:
        given = msgspec.structs.replace(validated(TableSettings, from_form(fields, lenient=True), strict=False), show=())
    except ConfigError:
        return await table(context)
    try:
        compared = await _compared(context, given)
    except (BlindbayesError, Missing):
        return await _facts(context, given)
    for line in compared["wanted"]:  # a rule that cannot be made yet is not in `given`
        line["form"] |= typed.get(line["name"], {})
    return await _facts(context, given, compared=compared)


async def columns(context: Context, request: TableSettings) -> dict[str, Any]:
    """Compare the columns of a table with those of a study's codebook; names and types, no value of a row"""
    given = msgspec.structs.replace(request, show=())
    if given.source == "current" and not given.map:  # the first look: as the table is read now
        saved = table_setup.current_settings(context.agent.home)
        given = msgspec.structs.replace(given, map=saved.map, extra_columns=saved.extra_columns)
    return await _facts(context, given, compared=await _compared(context, given))


async def preview(context: Context, request: TableSettings) -> dict[str, Any]:
    """Show the first rows of some columns to a steward, as they are and as the study reads them"""
    home, study = context.agent.home, _study(context, request.study)
    shown = await asyncio.to_thread(table_setup.preview, home, request, study, context.agent.name)
    context.log("rows shown", rows=len(shown["plain"]["rows"]), columns=len(request.show))
    if shown.get("problem"):
        shown["problem"] = on_table_page(shown["problem"])
    return await _facts(context, request, compared=await _compared(context, request), preview=shown)


async def check(context: Context, request: TableSettings) -> dict[str, Any]:
    """Check a table against a study's codebook before the settings are saved; counts of rows by column, for this site only"""
    study = _study(context, request.study)
    if study is None:
        raise ConfigError("choose the study whose codebook the table is checked against")
    home, name = context.agent.home, context.agent.name
    given = await asyncio.to_thread(table_setup.completed, home, msgspec.structs.replace(request, show=()), study, name)
    report = await asyncio.to_thread(table_setup.check, home, given, study, name)
    context.log("data checked", study=study.sha256)
    return await _facts(context, given, compared=await _compared(context, given), report=report)


async def save(context: Context, request: TableSettings) -> dict[str, Any]:
    """Write how the table is read to [rows] of site.toml, and use it from now on"""
    agent = context.agent
    who = agent.home.people.require("manage", context.who)
    study = _study(context, request.study)
    given = await asyncio.to_thread(table_setup.completed, agent.home, request, study, agent.name)
    changed = await asyncio.to_thread(table_setup.save, agent.home, given, who)
    await agent.reload(who)
    ready = study is None or await asyncio.to_thread(table_setup.is_complete, agent.home, given, study, agent.name)
    notice = "table" if changed and ready else "same" if ready else "unfinished"
    return {"changed": changed, "study": request.study, "notice": notice}
