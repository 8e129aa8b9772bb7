"""The site agent: one long-lived process per party. It alone touches rows, keys, policy, journals and the audit log.

A run begins when the site's own people ask for it, or when another party of an approved study offers a session for it. An
offer for a study that is not approved here gets no answer, whether the study is known or not. Nothing is computed before
enough parties have joined; nothing is sent before it can be replayed; an ended run never begins again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import Counter, deque
from typing import Any

from blindbayes.agent.approvals.people import account, require_name, require_reason
from blindbayes.agent.approvals.summary import require_study
from blindbayes.agent.offers import Answers
from blindbayes.agent.rollback import PeerLogHeads
from blindbayes.agent.runs.context import Work, name_to_add_to, run_of, work_of
from blindbayes.agent.runs.role_runner import RoleRunner
from blindbayes.agent.runs.run import AgentRun, NotNow, Unwritten
from blindbayes.agent.status import show_site
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.checks import APPROVAL_OVER
from blindbayes.disclosure.policy import require_few_idle, require_rate
from blindbayes.errors import (
    BlindbayesError,
    ConfigError,
    IntegrityError,
    LedgerError,
    LocalProtocolError,
    PrivacyError,
    RunStopped,
)
from blindbayes.net.courier import Courier, Repinned, require_latency
from blindbayes.net.envelope import EnvelopePair, Offer
from blindbayes.net.events import log_event
from blindbayes.net.identity import Identity
from blindbayes.net.journal import code_version
from blindbayes.net.router import Router
from blindbayes.net.sessions import Timing
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.prediction import Request, prediction_run

_USED_UP = "the approved number of runs of this study is used up"
_HASH = re.compile("[0-9a-f]{64}")
_KEEP_ENDED = 16
_KEEP_SEEN = 16  # per site: one that asks for much hides its own wishes, not those of others


class Agent:
    """See the module's docstring. All methods run on one event loop."""

    def __init__(self, home: SiteFolder, identity: Identity, courier: Courier, *, timing: Timing | None = None) -> None:
        self.home = home
        self.identity = identity
        self.router = Router(identity.name, courier, unknown_offer=self._unknown_offer)
        self.answers = Answers(self.router, identity)
        self.runs: dict[str, AgentRun] = {}
        self.counters: Counter[str] = Counter()
        self.pending_predictions: dict[
            str, dict[str, str]
        ] = {}  # classifications that others asked for and nobody here: by run
        self.proposed_studies: dict[str, str] = {}  # studies that others proposed and nobody here has approved: hash -> site
        self.logbook = PeerLogHeads(home, identity)
        self._timing = timing  # heartbeat and retry; the study sets the deadlines
        self._ended: deque[str] = deque()
        self._refused: set[str] = set()

    @property
    def name(self) -> str:
        return self.identity.name

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and take up the runs that a crash interrupted."""
        self.home.runs.erase_leftovers()
        self.home.note_policy(account())
        self.home.remove_old_releases(time.time())
        await asyncio.to_thread(code_version)  # reads all sources once; every journal names it
        await self.router.courier.start(self.router)
        interrupted = self.home.runs.interrupted()
        log_event("agent_started", site=self.name, pinned=len(self.home.peers()), interrupted=len(interrupted))
        for run_id in self.home.history.stopped_runs():
            self._burn(run_id, "it was stopped by its people", state="stopped", exit_code=RunStopped.code)
            interrupted = [each for each in interrupted if each != run_id]
        for run_id in self.home.history.unended():
            if run_id not in interrupted:  # what it opened is not known, and it can never say
                self._burn(run_id, "its journal is gone")
        for run_id in interrupted:
            self._resume(run_id)

    async def stop(self) -> None:
        """Stop without ending: the journals stay, and `start` goes on from them."""
        tasks = [run.task for run in self.runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in self.runs.values():
            for seat in run.seats.values():
                await seat.close()
        await self.router.courier.stop()
        log_event("agent_stopped", site=self.name, kept=sum(1 for run in self.runs.values() if not run.done.is_set()))

    async def reload(self, who: str) -> dict[str, Any]:
        """Take up changed settings, policy and pins while runs go on: what changed, and what needs a restart."""
        later = self.home.reload()
        changed = self.home.note_policy(require_name(who))
        peers = self.home.peers()
        courier = self.router.courier
        is_new = isinstance(courier, Repinned) and await courier.repin(peers)
        log_event("agent_reloaded", site=self.name, pinned=len(peers), policy=len(changed), restart=len(later))
        return {"policy": changed, "pins": sorted(peers) if is_new else None, "after_restart": later}

    # -- beginning -----------------------------------------------------------------------------------------------------

    def begin(self, sha256: str, base: str | None = None) -> AgentRun:
        """Start a run of an approved study; with a base one that adds to that run's result. Raises what policy raises."""
        study, runs = self._require_approved(sha256)
        self._require_party(study)
        self._require_runs_left(study, runs)
        run_id = ("" if base is None else name_to_add_to(self.home, study, base)) + Coins.system().bytes(16).hex()
        return self._launch(run_id, work_of(self.home, self.identity, run_id, study), self.name)

    def predict(self, sha256: str, request: dict[str, Any]) -> AgentRun:
        """Classify instances with a model of an approved study over columns; every party's people ask for it."""
        study, _ = self._require_approved(sha256)
        self.home.approvals.require_in_time(sha256)
        if not study.scheme.facts.shares:
            raise ConfigError(
                "a study that opens statistics ends in a model of your own: `blindbayes predict` classifies with it"
            )
        self._require_party(study)
        asked = Request.from_dict(request)
        run_id = prediction_run(sha256, asked.model, asked.batch)
        work = work_of(self.home, self.identity, run_id, study, request)
        work.site.share_of(asked.model)
        known = self.runs.get(run_id)
        if known is not None and not known.done.is_set():
            return known
        if self.home.runs.outcome(run_id) is not None or self.home.history.has_computed(run_id):
            raise ConfigError("a batch of that name was classified, or failed, before: take another name, at every party")
        self.home.runs.keep_request(run_id, asked)
        return self._launch(run_id, work, self.name)

    def _require_approved(self, sha256: str) -> tuple[StudyFile, int]:
        found = self.home.approvals.find(sha256)
        if found is None:
            raise PrivacyError("no study of that hash is approved here: `blindbayes site approve` it first")
        return found

    def _require_party(self, study: StudyFile) -> None:
        """This site, its disk, its pins, its courier and its policy allow the study now."""
        self.home.require_space()
        if (restored := self.home.history.behind()) is not None:
            raise PrivacyError(
                f"this site came back from a backup of {restored['of']}, and what it spent since is not known: nothing runs "
                "until its people say `blindbayes site acknowledge`"
            )
        if self.name not in study.names:
            raise ConfigError("this site is no party of the study")
        if study.party(self.name).identity != self.identity.card.identity.hex():
            raise ConfigError("the study names another identity for this site")
        self._require_latency(study)
        peers = self.home.peers()
        for party in study.members:
            card = self.identity.card if party.name == self.name else peers.get(party.name)
            if card is None or card.identity.hex() != party.identity or party.key not in (None, card.agreement.hex()):
                raise ConfigError(
                    f"the card of {party.name} that is pinned here is not the one in the study, or none is pinned"
                )
        require_study(self.home.config.policy, study)
        if sum(1 for run in self.runs.values() if not run.done.is_set()) >= self.home.config.policy.max_running:
            raise NotNow(f"this site has {self.home.config.policy.max_running} runs under way, as many as it allows")

    def _require_latency(self, study: StudyFile) -> None:
        patient = study.scheme.facts.few_rounds
        require_latency(self.router.courier.latency, study.protocol, study.deadlines.step, few_rounds=patient)

    def _require_runs_left(self, study: StudyFile, runs: int) -> None:
        self.home.approvals.require_in_time(study.sha256)
        if len(self.home.history.starts(study.sha256)) >= runs:
            raise PrivacyError(_USED_UP + ": `blindbayes site approve` it once more")
        require_rate(self.home.config.policy, self.home.history.starts(), time.time())

    def _unknown_offer(self, site: str, offer: Offer) -> None:
        """Somebody offers a session for a run that is not known here. Every way but one leads to silence."""
        try:
            self._consider(site, offer)
        except (BlindbayesError, OSError) as error:  # such as an audit log that cannot be written: then nothing runs
            self.counters["offers_refused"] += 1
            log_event("offer_refused", level=logging.ERROR, run=offer.run_id, site=site, error=error)

    def _consider(self, site: str, offer: Offer) -> None:
        run_id = offer.run_id
        found, why = self.home.approvals.find_roster(offer.study), ""
        if found is None and (refusal := self.home.decisions.refusal(offer.study)) is not None:
            found, why = (refusal[0], 0), refusal[1]
        if found is None:
            full = Counter(self.proposed_studies.values())[site] >= _KEEP_SEEN
            new = offer.study not in self.proposed_studies and not full and _HASH.fullmatch(offer.study)
            if new and self._is_of(site, offer):
                self.proposed_studies[offer.study] = site
                log_event("study_proposed", site=site, study=offer.study)
            self.counters["offers_refused"] += 1
            return
        study, runs = found
        pair: EnvelopePair | None = None
        try:
            if offer.receiver not in study.seats or offer.sender not in study.seats:
                raise ConfigError("no such roles")
            if study.host(offer.receiver) != self.name or study.host(offer.sender) != site:
                raise ConfigError("another site hosts this role")
            if self.answers.was_told(site, run_id, offer.sender, offer.receiver):
                return
            identity = study.identity(offer.sender)
            asked = EnvelopePair(study.roster.sha256, run_id, offer.receiver, offer.sender, identity, self.identity.signing)
            asked.require_offer(offer)
            pair = asked
            if why:  # people said no: this party of the study is told, once for each run that it asks for
                raise PrivacyError(why)
            outcome = self.home.runs.outcome(run_id) or self._ended_in_memory(run_id)
            if outcome is not None:
                self.answers.tell_ended(site, pair, outcome)
                raise PrivacyError("the run has ended here: it does not begin again")
            if run_id in self.runs:
                return
            if self.home.history.has_computed(run_id):  # its end was lost: it was paid for once, and ran once
                raise PrivacyError("the run was computed here before: it does not begin again")
            run = run_of(self.home, study, run_id)
            if run.kind == "prediction":
                self._keep_wish(run_id, site, study.sha256, run.model)
                return
            self._require_party(study)
            self._require_runs_left(study, runs)
            require_few_idle(self.home.config.policy, self.home.history.idle_joins(site), time.time(), NotNow)
        except BlindbayesError as error:
            self.counters["offers_refused"] += 1
            if isinstance(error, IntegrityError) and not self.router.courier.vouches(site):
                return  # anyone may have written that name: no line in the log for it
            if run_id not in self._refused and len(self._refused) < 1024:
                self._refused.add(run_id)
                shown = run_id[:64] if run_id.isalnum() and run_id.isascii() else "no run id"  # nothing for a terminal to obey
                self.home.audit.append("refused", run=shown, study=study.sha256, site=site, why=str(error))
                log_event("offer_refused", level=logging.WARNING, run=run_id, site=site, study=study.sha256, error=error)
            if pair is not None and not isinstance(error, NotNow):
                self._answer(site, pair, why, error)
            return
        try:
            self._launch(run_id, work_of(self.home, self.identity, run_id, study), site)
        except BlindbayesError as error:  # its log cannot be written: the others need not wait for their deadline
            self.answers.tell_ended(site, pair, {"state": "failed", "exit_code": error.code})
            raise

    def _is_of(self, site: str, offer: Offer) -> bool:
        """Whether the site itself offers this: a relay or an engine can write any name, and people are shown it."""
        if self.router.courier.vouches(site):
            return True
        card = self.home.peers().get(site)
        if card is None:
            return False
        pair = EnvelopePair(offer.study, offer.run_id, offer.receiver, offer.sender, card.identity, self.identity.signing)
        try:
            pair.require_offer(offer)
        except IntegrityError:
            return False
        return True

    def _answer(self, site: str, pair: EnvelopePair, why: str, error: BlindbayesError) -> None:
        """A party of a study that people here decided about is told at once; the policy's words stay here."""
        over = next((each for each in (_USED_UP, APPROVAL_OVER) if each in str(error)), None)
        if why or over:
            self.answers.tell(site, pair, pair.refused(why or f"{over} at {self.name}: its people can approve more"))
        else:
            self.answers.tell_ended(site, pair, {"state": "failed", "exit_code": error.code})

    def _ended_in_memory(self, run_id: str) -> dict[str, Any] | None:
        """How a run ended whose end could not be written: on a full disk the others need not wait for their deadline."""
        run = self.runs.get(run_id)
        if run is None or not run.done.is_set() or run.error is None:
            return None
        return {"state": "done" if run.rests else "failed", "exit_code": run.error.code}

    def _keep_wish(self, run_id: str, site: str, study: str, model: str) -> None:
        """Another party asks to classify with a model. Nothing is answered before this site's own people ask for it too."""
        if (
            run_id not in self.pending_predictions
            and sum(wish["by"] == site for wish in self.pending_predictions.values()) < _KEEP_SEEN
        ):
            self.pending_predictions[run_id] = {"run": run_id, "by": site, "study": study, "model": model}
            log_event("prediction_proposed", run=run_id, site=site, study=study)

    def _resume(self, run_id: str) -> None:
        folder = self.home.runs.folder(run_id)
        hashes = [path.read_text() for path in folder.glob("study")]
        found = self.home.approvals.find(hashes[0][:64]) if hashes else None
        study = None if found is None else found[0].at(hashes[0][-64:])  # it goes on with the sites that it began with
        if study is None:
            self._burn(run_id, "its study is no longer approved here")
            return
        try:
            work = work_of(self.home, self.identity, run_id, study, self.home.runs.request(run_id))
        except (BlindbayesError, ValueError):  # one damaged file must not keep the site from its other runs
            self._burn(run_id, "what was asked for cannot be read")
            return
        log_event("run_resumed", run=run_id, study=study.sha256)
        self._launch(run_id, work, "resumed")

    def _burn(self, run_id: str, why: str, *, state: str = "burned", exit_code: int = LocalProtocolError.code) -> None:
        self.home.runs.end(run_id, {"state": state, "message": why, "exit_code": exit_code})
        self.home.audit.append("burned" if state == "burned" else "ended", run=run_id, state=state, why=why)
        log_event("run_burned", level=logging.WARNING, run=run_id)
        self.home.runs.erase_journals(run_id)

    def _launch(self, run_id: str, work: Work, proposed_by: str) -> AgentRun:
        study = work.study
        self.logbook.require_ledger()
        about, head = study.title[:80], str(self.home.ledger.head)
        facts = {"proposed_by": proposed_by, "kind": work.job.kind, "title": about, "ledger": head}
        self.home.audit.append("joined", run=run_id, study=study.sha256, roster=study.roster.sha256, **facts)
        log_event("run_joined", run=run_id, site=None if proposed_by == "resumed" else proposed_by, study=study.sha256)
        self.pending_predictions.pop(run_id, None)
        run = self.runs[run_id] = AgentRun(run_id, work, proposed_by, self.logbook.heads())
        run.task = asyncio.create_task(self._carry_out(run), name=f"run {run_id}")
        return run

    # -- carrying out --------------------------------------------------------------------------------------------------

    async def _carry_out(self, run: AgentRun) -> None:
        try:
            await self._compute(run)
        except Unwritten as unwritten:
            await self._keep(run, unwritten)
        except BlindbayesError as error:
            await self._fail(run, error)
        except OSError as error:
            await self._fail(run, LocalProtocolError(f"the operating system refused: {error.strerror}", party=self.name))
        except Exception as error:
            log_event("run_failed", level=logging.ERROR, run=run.run_id, error=error)
            await self._fail(run, LocalProtocolError(f"unexpected {type(error).__name__}", party=self.name))
        finally:
            run.work.close()

    async def _compute(self, run: AgentRun) -> None:
        study, work = run.study, run.work
        self._require_latency(study)  # a run taken up may meet another one
        await asyncio.to_thread(work.job.read)
        with run.gate.passing():
            pass
        run.state = "running"
        begun = time.monotonic()
        for name in study.seats:
            if study.host(name) == self.name:
                run.seats[name] = RoleRunner(
                    name,
                    run.run_id,
                    work,
                    self.home,
                    self.identity,
                    self.router,
                    timing=self._timing,
                    logbook=self.logbook,
                    heads=run.heads,
                    gate=run.gate,
                )
        tasks = {name: asyncio.create_task(seat.drive()) for name, seat in run.seats.items()}
        try:
            finished = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        run.protocol_seconds = time.monotonic() - begun
        run.gate.leave()
        run.rest()
        try:
            run.release = release = await asyncio.to_thread(work.finish, finished)
            self.home.audit.append("ended", run=run.run_id, study=study.sha256, state="done")
            outcome = {"state": "done", "study": study.sha256}
            self.home.runs.end(run.run_id, outcome if release is None else outcome | {"release": release.name})
        except (OSError, LedgerError) as error:
            raise Unwritten(error) from error
        run.state = "done"
        self._remember_done(run)

    def _remember_done(self, run: AgentRun) -> None:
        """For the other sites the run has ended well."""
        spent: dict[str, Any] = {"milliseconds": round(run.protocol_seconds * 1000), **run.traffic()}
        self.counters["runs_done" if run.error is None else "runs_failed"] += 1
        self.counters["run_milliseconds"] += spent["milliseconds"]
        if run.error is None:
            log_event("run_done", run=run.run_id, study=run.study.sha256, **spent)
        else:
            log_event("run_failed", level=logging.WARNING, run=run.run_id, study=run.study.sha256, error=run.error, **spent)
        for seat in run.seats.values():
            seat.retire()
        self._let_go(run)
        self._remember_ended(run)

    def _end_untold(self, run: AgentRun, error: BlindbayesError) -> None:
        """The roles have ended well, and what came out is wrong or cannot be kept: people here are told, nobody else."""
        outcome = run.fail(error)
        with contextlib.suppress(OSError, BlindbayesError):  # on a full disk the error itself still reaches the operator
            self.home.runs.end(run.run_id, outcome | {"message": str(error)})
        with contextlib.suppress(OSError, BlindbayesError):  # its length is shown to others: one line more, in any case
            self.home.audit.append("ended", run=run.run_id, study=run.study.sha256, state="burned", why=str(error))
        self._remember_done(run)

    def _let_go(self, run: AgentRun) -> None:
        """Erase what could replay a run that has ended."""
        with contextlib.suppress(OSError):
            self.home.runs.erase_journals(run.run_id)

    async def _keep(self, run: AgentRun, unwritten: Unwritten) -> None:
        """All was computed and paid for, and could not be written: the journal stays, and the next start writes the release."""
        run.error, run.state = LocalProtocolError(str(unwritten), party=self.name), "failed"
        self.counters["runs_failed"] += 1
        log_event("run_failed", level=logging.ERROR, run=run.run_id, study=run.study.sha256, error=unwritten)
        for seat in run.seats.values():
            await seat.close()
        self.router.detach(run.run_id)
        self._remember_ended(run)

    async def stop_run(self, run_id: str, why: str, who: str) -> AgentRun:
        """People end a run, at any step: nothing of it is paid for or leaves from here on, and every site is told.

        What had left or was paid for before stands in the log, and counts. A run stopped here does not begin again.
        """
        who, why, run = require_name(who), require_reason(why), self.runs.get(run_id)
        if run is None or run.done.is_set():
            raise ConfigError("no run of that id is under way here: see `blindbayes site runs`")
        word = RunStopped(f"the run was stopped at {self.name} ({who}): {why}", party=self.name)
        facts = {"run": run_id, "study": run.study.sha256, "who": who, "why": why}
        await asyncio.to_thread(run.gate.close, word, lambda: self.home.audit.append("stopped", **facts))
        log_event("run_stopped", level=logging.WARNING, run=run_id, study=run.study.sha256)
        run.stopping = True
        for seat in run.seats.values():
            seat.driver.stop(word)
        if not run.seats:  # it reads its table; the others need not wait for that
            self.answers.tell_all_ended(run.study, run.run_id, {"state": "stopped", "exit_code": word.code})
        return run

    async def _fail(self, run: AgentRun, error: BlindbayesError) -> None:
        if run.rests:
            self._end_untold(run, error)
            return
        outcome = run.fail(error)
        self.counters["runs_failed"] += 1
        party, study = getattr(error, "party", None), run.study.sha256
        log_event("run_failed", level=logging.WARNING, run=run.run_id, site=party, study=study, error=error)
        for seat in run.seats.values():
            seat.abort(error)
        for _ in range(20):
            if all(seat.abort_sent for seat in run.seats.values()):
                break
            await asyncio.sleep(0.05)
        with contextlib.suppress(OSError, BlindbayesError):  # on a full disk the error itself still reaches the operator
            kind = "burned" if isinstance(error, LocalProtocolError | IntegrityError) else outcome["state"]
            # A batch that could not even be read, so that no journal was begun, may be asked for again.
            if run.work.job.kind != "prediction" or self.home.runs.has_begun(run.run_id):
                self.home.runs.end(run.run_id, outcome | {"message": str(error)})
            self.home.audit.append("ended", run=run.run_id, study=study, state=kind, why=str(error))
            if run.ends_approval(error) and self.home.approvals.stored(study) is not None:
                self.home.approvals.revoke(study, why=f"run {run.run_id}: {error}")
            if isinstance(error, IntegrityError) and error.evidence is not None:
                self.home.runs.keep_evidence(run.run_id, error.evidence)
        for seat in run.seats.values():
            await seat.close()
        self.router.detach(run.run_id)  # who comes later is told that it has ended
        self._let_go(run)
        if not run.seats:  # its table could not even be read: whoever waits for its roles hears it from here
            self.answers.tell_all_ended(run.study, run.run_id, outcome)
        self._remember_ended(run)

    def _remember_ended(self, run: AgentRun) -> None:
        run.end()
        self._ended.append(run.run_id)
        while len(self._ended) > _KEEP_ENDED:
            old = self.runs.get(self._ended.popleft())
            if old is None or not old.done.is_set():  # asked for again since, and under way
                continue
            del self.runs[old.run_id]
            self.router.detach(old.run_id)
            for seat in old.seats.values():
                asyncio.get_running_loop().create_task(seat.close())

    # -- for people ------------------------------------------------------------------------------------------------------

    def show(self) -> dict[str, Any]:
        return show_site(self)
