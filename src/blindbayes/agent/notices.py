"""Invitations to studies and decisions about them, between this site and the pinned ones.

An invitation is untrusted text: bounded, counted, parsed in a thread, stored in the inbox, and nothing else. Decisions of this
site's staff are sent to the other parties of the study (policy `announce_decisions`), whether the console or a command made
them: a loop compares what the audit log says with what each site has acknowledged. Decisions of other sites are stored in
`answers.json`; each is about its sender alone, and an older one never replaces a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from blindbayes.agent.approvals.decisions import sentence_of
from blindbayes.agent.store.inbox import MAX_STUDIES, inbox, known_studies, parse_study, store_study
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, ConfigError, PeerLost
from blindbayes.io.files import write_whole
from blindbayes.io.untrusted import convert, read_json, read_limited, shown
from blindbayes.net.envelope import Notice
from blindbayes.net.events import log_event
from blindbayes.net.notices import MAX_INVITATION_BYTES, Content, Heard, Invitation, Standing, State, open_notice, seal_notice
from blindbayes.study.file import StudyFile

if TYPE_CHECKING:
    from blindbayes.agent.agent import Agent
    from blindbayes.net.identity import Card

MAX_WAITING = 16  # undecided invitations of one site
MAX_PER_DAY = 32  # invitations of one site that are stored in 24 hours
_BURST, _PER_SECOND = 64.0, 1.0  # notices of one site; more are dropped before anything is decrypted
_PARSING = 4  # invitations of one site that wait to be parsed
_INVITATIONS, _INVITATIONS_PER_SECOND = 32.0, 1 / 30  # of one site that are parsed, which takes a second for a long one
_SENDING_SECONDS = 60.0  # a site that reads nothing
_LOOK_SECONDS = 1.0  # between looks at the head of the audit log
_IDLE_SECONDS = 60.0  # between looks at all studies while nothing changes
_RETRY = (2.0, 5.0, 15.0, 60.0, 300.0)
_INVITED = -1  # in place of a number of decisions: the invitation


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another site's decision, as that site reported it, and when the report arrived."""

    identity: str
    roster: str
    state: State
    reason: str
    number: int
    time: str


@dataclass(slots=True)
class _Rate:
    """A token bucket that limits the rate of notices."""

    left: float = field(default_factory=lambda: _BURST)
    at: float = field(default_factory=time.monotonic)

    def take(self, burst: float, per_second: float) -> bool:
        now = time.monotonic()
        self.left, self.at = min(burst, self.left + (now - self.at) * per_second), now
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class _Sent:
    """The last notice sent to a site about a study, and whether it was acknowledged."""

    number: int
    heard: bool = False
    tries: int = 0
    again: float = 0.0


class Notices:
    """See the module's docstring."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._path = agent.home.folder / "answers.json"
        self._answers: dict[str, dict[str, Answer]] = {}  # study -> site
        self._sent: dict[tuple[str, str], _Sent] = {}  # (site, study)
        self._delivered: set[tuple[str, str]] = set()  # invitations that a site has
        self._rates: dict[str, _Rate] = {}
        self._invitations: dict[str, _Rate] = {}
        self._sending: dict[str, bool] = {}  # sites to which notices are on their way; True: look again at the end
        self._parsing: Counter[str] = Counter()
        self._one_by_one = asyncio.Lock()
        self._wake = asyncio.Event()
        self._head: object = None  # of the audit log, as it was looked at last
        self._look_at = 0.0  # when to look again though nothing changed
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._answers = self._load()
        self._agent.router.connected = self._connected
        self._begin(self._follow())

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Check for decisions to send now instead of at the next interval."""
        self._wake.set()

    def _begin(self, work: Any) -> None:
        self._tasks.add(task := asyncio.get_running_loop().create_task(work))
        task.add_done_callback(self._tasks.discard)

    def _connected(self, site: str) -> None:
        for key in [key for key in self._sent if key[0] == site]:  # it may have lost what it heard
            del self._sent[key]
        self.wake()

    def _load(self) -> dict[str, dict[str, Answer]]:
        try:
            table = read_json(read_limited(self._path), self._path.name)
            return convert(table, dict[str, dict[str, Answer]], self._path.name)
        except (OSError, ConfigError):  # the others send it again
            return {}

    # -- what people see -----------------------------------------------------------------------------------------------

    def answers(self, study: StudyFile) -> list[dict[str, Any]]:
        """Return one row per party: whether it has the study and what it decided, as far as it has reported that."""
        agent, rows = self._agent, []
        given, asked = self._answers.get(study.sha256, {}), set(self.invited(study.sha256))
        for party in study.members:
            own, answer = party.name == agent.name, given.get(party.name)
            state: str
            if own:
                state, reason, when = agent.home.decisions.standing(study).state, "", ""
            elif answer is not None and answer.identity == party.identity:
                state, reason, when = answer.state, answer.reason, answer.time
            else:
                reason = when = ""
                has = (party.name, study.sha256) in self._delivered
                state = "received" if has else "sending" if party.name in asked else "not answered"
            connected = own or agent.router.courier.is_up(party.name)
            rows.append(
                {"site": party.name, "mine": own, "state": state, "reason": reason, "time": when, "connected": connected}
            )
        return rows

    def invited(self, study: str) -> list[str]:
        """Return the sites to which this one sent the study."""
        entries = self._agent.home.audit.where("study", study, "invitation sent")
        return [site for entry in entries for site in entry["sites"]]

    def inviter(self, study: str) -> str:
        """Return the site that sent the study, or an empty string."""
        entries = self._agent.home.audit.where("study", study, "invitation")
        return str(entries[0]["site"]) if entries else ""

    def invite(self, study: StudyFile, who: str) -> list[str]:
        """Send a study to its other parties: now, or as soon as they are connected. Return their names."""
        others = [party for party in study.members if party.name != self._agent.name]
        if len(study.to_toml().encode()) > MAX_INVITATION_BYTES:
            raise ConfigError(
                f"the study file has more than {MAX_INVITATION_BYTES // 1024:,} kB, too long for an invitation: send the file "
                "itself, and let the other sites add it"
            )
        peers = self._agent.home.peers()
        for party in others:
            if not _is_pinned(peers.get(party.name), party.identity):
                raise ConfigError(f"the card of {party.name} in the study is not pinned here: pin it under Identities first")
        names = [party.name for party in others]
        self._agent.home.audit.append("invitation sent", study=study.sha256, sites=names, who=who)
        for name in names:
            self._sent.pop((name, study.sha256), None)
        self.wake()
        return names

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(BlindbayesError, OSError):  # a folder that cannot be read: the pages say so
                await self._send_due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()

    async def _send_due(self) -> None:
        home, courier, now = self._agent.home, self._agent.router.courier, time.monotonic()
        if not self._wake.is_set() and home.audit.numbered_head == self._head and now < self._look_at:
            return
        self._wake.clear()
        self._head, self._look_at = home.audit.numbered_head, now + _IDLE_SECONDS
        peers = {name: card for name, card in home.peers().items() if courier.is_up(name)}
        if not peers:
            return
        due: dict[str, list[tuple[str, int, StudyFile | Standing]]] = {name: [] for name in peers}
        for study in (await asyncio.to_thread(known_studies, home)).values():
            if self._agent.name not in study.names:
                continue
            standing = home.decisions.standing(study) if home.config.policy.announce_decisions else None
            asked = set(self.invited(study.sha256))
            for party in study.members:
                if party.name == self._agent.name or not _is_pinned(peers.get(party.name), party.identity):
                    continue
                if party.name in asked and not self._has(party.name, study.sha256):
                    due[party.name].append((study.sha256, _INVITED, study))
                elif standing is not None:
                    due[party.name].append((study.sha256, standing.number, standing))
        for name, notices in due.items():
            if notices and name not in self._sending:  # each site in its own time: one that reads nothing delays no other
                self._sending[name] = False
                self._begin(self._send_all(peers[name], notices))
            elif notices:
                self._sending[name] = True

    async def _send_all(self, card: Card, notices: list[tuple[str, int, StudyFile | Standing]]) -> None:
        try:
            for study, number, content in notices:
                with contextlib.suppress(BlindbayesError, OSError):
                    await self._send(card, study, number, content)
        finally:
            if self._sending.pop(card.name):
                self.wake()

    def _has(self, site: str, study: str) -> bool:
        return (site, study) in self._delivered or site in self._answers.get(study, {})

    async def _send(self, card: Card, study: str, number: int, content: StudyFile | Standing) -> None:
        """Send the notice unless it was acknowledged or sent a moment ago. Retries continue, less and less often."""
        key, now = (card.name, study), time.monotonic()
        sent = self._sent.get(key)
        if sent is None or sent.number != number:
            sent = self._sent[key] = _Sent(number)
        if sent.heard or now < sent.again:
            self._look_at = self._look_at if sent.heard else min(self._look_at, sent.again)
            return
        sent.again, sent.tries = now + _RETRY[min(sent.tries, len(_RETRY) - 1)], sent.tries + 1
        self._look_at = min(self._look_at, sent.again)
        await self._transmit(card, Invitation(content.to_toml()) if isinstance(content, StudyFile) else content)

    async def _transmit(self, card: Card, content: Content) -> None:
        frame = seal_notice(self._agent.identity, card, content, Coins.system())
        with contextlib.suppress(PeerLost, TimeoutError):
            async with asyncio.timeout(_SENDING_SECONDS):
                await self._agent.router.courier.send(card.name, frame)

    # -- receiving -----------------------------------------------------------------------------------------------------

    def arrived(self, site: str, notice: Notice) -> None:
        """Process a notice from another site. Any content ends in one of our own errors, and errors are counted."""
        agent = self._agent
        try:
            # The courier brings frames of pinned sites alone.
            is_within = self._rates.setdefault(site, _Rate()).take(_BURST, _PER_SECOND)
            card = agent.home.peers().get(site) if is_within else None
            if card is None:
                agent.counters["notices_refused"] += 1
                return
            content = open_notice(agent.identity, card, notice)
            if isinstance(content, Standing) and agent.home.approvals.has_unread():
                self._begin(self._read_and_take(site, card, content))
            elif isinstance(content, Standing):
                self._take_standing(site, card, content)
            elif isinstance(content, Heard):
                self._take_heard(site, content)
            elif self._parsing[site] < _PARSING and self._may_invite(site):
                self._parsing[site] += 1
                self._begin(self._take_invitation(site, card, content))
            else:
                agent.counters["notices_refused"] += 1
        except (BlindbayesError, OSError) as error:
            self._refused(site, error)

    def _may_invite(self, site: str) -> bool:
        return self._invitations.setdefault(site, _Rate(_INVITATIONS)).take(_INVITATIONS, _INVITATIONS_PER_SECOND)

    def _refused(self, site: str, error: BaseException) -> None:
        self._agent.counters["notices_refused"] += 1
        if self._agent.router.courier.vouches(site):  # elsewhere anyone may have written that name
            log_event("notice_refused", level=logging.WARNING, site=site, error=error)

    async def _read_and_take(self, site: str, card: Card, standing: Standing) -> None:
        try:
            await asyncio.to_thread(known_studies, self._agent.home)  # parsing a long file takes seconds
            self._take_standing(site, card, standing)
        except (BlindbayesError, OSError) as error:
            self._refused(site, error)

    def _take_standing(self, site: str, card: Card, standing: Standing) -> None:
        agent = self._agent
        study = known_studies(agent.home).get(standing.study)
        if study is None or not _is_party(study, site, card) or study.at(standing.roster) is None:
            return  # it comes again once this site has the study
        known = self._answers.setdefault(study.sha256, {})
        before = known.get(site)
        is_old = before is not None and before.identity == card.identity.hex() and before.number >= standing.number
        if not is_old:
            when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            reason = shown(standing.reason)
            known[site] = Answer(card.identity.hex(), standing.roster, standing.state, reason, standing.number, when)
            self._store()
            if (sent := self._sent.get((site, study.sha256))) is not None and before is None:
                sent.again = 0.0  # it has the study now: what it could not place before goes again
            log_event("decision_heard", site=site, study=study.sha256)
            if standing.state in ("refused", "revoked"):
                agent.router.decline(site, standing.roster, sentence_of(msgspec.structs.replace(standing, reason=reason)))
        self._begin(self._transmit(card, Heard(study.sha256, standing.number)))
        self.wake()

    def decline_known(self, study: StudyFile) -> None:
        """Stop waiting for sites that are not connected and whose last decision was a refusal or revocation."""
        for site, answer in self._answers.get(study.sha256, {}).items():
            is_last = answer.state in ("refused", "revoked") and answer.roster == study.roster.sha256
            if is_last and site in study.names and not self._agent.router.courier.is_up(site):
                standing = Standing(study.sha256, answer.roster, answer.state, answer.reason, answer.number)
                self._agent.router.decline(site, answer.roster, sentence_of(standing))

    def _take_heard(self, site: str, heard: Heard) -> None:
        sent = self._sent.get((site, heard.study))
        if heard.number == _INVITED and site in self.invited(heard.study):
            self._delivered.add((site, heard.study))
        if sent is not None and sent.number == heard.number:
            sent.heard = True
            self.wake()

    async def _take_invitation(self, site: str, card: Card, invitation: Invitation) -> None:
        home = self._agent.home
        try:
            async with self._one_by_one:
                study = await asyncio.to_thread(parse_study, invitation.text, self._agent.name)
                if not _is_party(study, site, card):
                    raise ConfigError(f"{site} sent a study of which it is no party")
                if study.party(self._agent.name).identity != self._agent.identity.card.identity.hex():
                    raise ConfigError("the study names another identity for this site")
                if study.sha256 not in known_studies(home):
                    self._require_few(site)
                    await asyncio.to_thread(store_study, home, study)
                    home.audit.append("invitation", study=study.sha256, site=site, title=study.title[:80])
                    log_event("study_invited", site=site, study=study.sha256)
                    self._agent.notify("study", study.title, site, f"/studies/{study.sha256}")
                    self._agent.proposed_studies.pop(study.sha256, None)
            await self._transmit(card, Heard(study.sha256, _INVITED))
            self.wake()
        except (BlindbayesError, OSError) as error:
            self._refused(site, error)
        finally:
            self._parsing[site] -= 1

    def _require_few(self, site: str) -> None:
        """Raise if a site sent more invitations than people can read."""
        home = self._agent.home
        mine = [entry for entry in home.audit.where("event", "invitation") if entry["site"] == site]
        since = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        waiting = inbox(home)[0]
        undecided = [
            each for each in mine if (study := waiting.get(each["study"])) and home.decisions.standing(study).state == "waiting"
        ]
        if len(undecided) >= MAX_WAITING or sum(entry["time"] >= since for entry in mine) >= MAX_PER_DAY:
            raise ConfigError(f"{site} sent more invitations than this site takes at a time")

    def _store(self) -> None:
        known = set(known_studies(self._agent.home))
        self._answers = {study: each for study, each in self._answers.items() if study in known}
        if len(self._answers) <= 4 * MAX_STUDIES:
            write_whole(self._path, json.dumps(msgspec.to_builtins(self._answers), sort_keys=True).encode())


def _is_pinned(card: Card | None, identity: str) -> bool:
    return card is not None and card.identity.hex() == identity


def _is_party(study: StudyFile, site: str, card: Card) -> bool:
    """Return True if the site is a party of the study by the identity that is pinned here."""
    return site in study.names and study.party(site).identity == card.identity.hex()
