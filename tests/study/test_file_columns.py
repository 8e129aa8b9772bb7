"""Study files over columns: who holds what stands in the file, and whatever does not fit is refused with the next step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.net.identity import Identity
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Party, Privacy, StudyFile
from blindbayes.study.tasks.aligned import AlignedTask
from blindbayes.study.tasks.joined import JoinedTask
from blindbayes.testing.loopback import make_study_file

SITES = {name: Identity.generate(name) for name in ("hospital", "insurer")}
PARTIES = tuple(Party(name, site.card.identity.hex()) for name, site in SITES.items())
BOOK = Codebook(
    "class", ("a", "b"), (Categorical("colour", ("red", "blue")), Numeric("age", 0, 120)), max_rows=1000, variance_floor=0.1
)
HELD = Holdings({"hospital": ("age",), "insurer": ("colour",)}, ("hospital",), 100)


def make(**changes: Any) -> StudyFile:
    fields: dict[str, Any] = {"title": "test", "parties": PARTIES, "codebook": BOOK, "kind": "columns"}
    return make_study_file(**{**fields, "protocol": "class_sums", "columns": HELD, "options": {"queries": 50}, **changes})


def unaligned(**changes: Any) -> StudyFile:
    bounds = {"hospital": 4096, "insurer": 4096}
    held = Holdings(HELD.holds, ("hospital",))
    fields: dict[str, Any] = {"protocol": "joined_sums", "kind": "join", "key": ("id",), "columns": held}
    return make(**{**fields, "options": {"bounds": bounds, "queries": 50}, **changes})


@pytest.mark.parametrize(
    "study",
    [
        make(reveal_to="insurer"),
        unaligned(duplicates="first"),
        make(privacy=Privacy(label_epsilon=2)),
        make(privacy=Privacy(epsilon=1, expected_rows=100_000, label_epsilon=False)),
    ],
    ids=["aligned", "unaligned", "randomised labels", "labels as they are"],
)
def test_a_study_over_columns_survives_its_file(study: StudyFile) -> None:
    again = StudyFile.from_text(study.to_toml())
    assert again == study
    assert again.sha256 == study.sha256
    assert again.roles == ("hospital", "insurer")
    assert isinstance(again.task, AlignedTask if again.study.aligned else JoinedTask)
    assert again.study == study.study
    assert again.study.sha256 == study.study.sha256


def test_labels_are_randomised_by_a_number_or_not_at_all() -> None:
    for wrong in (True, 0, 20):
        with pytest.raises((ConfigError, PrivacyError), match="label_epsilon"):
            make(privacy=Privacy(label_epsilon=wrong)).study  # noqa: B018


def test_everything_agreed_changes_the_hash() -> None:
    others = [make(reveal_to="hospital"), make(columns=Holdings(HELD.holds, ("insurer",), 100)), make(options={"queries": 51})]
    others += [make(columns=Holdings(HELD.holds, HELD.labelled, 99)), unaligned(), unaligned(duplicates="reject")]
    assert len({study.sha256 for study in [make(), *others]}) == len(others) + 1


def test_a_field_at_its_default_is_not_in_the_hash() -> None:
    text = make().canonical().decode()
    assert "duplicates" not in text
    assert "reveal_to" not in text
    assert "deadlines" not in text
    assert "class_sums" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": None}, "who holds what"),
        ({"columns": Holdings({"hospital": ("age",), "insurer": ()}, ("hospital",), 100)}, "held by no party"),
        (
            {"columns": Holdings({"hospital": ("age", "colour"), "insurer": ("colour",)}, ("hospital",), 100)},
            "held by hospital",
        ),
        ({"columns": Holdings({"hospital": ("age", "colour"), "insurer": ()}, ("hospital",), 100)}, "brings no column"),
        ({"columns": Holdings({"hospital": ("age", "colour")}, ("hospital",), 100)}, "what does insurer hold"),
        ({"columns": Holdings({**HELD.holds, "bank": ()}, ("hospital",), 100)}, "'bank', who is not a party"),
        ({"columns": Holdings({"hospital": ("height",), "insurer": ("colour",)}, ("hospital",), 100)}, "'height'"),
        ({"columns": Holdings(HELD.holds, (), 100)}, "who has the class"),
        ({"columns": Holdings(HELD.holds, ("bank",), 100)}, "names parties"),
        ({"columns": Holdings(HELD.holds, ("hospital",))}, "how many rows"),
        ({"columns": Holdings(HELD.holds, ("hospital",), 1001)}, "max_rows"),
        ({"codebook": msgspec.structs.replace(BOOK, variance_floor=None)}, "needs variance_floor"),
        ({"reveal_to": "bank"}, "'bank' is not one"),
        ({"options": {"speed": 3}}, "'speed'"),
        ({"options": {"queries": "many"}}, "queries"),
        ({"options": {"queries": True}}, "queries"),
        ({"protocol": "masked_sum"}, "no columns protocol"),
        ({"protocol": "private_ratio"}, "no columns protocol"),
        ({"kind": "join"}, "is for rows that line up"),
        ({"hosts": {"server": "hospital"}}, "no role 'server' to host"),
        ({"options": {"audit_rate": 0.7}}, "audit_rate"),
        ({"privacy": Privacy(epsilon=1.0, unit="party", party_rows=5)}, "one record"),
        (
            {"kind": "rows", "protocol": "masked_sum", "options": {}, "hosts": {"server": "hospital"}},
            r"\[columns\] is for kind",
        ),
    ],
)
def test_a_study_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, PrivacyError), match=message):
        make(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": {"queries": 50}}, "bounds"),
        ({"options": {"bounds": {"hospital": 4096}, "queries": 50}}, "insurer"),
        ({"key": ()}, "identifiers"),
        ({"columns": HELD}, "leave .* rows out"),
        ({"columns": Holdings(HELD.holds, ("hospital", "insurer"))}, "one party, and only one"),
        ({"options": {"bounds": {"hospital": 4096, "insurer": 4096}, "reveal": "matching"}}, "duplicates = 'first'"),
    ],
)
def test_an_unaligned_study_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, PrivacyError, DataError), match=message):
        unaligned(**change)


def test_a_codebook_in_place_of_a_study_is_named() -> None:
    with pytest.raises(ConfigError, match="this is a codebook, not a study"):
        StudyFile.from_text(BOOK.to_toml())


def test_fields_of_another_kind_are_refused_in_a_file() -> None:
    text = make().to_toml()
    for line, message in (
        ('kind = "diagonal"', "kind is one of rows, columns, join"),
        ('kind = "columns"\nkey = ["id"]', "key does not apply to kind = 'columns'"),
        ('kind = "rows"\nreveal_to = "all"', "reveal_to does not apply to kind = 'rows'"),
    ):
        with pytest.raises(ConfigError, match=message):
            StudyFile.from_text(text.replace('reveal_to = "all"', "# reveal_to", 1).replace('kind = "columns"', line, 1))
