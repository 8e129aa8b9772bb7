"""Views of the current state: today, studies, runs, predictions. They hold names, hashes, states and counts, no row values."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from blindbayes.agent import preview
from blindbayes.agent.agent import Agent
from blindbayes.agent.approvals.summary import approval_of, learners_of
from blindbayes.agent.client import substance
from blindbayes.agent.runs.run import AgentRun
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.store.inbox import find_study as find
from blindbayes.agent.store.inbox import inbox, known_studies
from blindbayes.console.calls import Context, Missing
from blindbayes.errors import BlindbayesError, ConfigError, LedgerError
from blindbayes.net.identity import speak
from blindbayes.study.file import StudyFile
from blindbayes.study.study import learner_of
from blindbayes.study.tasks.traits import Support

T = TypeVar("T")
PAGE = 50
_LONG_POLL_SECONDS = 20.0
_COUNTED = ("messages_in", "messages_out", "bytes_in", "bytes_out")
_MAX_ANSWERED = 50  # studies whose answers the first page looks at
_RECENT = timedelta(days=7)


def status(context: Context) -> dict[str, Any]:
    """State of the site."""
    return context.agent.show()


def find_study(home: SiteFolder, sha256: str) -> StudyFile:
    """Return a study that is approved or waiting here, or was refused or run here."""
    if (study := find(home, sha256)) is None:
        raise Missing("this site has no study of that hash")
    return study


def _state_of(home: SiteFolder, study: StudyFile) -> str:
    if home.approvals.find(study.sha256) is not None:
        return "approval over" if home.approvals.is_over(study.sha256) else "approved"
    decisions = {"approved": "waiting", "revoked": "revoked", "study refused": "refused"}
    events = [each["event"] for each in home.audit.where("study", study.sha256, *decisions)]
    return decisions[events[-1]] if events else "waiting"


def studies(context: Context) -> dict[str, Any]:
    """Studies by state, and hashes of proposed studies whose file is missing."""
    home = context.agent.home
    errors = inbox(home)[1]
    known = known_studies(home)
    waiting = {entry["study"]: entry for entry in home.decisions.waiting()}
    rows = []
    for sha256, study in known.items():
        rows.append(
            {
                "study": sha256,
                "title": study.title,
                "state": _state_of(home, study),
                "parties": list(study.names),
                "protocol": study.protocol,
                "runs_left": home.approvals.runs_left(sha256),
                "runs": home.history.count_starts(sha256),
                "epsilon": study.privacy.epsilon,
                "half": waiting[sha256]["who"] if sha256 in waiting else None,
                "by": context.agent.notices.inviter(sha256),
                "declined": answers(context, sha256)["declined"],
            }
        )
    proposed = [{"study": each, "by": by} for each, by in context.agent.proposed_studies.items() if each not in known]
    rows.sort(
        key=lambda row: (("waiting", "approved", "approval over", "revoked", "refused").index(row["state"]), row["title"])
    )
    return {"studies": rows, "proposed": proposed, "unreadable": errors}


def study(context: Context, study: str) -> dict[str, Any]:
    """One study: what people need to see before they decide."""
    home, file = context.agent.home, find_study(context.agent.home, study)
    policy = "; ".join(preview.verdict(home, file))
    try:
        file.task.require_runnable()
    except BlindbayesError as error:
        policy = policy or str(error)
    approval, shown, opens = approval_of(file), file.task.facts(), file.task.disclosure
    state, until = _state_of(home, file), home.approvals.until(study)
    half = next((entry for entry in home.decisions.waiting() if entry["study"] == study), None)
    return {
        "study": file.sha256,
        "title": file.title,
        "state": state,
        "turn": state,
        "words": speak(bytes.fromhex(file.roster.sha256)[:16]),
        "roster": file.roster.sha256,
        "changes": [
            line for after, change in zip(file.rosters[1:], file.changes, strict=True) for line in after.describe(change)
        ],
        "protocol": file.protocol,
        "about_protocol": opens.summary,
        "parties": _parties(context.agent, file),
        "opened": shown["opened"],
        "learners": list(learners_of(file)),
        "details": {name: value for name, value in shown.items() if name not in ("opened", "learners", "epsilon")},
        "leaves": list(opens.messages),
        "columns": [feature.name for feature in file.book.features],
        "target": file.book.target,
        "codebook": file.book.sha256,
        "approval": approval.to_dict(),
        "epsilon": opens.epsilon,
        "delta": opens.delta,
        "cost": preview.cost(home, file),
        "past": preview.again(home, file),
        "budget": budget(home),
        "queries": None if opens.answers is None else opens.answers.queries,
        "policy": policy,
        "runs_left": home.approvals.runs_left(study),
        "until": None if until is None else until.isoformat(),
        "half": None if half is None else half["who"],
        "half_to": {name: (half or {}).get(name) for name in ("runs", "until")},
        "approvers": home.config.policy.approvers,
        "refusal": _refusal(home, study) if state in ("refused", "revoked") else None,
        "by": context.agent.notices.inviter(study),
        "same_title": _same_title(home, file),
        "sent": context.agent.notices.invited(study),
        "announces": home.config.policy.announce_decisions,
        **{name: value for name, value in answers(context, study).items() if name not in ("study", "title", "turn")},
        "runs": [_past_run(context.agent, entry) for entry in _joined(home, study)[:10]],
        "evaluates": evaluates(context.agent, file),
        "folds": file.study.estimation.folds if Support.EVALUATION in file.task.supports else 0,
        "in_shares": opens.answers is not None,
        "is_party": context.agent.name in file.names,
    }


def evaluates(agent: Agent, file: StudyFile, run: str | None = None) -> bool:
    """Return True if a model of the study, or that of one run, can be evaluated from here."""
    trained = agent.trained(file) if Support.EVALUATION in file.task.supports and file.study.estimation.held_out else []
    return bool(trained) if run is None else run in trained


def answers(context: Context, study: str) -> dict[str, Any]:
    """Return the sites of a study, whether each has it, and what each has announced about its decision."""
    agent = context.agent
    file = find_study(agent.home, study)
    rows = agent.notices.answers(file)
    missing = [row["site"] for row in rows if row["state"] != "approved"]
    return {
        "study": study,
        "title": file.title,
        "answers": rows,
        "waits_for": missing,
        "declined": [row["site"] for row in rows if row["state"] in ("refused", "revoked")],
        "used_up": [row["site"] for row in rows if row["state"] == "used up"],
        "turn": "",  # the page around it has forms: it is never loaded again under somebody's hands
    }


def _same_title(home: SiteFolder, file: StudyFile) -> list[dict[str, str]]:
    """Return other studies of the same title, which a person could take for this one."""
    same = (each for each in known_studies(home).values() if each.title == file.title and each.sha256 != file.sha256)
    return [{"study": each.sha256, "words": speak(bytes.fromhex(each.roster.sha256)[:16])} for each in same]


def _refusal(home: SiteFolder, study: str) -> dict[str, Any] | None:
    entries = home.audit.where("study", study, "study refused", "revoked")
    return {name: entries[-1].get(name) for name in ("event", "why", "who", "time")} if entries else None


def _parties(agent: Agent, file: StudyFile) -> list[dict[str, Any]]:
    pins, signed, parties = agent.home.peers(), file.signatures, []
    for party in file.members:
        card = agent.identity.card if party.name == agent.name else pins.get(party.name)
        same = card is not None and card.fits(party.identity, party.key)
        parties.append(
            {
                "name": party.name,
                "mine": party.name == agent.name,
                "brings_rows": party.name in file.contributors,
                "signed": party.name in signed,
                "pinned": same,
                "another": card is not None and not same,
                "words": card.words if card is not None and same else "",
                "connected": party.name == agent.name or agent.router.courier.is_up(party.name),
            }
        )
    return parties


def _joined(home: SiteFolder, study: str | None = None) -> list[dict[str, Any]]:
    """Return the entry with which each run began here, newest first; a resumed run counts once."""
    entries = home.audit.where("event", "joined")
    return list(reversed({entry["run"]: entry for entry in entries if study in (None, entry["study"])}.values()))


def _past_run(agent: Agent, joined: dict[str, Any]) -> dict[str, Any]:
    run, end = joined["run"], agent.home.history.end_of(joined["run"])
    live = agent.runs.get(run)
    state = live.state if live is not None and not live.done.is_set() else "unknown"
    if end is not None:
        state = end["state"]
    return {
        "run": run,
        "study": joined["study"],
        "title": joined.get("title", joined["study"][:12]),
        "kind": joined.get("kind", ""),
        "proposed_by": joined["proposed_by"],
        "began": joined["time"],
        "ended": None if end is None else end["time"],
        "state": state,
        "why": "" if end is None else end.get("why") or "",
    }


def runs(context: Context, page: int = 1) -> dict[str, Any]:
    """Every run of this site, newest first."""
    entries, about = paged(_joined(context.agent.home), page)
    return {"runs": [_past_run(context.agent, entry) for entry in entries], "running": _running(context.agent), **about}


def paged(rows: Sequence[T], page: int) -> tuple[Sequence[T], dict[str, int]]:
    """Return one page of a long list, and its place in it."""
    last = max(1, -(-len(rows) // PAGE))
    page = min(max(page, 1), last)
    return rows[(page - 1) * PAGE : page * PAGE], {"page": page, "last": last, "all": len(rows)}


def _running(agent: Agent) -> list[dict[str, Any]]:
    return [describe_run(agent, run) for run in agent.runs.values() if not run.done.is_set()]


async def run(context: Context, run: str, after: str | None = None) -> dict[str, Any]:
    """One run, in progress or ended; with `after`, a line of progress, wait until the line changes."""
    live = context.agent.runs.get(run)
    if live is None:
        joined = [entry for entry in context.agent.home.audit.where("run", run) if entry["event"] == "joined"]
        if not joined:
            raise Missing("no such run")
        past = _past_run(context.agent, joined[-1])
        released = (context.agent.home.folder / "releases" / run).is_dir()
        text = past["state"] if not past["why"] else f"{past['state']}: {past['why']}"
        return {**past, "text": text, "sites": [], "roles": {}, "turn": past["state"], "released": released, "under_way": False}
    if after is not None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _LONG_POLL_SECONDS
        waits = True  # wait at least once, so that a busy run is polled only a few times a second
        while not live.done.is_set() and waits:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.done.wait(), 0.2)
            waits = substance(live.text()) == substance(after) and loop.time() < until
    return describe_run(context.agent, live)


def describe_run(agent: Agent, run: AgentRun) -> dict[str, Any]:
    """Return the state of a run that this agent remembers, with one row per site."""
    shown, study = run.show(), run.study
    waited: dict[str, dict[str, Any]] = {}
    for role in shown["roles"].values():
        for name in () if run.done.is_set() else role["waiting_for"]:
            waited[study.host(name)] = {"since": role["waits_seconds"], "deadline": role["deadline_seconds"]}
    sites = []
    for name in study.names:
        mine = name == agent.name
        hosted = [role for role in study.roles if study.host(role) == name]
        roles = [shown["roles"][role] for role in hosted if role in shown["roles"]]
        sites.append(
            {
                "site": name,
                "mine": mine,
                "roles": hosted,
                "connected": mine or agent.router.courier.is_up(name),
                "waited_for": waited.get(name),
                "state": run.state if run.done.is_set() else ", ".join(dict.fromkeys(each["state"] for each in roles)),
                "steps": [each for each in roles if each["kind"] and not run.done.is_set()],
                **{name: sum(each[name] for each in roles) for name in _COUNTED},
            }
        )
    ended = run.done.is_set()
    released = run.release is not None and run.release.is_dir()
    more = {"sites": sites, "turn": shown["state"] if ended else "under way", "released": released, "under_way": not ended}
    return shown | more | {"protocol": study.protocol, "deadline": study.deadlines.run}


def budget(home: SiteFolder) -> dict[str, Any]:
    """Return what is spent and left of the budget, or the error of the ledger."""
    try:
        balance = home.ledger.balance()
    except (LedgerError, ConfigError) as error:
        return {"problem": str(error), "epsilon": 0.0, "spent": 0.0, "left": 0.0, "delta": 0.0, "charges": 0}
    spent, total = float(balance.spent_epsilon), float(balance.epsilon)
    return {
        "problem": "",
        "epsilon": total,
        "spent": spent,
        "left": max(0.0, total - spent),
        "delta": float(balance.delta),
        "charges": balance.charges,
    }


def waiting(agent: Agent) -> list[dict[str, Any]]:
    """Return what waits for a decision at this site."""
    home = agent.home
    known = inbox(home)[0]
    items: list[dict[str, Any]] = [
        {"what": "study", "study": sha256, "title": study.title, "by": agent.notices.inviter(sha256)}
        for sha256, study in known.items()
        if _state_of(home, study) == "waiting"
    ]
    half = {entry["study"]: entry for entry in home.decisions.waiting()}
    items = [each | {"half": half[each["study"]]["who"]} if each["study"] in half else each for each in items]
    approved = {study.sha256 for study in home.approvals.all()}
    for sha256, by in agent.proposed_studies.items():
        if sha256 not in known and sha256 not in approved:
            items.append({"what": "unknown study", "study": sha256, "by": by})
    for request in agent.pending_predictions.values():
        items.append({"what": "prediction", **request})
    for begun, _ in home.history.unsettled():
        items.append({"what": "unsettled", "run": begun["run"], "study": begun["study"]})
    return items


def badges(agent: Agent) -> dict[str, int]:
    """Return the number of waiting items by page."""
    try:
        items = waiting(agent)
    except BlindbayesError:
        return {}
    return {
        "/studies": sum(each["what"] in ("study", "unknown study") for each in items),
        "/predictions": len(agent.pending_predictions),
        "/runs": sum(not run.done.is_set() for run in agent.runs.values()),
    }


def today(context: Context) -> dict[str, Any]:
    """Decisions that wait, runs, recent failures, and the budget that is left."""
    agent, home = context.agent, context.agent.home
    facts: dict[str, Any] = {"budget": budget(home), "running": _running(agent), "waiting": [], "wrong": [], "done": []}
    problems = [facts["budget"]["problem"]] if facts["budget"]["problem"] else []
    try:
        facts["waiting"] = waiting(agent)
        since = (datetime.now(UTC) - _RECENT).strftime("%Y-%m-%dT%H:%M:%SZ")
        past = [_past_run(agent, entry) for entry in _joined(home)[:30]]
        wrong = [each for each in past if each["state"] in ("failed", "burned", "stopped") and each["began"] >= since]
        facts["wrong"] = wrong[:5]
        facts["done"] = [each for each in past if each["state"] == "done"][:5]
        for entry in home.audit.where("event", "older log")[-3:]:
            if entry["time"] >= since:
                problems.append(f"{entry['site']} showed an older {entry['log']} than before: it was restored from a backup")
    except LedgerError as error:
        problems.append(str(error))
    facts["problems"] = problems
    facts["agreed"], facts["declined"] = _answered(context)
    facts["peers"] = [{"name": name, "connected": agent.router.courier.is_up(name)} for name in sorted(home.peers())]
    facts["turn"], facts["has_rows"] = "", home.config.rows is not None
    return facts


def _answered(context: Context) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the studies that every site has approved and that have runs left here, and who declined which study, and why."""
    home = context.agent.home
    agreed, declined = [], []
    for sha256, file in list(known_studies(home).items())[:_MAX_ANSWERED]:
        state = _state_of(home, file)
        if state not in ("waiting", "approved") or context.agent.name not in file.names:
            continue
        replies = answers(context, sha256)
        named = {"study": sha256, "title": file.title}
        if not replies["waits_for"] and home.approvals.runs_left(sha256):
            agreed.append(named)
        others = [row for row in replies["answers"] if row["site"] in replies["declined"] and not row["mine"]]
        declined += [
            {**named, **{name: str(row[name] or "") for name in ("site", "state", "reason", "time")}} for row in others
        ]
    return agreed, declined


def predictions(context: Context) -> dict[str, Any]:
    """Batches that other sites request, models to classify with, and past batches."""
    agent, home = context.agent, context.agent.home
    models = []
    for share in home.shares.all():
        approved = home.approvals.find(share["study"])
        file = None if approved is None else approved[0]
        models.append(
            {
                **share,
                "title": share["study"][:12] if file is None else file.title,
                "approved": file is not None,
                "parties": [] if file is None else list(file.names),
                "reveal_to": None if file is None else learner_of(file.study),
                "holds_columns": file is None or file.columns is None or bool(file.columns.holds.get(agent.name)),
            }
        )
    past = [_past_run(agent, entry) for entry in _joined(home) if entry.get("kind") == "prediction"][:PAGE]
    return {"requests": list(agent.pending_predictions.values()), "models": models, "batches": past, "turn": ""}
