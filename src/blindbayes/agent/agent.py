"""The site agent: one long-lived process per party. It alone touches rows, keys, policy, journals and the audit log.

A run begins when the site's own staff ask for it, or when another party of an approved study offers a session for it
(`offers`). Nothing is computed before enough parties have joined, nothing is sent before it can be replayed, and an ended run
never begins again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from blindbayes.agent.approvals.people import account, require_name, require_reason
from blindbayes.agent.approvals.summary import require_study
from blindbayes.agent.notices import Notices
from blindbayes.agent.notify import Notifier, Waiting
from blindbayes.agent.offers import USED_UP, Answers, ApprovalUsedUp, Offers
from blindbayes.agent.rollback import PeerLogHeads
from blindbayes.agent.runs.context import FolderSite, Work, name_to_add_to, work_of
from blindbayes.agent.runs.folders import EVALUATION, NAME, VALIDATION, read_run_id
from blindbayes.agent.runs.role_runner import OpenedRole, RoleRunner, SiteServices, open_roles
from blindbayes.agent.runs.run import AgentRun, EarlierRunOpen, NotNow, Unwritten
from blindbayes.agent.runs.state import RunState
from blindbayes.agent.status import show_site
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.store.inbox import known_studies
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.policy import require_rate
from blindbayes.errors import (
    BlindbayesError,
    ConfigError,
    IntegrityError,
    LedgerError,
    LocalProtocolError,
    PrivacyError,
    ProtocolError,
    RunStopped,
)
from blindbayes.net.courier import Courier, Repinned, require_latency
from blindbayes.net.driver import Finished
from blindbayes.net.events import log_event
from blindbayes.net.identity import Identity
from blindbayes.net.journal import code_version
from blindbayes.net.router import Router
from blindbayes.net.sessions import Timing
from blindbayes.net.threads import compute
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.evaluation import require_evaluation
from blindbayes.study.tasks.prediction import Request, prediction_run
from blindbayes.study.tasks.traits import ModelForm, Support

_KEEP_ENDED = 16
_WRITTEN_SECONDS = 5  # a call is answered soon; the operator's client repeats it


class Agent:
    """See the module's docstring. All methods run on one event loop."""

    def __init__(self, home: SiteFolder, identity: Identity, courier: Courier, *, timing: Timing | None = None) -> None:
        self.home = home
        self.identity = identity
        self.offers = Offers(self)
        self.notices = Notices(self)
        self.router = Router(identity.name, courier, unknown_offer=self.offers.consider, notice_arrived=self.notices.arrived)
        self.answers = Answers(self.router, identity)
        self.peer_heads = PeerLogHeads(home, identity)
        self._notifier: Notifier | None = None
        self.runs: dict[str, AgentRun] = {}
        self.counters: Counter[str] = Counter()
        self.proposed_studies, self.pending_predictions = self.offers.proposed_studies, self.offers.predictions
        self._services = SiteServices(home, identity, self.router, self.peer_heads, timing or Timing())
        self._ended: deque[str] = deque()

    @property
    def name(self) -> str:
        return self.identity.name

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and resume the runs that a crash interrupted."""
        with _writing("what a crash left behind cannot be erased"):
            self.home.runs.erase_leftovers()
        self.home.data.erase_leftovers()
        self.home.note_policy(account())
        self.home.remove_old_releases(time.time())
        await asyncio.to_thread(code_version)  # reads all sources once; every journal names it
        await asyncio.to_thread(known_studies, self.home)  # parsed once, before the event loop asks for them
        self._start_notifier()
        self.notices.start()
        await self.router.courier.start(self.router)
        try:
            self._take_up()
        except BaseException:
            await self.stop()
            raise

    def _take_up(self) -> None:
        """Resume or end every run that was under way when the agent ended."""
        interrupted = self.home.runs.interrupted()
        log_event("agent_started", site=self.name, pinned=len(self.home.peers()), interrupted=len(interrupted))
        for run_id in self.home.history.stopped_runs():
            self._burn(run_id, "it was stopped by staff", state="stopped", exit_code=RunStopped.code)
            interrupted = [each for each in interrupted if each != run_id]
        for run_id in self.home.history.unended():
            if run_id not in interrupted:  # what it opened is not known, and it can never be
                has_computed = self.home.history.has_computed(run_id)
                self._burn(run_id, "its journal is gone" if has_computed else "the agent ended before the run began")
        for run_id in interrupted:
            self._resume(run_id)

    async def stop(self) -> None:
        """Stop without ending runs: their journals remain, and `start` resumes them."""
        await self.notices.stop()
        if self._notifier is not None:
            await asyncio.to_thread(self._notifier.close)
        tasks = [run.task for run in self.runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for run in self.runs.values():
            # A thread goes on when its task is cancelled: it must not decide while another agent of the site does.
            await asyncio.to_thread(run.latch.shut, RunStopped("the agent ended"))
            for role in run.roles.values():
                await role.close()
        await self.router.courier.stop()
        log_event("agent_stopped", site=self.name, kept=sum(run.is_open for run in self.runs.values()))

    def _start_notifier(self) -> None:
        old, notify = self._notifier, self.home.config.notify
        self._notifier = None if notify is None else Notifier(notify, self.home.folder)
        if old is not None:
            old.close(0.0)

    def notify(self, what: str, title: str, party: str, path: str) -> None:
        """Notify staff that a decision waits, if site.toml asks for it. `path` is the page of the console."""
        if self._notifier is not None and (config := self.home.config.notify) is not None:
            console = (config.console or f"http://{self.home.config.operator}").rstrip("/")
            self._notifier.notify(Waiting.make(self.name, what, title, party, console + path))

    async def reload(self, who: str) -> dict[str, Any]:
        """Apply changed settings, policy and pins while runs go on. Return what changed, and what needs a restart."""
        before = self.home.config.notify
        later = self.home.reload()
        if self.home.config.notify != before:
            self._start_notifier()
        changed = self.home.note_policy(require_name(who))
        peers = self.home.peers()
        courier = self.router.courier
        is_new = isinstance(courier, Repinned) and await courier.repin(peers)
        log_event("agent_reloaded", site=self.name, pinned=len(peers), policy=len(changed), restart=len(later))
        return {"policy": changed, "pins": sorted(peers) if is_new else None, "after_restart": later}

    # -- beginning -----------------------------------------------------------------------------------------------------

    async def prepare(self, sha256: str, model: str | None = None, *, evaluates: bool = False) -> None:
        """Read what a run needs in a thread: the study's file, and for an evaluation the model. The event loop goes on.

        A run is then started without reading either again. What is wrong with them is found there.
        """

        def read() -> None:
            if (approved := self.home.approvals.find(sha256)) is None or not evaluates:
                return
            study, trained = approved[0], self.trained(approved[0])
            if model is not None or trained:
                name = read_run_id(trained[-1] if model is None else model, study.task).name
                FolderSite(self.home, self.identity, study).trained(name)

        with contextlib.suppress(BlindbayesError):
            await asyncio.to_thread(read)

    def begin(self, sha256: str, base: str | None = None) -> AgentRun:
        """Start a run of an approved study; with a base, one that adds to that run's result. Raises what policy raises."""
        study, runs = self._require_approved(sha256)
        self.require_party(study)
        self.require_runs_left(study, runs)
        run_id = ("" if base is None else name_to_add_to(self.home, study, base)) + Coins.system().bytes(16).hex()
        return self.launch(run_id, work_of(self.home, self.identity, run_id, study), self.name)

    def evaluate(self, sha256: str, model: str | None = None, *, folds: bool = False) -> AgentRun:
        """Evaluate the model of a run of an approved study (by default the newest) on the held-out rows of all its sites.

        With `folds`, cross-validate the study's candidates instead.
        """
        study, runs = self._require_approved(sha256)
        require_evaluation(study.study, folds=folds)
        self.require_party(study)
        self.require_runs_left(study, runs)
        if folds:
            run_id = Coins.system().bytes(VALIDATION // 2).hex()
            return self.launch(run_id, work_of(self.home, self.identity, run_id, study), self.name)
        trained = self.trained(study)
        if model is None and not trained:
            raise ConfigError("this site learned no total of a run of this study: train first, with `blindbayes study run`")
        name = read_run_id(trained[-1] if model is None else model, study.task).name
        run_id = name + Coins.system().bytes((EVALUATION - NAME) // 2).hex()
        return self.launch(run_id, work_of(self.home, self.identity, run_id, study), self.name)

    def unfinished(self, sha256: str, name: str | None = None) -> AgentRun | None:
        """Return the run of a study with this name if it is under way.

        Without a name, one whose result is being written; if there is no earlier result, any.
        """
        for run in self.runs.values():
            if not run.is_open or run.study.sha256 != sha256:
                continue
            if run.run_id.endswith(name) if name else run.phase is RunState.WRITING or not self.trained(run.study):
                return run
        return None

    def trained(self, study: StudyFile) -> list[str]:
        """Return the runs of a study whose total this site holds, oldest first."""
        releases = self.home.history.releases(study.sha256, study.party(self.name).identity)
        return [entry["run"] for entry in releases if self.home.increments.has_total(study.sha256, entry["run"])]

    async def until_written(self, sha256: str, earlier: str | None = None) -> None:
        """Wait until the results on which the next run builds are stored. Raises `EarlierRunOpen` if that takes long."""
        name = None if earlier is None else earlier[-NAME:]
        try:
            async with asyncio.timeout(_WRITTEN_SECONDS):
                while (run := self.unfinished(sha256, name)) is not None:
                    await run.done.wait()
        except TimeoutError:
            raise EarlierRunOpen from None

    def predict(self, sha256: str, request: dict[str, Any]) -> AgentRun:
        """Classify instances with a model of an approved study over columns. The staff of every party ask for it."""
        study, _ = self._require_approved(sha256)
        self.home.approvals.require_in_time(sha256)
        if study.task.model is ModelForm.OPENED:
            raise ConfigError(
                "a study that opens statistics ends in a model of your own: `blindbayes predict` classifies with it"
            )
        self.require_party(study)
        asked = Request.from_dict(request)
        run_id = prediction_run(sha256, asked.model, asked.batch)
        work = work_of(self.home, self.identity, run_id, study, request)
        work.site.share_of(asked.model)
        known = self.runs.get(run_id)
        if known is not None and known.is_open:
            return known
        if self.home.runs.outcome(run_id) is not None or self.home.history.has_computed(run_id):
            raise ConfigError("a batch of that name was classified, or failed, before: take another name, at every party")
        self.home.runs.keep_request(run_id, asked)
        return self.launch(run_id, work, self.name)

    def _require_approved(self, sha256: str) -> tuple[StudyFile, int]:
        approved = self.home.approvals.find(sha256)
        if approved is None:
            raise PrivacyError("no study of that hash is approved here: `blindbayes site approve` it first")
        return approved

    def require_party(self, study: StudyFile) -> None:
        """Raise unless this site, its disk, pins, courier and policy allow the study now."""
        self.home.require_space()
        if (restored := self.home.history.behind()) is not None:
            raise PrivacyError(
                f"this site came back from a backup of {restored['of']}, and what it spent since is not known: nothing runs "
                "until its staff say `blindbayes site acknowledge`"
            )
        if self.name not in study.names:
            raise ConfigError("this site is no party of the study")
        if study.party(self.name).identity != self.identity.card.identity.hex():
            raise ConfigError("the study names another identity for this site")
        self._require_latency(study)
        peers = self.home.peers()
        for party in study.members:
            card = self.identity.card if party.name == self.name else peers.get(party.name)
            if card is None or not card.fits(party.identity, party.key):
                raise ConfigError(
                    f"the card of {party.name} that is pinned here is not the one in the study, or none is pinned"
                )
        policy = self.home.config.policy
        require_study(policy, study)
        if sum(run.is_open for run in self.runs.values()) >= policy.max_running:
            raise NotNow(f"this site has {policy.max_running} runs under way, as many as it allows")

    def _require_latency(self, study: StudyFile) -> None:
        few_rounds = Support.SLOW_COURIER in study.task.supports
        require_latency(self.router.courier.latency, study.protocol, study.deadlines.step, few_rounds=few_rounds)

    def require_runs_left(self, study: StudyFile, runs: int) -> None:
        """Raise unless one more run of a study is approved and within this site's rate."""
        self.home.approvals.require_in_time(study.sha256)
        if self.home.history.count_starts(study.sha256) >= runs:
            raise ApprovalUsedUp(
                USED_UP + ": `blindbayes site status` shows what became of them; `blindbayes site approve` allows one more"
            )
        require_rate(self.home.config.policy, self.home.history.starts(), time.time())

    def ended_in_memory(self, run_id: str) -> dict[str, Any] | None:
        """Return how a run ended whose end could not be written: on a full disk the others need not wait."""
        run = self.runs.get(run_id)
        if run is None or run.is_open or run.error is None:
            return None
        return {"state": "done" if run.phase.protocol_done else "failed", "exit_code": run.error.code}

    def _resume(self, run_id: str) -> None:
        folder = self.home.runs.folder(run_id)
        hashes = [path.read_text() for path in folder.glob("study")]
        approved = self.home.approvals.find(hashes[0][:64]) if hashes else None
        study = None if approved is None else approved[0].at(hashes[0][-64:])  # with the sites that it began with
        if study is None:
            self._burn(run_id, "its study is no longer approved here")
            return
        try:
            work = work_of(self.home, self.identity, run_id, study, self.home.runs.request(run_id))
        except (BlindbayesError, ValueError):  # one damaged file must not keep the site from its other runs
            self._burn(run_id, "what was asked for cannot be read")
            return
        log_event("run_resumed", run=run_id, study=study.sha256)
        self.launch(run_id, work, "resumed")

    def _burn(self, run_id: str, why: str, *, state: str = "burned", exit_code: int = LocalProtocolError.code) -> None:
        joined = self.home.history.run(run_id) or {}
        with _writing("the end of an interrupted run cannot be written"):
            if joined.get("kind") != "prediction" or self.home.history.has_computed(run_id) or self.home.runs.has_begun(run_id):
                self.home.runs.end(run_id, {"state": state, "message": why, "exit_code": exit_code})
            self.home.audit.append("ended", run=run_id, state=state, why=why)
            log_event("run_burned", level=logging.WARNING, run=run_id)
            self.home.runs.erase_journals(run_id)

    def launch(self, run_id: str, work: Work, proposed_by: str) -> AgentRun:
        """Join a run, in the log first, and carry it out in a task of its own."""
        study = work.study
        self.peer_heads.require_ledger()
        about, head = study.title[:80], str(self.home.ledger.head)
        facts = {"proposed_by": proposed_by, "kind": work.task.kind, "title": about, "ledger": head}
        self.home.audit.append("joined", run=run_id, study=study.sha256, roster=study.roster.sha256, **facts)
        log_event("run_joined", run=run_id, site=None if proposed_by == "resumed" else proposed_by, study=study.sha256)
        self.pending_predictions.pop(run_id, None)
        run = self.runs[run_id] = AgentRun(run_id, work, proposed_by, self.peer_heads.heads())
        run.task = asyncio.create_task(self._carry_out(run), name=f"run {run_id}")
        return run

    # -- carrying out --------------------------------------------------------------------------------------------------

    async def _carry_out(self, run: AgentRun) -> None:
        try:
            await self._write(run, await self._compute(run))
        except Unwritten as unwritten:
            await self._leave_unwritten(run, unwritten)
        except BlindbayesError as error:
            await self._fail(run, error)
        except OSError as error:
            await self._fail(run, LocalProtocolError(f"the operating system refused: {error.strerror}", party=self.name))
        except Exception as error:
            log_event("run_failed", level=logging.ERROR, run=run.run_id, error=error)
            await self._fail(run, LocalProtocolError(f"unexpected {type(error).__name__}", party=self.name))
        finally:
            run.work.close()

    async def _compute(self, run: AgentRun) -> dict[str, Finished]:
        """Read this site's input and drive its roles to their end."""
        study, work = run.study, run.work
        self._require_latency(study)  # a resumed run may meet another courier
        await compute(work.task.read)
        opened = await self._open_roles(run)
        try:
            with run.latch.passing():
                run.enter(RunState.RUNNING)
        except BlindbayesError:
            _close(opened)
            raise
        begun = time.monotonic()
        for each in opened:
            run.roles[each.name] = RoleRunner(each, run, self._services)
        self.notices.decline_known(study)
        tasks = {name: asyncio.create_task(role.driver.drive()) for name, role in run.roles.items()}
        try:
            finished = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        run.protocol_seconds = time.monotonic() - begun
        run.latch.leave()
        run.enter(RunState.WRITING)
        for role in run.roles.values():
            role.rest()
        return finished

    async def _open_roles(self, run: AgentRun) -> list[OpenedRole]:
        """Open the journals and roles that this site hosts, in a thread: on a resumed run each journal is read whole."""
        opening = asyncio.create_task(compute(open_roles, self.name, run, self._services))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                _close(await opening)  # a thread goes on when its task is cancelled
            raise

    async def _write(self, run: AgentRun, finished: dict[str, Finished]) -> None:
        """Write the release and the end of a run whose roles have ended well."""
        study = run.study.sha256
        try:
            run.release = release = await compute(run.work.finish, finished)
            self.home.audit.append("ended", run=run.run_id, study=study, state="done")
            outcome = {"state": "done", "study": study}
            self.home.runs.end(run.run_id, outcome if release is None else outcome | {"release": release.name})
        except (OSError, LedgerError) as error:
            raise Unwritten(error) from error
        self._retire(run)
        self._finish(run, RunState.DONE)

    def _retire(self, run: AgentRun) -> None:
        """Count the run, and erase what could replay it."""
        spent: dict[str, Any] = {"milliseconds": round(run.protocol_seconds * 1000), **run.traffic()}
        self.counters["runs_done" if run.error is None else "runs_failed"] += 1
        self.counters["run_milliseconds"] += spent["milliseconds"]
        if run.error is None:
            log_event("run_done", run=run.run_id, study=run.study.sha256, **spent)
        else:
            log_event("run_failed", level=logging.WARNING, run=run.run_id, study=run.study.sha256, error=run.error, **spent)
        for role in run.roles.values():
            role.journal.erase()  # the result is written
        self._erase_journals(run)

    def _erase_journals(self, run: AgentRun) -> None:
        with contextlib.suppress(OSError):
            self.home.runs.erase_journals(run.run_id)

    async def _leave_unwritten(self, run: AgentRun, unwritten: Unwritten) -> None:
        """Keep the journal of a run that was computed and paid for: the next start writes its release."""
        run.error = LocalProtocolError(str(unwritten), party=self.name)
        self.counters["runs_failed"] += 1
        log_event("run_failed", level=logging.ERROR, run=run.run_id, study=run.study.sha256, error=unwritten)
        await self._detach(run)
        self._finish(run, RunState.UNWRITTEN)

    async def _detach(self, run: AgentRun) -> None:
        for role in run.roles.values():
            await role.close()
        self.router.detach(run.run_id)  # a site that asks later is answered that the run has ended

    async def stop_run(self, run_id: str, why: str, who: str) -> AgentRun:
        """Stop a run at any step: nothing more of it is charged or sent, and every site is informed.

        What was sent or charged before stays in the log and counts. A run stopped here does not begin again.
        """
        who, why, run = require_name(who), require_reason(why), self.runs.get(run_id)
        if run is None or not run.is_open:
            raise ConfigError("no run of that id is under way here: see `blindbayes site runs`")
        error = RunStopped(f"the run was stopped at {self.name} ({who}): {why}", party=self.name)
        facts = {"run": run_id, "study": run.study.sha256, "who": who, "why": why}
        await asyncio.to_thread(run.latch.close, error, lambda: self.home.audit.append("stopped", **facts))
        log_event("run_stopped", level=logging.WARNING, run=run_id, study=run.study.sha256)
        if run.phase in (RunState.READING, RunState.RUNNING):  # else a role met the closed latch before
            run.enter(RunState.STOPPING)
        for role in run.roles.values():
            role.driver.stop(error)
        if not run.roles:  # it reads its table; the others need not wait for that
            self.answers.send_ended_to_all(run.study, run.run_id, {"state": "stopped", "exit_code": error.code})
        return run

    async def _fail(self, run: AgentRun, error: BlindbayesError) -> None:
        run.error = error
        if run.phase is RunState.WRITING:
            self._fail_here(run, error)
            return
        run.enter(RunState.FAILING)
        self.counters["runs_failed"] += 1
        party, study = error.party if isinstance(error, ProtocolError) else None, run.study.sha256
        log_event("run_failed", level=logging.WARNING, run=run.run_id, site=party, study=study, error=error)
        for role in run.roles.values():
            role.abort(error)
        for _ in range(20):
            if all(role.abort_sent for role in run.roles.values()):
                break
            await asyncio.sleep(0.05)
        outcome = run.outcome(error)
        with contextlib.suppress(OSError, BlindbayesError):  # on a full disk the error itself still reaches the operator
            self._record_failure(run, error, outcome)
        await self._detach(run)
        self._erase_journals(run)
        if not run.roles:  # its table could not be read: sites that wait for its roles are informed from here
            self.answers.send_ended_to_all(run.study, run.run_id, outcome)
        self._finish(run, RunState.FAILED)

    def _record_failure(self, run: AgentRun, error: BlindbayesError, outcome: dict[str, Any]) -> None:
        home, study = self.home, run.study.sha256
        # A batch that could not even be read, so that no journal was begun, may be asked for again.
        if run.work.task.kind != "prediction" or home.runs.has_begun(run.run_id):
            home.runs.end(run.run_id, outcome | {"message": str(error)})
        state = "burned" if isinstance(error, LocalProtocolError | IntegrityError) else outcome["state"]
        home.audit.append("ended", run=run.run_id, study=study, state=state, why=str(error))
        if run.ends_approval(error) and home.approvals.stored(study) is not None:
            home.approvals.revoke(study, why=f"run {run.run_id}: {error}")

    def _fail_here(self, run: AgentRun, error: BlindbayesError) -> None:
        """End a run whose roles ended well, but whose result is wrong or cannot be stored: only staff here are informed."""
        with contextlib.suppress(OSError, BlindbayesError):  # on a full disk the error itself still reaches the operator
            self.home.runs.end(run.run_id, run.outcome(error) | {"message": str(error)})
        with contextlib.suppress(OSError, BlindbayesError):  # other sites see the log's length: one line more in any case
            self.home.audit.append("ended", run=run.run_id, study=run.study.sha256, state="burned", why=str(error))
        self._retire(run)
        self._finish(run, RunState.FAILED_HERE)

    def _finish(self, run: AgentRun, phase: RunState) -> None:
        """Enter a final state, and forget the oldest ended runs."""
        run.enter(phase)
        self._ended.append(run.run_id)
        while len(self._ended) > _KEEP_ENDED:
            old = self.runs.get(self._ended.popleft())
            if old is None or old.is_open:  # asked for again since, and under way
                continue
            del self.runs[old.run_id]
            self.router.detach(old.run_id)
            for role in old.roles.values():
                asyncio.get_running_loop().create_task(role.close())

    def show(self) -> dict[str, Any]:
        return show_site(self)


@contextlib.contextmanager
def _writing(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what} ({error.strerror}): free some space, and start the agent again") from error


def _close(opened: Sequence[OpenedRole]) -> None:
    for each in opened:
        each.journal.close()
