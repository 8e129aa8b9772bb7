"""Two stewards sign in by the organisation, with a real browser, and approve a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page

from blindbayes.agent.config import SignIn
from blindbayes.console.auth import CALLBACK
from support.consoles import NAMES, Consoles
from support.provider import ProviderProcess
from support.sites import BOOK

from .test_browser import bring, words_of

pytest.importorskip("jwt", reason="the oidc extra is not installed")
USERS = {"s-ada": {"name": "Ada", "roles": ["steward"]}, "s-grace": {"name": "Grace", "roles": ["steward"]}}


@pytest.fixture
def provider() -> Iterator[ProviderProcess]:
    found = ProviderProcess()
    yield found
    found.stop()


@pytest.fixture
def steward(browser: Browser) -> Iterator[Callable[..., Page]]:
    """A browser of its own, which has signed in at the provider: on another host than the console, so another site."""
    errors: list[str] = []

    def make(office: Consoles, sub: str, **look: Any) -> Page:
        context = browser.new_context(**look)
        context.set_default_timeout(60_000)
        office.visitors.append(context.close)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(office.url("north"))
        page.get_by_role("link", name="Sign in by the organisation").click()
        page.wait_for_url("http://localhost:*/authorize*")
        page.get_by_role("button", name=sub).click()
        page.wait_for_url(office.url("north") + "/")
        return page

    yield make
    assert [each for each in errors if "404" not in each] == []  # the provider has no icon


def approve(page: Page, url: str, words: str) -> None:
    page.goto(url)
    page.get_by_label("First two words").fill(words)
    page.get_by_role("button", name="Approve", exact=True).click()


@pytest.mark.parametrize("scripts", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_two_stewards_sign_in_by_the_organisation_and_approve(
    tmp_path: Path, provider: ProviderProcess, steward: Callable[..., Page], scripts: bool
) -> None:
    with Consoles(tmp_path, NAMES) as office:
        home = office.office.net.sites["north"].home
        given = {"issuer": provider.issuer, "client_id": "console", "roles": {"steward": "steward"}}
        policy = msgspec.structs.replace(home.config.policy, approvers=2)
        home.config = msgspec.structs.replace(home.config, sign_in=msgspec.convert(given, SignIn), policy=policy)
        home.decisions.config = home.config
        clients = {"console": {"secret": None, "redirects": [f"{office.url('north')}{CALLBACK}"]}}
        provider.set(users=USERS, clients=clients)
        study = office.office.net.make_study(BOOK, title="Readmission")
        bring(office, study, "north")
        url = f"{office.url('north')}/studies/{study.sha256}"

        ada = steward(office, "s-ada", java_script_enabled=scripts)
        (session,) = ada.context.cookies(office.url("north") + CALLBACK)  # and no pre-session any more
        assert (session["sameSite"], session["httpOnly"]) == ("Strict", True)
        approve(ada, url, words_of(study))
        ada.get_by_text("A second steward has to approve too").wait_for()
        approve(ada, url, words_of(study))  # her second time is not a second pair of eyes
        ada.get_by_text("A second steward has to approve too").wait_for()
        assert home.approvals.find(study.sha256) is None

        grace = steward(office, "s-grace", java_script_enabled=scripts)
        grace.goto(url)
        grace.get_by_text("Ada [s-ada] approved; 2 stewards have to").wait_for()
        approve(grace, url, words_of(study))
        grace.get_by_text("Approved. The run starts").wait_for()
        assert home.approvals.runs_left(study.sha256) == 1
        entry = home.audit.where("event", "approved")[-1]
        assert (entry["issuer"], entry["subjects"]) == (provider.issuer, ["s-ada", "s-grace"])
        grace.goto(office.url("north") + "/log?event=approved")
        grace.get_by_text("Ada [s-ada], Grace [s-grace]").first.wait_for()
