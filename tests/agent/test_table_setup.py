"""Sources that staff may choose: files of the data folder and listed servers, without passwords on a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.table_setup import describe_source
from support.consoles import NAMES, Consoles
from support.table_page import CSV, ask, configure, folder_of


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Consoles]:
    with Consoles(tmp_path, NAMES) as opened:
        yield opened


FILES = ("../site.toml", "/etc/passwd", "link.csv", "folder.csv", ".hidden.csv", "absent.csv", "")


OTHERS = (
    "duckdb:../../rows.duckdb",
    "duckdb:rows.csv",
    "/etc/passwd",
    "http://127.0.0.1:1/x.csv",
    "postgres://evil/db",
    "sc://x:1",
)


def test_a_source_is_a_file_of_the_data_folder_or_a_listed_server(office: Consoles, tmp_path: Path) -> None:
    data = folder_of(office) / "data"
    data.mkdir()
    outside = tmp_path / "outside.csv"
    outside.write_bytes(CSV)
    (data / "link.csv").symlink_to(outside)
    (data / "folder.csv").mkdir()
    (data / ".hidden.csv").write_bytes(CSV)
    ada = office.sign_in("north")
    assert "link.csv" not in office.ask("north", "GET", "/table", headers=ada, token=False).text
    before = (folder_of(office) / "site.toml").read_bytes()
    for source in (*(f"file:{name}" for name in FILES), *OTHERS):
        for path in ("/table/columns", "/table/preview", "/table/check", "/table"):
            assert ask(office, ada, path, source=source, table="visits", **{"show-0": "colour"}).status == 400, source
        for path in ("/api/table/columns", "/api/table"):
            assert office.ask("north", "POST", path, {"source": source, "table": "visits"}).status == 400, source
    assert (folder_of(office) / "site.toml").read_bytes() == before


def test_a_database_is_named_by_listed_server_and_its_password_by_a_file_in_secrets(office: Consoles) -> None:
    secrets = folder_of(office) / "secrets"
    secrets.mkdir()
    (secrets / "db.password").write_text("s3cret-pa55")
    ada = office.sign_in("north")
    named = {"source": "postgres", "database": "ward", "user": "reader", "table": "visits", "password": "db.password"}
    elsewhere = ask(office, ada, "/table/columns", server="169.254.169.254:80", **named)
    assert (elsewhere.status, "not one that this site may be connected to" in elsewhere.text) == (400, True)
    configure(office, databases=["127.0.0.1:1"])
    for wrong in (
        {"server": "127.0.0.1:2"},
        {"server": "evil@127.0.0.1:1"},
        {"user": "a:b@evil"},
        {"database": "ward?host=evil"},
        {"table": "x; drop table y"},
        {"password": "../keys/sign.key"},
        {"password": "../site.toml"},
    ):
        assert ask(office, ada, "/table/columns", **{**named, "server": "127.0.0.1:1", **wrong}).status == 400
    refused = ask(office, ada, "/table/columns", server="127.0.0.1:1", **named)  # listed, and nobody listens there
    assert refused.status == 400
    assert "cannot be opened" in refused.text or "needs an extra" in refused.text
    assert "s3cret" not in refused.text


@pytest.mark.parametrize("password", ["plain", "with/slash", "with@sign", "w?h#ash", "${env:SECRET_OF_TEST}"])
def test_the_page_shows_a_database_without_its_password(tmp_path: Path, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_TEST", "plain")
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(rows=Rows("data/rows.csv")))
    source = f"postgres://ada:{password}@db.example:5432/ward#visits"
    change_settings(home.folder, {"rows.source": source}, version_of(home.folder))
    assert describe_source(home) == "postgres://db.example:5432/ward"
