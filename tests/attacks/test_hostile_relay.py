"""A relay, or an engine that carries, which writes names of its choice on frames of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.transport.envelope import EnvelopePair, Offer, pack
from support.sites import BOOK, Office, bounded


def test_a_relay_proposes_no_study_in_a_sites_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen made-up hashes stood on the people's screen as south's, and left no room for what south did propose."""

    async def attack() -> None:
        async with Office(tmp_path, ("north", "south", "west")) as office:
            south, north = office.net.sites["south"], office.agents["north"]
            monkeypatch.setattr(type(north.board.courier), "vouches", lambda courier, peer: False)
            for number in range(16):
                forged = Offer(f"{number:064x}", "ab" * 16, "south", "north", bytes(32), bytes(64))
                north.board.frame_arrived("south", pack(forged))
            assert north.proposed_studies == {}
            study = office.net.make_study(BOOK)
            pair = EnvelopePair(study.sha256, "cd" * 16, "south", "north", north.identity.card.identity, south.identity.signing)
            own = pair.offer(own_key())
            north.board.frame_arrived("west", pack(own))  # under another's name
            north.board.frame_arrived("south", pack(dataclasses.replace(pair, study="ef" * 32).offer(own_key())))
            north.board.frame_arrived("south", pack(own))
            assert north.proposed_studies == {"ef" * 32: "south", study.sha256: "south"}

    bounded(attack)


def test_a_relay_says_of_no_site_what_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def attack() -> None:
        async with Office(tmp_path, ("north", "south", "west")) as office:
            board = office.agents["north"].board
            for vouches in (False, True):
                monkeypatch.setattr(type(board.courier), "vouches", lambda courier, peer, known=vouches: known)
                board.frame_arrived("south", b"\x09nonsense")
                assert ("south" in board.versions) == vouches

    bounded(attack)


def own_key() -> AgreementKey:
    return AgreementKey.generate(Coins.system())
