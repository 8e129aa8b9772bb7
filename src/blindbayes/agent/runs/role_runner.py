"""One role of a run at this site: its journal, its links, its driver."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from blindbayes.agent.approvals.summary import learners_of
from blindbayes.agent.rollback import PeerLogHeads
from blindbayes.agent.runs.commit_points import CommitPoints, names_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import curve_of
from blindbayes.errors import BlindbayesError, ConfigError, LocalProtocolError, ProtocolError
from blindbayes.io.chain import rehearsal
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.net.driver import RoleDriver, RoleHooks
from blindbayes.net.envelope import EnvelopePair
from blindbayes.net.identity import Identity
from blindbayes.net.journal import Begun, Journal, Secrets, code_version
from blindbayes.net.link import Link, PeerLogs
from blindbayes.net.router import Router
from blindbayes.net.sessions import Timing
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.floored_sum.roles import FlooredTotal
from blindbayes.protocols.registry import Total
from blindbayes.report.receipts import Receipt, pack
from blindbayes.study.file import StudyFile

if TYPE_CHECKING:
    from blindbayes.agent.runs.run import AgentRun


class _SharedLogs(PeerLogs):
    """The log heads of this site and of one peer, in one run."""

    def __init__(self, peer_heads: PeerLogHeads, site: str, peer: str, run: AgentRun) -> None:
        self._peer_heads, self._site, self._peer, self._run_id, self.heads = peer_heads, site, peer, run.run_id, run.heads

    def seen(self) -> bytes:
        return self._peer_heads.seen(self._site)

    def store_heads(self, heads: bytes, exchange: bytes, proof: bytes) -> None:
        self._peer_heads.store_heads(self._site, self._peer, self._run_id, heads, exchange, proof)

    def check_own_heads(self, seen: bytes) -> None:
        self._peer_heads.check_own_heads(self._site, seen)


@dataclass(frozen=True, slots=True)
class SiteServices:
    """The services of a site that all its runs share."""

    home: SiteFolder
    identity: Identity
    router: Router
    peer_heads: PeerLogHeads
    timing: Timing  # heartbeat and retry; the study sets the deadlines


_MESH = 64  # with more contributors, only the hub of a star has sessions with all


def speaks_with(study: StudyFile, name: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether a role is the hub of a star, and its peers. Sessions between all roles grow with the square."""
    hub, others = study.task.hub, tuple(role for role in study.roles if role != name)
    if hub not in study.roles or len(study.contributors) <= _MESH:
        return False, others
    return name == hub, others if name == hub else (hub,)


@dataclass(frozen=True, slots=True)
class OpenedRole:
    """A role of a run with its journal, before it has links."""

    name: str
    journal: Journal
    facts: Run
    role: Role[Any]
    max_bytes: int | None  # what one peer may send in the whole run; None: the journal's quota is the limit


def open_roles(host: str, run: AgentRun, site: SiteServices) -> list[OpenedRole]:
    """Open or create the journals and roles of a host. Reads whole journals or draws noise, so run it in a thread."""
    opened: list[OpenedRole] = []
    try:
        for name in run.study.roles:
            if run.study.host(name) == host:
                opened.append(_open_role(name, run, site))
    except BaseException:
        for each in opened:
            each.journal.close()
        raise
    return opened


def _open_role(name: str, run: AgentRun, site: SiteServices) -> OpenedRole:
    study, identity = run.study, site.identity
    keys = _keys(study, site)
    peers = speaks_with(study, name)[1]
    shared = [peer for peer in peers if keys[peer]] if keys[name] == identity.agreement.public else []
    secrets = identity.agreement.curve.agree_many([curve_of(keys[peer]) for peer in shared], shared)
    journal = _open_journal(name, run, site, dict(zip(shared, secrets, strict=True)))
    try:
        identities = {role: study.identity(role) for role in study.roles}
        roster, own = study.roster.sha256, (identity.signing, identity.agreement)
        facts = Run(roster, run.run_id, study.roles, name, identities, *own, keys)
        role = run.work.task.role(name, facts, Coins.seeded(journal.begun.seed))
        return OpenedRole(name, journal, facts, role, _max_bytes(run))
    except BaseException:
        journal.close()
        raise


def _keys(study: StudyFile, site: SiteServices) -> dict[str, bytes]:
    """Return the hybrid key of the site of each role, from its pinned card; empty bytes where the study names none."""
    cards, keys = {**site.home.peers(), site.identity.name: site.identity.card}, {}
    for role in study.roles:
        party = study.party(study.host(role))
        card = cards.get(party.name)
        if party.key is not None and (card is None or card.key != party.key):
            raise ConfigError(f"the card of {party.name} that is pinned here is not the one in the study, or none is pinned")
        keys[role] = b"" if party.key is None or card is None else card.agreement
    return keys


def _max_bytes(run: AgentRun) -> int | None:
    study, known = run.study, run.work.task.max_bytes()
    if known is None:
        known = link_bytes.secure_sum(study.protocol, len(study.contributors), lambda: study.setting.length)
    return None if known is None else known + 1024 + 64 * len(study.contributors)  # receipts follow


def _open_journal(name: str, run: AgentRun, site: SiteServices, secrets: Secrets) -> Journal:
    """Open or create the journal of a role. A run whose input or code has changed since it began is burned."""
    home, run_id, study, key = site.home, run.run_id, run.study, site.identity.storage_key
    data, roster = run.work.task.digest(name), study.roster.sha256
    folder = make_private_folder(home.runs.folder(run_id))
    path, quota = folder / name, home.config.journal_quota_mb * 1024**2
    journal = Journal.find(path, run_id, key, quota=quota, secrets=secrets)
    if journal is not None:
        begun = journal.begun
        if (begun.study, begun.run_id, begun.me) != (roster, run_id, name):
            raise LocalProtocolError("a journal belongs to another run", party=name)
        if begun.input_digest != data:
            raise LocalProtocolError("the rows changed during the run: it is burned", party=name)
        if begun.code != code_version():
            raise LocalProtocolError("the software changed during the run: it is burned", party=name)
        return journal
    if home.history.has_computed(run_id):  # with other coins what it opened would be opened twice, and paid for once
        raise LocalProtocolError("the run was computed here before and its journal is gone: it is burned", party=name)
    write_whole(folder / "study", f"{study.sha256} {roster}".encode())
    begun = Begun(roster, run_id, name, Coins.fresh_seed(), data, code_version())
    return Journal.create(path, begun, key, quota=quota, secrets=secrets)


class RoleRunner(RoleHooks):
    """A role that this site runs in one run, fresh or resumed from its journal."""

    def __init__(self, opened: OpenedRole, run: AgentRun, site: SiteServices) -> None:
        work, study, identity, name = run.work, run.study, site.identity, opened.name
        self.name, self.study, self.journal = name, study, opened.journal
        self._home, self._run_id, self._work, self._latch = site.home, run.run_id, work, run.latch
        self._signing = identity.signing
        limits, base = study.deadlines, site.timing
        beat, gone = min(base.beat, limits.step / 4), min(base.gone, limits.step)
        timing = replace(base, step=limits.step, join=limits.join, run=limits.run, beat=beat, gone=gone)
        hub, peers = speaks_with(study, name)
        roster = study.roster.sha256
        self.links: dict[str, Link] = {}
        for peer in peers:
            host = study.host(peer)
            self.links[peer] = Link(
                EnvelopePair(roster, run.run_id, name, peer, opened.facts.identities[peer], identity.signing),
                self.journal,
                site.router.route(host, name),
                timing,
                logs=_SharedLogs(site.peer_heads, host, peer, run),
                max_bytes=None if host == identity.name else opened.max_bytes,
            )
            site.router.attach(host, self.links[peer])
        is_contributor = work.task.kind == "sum" and name in study.contributors
        self._commit_points = CommitPoints(site.home, study, run.run_id) if is_contributor else None
        learners = learners_of(study)
        self._signs = work.task.kind != "prediction"
        self.readers = [role for role in study.roles if study.host(role) in learners] if self._signs else ()
        self.driver = RoleDriver(
            opened.facts,
            opened.role,
            self.journal,
            self.links,
            timing,
            required=min(work.task.required, len(self.links) + 1),
            hub=hub,
            hooks=self,
        )

    # -- hooks of the driver -----------------------------------------------------------------------------------------

    def rehearse(self) -> None:
        self._look(rehearse=True)

    def before_first_step(self) -> None:
        self._look()

    def before_send(self, kinds: Sequence[str]) -> None:
        with self._latch.passing():
            if self._commit_points is not None:
                self._commit_points.before_send(kinds)

    def on_message(self, message: object) -> None:
        if self._commit_points is not None:
            self._commit_points.on_message(message)

    def host(self, party: str) -> str:
        return self.study.host(party)

    def receipt(self, value: Any) -> bytes:
        """Sign this role's end. A role of a sum may not learn whose vectors are in it."""
        if not self._signs:
            return b""
        study, included = self.study, None if self._commit_points is None else self._commit_points.survivors
        if isinstance(value, Total | FlooredTotal):
            included = value.included
        if "survivors" not in names_of(study.protocol):  # all must answer
            included = study.contributors
        left_out = None if included is None else tuple(name for name in study.contributors if name not in included)
        return pack(Receipt(left_out).sign(study.roster.sha256, self._run_id, self.name, self._signing))

    def _look(self, *, rehearse: bool = False) -> None:
        """Authorise the run, in a thread; one run of the site at a time, so that none misses what another is about to open.

        A rehearsal runs the earlier promised runs first: whatever this site promises, it can keep together.
        """
        key, home, job = (self._run_id, self.name), self._home, self._work.task
        with home.deciding, self._latch.passing():
            if not rehearse:
                job.authorise_and_charge(self.name)
                home.promised.pop(key, None)
                return
            with rehearsal():
                for other in list(home.promised.values()):
                    with contextlib.suppress(BlindbayesError):  # what fails now will not be paid for either
                        other()
                job.authorise_and_charge(self.name)
            home.promised[key] = lambda: job.authorise_and_charge(self.name)

    def abort(self, error: BlindbayesError) -> None:
        """Inform the other sites that this one gave up."""
        named = error.party if isinstance(error, ProtocolError) else None
        roles = self.study.roles
        for link in self.links.values():
            link.abort(error.code, roles.index(named) if named in roles else -1)

    @property
    def abort_sent(self) -> bool:
        return all(link.abort_sent for link in self.links.values())

    def rest(self) -> None:
        """Only answer peers that ask how far this role came: it has ended well."""
        for link in self.links.values():
            link.rest()

    async def close(self) -> None:
        """Stop all links. The journal remains."""
        self._home.promised.pop((self._run_id, self.name), None)
        for link in self.links.values():
            await link.close()
        self.journal.close()

    def show(self) -> dict[str, Any]:
        """Return counts and names for people."""
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
