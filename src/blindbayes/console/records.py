"""Views of the past and of the site itself: releases, drift, ledger, shares, log, identities, settings, data check."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from blindbayes.agent.runs.folders import require_run_id
from blindbayes.agent.runs.release import check_release
from blindbayes.agent.site_file import version_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.store.inbox import inbox
from blindbayes.agent.stricter import STRICTER, make_stricter, present_value
from blindbayes.console.calls import Context, Missing
from blindbayes.console.invitations import invited
from blindbayes.console.strings import EVENTS, plain
from blindbayes.console.views import budget, evaluates, find_study, paged
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import read_folder, write_whole
from blindbayes.io.untrusted import read_json_table
from blindbayes.report.manifest import COMMON_SIGNATURES, merged_signatures, read_manifest
from blindbayes.report.plots import drift_plot
from blindbayes.study.settings import SETTINGS, label_of, line_of

_VERIFICATION = {
    "made_by": "makers",
    "signed": "signed",
    "missing": "missing",
    "receipts": "receipts",
    "no_receipt": "no_receipt",
    "left_out": "left_out",
    "alone": "alone",
    "unknown": "unknown",
    "open": "not_covered",
}
_FIELDS = ("site", "run", "study", "state", "who", "why")


def _release_folders(home: SiteFolder) -> list[str]:
    folder = home.folder / "releases"
    runs = [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    ends = {name: (home.history.end_of(name) or {}).get("time", "") for name in runs}
    return sorted(runs, key=lambda name: (ends[name], name), reverse=True)


def releases(context: Context, page: int = 1) -> dict[str, Any]:
    """Releases of past runs, newest first."""
    home = context.agent.home
    names, about = paged(_release_folders(home), page)
    rows = []
    for name in names:
        joined = next((e for e in home.audit.where("run", name) if e["event"] == "joined"), {})
        end = home.history.end_of(name) or {}
        rows.append(
            {
                "run": name,
                "study": joined.get("study", ""),
                "title": joined.get("title", joined.get("study", "")[:12]),
                "kind": joined.get("kind", ""),
                "time": end.get("time", ""),
            }
        )
    return {"releases": rows, **about}


_RESULTS, _PLOT = ("evaluation.md", "cross_validation.md"), "plots/evaluation.svg"


async def release(context: Context, run: str) -> dict[str, Any]:
    """One release: its files, whether they verify, and the privacy statement."""
    home = context.agent.home
    folder = home.folder / "releases" / _run_id(run)
    if not folder.is_dir():
        raise Missing("this site has no release of that run")
    files = await asyncio.to_thread(read_folder, folder)
    problem, verification = "", None
    try:
        cards = {context.agent.name: context.agent.identity.card, **home.peers()}
        keys = {name: card.lasting_public for name, card in cards.items()}
        _, verification = await asyncio.to_thread(check_release, files, keys)
    except BlindbayesError as error:
        problem = str(error)
    known = read_json_table(files["run.json"], "run.json") if "run.json" in files and not problem else {}
    approved = home.approvals.find(str(known.get("study", "")))
    return {
        "run": run,
        "title": str(known.get("title", "")),
        "study": str(known.get("study", "")),
        "files": [{"name": name, "size": len(data)} for name, data in sorted(files.items())],
        "problem": problem,
        **{name: [] if verification is None else list(getattr(verification, field)) for name, field in _VERIFICATION.items()},
        "statement": files["statement.md"].decode() if "statement.md" in files and not problem else "",
        "results": next((files[name].decode() for name in _RESULTS if name in files and not problem), ""),
        "plot": _PLOT if _PLOT in files and not problem else "",
        "has_model": "model.json" in files and not problem,
        "evaluates": approved is not None and evaluates(context.agent, approved[0], run),
        "runs_left": 0 if approved is None else home.approvals.runs_left(approved[0].sha256),
        "pages": [name for name in ("index.html", "leakage.html", "explain.html") if name in files],
    }


async def add_signatures(context: Context, run: str, signatures: str) -> dict[str, Any]:
    """Add the signatures that other sites made for the same result, from their file common.signatures.json"""
    home = context.agent.home
    folder = home.folder / "releases" / _run_id(run)
    if not folder.is_dir():
        raise Missing("this site has no release of that run")
    cards = {context.agent.name: context.agent.identity.card, **home.peers()}
    files = await asyncio.to_thread(read_folder, folder)
    keys = {name: card.lasting_public for name, card in cards.items()}
    text, added = merged_signatures(files, signatures.encode(), read_manifest(files), keys)
    await asyncio.to_thread(write_whole, folder / COMMON_SIGNATURES, text)
    context.log("signatures added", run=run, sites=list(added))
    return {"run": run}


async def drift(context: Context, run: str) -> dict[str, Any]:
    """Compare this site's current rows with the model of a release, for this site only: whether to train again."""
    home = context.agent.home
    path = home.folder / "releases" / _run_id(run) / "model.json"
    if not path.is_file():
        raise Missing("this site has no release of that run with a model")
    measured = await asyncio.to_thread(home.tables.drift, path)
    context.log("drift measured", run=run)
    figures = measured.evaluation
    return {
        "run": run,
        "sentence": measured.sentence,
        "features": dict(measured.features),
        "classes": measured.classes,
        "chance": dict(measured.chance),
        "chance_of_classes": measured.chance_of_classes,
        "evaluation": "" if figures is None else figures.sentence.replace("held-out", "current"),
        "plot": drift_plot(measured),
    }


def _run_id(run: str) -> str:
    try:
        return require_run_id(run)
    except ConfigError as error:
        raise Missing(str(error)) from None


async def ledger(context: Context) -> dict[str, Any]:
    """Spending over time, and the log heads that other sites showed."""
    return await asyncio.to_thread(_ledger, context.agent.home)


def _ledger(home: SiteFolder) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "budget": budget(home),
        "entries": [],
        "head": "",
        "line": [],
        "all": 0,
        "witnesses": _witnesses(home),
    }
    if facts["budget"]["problem"]:
        return facts
    facts["entries"] = home.ledger.timeline()[::-1]
    facts["all"] = len(home.ledger.entries())
    facts["line"] = [each["spent"] for each in reversed(facts["entries"])]
    facts["line"] += facts["line"][-1:]  # the curve goes on until now
    facts["head"] = str(home.ledger.head)
    return facts


def _witnesses(home: SiteFolder) -> list[dict[str, Any]]:
    """Return the last log head that each site showed."""
    witnesses = []
    for name in sorted(home.peers()):
        shown = home.audit.where("site", name, "witnessed", "older log")
        last = shown[-1] if shown else None
        bad = last is not None and last["event"] == "older log"
        witnesses.append({"site": name, "time": None if last is None else last["time"], "older": bad})
    return witnesses


def shares(context: Context) -> dict[str, Any]:
    """Return the models of which this site holds a share."""
    home = context.agent.home
    shares = []
    for each in home.shares.all():
        known = home.approvals.find(each["study"])
        shares.append({**each, "title": each["study"][:12] if known is None else known[0].title})
    return {"shares": shares}


def log(context: Context, page: int = 1, event: str | None = None, about: str | None = None) -> dict[str, Any]:
    """The audit log, newest first, filtered by event or by run, study or site."""
    home = context.agent.home
    if about:
        entries = home.audit.where("run", about) or home.audit.where("study", about) or home.audit.where("site", about)
        entries = [entry for entry in entries if event in (None, entry["event"])]
    else:
        entries = home.audit.where("event", event) if event else home.audit.entries()
    chosen, where = paged(entries[::-1], page)
    rows = [
        {
            "number": entry["number"],
            "time": entry["time"],
            "event": entry["event"],
            "words": EVENTS.get(entry["event"], entry["event"]),
            **{name: entry.get(name) or "" for name in _FIELDS},
            "details": ", ".join(
                map(str, [*(entry.get("keys") or entry.get("changed") or ()), *filter(None, [entry.get("file")])])
            ),
        }
        for entry in chosen
    ]
    asked = {"event": event or "", "about": about or "", "events": EVENTS}
    return {"entries": rows, "head": home.audit.head, **where, **asked}


async def verify(context: Context) -> dict[str, Any]:
    """Verify every entry and the hash chains of the audit log and the ledger"""
    home, begun = context.agent.home, time.perf_counter()

    def log_now() -> tuple[int, str]:
        count = home.audit.verify(must_hold=home.audit.head)
        return count, home.audit.hash_at(count - 1) or ""

    def ledger_now() -> tuple[int, str]:
        head = home.ledger.verify(home.ledger.head)
        return head.n + 1, str(head)

    def check(what: str, verify: Callable[[], tuple[int, str]]) -> dict[str, Any]:
        try:
            count, head = verify()
        except (BlindbayesError, OSError) as error:
            why = str(error) if isinstance(error, BlindbayesError) else "the file cannot be read"
            return {"what": what, "problem": why, "entries": 0, "head": ""}
        return {"what": what, "problem": "", "entries": count, "head": head}

    chains = (("Audit log", log_now), ("Ledger", ledger_now))
    checks = [await asyncio.to_thread(check, what, verify) for what, verify in chains]
    if not checks[0]["problem"]:
        home.audit.append("chains checked", who=context.who, state="damaged" if checks[1]["problem"] else "intact")
    return {"checks": checks, "time": datetime.now(UTC).isoformat(), "seconds": round(time.perf_counter() - begun, 3)}


def identities(context: Context) -> dict[str, Any]:
    """This site's card, pinned cards, cards that wait, and the people of the site."""
    agent = context.agent
    peers = []
    for name, card in sorted(agent.home.peers().items()):
        versions = dict(agent.router.versions.get(name, {}))
        peers.append(
            {
                "name": name,
                "words": card.words,
                "address": card.address,
                "connected": agent.router.courier.is_up(name),
                "version": str(versions.get("blindbayes", "")),
            }
        )
    people = [{"name": each.name, "role": each.role, "password": each.secret is not None} for each in agent.home.people.all()]
    guests = [{"name": name, "card": card.to_toml(), "address": card.address} for name, card in invited(agent.home).items()]
    return {
        "name": agent.name,
        "words": agent.identity.card.words,
        "address": agent.identity.card.address,
        "card": agent.identity.card.to_toml(),
        "peers": peers,
        "invited": guests,
        "people": people,
    }


def settings(context: Context) -> dict[str, Any]:
    """Policy and settings of this site, with the defaults."""
    config = context.agent.home.config
    rows = []
    defaults = Policy()
    for field in msgspec.structs.fields(Policy):
        value, default = getattr(config.policy, field.name), getattr(defaults, field.name)
        rows.append(
            {
                "name": field.name,
                "label": label_of(f"policy.{field.name}"),
                "value": plain(value),
                "default": plain(default),
                "changed": value != default,
                "words": _meaning(f"site.policy.{field.name}"),
                "rows": SETTINGS[f"site.policy.{field.name}"].over in ("", "rows"),
            }
        )
    ours = [
        {"name": name, "label": label_of(name), "value": plain(getattr(config, name)), "words": _meaning(f"site.{name}")}
        for name in ("listen", "operator", "metrics", "ledger", "journal_quota_mb", "min_free_mb")
    ]
    ours += [
        {
            "name": f"console.{name}",
            "label": label_of(f"console.{name}"),
            "value": plain(getattr(config.console, name)),
            "words": _meaning(f"site.console.{name}"),
        }
        for name in ("data", "max_upload_mb", "preview_rows", "databases")
    ]
    stricter = [
        {"name": name, "label": label_of(name), "how": how, "value": plain(present_value(context.agent.home, name))}
        for name, how in STRICTER.items()
    ]
    return {
        "policy": rows,
        "site": ours,
        "rows": None if config.rows is None else config.rows.extra_columns,
        "stricter": stricter,
        "version": version_of(context.agent.home.folder),
    }


def _meaning(path: str) -> str:
    """Return what a setting does, with the values as the page shows them."""
    line = re.sub(r"\b(true|false)\b", lambda word: {"true": "yes", "false": "no"}[word[0]], line_of(path))
    return line[:1].upper() + line[1:] + "." if line else ""


async def change_setting(context: Context, name: str, value: str, version: str) -> dict[str, Any]:
    """Make a setting of this site stricter, in site.toml; looser values are refused"""
    agent = context.agent
    who = agent.home.people.require("manage", context.who)
    changed = await asyncio.to_thread(make_stricter, agent.home, name, value, version, who)
    await agent.reload(who)
    return {"changed": changed, "notice": "stricter" if changed else "same"}


def known_studies(home: SiteFolder) -> list[dict[str, str]]:
    """Return the studies whose codebook this site's table can be checked against."""
    known = {study.sha256: study.title for study in home.approvals.all()}
    known |= {sha256: study.title for sha256, study in inbox(home)[0].items()}
    return [{"study": sha256, "title": title} for sha256, title in known.items()]


def data(context: Context) -> dict[str, Any]:
    """Studies whose codebook this site's table can be checked against."""
    home = context.agent.home
    return {"studies": known_studies(home), "has_rows": home.config.rows is not None, "report": None, "study": ""}


async def check_data(context: Context, study: str) -> dict[str, Any]:
    """Check this site's table against a study's codebook; counts of rows by column, for this site only."""
    home = context.agent.home
    file = find_study(home, study)
    report = await asyncio.to_thread(home.tables.check, file, context.agent.name)
    context.log("data checked", study=study)
    return data(context) | {"report": report, "study": study}
