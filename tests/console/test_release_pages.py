"""The pages of a release in a real browser: one look, and a what-if form that computes what the model does."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser

from blindbayes import Estimation, NaiveBayes, RowStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.io.files import read_folder
from blindbayes.report.dpia import annex_page, read_documents
from blindbayes.report.page import model_page
from support.releases import DATA, release_of, released_sites

BOOK = Codebook(
    "outcome",
    ("well", "ill </form>"),
    (Categorical("colour", ("red", 'blue "quoted" <b>')), Numeric("age", 0, 120), Numeric("crp", 0, 400, bins=4)),
    max_rows=1000,
)
ROWS = pd.DataFrame(
    {
        "outcome": (["well", "ill </form>"] * 40)[:60],
        "colour": (["red", "red", 'blue "quoted" <b>'] * 20),
        "age": [20 + 7 * n % 90 for n in range(60)],
        "crp": [13 * n % 380 for n in range(60)],
    }
)


def test_the_form_for_what_would_be_if_computes_what_the_model_does(tmp_path: Path, browser: Browser) -> None:
    model = NaiveBayes(BOOK).fit(ROWS)
    record = model._record()
    path = tmp_path / "explain.html"
    path.write_text(model_page(record.parameters, statistics=record.statistics), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    errors: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())

    def answers() -> list[float]:
        return [float(text.removesuffix(" %")) / 100 for text in page.locator("#answers td.num").all_inner_texts()]

    assert answers() == pytest.approx([0.5, 0.5], abs=0.001)
    page.get_by_label("colour").select_option('blue "quoted" <b>')
    page.get_by_label("age").fill("33")
    cells = page.get_by_label("crp").locator("option").all_inner_texts()
    page.get_by_label("crp").select_option(cells[2])
    row = pd.DataFrame({"colour": ['blue "quoted" <b>'], "age": [33], "crp": [150]})
    assert answers() == pytest.approx(model.predict_proba(row)[0].tolist(), abs=0.001)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("b").count() == 0
    page.close()
    assert errors == []
    assert requests == [path.as_uri()]


def test_annex_to_an_impact_assessment_fits_a_phone_prints_and_can_be_filled_in(tmp_path: Path, browser: Browser) -> None:
    documents = read_documents(read_folder(release_of(released_sites(tmp_path / "sites"), "north")))
    path = tmp_path / "dpia.html"
    path.write_text(annex_page(documents, "ab" * 32), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.get_by_role("textbox", name="Legal basis")
    box.fill("Art. 6(1)(e)")
    assert box.inner_text() == "Art. 6(1)(e)"
    assert len(page.pdf(format="A4")) > 10_000
    page.close()
    assert errors == []


def test_first_page_of_an_evaluated_release_fits_a_phone(tmp_path: Path, browser: Browser) -> None:
    """Its tables scroll by themselves: the page does not, and no number is broken."""
    study = RowStudy(DATA.codebook, estimation=Estimation(held_out=0.3))
    folder = study.evaluate(study.simulate(DATA.tables), DATA.tables).save(tmp_path / "evaluation")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto((folder / "index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for cell in page.locator("td", has_text=re.compile(r"^0\.\d{4}$")).all():
        assert (
            cell.evaluate(
                "cell => { const r = document.createRange(); r.selectNodeContents(cell); "
                "return new Set([...r.getClientRects()].map(box => box.top)).size }"
            )
            == 1
        )  # line
    page.close()
