"""Every page fits a phone, a tablet and a desktop, in light and dark; nothing is cut off on a desktop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser

from blindbayes import NaiveBayes
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import View
from blindbayes.report.page import model_page
from blindbayes.study.file import Deadlines, Privacy
from support.consoles import NAMES, Consoles
from support.sites import BOOK

from .conftest import Person, require_fit

QUICK = Deadlines(step=20, join=20, run=35)
LONG = ("Adelie Penguin (Pygoscelis adeliae)", "Chinstrap penguin (Pygoscelis antarctica)", "Gentoo penguin (Pygoscelis papua)")


@pytest.fixture(scope="module")
def office(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    """Three consoles, which close before the browser does."""
    with Consoles(tmp_path_factory.mktemp("office"), NAMES) as opened:
        yield opened


@pytest.fixture(scope="module")
def released(office: Consoles) -> tuple[str, str]:
    study = office.office.net.make_study(
        BOOK, title="Readmission within thirty days", privacy=Privacy(epsilon=1.0), deadlines=QUICK
    )
    office.office.net.approve(study, runs=2)
    folder = office.office.net.sites["north"].home.folder / "studies"
    folder.mkdir(exist_ok=True)
    (folder / f"{study.sha256}.toml").write_text(study.to_toml())
    run = office.do(lambda: office.office.agents["north"].begin(study.sha256))
    office.wait(run.done.wait())
    return study.sha256, run.run_id


def test_every_page_of_the_console_fits_every_width(
    office: Consoles, released: tuple[str, str], person: Callable[..., Person]
) -> None:
    study, run = released
    ada = person(office, "north", "Ada Lovelace of the data office")
    draft = office.ask("north", "POST", "/api/write", {"title": "Next year", "text": BOOK.to_toml()}).json["draft"]
    paths = [call.path.format(study=study, run=run, draft=draft) for call in CALLS if isinstance(call, View) and call.page]
    for path in paths:
        require_fit(ada.see(path), path.strip("/").split("/")[0] + ("-one" if path.count("/") > 1 else "") or "today")
    ada.expected.append("404")
    require_fit(ada.see("/runs/" + "0" * 32), "not-found")
    ada.see(f"/studies/{study}")
    ada.press("Dry run on this site's data")
    ada.says("Nothing was sent")
    require_fit(ada.page, "dry-run")
    ada.see("/log")
    ada.press("Verify the whole log and ledger now")
    ada.says("hash chain intact")
    require_fit(ada.page, "verified")
    ada.see("/data")
    ada.press("Check the table")
    ada.says("The table fits")
    require_fit(ada.page, "data-checked")


def test_pages_of_a_release_fit_every_width(office: Consoles, released: tuple[str, str], browser: Browser) -> None:
    folder = office.office.net.sites["north"].home.folder / "releases" / released[1]
    page = browser.new_page()
    for name in ("index.html", "leakage.html", "explain.html"):
        page.goto((folder / name).as_uri())
        require_fit(page, name)
    page.close()


@pytest.fixture
def explained(tmp_path: Path) -> Path:
    book = Codebook(
        "species", LONG, (Categorical("island", ("Biscoe", "Dream", "Torgersen")), Numeric("body mass in grams", 0, 9000))
    )
    rows = pd.DataFrame(
        {"species": [*LONG] * 20, "island": ["Biscoe", "Dream"] * 30, "body mass in grams": [3000, 4000, 5000] * 20}
    )
    record = NaiveBayes(book).fit(rows)._record()
    path = tmp_path / "explain.html"
    path.write_text(model_page(record.parameters, statistics=record.statistics), encoding="utf-8")
    return path


def test_an_explanation_with_long_class_names_fits_every_width(explained: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(explained.as_uri())
    require_fit(page, "explain-long")
    page.close()


def test_sign_in_fits_every_width(office: Consoles, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(office.url("north") + "/login")
    require_fit(page, "login")
    page.close()
