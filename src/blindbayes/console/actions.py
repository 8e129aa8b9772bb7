"""The actions of the console. Each leaves an entry in the audit log, with a name."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import msgspec

from blindbayes.agent import preview
from blindbayes.agent.approvals.people import require_reason
from blindbayes.agent.runs.run import AgentRun
from blindbayes.agent.store.inbox import parse_study, store_study
from blindbayes.console.calls import Context
from blindbayes.console.invitations import keep_cards
from blindbayes.console.views import describe_run, find_study
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Card, speak
from blindbayes.study.file import StudyFile


async def begin(context: Context, study: str, base: str | None = None) -> dict[str, Any]:
    """Start a run of an approved study; with `base`, add to the result of that earlier run"""
    await context.agent.prepare(study)
    if base is not None:
        await context.agent.until_written(study, base)
    return _begun(context, context.agent.begin(study, base))


async def evaluate(context: Context, study: str, model: str | None = None, folds: bool = False) -> dict[str, Any]:
    """Evaluate a model of an approved study (by default the newest) on all sites' held-out rows; with folds, cross-validate"""
    await context.agent.prepare(study)
    if not folds:
        await context.agent.until_written(study, model)
        await context.agent.prepare(study, model, evaluates=True)
    return _begun(context, context.agent.evaluate(study, model, folds=folds))


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to classify a batch; `rows` and `table` name this site's columns of the instances."""

    study: str
    model: str
    batch: str
    rows: str | None = None
    table: str | None = None
    count: int | None = None
    keep: tuple[str, ...] = ()
    to: str | None = None
    scope: str = "everybody"
    evaluate: bool = False


def predict(context: Context, request: Prediction) -> dict[str, Any]:
    """Request to classify a batch with a model over columns; it starts once every site has requested it"""
    asked = {name: getattr(request, name) for name in request.__struct_fields__ if name != "study"}
    return _begun(context, context.agent.predict(request.study, asked))


def _begun(context: Context, run: AgentRun) -> dict[str, Any]:
    context.log("asked for", run=run.run_id, study=run.study.sha256)
    return describe_run(context.agent, run)


async def stop(context: Context, run: str, why: str, who: str | None = None) -> dict[str, Any]:
    """Stop a run at every site; `who` is taken only from callers with the folder's token"""
    by = context.agent.home.people.require("stop", context.who or who)
    return describe_run(context.agent, await context.agent.stop_run(run, require_reason(why), by))


async def keep_study(context: Context, text: str) -> dict[str, Any]:
    """Add a study file to this site's inbox, without approving it"""
    study = await asyncio.to_thread(parse_study, text, context.agent.name)  # parsing a long file takes seconds
    await asyncio.to_thread(store_study, context.agent.home, study)
    context.agent.home.audit.append("study kept", study=study.sha256, who=context.who)
    context.agent.notify("study", study.title, "", f"/studies/{study.sha256}")
    context.agent.notices.wake()
    return {"study": study.sha256, "title": study.title}


def approve(context: Context, study: str, compared: str, runs: int | None = None, until: date | None = None) -> dict[str, Any]:
    """Approve a study for some runs, until a day (UTC); `compared` is the start of its hash as another site read it out"""
    file = find_study(context.agent.home, study)
    _require_compared(file, compared)
    decided = context.agent.home.decisions.approve(file, runs=runs, until=until, who=context.who)
    context.agent.notices.wake()
    notice = "asked" if decided.wanted else "approved"
    if decided.wanted:
        context.agent.notify("study", file.title, "", f"/studies/{study}")
    return {"study": study, "runs_left": decided.runs_left, "by": list(decided.by), "wanted": decided.wanted, "notice": notice}


def _require_compared(file: StudyFile, typed: str) -> None:
    """Raise unless at least the first two words or eight digits of the hash were typed."""
    words = "-".join(typed.lower().replace("-", " ").split())
    right = speak(bytes.fromhex(file.roster.sha256)[:16])
    by_words = words.count("-") >= 1 and (right == words or right.startswith(words + "-"))
    digits = words.replace("-", "")
    if not by_words and not (len(digits) >= 8 and file.roster.sha256.startswith(digits)):
        raise ConfigError(
            "this is not the beginning of this study's hash: ask another site to read out the first two words (or eight "
            "digits) of its own copy; if they differ, you have different studies. Nothing was approved"
        )


def refuse(context: Context, study: str, why: str, share_reason: bool = False) -> dict[str, Any]:
    """Refuse a study; its parties learn that at once, the reason only with `share_reason`"""
    file = find_study(context.agent.home, study)
    context.agent.home.decisions.refuse(file, why, who=context.who, share=share_reason)
    context.agent.proposed_studies.pop(study, None)
    context.agent.notices.wake()
    return {"study": study}


def revoke(context: Context, study: str, why: str | None = None, share_reason: bool = False) -> dict[str, Any]:
    """Revoke an approval; the parties of the study learn that at once, the reason only with `share_reason`"""
    context.agent.home.decisions.revoke(study, why=why, who=context.who, share=share_reason)
    context.agent.notices.wake()
    return {"study": study}


def send_study(context: Context, study: str) -> dict[str, Any]:
    """Send a study to its other sites as an invitation: now, or as soon as they are connected."""
    who = context.agent.home.people.require("run", context.who)
    return {"study": study, "sites": context.agent.notices.invite(find_study(context.agent.home, study), who)}


async def dry_run(context: Context, study: str) -> dict[str, Any]:
    """Show what would leave this site, by kind of cell, without sending anything; reads the rows to check that they fit"""
    file = find_study(context.agent.home, study)
    context.log("dry run", study=study)
    return await asyncio.to_thread(preview.dry_run, context.agent.home, context.agent.name, file)


async def reload(context: Context) -> dict[str, Any]:
    """Reload settings, policy and pins"""
    return await context.agent.reload(context.agent.home.people.require("manage", context.who))


def destroy(context: Context, run: str, typed: str) -> dict[str, Any]:
    """Destroy this site's share of a model: nobody can classify with it any more"""
    who = context.agent.home.people.require("manage", context.who)
    if len(typed.strip()) < 8 or not run.startswith(typed.strip().lower()):
        raise ConfigError("type the first eight characters of the run whose share is to be destroyed; nothing was destroyed")
    context.agent.home.shares.destroy(run, who=who)
    return {"run": run}


def invite(context: Context, text: str) -> dict[str, Any]:
    """Add an invitation; its cards wait until their words are compared"""
    home = context.agent.home
    who, names = home.people.require("manage", context.who), keep_cards(home, text, context.agent.identity.card)
    home.audit.append("invited", sites=names, who=who)
    return {"sites": names}


async def pin_card(context: Context, card: str, words: str, replace: bool = False) -> dict[str, Any]:
    """Pin another site's card after its words were compared by telephone"""
    home, shown = context.agent.home, Card.from_toml(card)
    if shown.identity == context.agent.identity.card.identity:
        raise ConfigError("this is the site's own card; pin those of the others")
    shown.require_words(words, "page Identities")
    home.pin(shown, replace=replace, who=context.who)
    await context.agent.reload(home.people.require("manage", context.who))
    return {"site": shown.name}
