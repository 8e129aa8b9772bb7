"""A steward without a shell brings a messy table in by clicks, and what the page keeps out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import msgspec
from playwright.sync_api import expect

from blindbayes.agent.config import SiteConfig
from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.study.file import Deadlines, Privacy
from support.consoles import NAMES, Consoles, csrf_of
from support.sites import BOOK as SITE_BOOK

from .conftest import Person, require_fit

QUICK = Deadlines(step=20, join=20, run=35)
BOOK = Codebook(
    "outcome",
    ("ill", "well"),
    (
        Categorical("sex", ("male", "female")),
        Numeric("weight", 0, 300),
        Numeric("age", 0, 120, optional=True),
        Categorical("month", tuple(map(str, range(1, 13)))),
        Numeric("cost", 0, 100_000),
    ),
    max_rows=10_000,
)
SECRET = "Frau Müller wohnt in der Gartenstraße"
LINES = [
    f"{'krank' if n % 3 else 'gesund'};{'m' if n % 2 else 'w'};{60 + n},5;{10 + n % 18:02}.{1 + n % 12:02}.19{50 + n % 40};"
    f"{5 + n % 20:02}.{1 + n % 12:02}.2024;1.{200 + n},25;{SECRET if n == 7 else 'k.A.'}"
    for n in range(40)
]
MESSY = "Ergebnis;Geschlecht;Gewicht;Geburtsdatum;Aufnahme;Kosten;Bemerkung\n" + "\n".join(LINES) + "\n"


def without_table(office: Consoles, name: str) -> None:
    """Make the site one that names no table yet."""
    home = office.office.net.sites[name].home
    change_settings(home.folder, {"rows": None}, version_of(home.folder))
    office.do(home.reload)
    assert home.config.rows is None


def test_without_a_study_the_page_lists_the_columns_and_offers_no_check(office: Consoles) -> None:
    ada = office.sign_in("north")
    given = urlencode(
        {"csrf": csrf_of(office, ada), "source": "current", "version": version_of(office.office.net.sites["north"].home.folder)}
    )
    page = office.ask("north", "POST", "/table/columns", given, headers=ada, token=False).text
    assert "No study is chosen, so there is nothing to match yet" in page
    assert "3 columns: class, colour, age" in page
    assert "Save and use this table" in page
    assert "Check all rows" not in page


def test_a_table_that_does_not_serve_its_study_is_saved_with_a_warning(tmp_path: Path) -> None:
    with Consoles(tmp_path, NAMES) as office:
        home = office.office.net.sites["north"].home
        wider = msgspec.structs.replace(SITE_BOOK, features=(*SITE_BOOK.features, Categorical("month", ("1", "2"))))
        study = office.office.net.make_study(wider, title="Wider", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        (home.folder / "studies").mkdir(exist_ok=True)
        (home.folder / "studies" / f"{study.sha256}.toml").write_text(study.to_toml())
        ada = office.sign_in("north")
        given = {"csrf": csrf_of(office, ada), "source": "current", "study": study.sha256, "missing": "-99"}
        form = urlencode(given | {"version": version_of(home.folder)})
        answer = office.ask("north", "POST", "/table", form, headers=ada, token=False)
        assert answer.status == 303, answer.text
        page = office.ask("north", "GET", answer.headers["Location"], headers=ada, token=False).text
        assert "Saved, but a run of this study would be refused" in page
        assert "Missing: month" in page
        assert "Go on to the study" not in page


def test_a_rule_that_lacks_its_second_date_keeps_what_was_chosen(office: Consoles) -> None:
    site = office.office.net.sites["north"]
    study = office.office.net.make_study(SITE_BOOK, title="Ages", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
    (site.home.folder / "studies").mkdir(exist_ok=True)
    (site.home.folder / "studies" / f"{study.sha256}.toml").write_text(study.to_toml())
    ada = office.sign_in("north")
    given = {"source": "current", "study": study.sha256, "version": version_of(site.home.folder)}
    rule = {"rule-2-name": "age", "rule-2-column": "colour", "rule-2-reading": "years", "rule-2-order": "DMY"}
    form = urlencode({"csrf": csrf_of(office, ada)} | given | rule)
    answer = office.ask("north", "POST", "/table/check", form, headers=ada, token=False)
    assert answer.status == 400
    assert "age: choose the two columns of dates" in answer.text
    row = answer.text.split('name="rule-2-name" value="age"')[1].split("</tr>")[0]
    for chosen in ("colour", "years", "DMY"):
        assert f'value="{chosen}" selected' in row, chosen


def test_preview_and_check_say_how_many_dates_are_not_written_as_chosen(office: Consoles) -> None:
    site = office.office.net.sites["north"]
    study = office.office.net.make_study(SITE_BOOK, title="Ages", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
    (site.home.folder / "studies").mkdir(exist_ok=True)
    (site.home.folder / "studies" / f"{study.sha256}.toml").write_text(study.to_toml())
    ada = office.sign_in("north")
    given = {"csrf": csrf_of(office, ada), "source": "current", "study": study.sha256, "version": version_of(site.home.folder)}
    given |= {"rule-0-name": "age", "rule-0-column": "colour", "rule-0-reading": "month", "rule-0-order": "DMY"}
    for path, more in (("/table/preview", {"show-0": "colour"}), ("/table/check", {})):
        page = office.ask("north", "POST", path, urlencode(given | more), headers=ada, token=False).text
        assert re.search(r"\b[1-9][0-9]* rows hold a date that is not written as 31\.12\.2024", page), path
    assert "✕ missing" in page  # the feature is not optional
    plain = given | {"rule-0-reading": ""}
    page = office.ask("north", "POST", "/table/check", urlencode(plain), headers=ada, token=False).text
    shown = re.sub(r"<[^>]*>", "", page)
    assert (
        "rows: set the decimal sign, the separator of thousands and the texts that mean no value; read dates as a part of them"
        in shown
    )
    assert "the page Table" not in shown  # this is it


def test_the_check_says_what_a_run_with_noise_does_with_rows_that_do_not_fit(office: Consoles) -> None:
    home = office.office.net.sites["north"].home
    narrow = Codebook("class", ("ill", "well"), (Categorical("colour", ("red", "blue", "green")), Numeric("age", 0, 1)))
    study = office.office.net.make_study(narrow, title="Narrow", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
    (home.folder / "studies").mkdir(exist_ok=True)
    (home.folder / "studies" / f"{study.sha256}.toml").write_text(study.to_toml())
    ada = office.sign_in("north")
    csrf = {"csrf": csrf_of(office, ada)}
    given = csrf | {"source": "current", "study": study.sha256, "version": version_of(home.folder)}
    page = office.ask("north", "POST", "/table/check", urlencode(given), headers=ada, token=False).text
    assert "With one the run goes on" in page
    assert "ask the study's author for wider bounds" in page.replace("&#39;", "'")
    page = office.ask("north", "POST", f"/studies/{study.sha256}/dry-run", urlencode(csrf), headers=ada, token=False).text
    assert "Nothing was sent" in page  # it is true: the dry run does not refuse them
    assert "Rows of this site do not fit in age." in page
    assert "at the nearest bound" in page


def test_a_messy_table_is_brought_in_by_clicks_from_upload_to_a_dry_run_that_passes(
    tmp_path: Path, person: Callable[..., Person]
) -> None:
    with Consoles(tmp_path, NAMES) as office:
        home = office.office.net.sites["north"].home
        study = office.office.net.make_study(BOOK, title="Readmission", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
        (home.folder / "studies").mkdir()
        (home.folder / "studies" / f"{study.sha256}.toml").write_text(study.to_toml())
        without_table(office, "north")
        ada = person(office, "north")
        page = ada.see("/table")
        ada.says("This site has no table yet")
        upload = {"name": "Entlassungen 2024.csv", "mimeType": "text/csv", "buffer": MESSY.encode("latin-1")}
        page.get_by_label("File", exact=True).set_input_files(upload)
        ada.press("Upload")
        ada.says("The file is in the data folder")
        ada.says("is not UTF-8 text with a header row; choose its encoding, for example Windows")  # read at once
        assert (home.folder / "data" / upload["name"]).read_bytes() == upload["buffer"]
        ada.expected.append("400")
        page.get_by_label("Encoding").select_option("latin-1")
        page.get_by_label("Decimal sign").select_option(",")
        page.get_by_label("Thousands").select_option(".")
        page.get_by_label("Texts that mean no value").fill("k.A.\n?")
        ada.press("Read its columns")
        ada.says("Missing: outcome, sex, weight, age, month, cost")
        ada.says("separated by semicolons, latin-1, decimal comma")
        for name, column in {"outcome": "Ergebnis", "sex": "Geschlecht", "weight": "Gewicht", "cost": "Kosten"}.items():
            page.get_by_label(f"Column for {name}").select_option(column)
        for name, lines in {"outcome": "krank = ill\ngesund = well", "sex": "m = male\nw = female"}.items():
            page.get_by_text(f"Recode, dates, formula of {name}").click()
            page.get_by_label(f"New values of {name}").fill(lines)
        for name, column, reading in (("age", "Geburtsdatum", "years"), ("month", "Aufnahme", "month")):
            page.get_by_label(f"Column for {name}").select_option(column)
            page.get_by_label(f"Read {name} as").select_option(reading)
            page.get_by_text(f"Recode, dates, formula of {name}").click()
            page.get_by_label(f"Dates of {name} are written").select_option("DMY")
        # the second date is forgotten: what was typed stays
        ada.press("Check all rows")
        ada.says("choose the two columns of dates")
        expect(page.get_by_label("Column for sex")).to_have_value("Geschlecht")
        expect(page.get_by_label("New values of sex")).to_have_value("m = male\nw = female")
        expect(page.get_by_label("Column for age")).to_have_value("Geburtsdatum")
        expect(page.get_by_label("Read age as")).to_have_value("years")
        expect(page.get_by_label("Dates of age are written")).to_have_value("DMY")
        page.locator("tr", has=page.get_by_label("Column for age")).get_by_label("Second date").select_option("Aufnahme")
        expect(page.get_by_label("Leave other columns unread")).to_be_checked()  # though its columns could not be read at first
        page.get_by_label("Leave other columns unread").uncheck()
        ada.press("Check all rows")
        ada.says("leave it unread: tick 'Leave other columns unread'")  # not --ignore-extra
        page.get_by_label("Leave other columns unread").check()
        page.get_by_label("Dates of age are written").select_option("YMD")
        ada.press("Check all rows")
        ada.says("no row has a value of age")  # nothing is refused: what cannot be read counts as missing
        ada.says("40 rows hold a date that is not written as 2024-12-31; it counts as missing")
        page.get_by_label("Dates of age are written").select_option("DMY")
        ada.press("Check all rows")
        ada.says("The table fits.")
        expect(page.get_by_role("link", name="Go on to the study")).to_have_count(0)  # it would lose what was chosen
        require_fit(page, "table-checked")
        assert SECRET not in page.content()
        page.get_by_text("Preview the first 5 rows").click()
        expect(page.get_by_label("Bemerkung")).not_to_be_checked()
        ada.press("Show the preview")
        ada.says("As the study reads it")
        require_fit(page, "table-preview")
        unnamed = "[...document.querySelectorAll('input:not([type=hidden]),select,textarea')].filter(e => !e.labels.length)"
        assert page.evaluate(f"{unnamed}.map(each => each.name)") == []
        assert page.locator(".cells td", has_text="1200.25").count() == 1
        assert page.locator(".cells td", has_text="1.200,25").count() == 1
        assert home.config.rows is None
        ada.press("Save and use this table")
        ada.says("Saved. The table is in use")
        expect(page.get_by_label("Column for sex")).to_have_value("Geschlecht")  # the page shows what was saved
        ada.see("/table")  # a later look: the saved rules are there, not lost by saving again
        ada.press("Read its columns")
        expect(page.get_by_label("Column for sex")).to_have_value("Geschlecht")
        expect(page.get_by_label("Leave other columns unread")).to_be_checked()
        ada.see(f"/table?study={study.sha256}")
        page.get_by_role("link", name="Go on to the study").click()
        ada.press("Dry run on this site's data")
        ada.says("The rows of this site fit the study")
        rows = SiteConfig.read(home.folder / "site.toml").rows
        assert rows is not None
        assert rows.map["age"] == "years(date(Geburtsdatum, 'DMY'), date(Aufnahme, 'DMY'))"
        assert (rows.encoding, rows.decimal, rows.thousands, rows.missing) == ("latin-1", ",", ".", ("k.A.", "?"))
        events = {entry["event"]: entry for entry in home.audit.entries()}
        assert {events[each]["who"] for each in ("table uploaded", "rows shown", "table set")} == {"Ada"}
        assert "rows.map.sex" in events["table set"]["keys"]
        log = home.audit.path.read_text(encoding="utf-8")
        assert all(value not in log for value in ("Geburtsdatum", "1.200", "krank", SECRET))
