"""Evaluation and drift in the console: figures with their picture, and one sentence about this site's rows of today."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb
import pytest
from playwright.sync_api import Browser, expect

from blindbayes import Estimation
from support.consoles import NAMES, Consoles, csrf_of
from support.sites import BOOK, make_rows

from .conftest import Person, require_fit


@pytest.fixture(scope="module")
def evaluated(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Consoles, str, str]]:
    """Consoles of three sites that trained a model and evaluated it: the runs of both. They close before the browser does."""
    folder = tmp_path_factory.mktemp("office")  # rows enough that every site's held-out part has ten, whatever its key
    with Consoles(folder, NAMES, rows=make_rows(folder, NAMES, rows=120)) as office:
        study = office.office.net.make_study(BOOK, estimation=Estimation(held_out=0.4))
        office.office.net.approve(study, runs=2)
        agent = office.office.agents["north"]
        trained = office.do(lambda: agent.begin(study.sha256))
        office.wait(office.office.ended(trained.run_id))
        begun = office.ask("north", "POST", "/api/evaluations", json.dumps({"study": study.sha256}))
        assert begun.status == 200, begun.text
        run_id = json.loads(begun.text)["run"]
        office.wait(office.office.ended(run_id))
        office.wait(agent.runs[run_id].done.wait())
        assert agent.runs[run_id].error is None
        yield office, trained.run_id, run_id


def page(office: Consoles, path: str, form: dict[str, str] | None = None) -> Any:
    ada = office.sign_in("north")
    if form is None:
        return office.ask("north", "GET", path, headers=ada, token=False)
    body = urlencode({"csrf": csrf_of(office, ada), **form})
    return office.ask("north", "POST", path, body, headers=ada, token=False)


def test_a_release_shows_the_figures_of_an_evaluation_with_their_picture(evaluated: tuple[Consoles, str, str]) -> None:
    office, _, run = evaluated
    shown = page(office, f"/releases/{run}")
    assert "held-out rows" in shown.text
    assert "predicted ill" in shown.text
    source = f"/releases/{run}/files/plots/evaluation.svg"
    assert f'<img src="{source}"' in shown.text
    picture = page(office, source)
    assert picture.status == 200
    assert picture.headers["Content-Type"].startswith("image/svg+xml")
    assert picture.headers["Content-Security-Policy"].startswith("sandbox")
    assert "Measure drift" not in shown.text  # recalibrated.json is no model in use


def test_drift_is_one_sentence_with_a_picture_and_nothing_leaves(evaluated: tuple[Consoles, str, str]) -> None:
    office, trained, run = evaluated
    assert "Measure drift" in page(office, f"/releases/{trained}").text
    home = office.office.net.sites["north"].home
    before = len(home.audit.entries())
    shown = page(office, f"/releases/{trained}/drift", {})
    assert shown.status == 200
    assert "<svg" in shown.text
    assert "Population stability index" in shown.text
    answer = json.loads(office.ask("north", "POST", f"/api/releases/{trained}/drift", "{}").text)
    assert answer["sentence"] in shown.text
    assert set(answer["features"]) == set(BOOK.names)
    assert [entry["event"] for entry in home.audit.entries()[before:]].count("drift measured") == 2
    for missing in (run, "ab" * 16):
        assert office.ask("north", "POST", f"/api/releases/{missing}/drift", "{}").status == 404


def test_drift_is_measured_by_clicks_and_rows_that_have_moved_ask_for_training(
    evaluated: tuple[Consoles, str, str], person: Callable[..., Person]
) -> None:
    office, trained, _ = evaluated
    ada = person(office, "north")
    ada.see(f"/releases/{trained}")
    ada.press("Measure drift")
    ada.says("Has the world changed since?")
    expect(ada.page.locator(".note")).not_to_contain_text("Retrain")
    picture = ada.page.get_by_role("img", name="Population stability index by column")
    expect(picture.locator("svg")).to_be_visible()
    expect(ada.page.get_by_role("row", name="colour")).to_be_visible()
    require_fit(ada.page, "drift")
    ada.page.get_by_role("link", name="← Release").click()
    ada.page.wait_for_url(re.compile(f"/releases/{trained}$"))
    tables = office.office.net.sites["north"].home.tables
    where = Path(tables._named().source.removeprefix("duckdb:///").partition("#")[0])
    if not where.is_absolute():
        where = tables.folder / where
    with duckdb.connect(str(where)) as connection:
        connection.execute("update visits set colour = 'red'")
    ada.press("Measure drift")
    ada.says("Retrain: the rows are no longer those that the model was trained on")
    ada.see("/log")
    expect(ada.page.locator("main tbody").get_by_text("the table was compared with a model")).not_to_have_count(0)
