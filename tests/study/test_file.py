"""The study file: one hash for one agreement."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.net.identity import Identity
from blindbayes.study.fields import Estimation
from blindbayes.study.file import Deadlines, Limits, Party, Privacy, StudyFile
from blindbayes.testing.loopback import make_study_file

SITES = {name: Identity.generate(name) for name in ("north", "south", "west")}
BOOK = Codebook("class", ("a", "b"), (Categorical("colour", ("red", "blue")), Numeric("age", 0, 120)))


def make(**changes: Any) -> StudyFile:
    parties = tuple(Party(name, site.card.identity.hex()) for name, site in SITES.items())
    fields: dict[str, Any] = {"title": "test", "parties": parties, "codebook": BOOK, "hosts": {"server": "north"}}
    return make_study_file(**{**fields, **changes})


def test_a_study_survives_its_file(tmp_path: Path) -> None:
    study = make(
        privacy=Privacy(epsilon=1),
        limits=Limits(min_rows=10),
        deadlines=Deadlines(step=5, join=10, run=60),
        options={"publish": True},
    )
    path = tmp_path / "study.toml"
    path.write_text(study.to_toml())
    again = StudyFile.from_toml(path)
    assert again == study
    assert again.sha256 == study.sha256
    assert again.book == BOOK
    assert again.roles == ("north", "south", "west", "server")
    assert again.host("server") == "north"
    assert again.host("south") == "south"
    assert again.identity("server") == SITES["north"].card.identity


def test_comments_and_signatures_do_not_change_the_hash() -> None:
    study = make()
    signed = study.sign("north", SITES["north"].signing).sign("west", SITES["west"].signing)
    assert signed.sha256 == study.sha256
    assert StudyFile.from_text("# a comment\n" + signed.to_toml()).require_signatures() == ("north", "west")


@pytest.mark.parametrize(
    "change",
    [
        {"title": "other"},
        {"protocol": "ring_sum", "hosts": {}},
        {"hosts": {"server": "south"}},
        {"deadlines": Deadlines(step=61)},
        {"limits": Limits(min_rows=1)},
        {"privacy": Privacy(epsilon=2.0)},
        {"codebook": BOOK.with_features(BOOK.features[:1])},
        {"options": {"publish": False}},
    ],
)
def test_everything_agreed_changes_the_hash(change: dict[str, Any]) -> None:
    assert make(**change).sha256 != make().sha256


def test_a_signature_counts_for_its_party_and_study_only() -> None:
    signed = make().sign("north", SITES["north"].signing)
    moved = msgspec.structs.replace(signed, signatures={"south": signed.signatures["north"]})
    with pytest.raises(ConfigError, match="signature of south"):
        moved.require_signatures()
    changed = msgspec.structs.replace(signed, title="other")
    with pytest.raises(ConfigError, match="has the file changed"):
        StudyFile.from_text(changed.to_toml()).require_signatures()
    with pytest.raises(ConfigError, match="another identity"):
        make().sign("south", SITES["north"].signing)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hosts": {}}, "who hosts"),
        ({"hosts": {"server": "east"}}, "not a party"),
        ({"hosts": {"server": "north", "miner": "north"}}, "no role"),
        ({"protocol": "magic"}, "there is no protocol"),
        ({"signatures": {"east": "00"}}, "not a party"),
        ({"parties": (Party("north", "00"),)}, "64 hexadecimal"),
    ],
)
def test_a_study_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, PrivacyError), match=message):
        make(**change)


def test_an_exact_sum_of_two_is_refused_by_the_file_already() -> None:
    parties = tuple(Party(name, SITES[name].card.identity.hex()) for name in ("north", "south"))
    with pytest.raises(PrivacyError, match="at least 3"):
        make(parties=parties)
    assert make(parties=parties, privacy=Privacy(epsilon=1.0), limits=Limits(min_parties=2, quorum=2)).setting.noisy


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ConfigError, match="surprise"):
        StudyFile.from_text(make().to_toml().replace('title = "test"', 'title = "test"\nsurprise = 1'))


def test_a_party_without_rows_hosts_by_default() -> None:
    study = make()
    parties = (*study.parties, Party("office", Identity.generate("office").card.identity.hex(), contributes=False))
    assert StudyFile.make(study.study, "hosts", parties).hosts == {"server": "office"}
    assert StudyFile.make(study.study, "hosts", study.parties).hosts == {"server": "north"}
    assert StudyFile.make(study.study.replace(protocol="ring_sum"), "hosts", study.parties).hosts == {}


def test_a_floor_is_part_of_the_study(tmp_path: Path) -> None:
    study = make(privacy=Privacy(epsilon=1.0), limits=Limits(min_cell=5))
    text = study.to_toml()
    assert "min_cell = 5 # cells of fewer rows" in text
    assert StudyFile.from_text(text) == study
    assert study.study.limits.min_cell == 5
    assert study.sha256 != make(privacy=Privacy(epsilon=1.0)).sha256
    with pytest.raises(ConfigError, match="at least 3"):
        make(limits=Limits(min_cell=2))


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"options": {"publish": False}}, True),
        ({"options": {"publish": "many"}}, False),
        ({"options": {"neighbours": 2}}, False),
        ({"options": {"surprise": 1}}, False),
        ({"protocol": "ring_sum", "hosts": {}}, True),
        ({"protocol": "ring_sum", "hosts": {}, "options": {"cycles": "two"}}, False),
        ({"protocol": "chain_sum", "hosts": {"builder": "north"}}, True),
        ({"protocol": "chain_sum", "hosts": {"builder": "north"}, "options": {"key_bits": "long"}}, False),
    ],
)
def test_options_that_the_protocol_cannot_work_with_are_refused_before_approval(change: dict[str, Any], fits: bool) -> None:
    if fits:
        assert make(**change).study.params is not None
    else:
        with pytest.raises(ConfigError, match=r"option|cycles|key_bits|neighbours"):
            make(**change)


def test_a_file_names_no_setting_that_earlier_releases_cannot_read_unless_it_is_used(tmp_path: Path) -> None:
    plain, weighed = make(), make(estimation=Estimation(class_weight={BOOK.classes[0]: 2.0}))

    def read(study: StudyFile) -> StudyFile:
        (tmp_path / "study.toml").write_text(study.to_toml())
        return StudyFile.from_toml(tmp_path / "study.toml")

    assert "class_weight" not in plain.to_toml()
    assert "class_weight" in weighed.to_toml()
    assert [read(each).sha256 for each in (plain, weighed)] == [plain.sha256, weighed.sha256]


def test_a_study_of_many_parties_is_checked_and_searched_in_linear_time() -> None:
    def seconds(count: int) -> float:
        parties = tuple(Party(f"site{at}", f"{at:064x}") for at in range(count))
        begun = time.process_time()
        study = make(parties=parties, hosts={"server": "site0"})
        assert [study.party(name).name for name in study.names] == [party.name for party in parties]
        return time.process_time() - begun

    few, many = (min(seconds(count) for _ in range(3)) for count in (1_000, 16_000))
    assert many < 40 * few  # by the square it would be 256 times
