"""Offers of sessions for runs that this site does not know: most get no answer, a few start a run.

`CHECKS` is the ordered list of rules. A check raises to refuse the run, returns `IGNORE` to end in silence, or returns None to
go on. Only a party of a study that staff here approved or refused ever gets an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from blindbayes.agent.approvals.decisions import sentence_of
from blindbayes.agent.runs.context import run_of, work_of
from blindbayes.agent.runs.run import NotNow
from blindbayes.disclosure.checks import APPROVAL_OVER, ApprovalOver
from blindbayes.disclosure.policy import require_few_idle
from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, LocalProtocolError, PrivacyError, public_code
from blindbayes.net.envelope import Ended, EnvelopePair, Offer, Refused, pack
from blindbayes.net.events import log_event
from blindbayes.net.identity import Identity
from blindbayes.net.router import Router
from blindbayes.study.file import StudyFile

if TYPE_CHECKING:
    from blindbayes.agent.agent import Agent

_MAX_ANSWERS = 64  # answers to one site that are under way
_ANSWER_SECONDS = 1.0
_MAX_PROPOSED = 16  # per site: one that asks for much hides its own requests, not those of others
_MAX_REFUSED = 1024
_MAX_READING = 8  # further offers come again
_HASH = re.compile("[0-9a-f]{64}")

USED_UP = "the approved number of runs of this study is used up"


class ApprovalUsedUp(PrivacyError):
    """The approved number of runs is used up."""


# -- answers ----------------------------------------------------------------------------------------------------------------


class Answers:
    """Signed answers to sites that ask for a run that will not be: it has ended here, or staff refused its study.

    One at a time to each role and at most one a second, so that repeated requests cost little.
    """

    def __init__(self, router: Router, identity: Identity) -> None:
        self._router, self._identity = router, identity
        self._until: dict[tuple[str, ...], float] = {}  # (site, run, its role, ours): until when it gets no other answer
        self._tasks: set[asyncio.Task[None]] = set()

    def is_recent(self, site: str, run_id: str, peer: str, me: str) -> bool:
        """Return True if the role got its answer a moment ago, or gets it now."""
        return self._until.get((site, run_id, peer, me), 0.0) > asyncio.get_running_loop().time()

    def send(self, site: str, pair: EnvelopePair, answer: Ended | Refused) -> None:
        """Send an answer, unless the site gets too many already."""
        key, now = (site, pair.run_id, pair.peer, pair.me), asyncio.get_running_loop().time()
        self._until = {each: until for each, until in self._until.items() if until > now}
        if key in self._until or sum(each[0] == site for each in self._until) >= _MAX_ANSWERS:
            return
        self._until[key] = math.inf

        async def transmit() -> None:
            try:
                with contextlib.suppress(BlindbayesError):
                    await self._router.route(site, pair.me).send(pack(answer))
            finally:
                self._until[key] = asyncio.get_running_loop().time() + _ANSWER_SECONDS

        self._tasks.add(task := asyncio.get_running_loop().create_task(transmit()))
        task.add_done_callback(self._tasks.discard)

    def send_ended(self, site: str, pair: EnvelopePair, outcome: dict[str, Any]) -> None:
        """Answer that the run has ended here: the other site need not wait for its deadline."""
        is_done = outcome.get("told", outcome["state"]) == "done"
        code = 0 if is_done else public_code(int(outcome.get("exit_code", LocalProtocolError.code)))
        self.send(site, pair, pair.ended(code | (int(outcome.get("about", -1)) + 1) << 8))

    def send_ended_to_all(self, study: StudyFile, run_id: str, outcome: dict[str, Any]) -> None:
        """Inform every role elsewhere, from every role here."""
        mine = [role for role in study.roles if study.host(role) == self._identity.name]
        for peer in study.roles:
            if (site := study.host(peer)) != self._identity.name:
                for me in mine:
                    roster, identity = study.roster.sha256, study.identity(peer)
                    self.send_ended(site, EnvelopePair(roster, run_id, me, peer, identity, self._identity.signing), outcome)


# -- checks -----------------------------------------------------------------------------------------------------------------


class Decision(Enum):
    """The end of an offer that is neither refused nor accepted."""

    IGNORE = "ignore"


IGNORE = Decision.IGNORE


@dataclass(slots=True)
class Asked:
    """An offer for a run of a study that this site knows."""

    site: str
    offer: Offer
    study: StudyFile
    runs: int  # approved in all
    declined: str | None  # why staff refused or revoked the study, for the other site; None: they approved it
    pair: EnvelopePair | None = None  # once the offer is proven to be the party's own


def hosted_roles(agent: Agent, asked: Asked) -> None:
    offer, study = asked.offer, asked.study
    if offer.receiver not in study.roles or offer.sender not in study.roles:
        raise ConfigError("no such roles")
    if study.host(offer.receiver) != agent.name or study.host(offer.sender) != asked.site:
        raise ConfigError("another site hosts this role")


def recent_answer(agent: Agent, asked: Asked) -> Decision | None:
    offer = asked.offer
    return IGNORE if agent.answers.is_recent(asked.site, offer.run_id, offer.sender, offer.receiver) else None


def signature(agent: Agent, asked: Asked) -> None:
    offer, study = asked.offer, asked.study
    identity = study.identity(offer.sender)
    pair = EnvelopePair(study.roster.sha256, offer.run_id, offer.receiver, offer.sender, identity, agent.identity.signing)
    pair.require_offer(offer)
    asked.pair = pair


def staff_refusal(agent: Agent, asked: Asked) -> None:
    if asked.declined is not None:
        raise PrivacyError(asked.declined or "staff refused or revoked the study; the policy keeps decisions private")


def ended_run(agent: Agent, asked: Asked) -> None:
    run_id = asked.offer.run_id
    outcome = agent.home.runs.outcome(run_id) or agent.ended_in_memory(run_id)
    if outcome is not None:
        if asked.pair is not None:
            agent.answers.send_ended(asked.site, asked.pair, outcome)
        raise PrivacyError("the run has ended here: it does not begin again")


def open_run(agent: Agent, asked: Asked) -> Decision | None:
    return IGNORE if asked.offer.run_id in agent.runs else None


def computed_run(agent: Agent, asked: Asked) -> None:
    if agent.home.history.has_computed(asked.offer.run_id):  # its end was lost: it was paid for once, and ran once
        raise PrivacyError("the run was computed here before: it does not begin again")


def prediction_request(agent: Agent, asked: Asked) -> Decision | None:
    """Store a request to classify. Nothing is answered before this site's own staff ask for the same batch."""
    run = run_of(agent.home, asked.study, asked.offer.run_id)
    if run.kind != "prediction":
        return None
    agent.offers.note_prediction(asked, run.model)
    return IGNORE


def earlier_run(agent: Agent, asked: Asked) -> Decision | None:
    """Postpone the offer while the run that it builds on is under way here: the other site asks again."""
    run = run_of(agent.home, asked.study, asked.offer.run_id)
    earlier = run.model or run.base
    if not earlier or agent.unfinished(asked.study.sha256, earlier) is None:
        return None
    agent.counters["offers_held"] += 1
    return IGNORE


def site_is_ready(agent: Agent, asked: Asked) -> None:
    agent.require_party(asked.study)


def runs_left(agent: Agent, asked: Asked) -> None:
    agent.require_runs_left(asked.study, asked.runs)


def idle_joins(agent: Agent, asked: Asked) -> None:
    now = time.time()
    require_few_idle(agent.home.config.policy, agent.home.history.idle_joins(asked.site, now - 86400), now, NotNow)


CHECKS: tuple[Callable[[Agent, Asked], Decision | None], ...] = (
    hosted_roles,
    recent_answer,
    signature,
    staff_refusal,
    ended_run,
    open_run,
    computed_run,
    prediction_request,
    earlier_run,
    site_is_ready,
    runs_left,
    idle_joins,
)


# -- the desk ---------------------------------------------------------------------------------------------------------------


class Offers:
    """Decides about offers for runs that are not known here."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.proposed_studies: dict[str, str] = {}  # hash of a study that staff here have not approved -> site
        self.predictions: dict[str, dict[str, str]] = {}  # run -> a classification that only another site asked for
        self._refused: set[str] = set()
        self._reading: dict[str, asyncio.Task[None]] = {}  # run -> what is read for it

    def consider(self, site: str, offer: Offer, *, is_read: bool = False) -> None:
        """Start the run that is offered, if every check passes.

        Files that were not read yet are read in a thread first, so that the event loop serves everybody else meanwhile.
        """
        try:
            if offer.run_id in self._reading:
                return
            if not is_read and self._agent.home.approvals.has_unread():
                self._read(site, offer, asyncio.to_thread(self._agent.home.approvals.all))
                return
            asked = self._find(site, offer)
            if asked is None:
                self._note_proposal(site, offer)
            elif self._is_allowed(asked):
                run = run_of(self._agent.home, asked.study, offer.run_id)
                if run.kind == "evaluation" and run.model and not is_read:
                    self._read(site, offer, self._agent.prepare(asked.study.sha256, run.model, evaluates=True))
                    return
                self._launch(asked)
        except (BlindbayesError, OSError) as error:  # such as an audit log that cannot be written: then nothing runs
            self._agent.counters["offers_refused"] += 1
            log_event("offer_refused", level=logging.ERROR, run=offer.run_id, site=site, error=error)

    def _read(self, site: str, offer: Offer, reading: Coroutine[Any, Any, object]) -> None:
        """Consider an offer again when what it needs was read."""

        async def read() -> None:
            try:
                await reading
            finally:
                del self._reading[offer.run_id]
            self.consider(site, offer, is_read=True)

        if len(self._reading) >= _MAX_READING:
            reading.close()
            return
        self._reading[offer.run_id] = asyncio.get_running_loop().create_task(read())

    def _find(self, site: str, offer: Offer) -> Asked | None:
        home = self._agent.home
        if (approved := home.approvals.find_roster(offer.study)) is not None:
            return Asked(site, offer, *approved, declined=None)
        if (declined := home.decisions.declined(offer.study)) is not None:
            study, standing = declined
            return Asked(site, offer, study, 0, sentence_of(standing) if home.config.policy.announce_decisions else "")
        return None

    def _note_proposal(self, site: str, offer: Offer) -> None:
        """Show staff a study that they do not know, if the site itself offers it."""
        is_full = Counter(self.proposed_studies.values())[site] >= _MAX_PROPOSED
        is_new = offer.study not in self.proposed_studies and not is_full and _HASH.fullmatch(offer.study)
        if is_new and self._is_own(site, offer):
            self.proposed_studies[offer.study] = site
            log_event("study_proposed", site=site, study=offer.study)
        self._agent.counters["offers_refused"] += 1

    def _is_own(self, site: str, offer: Offer) -> bool:
        """Return True if the site itself offers this: a relay or an engine can write any name, and people are shown it."""
        agent = self._agent
        if agent.router.courier.vouches(site):
            return True
        card = agent.home.peers().get(site)
        if card is None:
            return False
        pair = EnvelopePair(offer.study, offer.run_id, offer.receiver, offer.sender, card.identity, agent.identity.signing)
        try:
            pair.require_offer(offer)
        except IntegrityError:
            return False
        return True

    def note_prediction(self, asked: Asked, model: str) -> None:
        """Store another site's request to classify with a model, for staff to see."""
        run_id, site, study = asked.offer.run_id, asked.site, asked.study.sha256
        count = sum(each["by"] == site for each in self.predictions.values())
        if run_id not in self.predictions and count < _MAX_PROPOSED:
            self.predictions[run_id] = {"run": run_id, "by": site, "study": study, "model": model}
            log_event("prediction_proposed", run=run_id, site=site, study=study)
            self._agent.notify("prediction", asked.study.title, site, "/predictions")

    def _is_allowed(self, asked: Asked) -> bool:
        for check in CHECKS:
            try:
                if check(self._agent, asked) is IGNORE:
                    return False
            except BlindbayesError as error:
                self._refuse(asked, error)
                return False
        return True

    def _refuse(self, asked: Asked, error: BlindbayesError) -> None:
        agent, run_id, site = self._agent, asked.offer.run_id, asked.site
        agent.counters["offers_refused"] += 1
        if isinstance(error, IntegrityError) and not agent.router.courier.vouches(site):
            return  # anyone may have written that name: no line in the log for it
        if run_id not in self._refused and len(self._refused) < _MAX_REFUSED:
            self._refused.add(run_id)
            shown = run_id[:64] if run_id.isalnum() and run_id.isascii() else "no run id"  # nothing for a terminal to obey
            agent.home.audit.append("refused", run=shown, study=asked.study.sha256, site=site, why=str(error))
            log_event("offer_refused", level=logging.WARNING, run=run_id, site=site, study=asked.study.sha256, error=error)
        if asked.pair is not None and not isinstance(error, NotNow):
            self._answer(asked, asked.pair, error)

    def _answer(self, asked: Asked, pair: EnvelopePair, error: BlindbayesError) -> None:
        """Inform a party of a study that staff here decided about. What the policy says is not disclosed."""
        over = USED_UP if isinstance(error, ApprovalUsedUp) else APPROVAL_OVER if isinstance(error, ApprovalOver) else ""
        if asked.declined or over:
            reason = asked.declined or f"{over} at {self._agent.name}: its approvers can allow more"
            self._agent.answers.send(asked.site, pair, pair.refused(reason))
        else:
            self._agent.answers.send_ended(asked.site, pair, {"state": "failed", "exit_code": error.code})

    def _launch(self, asked: Asked) -> None:
        agent, run_id = self._agent, asked.offer.run_id
        try:
            agent.launch(run_id, work_of(agent.home, agent.identity, run_id, asked.study), asked.site)
        except BlindbayesError as error:  # its log cannot be written: the others need not wait for their deadline
            if asked.pair is not None:
                agent.answers.send_ended(asked.site, asked.pair, {"state": "failed", "exit_code": error.code})
            raise
