"""One role of a run at this site: its journal, its links, its driver."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from blindbayes.agent.approvals.summary import learners_of
from blindbayes.agent.runs.commit_points import CommitPoints, names_of
from blindbayes.agent.runs.context import Work
from blindbayes.agent.runs.state import StopLatch
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, LocalProtocolError, ProtocolError
from blindbayes.io.chain import rehearsal
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.net.driver import Finished, RoleDriver, RoleHooks
from blindbayes.net.envelope import EnvelopePair
from blindbayes.net.identity import Identity
from blindbayes.net.journal import Begun, Journal, Secrets, code_version
from blindbayes.net.link import Link, PeerLogs
from blindbayes.net.router import Router
from blindbayes.net.sessions import Timing
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Run
from blindbayes.report.receipts import Receipt, pack
from blindbayes.study.file import StudyFile
from blindbayes.wire import Message


class Logbook(Protocol):
    """What sites show each other of their logs, and remember."""

    def heads(self) -> bytes:
        """Of this site's own logs, now."""

    def witness(self, site: str, seat: str, run_id: str, heads: bytes, exchange: bytes, proof: bytes) -> None:
        """Another site showed its heads. Raises if it showed newer ones before."""

    def seen(self, site: str) -> bytes:
        """What another site showed last, with its signature."""

    def recall(self, site: str, seen: bytes) -> None:
        """Another site shows what it last saw of ours. Raises if our logs do not hold it."""


class _SharedLogs(PeerLogs):
    def __init__(self, logbook: Logbook, site: str, peer: str, run_id: str, heads: bytes) -> None:
        self._logbook, self._site, self._peer, self._run_id, self.heads = logbook, site, peer, run_id, heads

    def seen(self) -> bytes:
        return self._logbook.seen(self._site)

    def witness(self, heads: bytes, exchange: bytes, proof: bytes) -> None:
        self._logbook.witness(self._site, self._peer, self._run_id, heads, exchange, proof)

    def recall(self, seen: bytes) -> None:
        self._logbook.recall(self._site, seen)


_MESH = 64  # with more contributors, those who need not speak with each other do not


def speaks_with(study: StudyFile, name: str) -> tuple[bool, tuple[str, ...]]:
    """Whether a role is the hub of a star, and whom it makes sessions with. Sessions of all with all grow with the square."""
    hub, others = study.scheme.facts.hub, tuple(seat for seat in study.seats if seat != name)
    if hub not in study.seats or len(study.contributors) <= _MESH:
        return False, others
    return name == hub, others if name == hub else (hub,)


class RoleRunner(RoleHooks):
    """A role that this site runs in one run, fresh or taken up from its journal."""

    def __init__(
        self,
        name: str,
        run_id: str,
        work: Work,
        home: SiteFolder,
        identity: Identity,
        board: Router,
        *,
        timing: Timing | None,
        logbook: Logbook,
        heads: bytes,
        gate: StopLatch,
    ) -> None:
        study = work.study
        self._gate = gate
        self.name, self.study = name, study
        self._home, self._run_id, self._work = home, run_id, work
        self._board = board
        base = timing or Timing()
        limits = study.deadlines
        beat, gone = min(base.beat, limits.step / 4), min(base.gone, limits.step)
        self._timing = replace(base, step=limits.step, join=limits.join, run=limits.run, beat=beat, gone=gone)
        known, receipt_bytes = work.max_bytes, 1024 + 64 * len(study.contributors)
        if known is None:
            known = link_bytes.secure_sum(study.protocol, len(study.contributors), lambda: study.setting.length)
        keys = {seat: bytes.fromhex(study.party(study.host(seat)).key or "") for seat in study.seats}
        hub, speaks = speaks_with(study, name)
        shared = [peer for peer in speaks if keys[peer]] if keys[name] == identity.agreement.public else []
        secrets = identity.agreement.agree_many([keys[peer] for peer in shared], shared)
        self.journal = self._open_journal(
            run_id, home, identity, work.job.digest(name), dict(zip(shared, secrets, strict=True))
        )
        coins = Coins.seeded(self.journal.begun.seed)
        self.links: dict[str, Link] = {}
        identities = {seat: study.identity(seat) for seat in study.seats}
        bound = study.roster.sha256
        run = Run(bound, run_id, study.seats, name, identities, identity.signing, identity.agreement, keys)
        for peer in speaks:
            site = study.host(peer)
            self.links[peer] = Link(
                EnvelopePair(bound, run_id, name, peer, identities[peer], identity.signing),
                self.journal,
                board.route(site, name),
                self._timing,
                logs=_SharedLogs(logbook, site, peer, run_id, heads),
                max_bytes=None if known is None or site == identity.name else known + receipt_bytes,
            )
            board.attach(site, self.links[peer])
        learners = learners_of(study)
        self._moments = CommitPoints(home, study, run_id) if work.job.kind == "sum" and name in study.contributors else None
        self._signing = identity.signing
        self._signs = work.job.kind != "prediction"
        self.readers = [seat for seat in study.seats if study.host(seat) in learners] if self._signs else ()
        self.driver = RoleDriver(
            run,
            work.job.role(name, run, coins),
            self.journal,
            self.links,
            self._timing,
            required=min(work.job.required, len(self.links) + 1),
            hub=hub,
            hooks=self,
        )

    # -- hooks of the driver -----------------------------------------------------------------------------------------

    def rehearse(self) -> None:
        self._look(rehearse=True)

    def before_first_step(self) -> None:
        self._look()

    def before_send(self, kinds: Sequence[str]) -> None:
        with self._gate.passing():
            if self._moments is not None:
                self._moments.before_send(kinds)

    def on_message(self, message: Message) -> None:
        if self._moments is not None:
            self._moments.on_message(message)

    def host(self, party: str) -> str:
        return self.study.host(party)

    def receipt(self, value: Any) -> bytes:
        """Return what this role signs at its end. A role of a sum may not learn whose vectors are in it."""
        if not self._signs:
            return b""
        study, included = self.study, getattr(value, "included", None if self._moments is None else self._moments.survivors)
        if "survivors" not in names_of(study.protocol):  # all must answer
            included = study.contributors
        left_out = None if included is None else tuple(name for name in study.contributors if name not in included)
        return pack(Receipt(left_out).sign(study.roster.sha256, self._run_id, self.name, self._signing))

    def _look(self, *, rehearse: bool = False) -> None:
        """The last look, in a thread: one run of the site at a time, so that none misses what another is about to open.

        In a rehearsal the runs that were promised before come first: whatever this site promises, it can keep together.
        """
        key, home, work = (self._run_id, self.name), self._home, self._work
        with home.deciding, self._gate.passing():
            if not rehearse:
                work.job.authorise_and_charge(self.name)
                home.promised.pop(key, None)
                return
            with rehearsal():
                for other in list(home.promised.values()):
                    with contextlib.suppress(BlindbayesError):  # what fails now will not be paid for either
                        other()
                work.job.authorise_and_charge(self.name)
            home.promised[key] = lambda: work.job.authorise_and_charge(self.name)

    def _open_journal(self, run_id: str, home: SiteFolder, identity: Identity, data: bytes, secrets: Secrets) -> Journal:
        """The journal of this role. A run whose input or code has changed since it began is burned."""
        folder = make_private_folder(home.runs.folder(run_id))
        place, quota = folder / self.name, home.config.journal_quota_mb * 1024**2
        journal = Journal.find(place, run_id, identity.storage_key, quota=quota, secrets=secrets)
        if journal is not None:
            begun = journal.begun
            if (begun.study, begun.run_id, begun.me) != (self.study.roster.sha256, run_id, self.name):
                raise LocalProtocolError("a journal belongs to another run", party=self.name)
            if begun.input_digest != data:
                raise LocalProtocolError("the rows changed during the run: it is burned", party=self.name)
            if begun.code != code_version():
                raise LocalProtocolError("the software changed during the run: it is burned", party=self.name)
            return journal
        if home.history.has_computed(run_id):  # with other coins what it opened would be opened twice, and paid for once
            raise LocalProtocolError("the run was computed here before and its journal is gone: it is burned", party=self.name)
        bound = self.study.roster.sha256
        write_whole(folder / "study", f"{self.study.sha256} {bound}".encode())
        begun = Begun(bound, run_id, self.name, Coins.fresh_seed(), data, code_version())
        return Journal.create(place, begun, identity.storage_key, quota=quota, secrets=secrets)

    async def drive(self) -> Finished:
        """Run the role to its end."""
        return await self.driver.drive()

    def abort(self, error: BlindbayesError) -> None:
        """Tell the others that this site gave up."""
        named = error.party if isinstance(error, ProtocolError) else None
        seats = self.study.seats
        for link in self.links.values():
            link.abort(error.code, seats.index(named) if named in seats else -1)

    @property
    def abort_sent(self) -> bool:
        return all(link.abort_sent for link in self.links.values())

    def rest(self) -> None:
        """The role has ended well: answer those who ask how far we came, and say nothing else."""
        for link in self.links.values():
            link.rest()

    def retire(self) -> None:
        """Destroy the journal: what came out is written."""
        self.journal.erase()

    async def close(self) -> None:
        """Stop all links, keep the journal."""
        self._home.promised.pop((self._run_id, self.name), None)
        for link in self.links.values():
            await link.close()
        self.journal.close()

    def show(self) -> dict[str, Any]:
        """Counts and names for people."""
        progress = self.driver.progress
        waits = bool(progress.waiting_for) and progress.state not in ("done", "failed")
        now = asyncio.get_running_loop().time()
        return {
            "state": progress.state,
            "waiting_for": list(progress.waiting_for) if waits else [],
            "kind": progress.kind if waits else "",
            "arrived": progress.arrived if waits else 0,
            "wanted": progress.wanted if waits else 0,
            "waits_seconds": round(now - progress.since, 1) if waits else 0.0,
            "deadline_seconds": round(max(0.0, progress.deadline - now), 1) if waits and progress.deadline else None,
            "messages_in": progress.messages_in,
            "messages_out": progress.messages_out,
            "bytes_in": progress.bytes_in,
            "bytes_out": progress.bytes_out,
            "cpu_seconds": round(progress.cpu_seconds, 3),
            "resumed": sum(link.resumed for link in self.links.values()),
        }
