"""Attacks on a change of the roster, with changed software: a fork, an old roster played back, a puppet, another's key.

Each attack is whatever a deviating site can do with its own keys; honest agents do not answer, or end without opening anything.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes.agent.approvals.decisions import Approvals
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.signatures import SigningKey
from blindbayes.errors import ConfigError, PeerLost
from blindbayes.protocols import registry
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.roster import Change, Party
from blindbayes.testing.loopback import make_study_file
from blindbayes_papers.huai2015.oblivious_sum.session import KeySession
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER, ObliviousSumSetup
from support.consortium import Consortium, office
from support.sites import bounded

SHORT = Deadlines(step=1.0, join=1.2, run=5)


def force(home: Any, study: StudyFile) -> None:
    """Changed software: this site approves whatever its people want, signed or not, older or not."""

    def anything(self: Approvals, given: StudyFile) -> None:
        return None

    real, Approvals.require_next = Approvals.require_next, anything  # type: ignore[method-assign]
    unsigned, StudyFile.require_changes = StudyFile.require_changes, lambda self: None  # type: ignore[method-assign]
    try:
        home.approvals.approve(study, runs=1000)
        assert home.approvals.find(study.sha256) is not None
    finally:
        Approvals.require_next, StudyFile.require_changes = real, unsigned  # type: ignore[method-assign]


def opened(club: Consortium, run_id: str, *, but: str) -> list[str]:
    """Honest sites whose log says that anything of theirs left in a run."""
    names = [name for name in club.office.net.sites if name != but]
    return [name for name in names if any(e["event"] == "vector left" for e in club.home(name).history.entries_of(run_id))]


async def attack(club: Consortium, by: str) -> Any:
    run = club.office.agents[by].begin(club.study.sha256)
    await run.done.wait()
    assert isinstance(run.error, PeerLost)
    assert opened(club, run.run_id, but=by) == []
    return run


@pytest.mark.parametrize("how", ["a puppet", "an old roster", "a fork"])
def test_a_roster_that_others_did_not_approve_gets_no_answer(tmp_path: Path, how: str) -> None:
    async def test() -> None:
        async with office(tmp_path) as here:
            club = Consortium(here, ("north", "south", "west"), deadlines=SHORT)
            founded = club.study
            if how == "an old roster":
                club.change(add=("east",))
                bad = founded  # without east, whose vector would follow from the difference
            elif how == "a puppet":
                bad = founded.change(Change(founded.roster.sha256, (club.party("centre"),)))
                for name in ("north", "centre"):
                    bad = bad.sign_change(name, here.net.sites[name].identity.signing)
                with pytest.raises(ConfigError, match="not signed by south, west"):
                    club.home("south").approvals.approve(bad)
            else:
                bad = founded.change(Change(founded.roster.sha256, (club.party("centre"),), ("west",)))
                bad = bad.sign_change("north", here.net.sites["north"].identity.signing)
                club.change(add=("east",))
            force(club.home("north"), bad)
            await attack(club, "north")
            silent = [name for name in ("south", "west") if here.agents[name].runs]
            assert silent == []  # not one joined

    bounded(test, 60)


def test_a_run_of_another_roster_leaves_no_session_even_to_one_who_is_in_both(tmp_path: Path) -> None:
    """North runs the new roster, south still the old one: neither computes, and each names the other's silence."""

    async def test() -> None:
        async with office(tmp_path) as here:
            club = Consortium(here, ("north", "south", "west"), deadlines=SHORT)
            change = Change(club.study.roster.sha256, (club.party("east"),))
            grown = club.study.change(change)
            for name in grown.roster.signers:
                grown = grown.sign_change(name, here.net.sites[name].identity.signing)
            for name in ("north", "east"):
                club.home(name).approvals.approve(grown, runs=10)
            run = here.agents["north"].begin(club.study.sha256)
            await run.done.wait()
            assert isinstance(run.error, PeerLost)
            assert grown.roster.sha256 in here.agents["south"].proposed_studies  # its people see what it is asked for

    bounded(test, 60)


def test_a_newcomer_with_another_sites_standing_key_is_refused_everywhere(tmp_path: Path) -> None:
    """A newcomer that shows another's key as its own, and a roster that names a newcomer's key for an honest site."""

    async def test() -> None:
        async with office(tmp_path) as here:
            club = Consortium(here, ("north", "south", "west"), deadlines=SHORT)
            for name, key in (("east", "south"), ("south", "east")):
                added = msgspec.structs.replace(club.party("east"), key=club.party(key).key)
                parties = tuple(
                    msgspec.structs.replace(each, key=club.party(key).key) if each.name == name else each
                    for each in (*map(club.party, ("north", "south", "west")), added if name == "east" else club.party("east"))
                )
                bad = here.net.make_study(
                    club.study.book,
                    parties=parties,
                    protocol="oblivious_sum",
                    options=club.study.options,
                    hosts={"miner": "north"},
                    privacy=club.study.privacy,
                    limits=club.study.study.limits,
                )
                for each in ("north", "south", "west"):
                    with pytest.raises(ConfigError, match="pinned here is not the one in the study"):
                        here.agents[each].require_party(bad)

    bounded(test, 60)


def test_no_key_of_whoever_is_not_in_a_roster_is_in_its_masks() -> None:
    """Who leaves cannot open what is sent later, who comes not what was sent before, whatever the miner tells them."""
    protocol, coins = registry.load("oblivious_sum"), Coins.seeded(bytes(32))
    inside, outside = ("alfa", "bravo", "charlie"), "delta"
    runs = local_runs((*inside, outside, MINER), coins=coins)
    options = {"scheme": "ristretto", "keys": "standing"}
    for steps in ((), ((outside, True), (outside, False))):
        setting = registry.SumSetup(inside, 1, bound=1000, options=options, founders=inside, steps=steps)
        roster = {name: replace(runs[name], parties=(*inside, MINER)) for name in (*inside, MINER)}
        vectors = {name: np.array([at + 1], np.uint64) for at, name in enumerate(inside)}
        outcome = run_in_memory(registry.simulate_roles(protocol, roster, setting, vectors, coins))
        assert outcome.outputs[MINER].words.tolist() == [6]
        for name in inside:
            terms = ObliviousSumSetup(roster[name], setting)
            session = KeySession(terms, terms.scheme(None), coins)
            session.stand()
            assert set(session._channels) == {*inside, MINER} - {name}


def test_signing_two_changes_of_one_roster_needs_a_word_that_one_is_dropped(tmp_path: Path) -> None:
    from blindbayes.cli.commands.study_roster import sign_change

    async def test() -> None:
        async with office(tmp_path, ("north", "south", "west", "east", "centre")) as here:
            club = Consortium(here, ("north", "south", "west"))
            site = here.net.sites["south"]
            first, second = (
                club.study.change(Change(club.study.roster.sha256, (club.party(name),))) for name in ("east", "centre")
            )
            sign_change(site.home, site.identity, first, instead=False)
            sign_change(site.home, site.identity, first, instead=False)  # once more: the same
            with pytest.raises(ConfigError, match="two futures"):
                sign_change(site.home, site.identity, second, instead=False)
            sign_change(site.home, site.identity, second, instead=True)

    bounded(test)


def test_a_forged_signature_of_a_member_is_refused() -> None:
    from blindbayes.net.identity import Identity
    from support.sites import BOOK

    sites = {name: Identity.generate(name) for name in ("north", "south", "west", "eve")}
    parties = tuple(Party(name, sites[name].card.identity.hex()) for name in ("north", "south", "west"))
    study = make_study_file(title="t", parties=parties, codebook=BOOK, hosts={"server": "north"})
    bad = study.change(Change(study.sha256, (Party("eve", sites["eve"].card.identity.hex()),)))
    for name in ("north", "eve"):
        bad = bad.sign_change(name, sites[name].signing)
    forged = SigningKey.generate(Coins.system()).sign(bad.roster.payload("south")).hex()
    signatures = {**bad.changes[0].signatures, "south": forged, "west": forged}
    bad = msgspec.structs.replace(bad, changes=(msgspec.structs.replace(bad.changes[0], signatures=signatures),))
    with pytest.raises(ConfigError, match="signature of south"):
        bad.require_changes()
