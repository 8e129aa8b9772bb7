"""Actions of staff: an approval has a last day."""

from __future__ import annotations

import pytest

from blindbayes.study.file import Deadlines, StudyFile
from support.consoles import Consoles
from support.sites import BOOK


@pytest.fixture(scope="module")
def study(office: Consoles) -> StudyFile:
    made = office.office.net.make_study(BOOK, deadlines=Deadlines(step=20, join=20, run=35))
    office.office.net.approve(made, runs=5)
    return made


def test_an_approval_has_a_last_day_through_the_api_and_the_page(office: Consoles, study: StudyFile) -> None:
    there, words = f"/studies/{study.sha256}", study.roster.sha256[:8]
    said = office.ask("north", "POST", f"/api{there}/approve", {"compared": words, "until": "2020-01-01"})
    assert said.status == 400
    assert "is over: name today or a later day" in said.json["message"]
    for bad in ("tomorrow", "2020-02-30", 7):
        assert office.ask("north", "POST", f"/api{there}/approve", {"compared": words, "until": bad}).status == 400
    body = {"compared": words, "runs": 5, "until": "2999-12-31"}
    assert office.ask("north", "POST", f"/api{there}/approve", body).status == 200
    assert office.ask("north", "GET", f"/api{there}").json["until"] == "2999-12-31"
    page = office.ask("north", "GET", there, token=False, headers=office.sign_in("north")).text
    assert "until 2999-12-31 (UTC)" in page
    assert office.ask("north", "POST", f"/api{there}/approve", {"compared": words, "runs": 5}).json["runs_left"] == 5
