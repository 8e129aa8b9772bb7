"""A study outlives its roster: changes are signed, chained and approved; whoever forks, replays or pads it gets nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.agent.approvals.decisions import Approvals
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Identity
from blindbayes.study.file import Limits, Privacy, StudyFile
from blindbayes.study.roster import Change, Party
from blindbayes.testing.loopback import make_study_file
from support.sites import BOOK

SITES = {name: Identity.generate(name) for name in ("north", "south", "west", "east", "eve")}
FOUNDERS = ("north", "south", "west")


def party(name: str, **fields: Any) -> Party:
    card = SITES[name].card
    return Party(name, card.identity.hex(), key=card.key, **fields)


def founded(**fields: Any) -> StudyFile:
    given = {"privacy": Privacy(epsilon=1.0), "limits": Limits(min_parties=2, quorum=None), **fields}
    parties = tuple(map(party, FOUNDERS))
    return make_study_file(title="living", parties=parties, codebook=BOOK, hosts={"server": "north"}, **given)


def changed(study: StudyFile, *, signers: tuple[str, ...] | None = None, **fields: Any) -> StudyFile:
    found = study.change(Change(study.roster.sha256, **fields))
    for name in found.roster.signers if signers is None else signers:
        found = found.sign_change(name, SITES[name].signing)
    return found


def approvals(folder: Path) -> Approvals:
    return Approvals(folder / "approved", AuditLog(folder / "audit.log"))


def test_the_study_keeps_its_hash_and_every_roster_has_one_of_its_own() -> None:
    study = founded()
    grown = changed(study, add=(party("east"),))
    shrunk = changed(grown, remove=("west",), party_rows=None)
    assert study.sha256 == grown.sha256 == shrunk.sha256 == study.roster.sha256
    assert len({study.roster.sha256, grown.roster.sha256, shrunk.roster.sha256}) == 3
    assert grown.names == ("north", "south", "west", "east")
    assert shrunk.names == ("north", "south", "east")
    assert shrunk.agreement.steps == (("east", True), ("west", False))
    again = StudyFile.from_text(shrunk.to_toml())
    assert again == shrunk
    again.require_changes()
    assert again.at(study.roster.sha256) == study
    assert again.at("0" * 64) is None


def test_a_study_that_never_changed_has_the_hash_that_it_always_had() -> None:
    study = founded()
    assert b"changes" not in study.canonical()
    assert study.roster.sha256 == study.sha256


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "changes nothing"),
        ({"remove": ("east",)}, "not a party of the study now"),
        ({"add": (party("north"),)}, "twice"),
        ({"add": (party("east"), party("east"))}, "twice"),
        ({"add": (Party("east", SITES["north"].card.identity.hex()),)}, "another site of this study"),
        ({"add": (Party("west", SITES["eve"].card.identity.hex()),)}, "another site of this study"),
        ({"add": (Party("Eve!", SITES["eve"].card.identity.hex()),)}, "not a site's name"),
        ({"remove": ("north",)}, "hosts a role"),
        ({"hosts": {"server": "eve"}}, "hosts a role"),
        ({"hosts": {"oracle": "south"}}, "no role"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        changed(founded(), **fields, signers=())


def test_a_role_moves_with_the_change_in_which_its_host_leaves() -> None:
    study = changed(founded(), add=(party("east"),), remove=("north",), hosts={"server": "east"})
    assert study.host("server") == "east"


def test_who_left_may_come_back_under_its_own_identity_only() -> None:
    gone = changed(changed(founded(), add=(party("east"),)), remove=("west",))
    assert changed(gone, add=(party("west"),)).names[-1] == "west"
    with pytest.raises(ConfigError, match="has or had"):
        changed(gone, add=(Party("west", SITES["eve"].card.identity.hex()),))


@pytest.mark.parametrize("missing", ["north", "south", "west", "east"])
def test_every_member_that_stays_and_every_newcomer_signs(missing: str, tmp_path: Path) -> None:
    signers = tuple(name for name in (*FOUNDERS, "east") if name != missing)
    unsigned = changed(founded(), add=(party("east"),), signers=signers)
    with pytest.raises(ConfigError, match=f"not signed by {missing}"):
        unsigned.require_changes()
    with pytest.raises(ConfigError, match=f"not signed by {missing}"):
        approvals(tmp_path).approve(unsigned)


def test_whoever_leaves_need_not_sign_and_a_study_may_name_those_who_do() -> None:
    assert changed(founded(), remove=("west",)).roster.signers == ("north", "south")
    ruled = changed(founded(changed_by=("south",)), add=(party("east"),))
    assert ruled.roster.signers == ("south", "east")
    headless = changed(changed(ruled, hosts={"server": "west"}), remove=("south",))
    assert headless.roster.signers == ("north", "west", "east")  # nobody of the rule is left: everybody
    assert founded(changed_by=("south",)).sha256 != founded().sha256


def test_a_signature_of_another_change_does_not_count() -> None:
    first = changed(founded(), add=(party("east"),))
    other = founded().change(Change(founded().sha256, add=(party("eve"),), signatures=first.changes[0].signatures))
    with pytest.raises(ConfigError, match="is not of change 1"):
        other.require_changes()


def test_an_approved_roster_is_never_exchanged_for_an_older_or_another_one(tmp_path: Path) -> None:
    home, study = approvals(tmp_path), founded()
    grown = changed(study, add=(party("east"),))
    home.approve(study, runs=5)
    home.approve(grown)
    assert home.find(study.sha256) == (grown, 5)  # a new roster alone allows no further run
    assert home.find_roster(grown.roster.sha256) is not None
    assert home.find_roster(study.roster.sha256) is None
    with pytest.raises(ConfigError, match="older roster"):
        home.approve(study, runs=1)
    fork = changed(study, add=(party("eve"),))
    with pytest.raises(ConfigError, match="two futures, and north, south, west signed both"):
        home.approve(fork)
    longer_fork = changed(fork, remove=("west",))
    with pytest.raises(ConfigError, match="two futures"):
        home.approve(longer_fork)
    home.approve(changed(grown, remove=("west",)), runs=2)
    assert home.find(study.sha256) is not None


def test_an_older_file_in_the_folder_counts_as_not_approved(tmp_path: Path) -> None:
    home, study = approvals(tmp_path), founded()
    home.approve(study, runs=5)
    old = (tmp_path / "approved" / f"{study.sha256}.toml").read_bytes()
    home.approve(changed(study, add=(party("east"),)))
    (tmp_path / "approved" / f"{study.sha256}.toml").write_bytes(old)
    assert approvals(tmp_path).find(study.sha256) is None
    assert approvals(tmp_path).all() == []


def test_a_change_in_the_folder_that_nobody_signed_counts_as_not_approved(tmp_path: Path) -> None:
    home, study = approvals(tmp_path), founded()
    home.approve(study, runs=5)
    padded = changed(study, add=(party("eve"),), signers=("eve",))
    (tmp_path / "approved" / f"{study.sha256}.toml").write_text(padded.to_toml())
    assert home.find(study.sha256) is None
    assert home.find_roster(padded.roster.sha256) is None


def test_a_chain_with_a_link_taken_out_is_broken() -> None:
    study = changed(changed(founded(), add=(party("east"),)), remove=("west",))
    with pytest.raises(ConfigError, match="chain is broken"):
        msgspec.structs.replace(study, changes=study.changes[1:])


def test_a_study_over_columns_keeps_its_roster() -> None:
    from blindbayes.study.agreement import Holdings

    holds = {"north": ("colour",), "south": ("age",), "west": ()}
    given = {"kind": "columns", "protocol": "class_sums", "columns": Holdings(holds, ("west",), 10)}
    parties = tuple(map(party, FOUNDERS))
    book = msgspec.structs.replace(BOOK, variance_floor=0.1)
    study = make_study_file(title="columns", parties=parties, codebook=book, **given)
    with pytest.raises(ConfigError, match="only sums over rows"):
        study.change(Change(study.sha256, remove=("west",)))
