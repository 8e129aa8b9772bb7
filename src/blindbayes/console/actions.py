"""What people and programs can do through the console. Each leaves a line in the log, with a name."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

from blindbayes.agent import preview
from blindbayes.agent.agent_run import AgentRun
from blindbayes.agent.people import require_reason
from blindbayes.console.calls import Desk
from blindbayes.console.facts import find_study, lanes
from blindbayes.console.invitations import keep_cards
from blindbayes.errors import ConfigError
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.net.identity import Card, speak
from blindbayes.study.file import StudyFile

_MOST_STUDIES = 200


def begin(desk: Desk, study: str, base: str | None = None) -> dict[str, Any]:
    """Begin a run of an approved study; with a base one that adds to the result of that run"""
    return _begun(desk, desk.agent.begin(study, base))


def predict(
    desk: Desk,
    study: str,
    model: str,
    batch: str,
    rows: str | None = None,
    table: str | None = None,
    count: int | None = None,
    keep: tuple[str, ...] = (),
    to: str | None = None,
    scope: str = "everybody",
) -> dict[str, Any]:
    """Ask to classify a batch with a model over columns; it begins when every site's people have asked"""
    asked: dict[str, Any] = {"model": model, "batch": batch, "rows": rows, "table": table, "count": count}
    return _begun(desk, desk.agent.predict(study, asked | {"keep": keep, "to": to, "scope": scope}))


def _begun(desk: Desk, run: AgentRun) -> dict[str, Any]:
    desk.log("asked for", run=run.run_id, study=run.study.sha256)
    return lanes(desk.agent, run)


async def stop(desk: Desk, run: str, why: str, who: str | None = None) -> dict[str, Any]:
    """Stop a run, at every site; who says so only counts with the folder's token"""
    by = desk.agent.home.people.require("stop", desk.who or who)
    return lanes(desk.agent, await desk.agent.stop_run(run, require_reason(why), by))


async def keep_study(desk: Desk, text: str) -> dict[str, Any]:
    """Put a study's file into this site's inbox; nothing is approved by that"""

    def read() -> StudyFile:
        study = StudyFile.from_text(text)
        study.require_signatures()
        study.require_changes()
        return study

    study = await asyncio.to_thread(read)  # a long file takes seconds
    if desk.agent.name not in study.names:
        raise ConfigError("this site is no party of that study")
    folder = make_private_folder(desk.agent.home.folder / "studies")
    if len(list(folder.glob("*.toml"))) >= _MOST_STUDIES:
        raise ConfigError(f"the folder studies/ holds {_MOST_STUDIES} files: take some out first")
    write_whole(folder / f"{study.sha256}.toml", study.to_toml().encode())
    desk.agent.home.audit.append("study kept", study=study.sha256, who=desk.who)
    return {"study": study.sha256, "title": study.title}


def approve(desk: Desk, study: str, compared: str, runs: int | None = None, until: date | None = None) -> dict[str, Any]:
    """Approve a study for some runs, to the end of a day in UTC; `compared`: the start of its hash as another site read it"""
    file = find_study(desk.agent.home, study)
    _require_compared(file, compared)
    decided = desk.agent.home.decisions.approve(file, runs=runs, until=until, who=desk.who)
    told = "asked" if decided.wanted else "approved"
    return {"study": study, "runs_left": decided.runs_left, "by": list(decided.by), "wanted": decided.wanted, "told": told}


def _require_compared(file: StudyFile, said: str) -> None:
    """At least two words or eight digits of the hash, from its beginning, as another site read them out."""
    words = "-".join(said.lower().replace("-", " ").split())
    right = speak(bytes.fromhex(file.roster.sha256)[:16])
    by_words = words.count("-") >= 1 and (right == words or right.startswith(words + "-"))
    digits = words.replace("-", "")
    if not by_words and not (len(digits) >= 8 and file.roster.sha256.startswith(digits)):
        raise ConfigError(
            "this is not the beginning of this study's hash: ask another site to read out the first two words (or eight "
            "digits) of its own copy; if they differ, you have different studies. Nothing was approved"
        )


def refuse(desk: Desk, study: str, why: str) -> dict[str, Any]:
    """Refuse a study with a reason, which its parties are told when they ask for a run"""
    desk.agent.home.decisions.refuse(find_study(desk.agent.home, study), why, who=desk.who)
    desk.agent.proposed_studies.pop(study, None)
    return {"study": study}


def revoke(desk: Desk, study: str, why: str | None = None) -> dict[str, Any]:
    """Take an approval back"""
    desk.agent.home.decisions.revoke(study, why=why, who=desk.who)
    return {"study": study}


async def dry_run(desk: Desk, study: str) -> dict[str, Any]:
    """What would leave this site, by kind of cell, without anything leaving; reads the rows to see that they fit"""
    file = find_study(desk.agent.home, study)
    desk.log("dry run", study=study)
    return await asyncio.to_thread(preview.dry_run, desk.agent.home, desk.agent.name, file)


async def reload(desk: Desk) -> dict[str, Any]:
    """Take up changed settings, policy and pins"""
    return await desk.agent.reload(desk.agent.home.people.require("manage", desk.who))


def destroy(desk: Desk, run: str, typed: str) -> dict[str, Any]:
    """Destroy this site's share of a model: nobody can classify with it any more"""
    who = desk.agent.home.people.require("manage", desk.who)
    if len(typed.strip()) < 8 or not run.startswith(typed.strip().lower()):
        raise ConfigError("type the first eight signs of the run whose share is to go; nothing was destroyed")
    desk.agent.home.shares.destroy(run, who=who)
    return {"run": run}


def invite(desk: Desk, text: str) -> dict[str, Any]:
    """Bring an invitation: cards that wait until their words were compared"""
    home = desk.agent.home
    who, names = home.people.require("manage", desk.who), keep_cards(home, text, desk.agent.identity.card)
    home.audit.append("invited", sites=names, who=who)
    return {"sites": names}


async def pin_card(desk: Desk, card: str, words: str, replace: bool = False) -> dict[str, Any]:
    """Trust another site's card, after its words were compared by telephone"""
    home, shown = desk.agent.home, Card.from_toml(card)
    if shown.identity == desk.agent.identity.card.identity:
        raise ConfigError("this is the site's own card; pin those of the others")
    shown.require_words(words, "page Identities")
    home.pin(shown, replace=replace, who=desk.who)
    await desk.agent.reload(home.people.require("manage", desk.who))
    return {"site": shown.name}
