"""The way of frames between the courier and the links of all runs.

A role is a party of a protocol; a site hosts one or more of them (a contributor and, say, the server of a secure sum). Two
roles of one site use the same envelope as all others, without leaving the process. An offer for an unknown run is handed to
`unknown_offer`, a notice to `notice_arrived`; any other unknown frame is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from blindbayes.errors import PeerProtocolError
from blindbayes.net.courier import Courier
from blindbayes.net.envelope import Ended, Notice, Offer, Refused, unpack
from blindbayes.net.events import log_event
from blindbayes.net.link import Link
from blindbayes.net.versions import ENVELOPE


@dataclass(frozen=True, slots=True)
class Route:
    """The route from one role of this site to another site; that to the own site stays in the process."""

    router: Router
    site: str
    role: str

    async def send(self, frame: bytes) -> None:
        if self.site == self.router.site:
            asyncio.get_running_loop().call_soon(self.router.frame_arrived, self.site, frame)
            await asyncio.sleep(0)
        else:
            await self.router.courier.send(self.site, frame)

    def is_up(self) -> bool:
        return self.site == self.router.site or self.router.courier.is_up(self.site)

    def vouches(self) -> bool:
        return self.site == self.router.site or self.router.courier.vouches(self.site)

    def listen(self, session: bytes, link: Link | None) -> None:
        if link is None:
            self.router.sessions.pop((session, self.role), None)
        else:
            self.router.sessions[session, self.role] = (self.site, link)

    def note_versions(self, versions: Mapping[str, str]) -> None:
        self.router.versions[self.site] = versions


_MAX_UNKNOWN = 8  # a frame of another version may have been garbled on the way


class Router:
    """A courier's listener that knows the links of all runs of this site."""

    def __init__(
        self,
        site: str,
        courier: Courier,
        *,
        unknown_offer: Callable[[str, Offer], None] | None = None,
        notice_arrived: Callable[[str, Notice], None] | None = None,
    ) -> None:
        self.site = site
        self.courier = courier
        self.refused_frames: dict[str, int] = {}  # by site, for the metrics
        self.versions: dict[str, Mapping[str, str]] = {}  # what other sites run, as they said
        self.connected: Callable[[str], None] = lambda site: None  # called when a site comes up
        self._unknown_offer = unknown_offer
        self._notice_arrived = notice_arrived
        self._links: dict[tuple[str, str, str], tuple[str, Link]] = {}  # (run, own role, peer) -> the peer's site, link
        self.sessions: dict[tuple[bytes, str], tuple[str, Link]] = {}  # (session, own role) -> the peer's site, link

    def route(self, site: str, role: str = "") -> Route:
        return Route(self, site, role)

    def attach(self, site: str, link: Link) -> None:
        """Deliver frames from `site` to `link` if they are for its pair of roles."""
        self._links[link.pair.run_id, link.pair.me, link.pair.peer] = (site, link)

    def detach(self, run_id: str) -> None:
        for key in [key for key in self._links if key[0] == run_id]:
            del self._links[key]
        for session in [session for session, (_, link) in self.sessions.items() if link.pair.run_id == run_id]:
            del self.sessions[session]

    def decline(self, site: str, study: str, reason: str) -> None:
        """Stop waiting for a site that has not joined: its staff declined the study."""
        for host, link in list(self._links.values()):
            if host == site and link.pair.study == study:
                link.decline(reason)

    # -- the courier's listener --------------------------------------------------------------------------------------

    def frame_arrived(self, sender: str, frame: bytes) -> None:
        try:
            envelope = unpack(frame, sender=sender)
        except PeerProtocolError:
            self.refused_frames[sender] = self.refused_frames.get(sender, 0) + 1
            self._another_version(sender, frame)
            return
        if isinstance(envelope, Notice):
            if self._notice_arrived is not None:
                self._notice_arrived(sender, envelope)
            return
        if isinstance(envelope, Offer | Ended | Refused):
            target = self._links.get((envelope.run_id, envelope.receiver, envelope.sender))
            if target is None and isinstance(envelope, Offer) and self._unknown_offer is not None:
                self._unknown_offer(sender, envelope)
        else:
            target = self.sessions.get((envelope.session, envelope.receiver))
        if target is not None and target[0] == sender:
            target[1].accept(envelope, len(frame))

    def _another_version(self, sender: str, frame: bytes) -> None:
        """Refuse a site whose envelopes have another version at once: it would never join."""
        if frame and frame[0] != ENVELOPE and self.courier.vouches(sender):
            self.versions[sender] = {"envelope": str(frame[0])}
            if self.refused_frames[sender] >= _MAX_UNKNOWN:
                why = f"speaks envelope version {frame[0]}, this site {ENVELOPE}: use one release of blindbayes at all sites"
                for site, link in list(self._links.values()):
                    if site == sender:
                        link.refuse(why)

    def peer_up(self, peer: str) -> None:
        log_event("site_up", site=peer)
        self.connected(peer)
        for site, link in list(self._links.values()):
            if site == peer:
                link.up()

    def peer_down(self, peer: str) -> None:
        log_event("site_down", site=peer)
        for site, link in list(self._links.values()):
            if site == peer:
                link.down()
