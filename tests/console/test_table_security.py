"""What the page Table keeps out: other files, other servers, other people, floods, half files, and values in the log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import duckdb
import pytest

from blindbayes.agent.approvals.people import Person
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from support.consoles import NAMES, Consoles
from support.postgres import Unavailable, postgres_server
from support.sites import BOOK
from support.table_page import BOUNDARY, CSV, ask, configure, csrf_of, files_in, folder_of, part, upload

from .conftest import Person as Visitor
from .conftest import require_fit

QUICK = Deadlines(step=20, join=20, run=35)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Consoles]:
    with Consoles(tmp_path, NAMES) as opened:
        yield opened


# -- uploads -------------------------------------------------------------------------------------------------------------


def test_only_a_steward_uploads_previews_and_saves(office: Consoles) -> None:
    people = office.office.net.sites["north"].home.people
    for name, role in (("Ada", "steward"), ("Olga", "officer"), ("Alan", "analyst")):
        people.add(Person(name, role, secret=hash_password(name * 4, Coins.system())), who=None if name == "Ada" else "Ada")
    before = (folder_of(office) / "site.toml").read_bytes()
    for name, may_check in (("Olga", True), ("Alan", False)):
        answer = office.ask("north", "POST", "/login", urlencode({"name": name, "password": name * 4}), token=False)
        who = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
        token = part("csrf", csrf_of(office, who).encode())
        assert upload(office, who, token, part("file", CSV, "visits.csv")).status == 403
        for path in ("/table", "/table/preview"):
            refused = ask(office, who, path, source="current", **{"show-0": "colour"})
            assert (refused.status, "this needs one of the roles: steward" in refused.text) == (400, True)
        assert ask(office, who, "/table/columns", source="current").status == (200 if may_check else 400)
    assert files_in(office) == []
    assert (folder_of(office) / "site.toml").read_bytes() == before


def test_forms_that_are_none_are_refused_in_short(office: Consoles) -> None:
    ada = office.sign_in("north")
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    token = {"X-CSRF-Token": csrf_of(office, ada)}
    fields = (part("csrf", b"a" * 9000), part("surprise", b"1"), part("file", b"", "empty.csv"), part("file", CSV, ""))
    for body in (b"", b"--x--\r\n", b"\r\n" * 5000, part("file", CSV, "visits.csv"), *fields):
        for headers in ({**kind, **token}, kind, token, {}):
            answer = office.ask("north", "POST", "/table/upload", body, headers={**ada, **headers}, token=False)
            assert answer.status in (400, 403), body[:80]
    assert files_in(office) == []


# -- the choice of a source ----------------------------------------------------------------------------------------------


def test_what_staff_type_cannot_reach_files_and_variables_through_site_toml(office: Consoles) -> None:
    ada = office.sign_in("north")
    reference = "${file:keys/agreement.key}"
    before = (folder_of(office) / "site.toml").read_bytes()
    for fields in (
        {"missing": reference},
        {"table": reference},
        {"rule-0-name": "colour", "rule-0-column": "colour", "rule-0-other": reference},
        {"rule-0-name": "colour", "rule-0-reading": "expression", "rule-0-expression": f"'{reference}'"},
        {"rule-0-name": reference, "rule-0-column": "colour"},
    ):
        for path in ("/table/preview", "/table"):
            answer = ask(office, ada, path, source="current", **{"show-0": "colour"}, **fields)
            assert (answer.status, "must not contain ${" in answer.text) == (400, True)
    assert (folder_of(office) / "site.toml").read_bytes() == before


# -- what is shown and written -------------------------------------------------------------------------------------------


@pytest.fixture
def hostile(office: Consoles) -> StudyFile:
    """A table with formulas, markup and a canary, and a study about it."""
    data = folder_of(office) / "data"
    data.mkdir()
    header = '"<img src=x onerror=alert(1)>","=cmd|calc",class,colour,age'
    (data / "odd.csv").write_text(f'{header}\n"<b>canary-88</b>",1,ill,red,3\n2,2,well,blue,4\n')
    study = office.office.net.make_study(BOOK, title="Odd", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
    office.office.net.approve(study)
    return study


def test_headers_and_cells_are_text_and_only_the_preview_shows_a_cell(
    office: Consoles, hostile: StudyFile, caplog: pytest.LogCaptureFixture
) -> None:
    ada = office.sign_in("north")
    chosen = {"source": "file:odd.csv", "study": hostile.sha256, "extra_columns": "ignore"}
    pages = [ask(office, ada, path, **chosen) for path in ("/table/columns", "/table/check")]
    for answer in pages:
        assert answer.status == 200
        assert "&lt;img src=x" in answer.text
        assert "<img" not in answer.text
        assert "canary-88" not in answer.text
    shown = ask(office, ada, "/table/preview", **chosen, **{"show-0": "<img src=x onerror=alert(1)>"})
    assert "&lt;b&gt;canary-88&lt;/b&gt;" in shown.text
    assert shown.headers["Cache-Control"] == "no-store"
    assert "canary-88" not in caplog.text
    home = office.office.net.sites["north"].home
    entry = home.audit.where("event", "rows shown")[-1]
    assert {name: entry[name] for name in ("who", "rows", "columns")} == {"who": "Ada", "rows": 2, "columns": 1}
    assert all(
        "canary-88" not in path.read_text("utf-8", "ignore")
        for path in home.folder.rglob("*")
        if path.suffix != ".csv" and path.is_file()
    )
    assert office.ask("north", "GET", "/api/openapi.json").text.count("/table/preview") == 0
    assert office.ask("north", "POST", "/api/table/preview", chosen).status in (404, 405)
    without = ask(office, ada, "/table/preview", **chosen)
    assert (without.status, "tick the columns" in without.text) == (400, True)
    configure(office, preview_rows=0)
    off = ask(office, ada, "/table/preview", **chosen, **{"show-0": "colour"})
    assert (off.status, "previews are off" in off.text, "canary-88" in off.text) == (400, True, False)


def test_saving_keeps_comments_and_other_settings_and_refuses_a_stale_page(office: Consoles, hostile: StudyFile) -> None:
    path = folder_of(office) / "site.toml"
    path.write_text(path.read_text().replace("[rows]", "# ask Bea before you change this\n[rows]"))
    ada = office.sign_in("north")
    old = version_of(folder_of(office))
    chosen = {"source": "file:odd.csv", "study": hostile.sha256, "extra_columns": "ignore", "missing": "?\nk.A."}
    assert ask(office, ada, "/table", **chosen).status == 303
    text = path.read_text()
    assert "# ask Bea before you change this" in text
    rows = SiteConfig.read(path).rows
    assert rows is not None
    assert (rows.source, rows.extra_columns, rows.missing) == ("data/odd.csv", "ignore", ("?", "k.A."))
    assert office.office.agents["north"].home.config.rows == rows  # without a restart
    stale = ask(office, ada, "/table", **{**chosen, "version": old, "missing": "-"})
    assert (stale.status, "was changed since" in stale.text) == (400, True)
    assert path.read_text() == text
    entry = office.office.net.sites["north"].home.audit.where("event", "table set")[-1]
    assert entry["who"] == "Ada"
    assert {"rows.source", "rows.extra_columns", "rows.missing"} <= set(entry["keys"])


def test_a_variable_that_overrides_a_setting_is_named(
    office: Consoles, hostile: StudyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = office.sign_in("north")
    monkeypatch.setenv("BLINDBAYES_SITE__ROWS__DECIMAL", ".")
    answer = ask(office, ada, "/table", source="file:odd.csv", decimal=",", study=hostile.sha256)
    assert (answer.status, "BLINDBAYES_SITE__ROWS__DECIMAL" in answer.text) == (400, True)


def test_a_table_in_exact_sums_says_so_before_saving_and_another_reading_is_refused_after(tmp_path: Path) -> None:
    with Consoles(tmp_path, NAMES) as office:
        study = office.office.net.make_study(BOOK, title="Exact", deadlines=QUICK)
        office.office.net.approve(study, runs=3)
        ada = office.sign_in("north")
        assert "took part in exact sums with" not in office.ask("north", "GET", "/table", headers=ada, token=False).text
        run = office.do(lambda: office.office.agents["north"].begin(study.sha256))
        office.wait(run.done.wait())
        page = office.ask("north", "GET", "/table", headers=ada, token=False).text
        assert "This table took part in exact sums with south, west" in page
        recode = {"rule-0-name": "colour", "rule-0-column": "colour", "rule-0-values": "red = blue"}
        rows = office.office.net.sites["north"].home.config.rows
        assert rows is not None
        saved = ask(office, ada, "/table", source="current", table=rows.table or "", study=study.sha256, **recode)
        assert saved.status == 303
        again = office.do(lambda: office.office.agents["north"].begin(study.sha256))
        office.wait(again.done.wait())
        assert "others of them count now" in str(again.error)


def test_a_duckdb_file_of_the_data_folder_is_compared_checked_and_saved_by_programs(office: Consoles) -> None:
    study = office.office.net.make_study(BOOK, title="Base", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
    office.office.net.approve(study)
    data = folder_of(office) / "data"
    data.mkdir()
    with duckdb.connect(str(data / "ward.duckdb")) as connection:
        connection.execute("create table visits(class varchar, colour varchar, born date, age double)")
        connection.execute("insert into visits select 'ill', 'red', date '1980-01-02', 44 from range(20)")
    asked = {"source": "duckdb:ward.duckdb", "table": "visits", "study": study.sha256, "extra_columns": "ignore"}
    compared = office.ask("north", "POST", "/api/table/columns", asked).json["compared"]
    assert {each["name"]: each["type"] for each in compared["columns"]}["born"] == "date"
    assert compared["extra"] == ["born"]
    assert office.ask("north", "POST", "/api/table/check", asked).json["report"]["ok"]
    saved = office.ask("north", "POST", "/api/table", {**asked, "version": version_of(folder_of(office))})
    assert (saved.status, saved.json["notice"]) == (200, "table")
    assert office.office.agents["north"].home.tables.check(study, "north")["rows"] == 20


def test_a_listed_postgresql_server_is_brought_in_with_its_password_by_reference(
    office: Consoles, person: Callable[..., Visitor]
) -> None:
    psycopg = pytest.importorskip("psycopg", reason="the postgres extra is not installed")
    study = office.office.net.make_study(BOOK, title="Base", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
    office.office.net.approve(study)
    secrets = folder_of(office) / "secrets"
    secrets.mkdir()
    (secrets / "db.password").write_text("s3cret-pa55\n")
    with ExitStack() as stack:
        try:
            url = urlsplit(stack.enter_context(postgres_server()))
        except Unavailable as reason:
            pytest.skip(str(reason))
        with psycopg.connect(url.geturl().replace("postgres://", "postgresql://"), autocommit=True) as connection:
            connection.execute("create table visits(class text, farbe text, age float)")
            connection.execute("insert into visits select 'ill', 'rot', n from generate_series(1, 20) n")
        server = f"{url.hostname}:{url.port}"
        configure(office, databases=[server])
        ada = office.sign_in("north")
        named = {"source": "postgres", "server": server, "database": "postgres", "user": "tests", "table": "visits"}
        named |= {"password": "db.password", "study": study.sha256}
        compared = ask(office, ada, "/table/columns", **named)
        assert "Missing: colour" in compared.text
        rule = {"rule-0-name": "colour", "rule-0-column": "farbe", "rule-0-values": "rot = red"}
        assert "The table fits." in ask(office, ada, "/table/check", **named, **rule).text
        shown = ask(office, ada, "/table/preview", **named, **rule, **{"show-0": "farbe"})
        assert shown.text.count("<td>rot</td>") == shown.text.count("<td>red</td>") == 5
        assert ask(office, ada, "/table", **named, **rule).status == 303
        text = (folder_of(office) / "site.toml").read_text()
        assert f'"postgres://tests:${{file:secrets/db.password}}@{server}/postgres"' in text
        page = office.ask("north", "GET", "/table", headers=ada, token=False).text
        assert f"postgres://{server}/postgres" in page
        assert "s3cret-pa55" not in text + page + shown.text
        assert office.office.agents["north"].home.tables.check(study, "north")["ok"]
        home = office.office.net.sites["north"].home
        change_settings(home.folder, {"rows": None}, version_of(home.folder))
        office.do(home.reload)
        clicks = person(office, "north")
        seen = clicks.see("/table")
        seen.get_by_label("A PostgreSQL database").check()
        if not seen.get_by_label("Server").is_visible():
            seen.get_by_text("The database", exact=True).click()
        seen.get_by_label("Server").select_option(server)
        seen.get_by_label("Database", exact=True).fill("postgres")
        seen.get_by_label("User", exact=True).fill("tests")
        seen.get_by_label("Password").select_option("db.password")
        seen.get_by_label("Compare with the codebook of").select_option(study.sha256)
        if not seen.get_by_label("Sheet or table").is_visible():
            seen.get_by_text("How it is written", exact=True).click()
        seen.get_by_label("Sheet or table").fill("visits")
        clicks.press("Read its columns")
        seen.get_by_label("Column for colour").select_option("farbe")
        if not seen.get_by_label("New values of colour").is_visible():
            seen.get_by_text("Recode, dates, formula of colour").click()
        seen.get_by_label("New values of colour").fill("rot = red")
        clicks.press("Check all rows")
        clicks.says("The table fits.")
        require_fit(seen, "table-postgres")
        clicks.press("Save and use this table")
        clicks.says("Saved. The table is in use")
        assert "s3cret-pa55" not in seen.content()


def test_a_table_of_eight_hundred_columns_makes_a_page_in_proportion_whose_form_is_taken(office: Consoles) -> None:
    names = [f"item{n}" for n in range(800)]
    book = Codebook("class", ("ill", "well"), tuple(Categorical(name, ("a", "b")) for name in names), max_rows=1000)
    study = office.office.net.make_study(book, title="Wide", privacy=Privacy(epsilon=1.0), deadlines=QUICK)
    office.office.net.approve(study)
    data = folder_of(office) / "data"
    data.mkdir()
    rows = [",".join(["ill" if n % 2 else "well", *("ab"[(n + k) % 2] for k in range(800))]) for n in range(20)]
    (data / "wide.csv").write_text(",".join(["class", *(name.upper() for name in names)]) + "\n" + "\n".join(rows) + "\n")
    ada = office.sign_in("north")
    chosen = {"source": "file:wide.csv", "study": study.sha256}
    page = ask(office, ada, "/table/columns", **chosen).text
    assert len(page) < 4 << 20
    fields = dict(re.findall(r'<(?:input|textarea)[^>]* name="(rule-[0-9]+-[a-z]+)"[^>]*?(?: value="([^"]*)")?>', page))
    assert len(fields) > 800 * 4
    one = next(name for name, value in fields.items() if value == "item7").removesuffix("name")
    typed = {**fields, f"{one}column": "ITEM7"}
    again = ask(office, ada, "/table/columns", **chosen, **typed)
    assert (again.status, again.text.count("✓ mapped")) == (200, 1)
