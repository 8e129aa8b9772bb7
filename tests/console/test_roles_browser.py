"""What people of each role may do, by clicks: steward, officer and analyst of one site, and what ends with a role."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from blindbayes.agent.approvals.people import MAY, Act
from blindbayes.agent.approvals.people import Person as StaffMember
from blindbayes.crypto.passwords import hash_password
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from blindbayes.testing import Coins
from support.consoles import NAMES, Consoles
from support.sites import BOOK

from .conftest import Person
from .test_browser import approve, bring

STAFF = {"Ada": "steward", "Olga": "officer", "Alan": "analyst"}
BUTTONS: dict[str, dict[str, Act]] = {
    "/studies/{study}": {"Approve": "approve", "Refuse": "refuse", "Dry run on this site's data": "check"},
    "/settings": {"Change it": "manage", "Reload site.toml and pins": "manage"},
}
PASSWORD = "long enough"


@pytest.fixture(scope="module")
def office(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    """Three consoles, which close before the browser does; north has named its people."""
    with Consoles(tmp_path_factory.mktemp("office"), NAMES) as opened:
        people = opened.office.net.sites["north"].home.people
        for name, role in STAFF.items():
            secret = hash_password(PASSWORD, Coins.system()) if name == "Olga" else None
            people.add(StaffMember(name, role, secret=secret), who=None if name == "Ada" else "Ada")  # type: ignore[arg-type]
        yield opened


@pytest.fixture
def study(office: Consoles, request: pytest.FixtureRequest) -> StudyFile:
    made = office.office.net.make_study(
        BOOK, title=request.node.name, privacy=Privacy(epsilon=1.0), deadlines=Deadlines(step=20, join=20, run=35)
    )
    bring(office, made, "north")
    return made


def signed_in(office: Consoles, person: Callable[..., Person]) -> list[Person]:
    return [person(office, "north", name, password=PASSWORD if name == "Olga" else "") for name in STAFF]


def test_a_button_can_be_pressed_by_the_roles_that_may(
    office: Consoles, study: StudyFile, person: Callable[..., Person]
) -> None:
    everybody = signed_in(office, person)
    for who, role in zip(everybody, STAFF.values(), strict=True):
        for path, buttons in BUTTONS.items():
            page = who.see(path.format(study=study.sha256))
            for button, act in buttons.items():
                pressed = page.get_by_role("button", name=button, exact=True)
                if role in MAY[act]:
                    expect(pressed).to_be_enabled()
                else:
                    expect(pressed).to_be_disabled()
                    words = "This needs one of the roles: " + ", ".join(MAY[act])
                    expect(page.locator("form", has=pressed).get_by_text(words)).to_be_visible()
    alan = everybody[-1]
    alan.expected.append("400")
    alan.see("/table")
    alan.press("Read its columns")
    alan.says("this needs one of the roles: steward, officer")


def test_a_steward_approves_an_analyst_runs_an_officer_revokes_and_a_change_of_role_counts_at_once(
    office: Consoles, study: StudyFile, person: Callable[..., Person]
) -> None:
    for name in ("south", "west"):
        office.office.net.sites[name].home.approvals.approve(study, runs=2)
    people, audit = (getattr(office.office.net.sites["north"].home, each) for each in ("people", "audit"))
    ada, olga, alan = signed_in(office, person)
    olga.says("Olga, officer")
    approve(ada, study, runs=2)
    alan.see(f"/studies/{study.sha256}")
    alan.press("Start a run")
    alan.page.get_by_role("link", name="See the release").wait_for()
    expect(olga.see(f"/studies/{study.sha256}").get_by_role("button", name="Start a run")).to_be_disabled()
    olga.page.on("dialog", lambda dialog: dialog.accept())
    olga.page.get_by_label("Reason optional").fill("Board decision")
    olga.press("Revoke the approval")
    olga.says("revoked")
    assert audit.where("event", "revoked")[-1]["who"] == "Olga"
    # an officer who becomes a steward approves with the next click; who is removed is signed out by it
    people.remove("Olga", who="Ada")
    olga.page.reload()
    olga.page.wait_for_url(re.compile("/login$"))
    people.add(StaffMember("Olga", "steward"), who="Ada")
    again = person(office, "north", "Olga")
    approve(again, study)
    assert audit.where("event", "approved")[-1]["who"] == "Olga"
