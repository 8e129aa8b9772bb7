"""Decisions by people for whom an identity provider vouches: four eyes across subjects, and what the log says of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.agent.approvals import decisions as module
from blindbayes.agent.approvals.people import Person
from blindbayes.agent.config import SignIn
from blindbayes.disclosure.audit_log import Subject
from blindbayes.errors import PrivacyError
from support.sites import BOOK, Office

ISSUER = "https://id.example"
STEWARD = frozenset(("steward",))


def subject(sub: str, name: str = "Ada", issuer: str = ISSUER, roles: frozenset[str] = STEWARD) -> Subject:
    return Subject(name, issuer, sub, roles)


@pytest.fixture
def decide(tmp_path: Path) -> Callable[..., int]:
    """Approve one study as somebody who has just signed in; how many more stewards must."""
    office = Office(tmp_path, ("north", "south", "west"))
    home, study = office.net.sites["north"].home, office.net.make_study(BOOK)
    sign_in = SignIn(ISSUER, "console", {"s": "steward"})
    policy = msgspec.structs.replace(home.config.policy, approvers=2)
    home.config = home.decisions.config = msgspec.structs.replace(home.config, sign_in=sign_in, policy=policy)
    for name in ("Ada", "Grace"):
        home.people.add(Person(name, "steward"), who="Ada" if name == "Grace" else None)

    def approve(who: Any) -> int:
        if isinstance(who, Subject):
            home.audit.append("signed in", who=who, roles=sorted(who.roles))
        return home.decisions.approve(study, who=who).wanted

    approve.home = home  # type: ignore[attr-defined]
    return approve


def test_two_subjects_are_two_and_one_under_two_names_is_one(decide: Callable[..., int]) -> None:
    assert decide(subject("1", "Ada")) == 1
    assert decide(subject("1", "Grace")) == 1
    assert decide(subject("2", "Ada")) == 0
    entries = decide.home.audit.where("event", "approved")  # type: ignore[attr-defined]
    assert (entries[-1]["issuer"], entries[-1]["subjects"]) == (ISSUER, ["1", "2"])


@pytest.mark.parametrize("name", ["Ada", "Ada [1]", "Grace"])
def test_a_name_and_a_subject_never_make_up_one_approval(decide: Callable[..., int], name: str) -> None:
    decide.home.people.add(Person(name, "steward"), who="Ada")  # type: ignore[attr-defined]
    assert decide(name) == 1
    assert decide(subject("1")) == 1
    assert decide(name) == 1


def test_subjects_of_two_providers_do_not_make_up_one_approval(decide: Callable[..., int]) -> None:
    assert decide(subject("1", issuer="https://former.example")) == 1
    assert decide(subject("2")) == 1


def test_a_first_approval_counts_while_it_is_recent(decide: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert decide(subject("1")) == 1

    class Later(datetime):
        hours = 23

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=cls.hours)

    monkeypatch.setattr(module, "datetime", Later)
    Later.hours = 25
    assert decide(subject("2")) == 1
    Later.hours = 23
    assert decide(subject("3")) == 0


def test_a_first_approval_stops_counting_when_its_steward_is_none(decide: Callable[..., int]) -> None:
    assert decide(subject("1")) == 1
    other = subject("1", roles=frozenset(("analyst",)))
    decide.home.audit.append("signed in", who=other, roles=["analyst"])  # type: ignore[attr-defined]
    assert decide(subject("2")) == 1


def test_the_claim_decides_what_a_subject_may_do(decide: Callable[..., int]) -> None:
    people = decide.home.people  # type: ignore[attr-defined]
    analyst = subject("1", roles=frozenset(("analyst",)))
    assert people.require("run", analyst) is analyst
    with pytest.raises(PrivacyError, match="to approve takes a steward"):
        people.require("approve", analyst)
    with pytest.raises(PrivacyError, match=r"not in this site's people\.toml"):
        people.require("approve", str(subject("1")))


def test_every_entry_of_a_subject_has_issuer_and_subject(decide: Callable[..., int]) -> None:
    home = decide.home  # type: ignore[attr-defined]
    home.audit.append("invited", who=subject("7"))
    home.audit.append("invited", who="Ada")
    by_subject, by_name = home.audit.where("event", "invited")
    assert (by_subject["who"], by_subject["issuer"], by_subject["subject"]) == ("Ada [7]", ISSUER, "7")
    assert "subject" not in by_name
