"""A relay, or an engine that carries, which writes names of its choice on frames of its own."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import IntegrityError, PeerLost
from blindbayes.net.envelope import EnvelopePair, Offer, Sealed, pack
from blindbayes.net.versions import ENVELOPE
from blindbayes.protocols.core import Role, Run, receive
from blindbayes.wire import Message, Trust
from support.mesh import Mesh, Site
from support.sites import BOOK, Office, bounded


class Nothing(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.CLEAR


def test_a_relay_proposes_no_study_in_a_sites_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen made-up hashes stood on the people's screen as south's, and left no room for what south did propose."""

    async def attack() -> None:
        async with Office(tmp_path, ("north", "south", "west")) as office:
            south, north = office.net.sites["south"], office.agents["north"]
            monkeypatch.setattr(type(north.router.courier), "vouches", lambda courier, peer: False)
            for number in range(16):
                forged = Offer(f"{number:064x}", "ab" * 16, "south", "north", bytes(32), bytes(64))
                north.router.frame_arrived("south", pack(forged))
            assert north.proposed_studies == {}
            study = office.net.make_study(BOOK)
            pair = EnvelopePair(study.sha256, "cd" * 16, "south", "north", north.identity.card.identity, south.identity.signing)
            own = pair.offer(own_key())
            north.router.frame_arrived("west", pack(own))  # under another's name
            north.router.frame_arrived("south", pack(dataclasses.replace(pair, study="ef" * 32).offer(own_key())))
            north.router.frame_arrived("south", pack(own))
            assert north.proposed_studies == {"ef" * 32: "south", study.sha256: "south"}

    bounded(attack)


def test_a_relay_says_of_no_site_what_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def attack() -> None:
        async with Office(tmp_path, ("north", "south", "west")) as office:
            board = office.agents["north"].router
            for vouches in (False, True):
                monkeypatch.setattr(type(board.courier), "vouches", lambda courier, peer, known=vouches: known)
                board.frame_arrived("south", b"\x09nonsense")
                assert ("south" in board.versions) == vouches

    bounded(attack)


def waits(run: Run, coins: Coins) -> Role[None]:
    yield from receive(run.others[0], Nothing)


@pytest.mark.parametrize("vouches", [False, True])
def test_a_relay_that_garbles_frames_does_not_have_their_sender_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vouches: bool
) -> None:
    """A failed check that names a site is an accusation: over its own connection only."""

    async def attack() -> None:
        mesh = Mesh(tmp_path, ("north", "south"))
        sites = {name: Site(mesh, name, waits) for name in mesh.names}
        board = sites["north"].board
        monkeypatch.setattr(type(board.courier), "vouches", lambda courier, peer: vouches)
        tasks = {name: asyncio.create_task(site.go()) for name, site in sites.items()}
        link = sites["north"].links["south"]
        while link.failure is None:
            if link._current is not None:
                frame = Sealed("run-1", "north", link._current.id, 1 << 40, "beat", 0, 0, 1, b"", memoryview(bytes(64)))
                board.frame_arrived("south", bytes([ENVELOPE]) + msgspec.msgpack.encode(frame))
            await asyncio.sleep(0.01)
        with pytest.raises(IntegrityError if vouches else PeerLost) as caught:
            await tasks["north"]
        assert caught.value.party == "south"
        for site in sites.values():
            await site.stop()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    bounded(attack)


def own_key() -> AgreementKey:
    return AgreementKey.generate(Coins.system())
