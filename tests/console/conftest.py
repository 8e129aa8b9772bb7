"""A real browser: Debian's Chromium, driven by Playwright. What it logs as an error fails the test, and so does a request to
anywhere but this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from support.consoles import NAMES, Consoles

expect.set_options(timeout=60_000)
WIDTHS = (390, 768, 1200)
SCHEMES = ("light", "dark")


def require_fit(page: Page, name: str) -> None:
    """Measure a page at all widths, in light and dark. With BLINDBAYES_SHOTS, leave screenshots in that folder."""
    page.wait_for_load_state("load")  # with its style sheets
    shots = os.environ.get("BLINDBAYES_SHOTS")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            wide = page.evaluate("document.documentElement.scrollWidth")
            if shots:
                page.screenshot(path=f"{shots}/{name}-{width}-{scheme}.png", full_page=True)
            assert wide <= width, f"{name} is {wide} px wide at {width} px, {scheme}"
            cut = (
                "[...document.querySelectorAll('main *:not(.sr)')].filter(e => getComputedStyle(e).overflowX !== 'visible' && "
            )
            cut += "!['INPUT', 'SELECT', 'TEXTAREA'].includes(e.tagName) && e.scrollWidth > e.clientWidth + 1)"
            assert width < 1200 or page.evaluate(f"{cut}.map(e => e.outerHTML.slice(0, 80))") == [], f"{name}, {scheme}"


@pytest.fixture(scope="module")  # its loop stands in the way of other modules
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=120_000
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    """Three sites whose consoles are served, for all tests of a module."""
    with Consoles(tmp_path_factory.mktemp("office"), NAMES) as found:
        yield found


class Person:
    """Somebody with a browser at one site, who signs in by a code or, if there is one, by password."""

    def __init__(self, consoles: Consoles, browser: Browser, site: str, name: str, password: str = "", **look: Any) -> None:
        self.site, self.url = site, consoles.url(site)
        context = browser.new_context(viewport={"width": 1100, "height": 800}, **look)
        context.set_default_timeout(60_000)
        consoles.visitors.append(context.close)
        self.page: Page = context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.expected: list[str] = []  # parts of errors that the test provokes
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        context.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(self.url)
        if password:
            self.page.get_by_label("or your name").fill(name)
            self.page.get_by_label("and your password").fill(password)
        else:
            self.page.get_by_label("One-time code").fill(consoles.ports[site].auth.new_code(name))
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(self.url + "/")

    def see(self, path: str) -> Page:
        try:
            self.page.goto(self.url + path)
        except Error as error:  # a page with a live part was loading itself again at this moment
            if "ERR_ABORTED" not in str(error):
                raise
            self.page.goto(self.url + path)
        return self.page

    def press(self, button: str) -> None:
        self.page.get_by_role("button", name=button, exact=True).click()

    def says(self, text: str) -> None:
        """Waits until the page says so."""
        self.page.get_by_text(text).first.wait_for()

    def done(self) -> None:
        wrong = [each for each in self.errors if not any(part in each for part in self.expected)]
        elsewhere = [each for each in self.requests if not each.startswith(("http://127.0.0.1:", "data:"))]
        self.page.context.close()
        assert wrong == []
        assert elsewhere == []


@pytest.fixture
def person(browser: Browser) -> Iterator[Callable[..., Person]]:
    known: list[Person] = []

    def make(consoles: Consoles, site: str, name: str = "Ada", **look: Any) -> Person:
        known.append(Person(consoles, browser, site, name, **look))
        return known[-1]

    yield make
    for each in known:
        each.done()
