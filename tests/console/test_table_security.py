"""What the page Table keeps out: other files, other servers, other people, floods, half files, and values in the log."""

from __future__ import annotations

import errno
import gzip
import http.client
import io
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindbayes.agent.approvals.people import Person
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.agent.store import data_folder
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.store.tables import Tables
from blindbayes.agent.table_setup import describe_source
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.errors import ConfigError
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from support.consoles import NAMES, Answer, Consoles
from support.engines import until
from support.postgres import Unavailable, postgres_server
from support.sites import BOOK

QUICK = Deadlines(step=20, join=20, run=35)
CSV = b"class,colour,age\nill,red,3\nwell,blue,4\n"
BOUNDARY = "----blindbayes"


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Consoles]:
    with Consoles(tmp_path, NAMES) as opened:
        yield opened


def csrf_of(office: Consoles, signed_in: dict[str, str]) -> str:
    page = office.ask("north", "GET", "/table", headers=signed_in, token=False).text
    return re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]


def part(name: str, content: bytes, file: str | None = None) -> bytes:
    named = "" if file is None else f'; filename="{file}"'
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + content + b"\r\n"


def upload(office: Consoles, who: dict[str, str], *parts: bytes, **headers: str) -> Answer:
    given = {**who, "Content-Type": f"multipart/form-data; boundary={BOUNDARY}", **headers}
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return office.ask("north", "POST", "/table/upload", body, headers=given, token=False)


def folder_of(office: Consoles) -> Path:
    return office.office.net.sites["north"].home.folder


def files_in(office: Consoles) -> list[str]:
    folder = folder_of(office) / "data"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def configure(office: Consoles, **console: Any) -> None:
    home = office.office.net.sites["north"].home
    changes = {f"console.{name}": value for name, value in console.items()}
    change_settings(home.folder, changes, version_of(home.folder))
    office.do(home.reload)


def ask(office: Consoles, who: dict[str, str], path: str, **fields: str) -> Answer:
    form = urlencode({"csrf": csrf_of(office, who), "version": version_of(folder_of(office)), **fields})
    return office.ask("north", "POST", path, form, headers=who, token=False)


# -- uploads -------------------------------------------------------------------------------------------------------------


def test_an_upload_needs_a_session_its_own_token_before_the_file_and_this_origin(office: Consoles) -> None:
    ada = office.sign_in("north")
    token = part("csrf", csrf_of(office, ada).encode())
    file = part("file", CSV, "visits.csv")
    assert upload(office, {}, token, file).status == 401
    assert upload(office, ada, file).status == 403
    assert upload(office, ada, file, token).status == 403  # behind the file is too late
    assert upload(office, ada, part("csrf", b"0" * 48), file).status == 403
    assert upload(office, ada, token, file, Origin="http://evil.example").status == 403
    eve = csrf_of(office, office.sign_in("north", "Eve"))
    assert upload(office, ada, part("csrf", eve.encode()), file).status == 403
    assert files_in(office) == []
    assert upload(office, ada, token, file).status == 303
    assert files_in(office) == ["visits.csv"]
    assert (folder_of(office) / "data" / "visits.csv").stat().st_mode & 0o777 == 0o600


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


BAD_NAMES = (
    "../visits.csv",
    "..\\visits.csv",
    "/etc/visits.csv",
    ".hidden.csv",
    "a/b.csv",
    "visits.sh",
    "site.toml",
    "v.csv.gz",
)
MORE_BAD_NAMES = (
    "v.zip",
    "v.duckdb",
    "x" * 130 + ".csv",
    "a\x00b.csv",
    "${file:keys}.csv",
    "*.csv",
    ".upload-1.csv",
    "visits.csv ",
)


def test_a_name_is_no_path_no_pattern_and_of_a_known_kind(office: Consoles) -> None:
    ada = office.sign_in("north")
    token, before = part("csrf", csrf_of(office, ada).encode()), sorted(folder_of(office).rglob("*"))
    for name in (*BAD_NAMES, *MORE_BAD_NAMES):
        assert upload(office, ada, token, part("file", CSV, name)).status == 400, name
    assert [path for path in sorted(folder_of(office).rglob("*")) if path not in before and path.name != "data"] == []


def test_what_is_too_large_is_refused_and_leaves_nothing(office: Consoles) -> None:
    configure(office, max_upload_mb=1)
    ada = office.sign_in("north")
    token = part("csrf", csrf_of(office, ada).encode())
    declared = upload(office, ada, token, part("file", b"x" * (3 << 20), "large.csv"))
    assert (declared.status, "larger than 1 MB" in declared.text) == (413, True)
    host, _, port = office.ports["north"].address.rpartition(":")  # without a stated length
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", **ada}
    pieces = [token + part("file", b"", "large.csv").removesuffix(b"\r\n"), *([b"x" * (1 << 18)] * 12)]
    connection.request("POST", "/table/upload", iter(pieces), kind, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert files_in(office) == []
    configure(office, max_upload_mb=0)
    off = upload(office, ada, token, part("file", CSV, "visits.csv"))
    assert (off.status, "uploads are off" in off.text) == (400, True)


def test_a_full_disk_is_named_and_leaves_nothing(office: Consoles, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = office.sign_in("north")
    token, file = part("csrf", csrf_of(office, ada).encode()), part("file", CSV, "visits.csv")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(data_folder.os, "fsync", full)
        answer = upload(office, ada, token, file)
    assert (answer.status, "the disk is full" in answer.text) == (507, True)
    home = office.office.net.sites["north"].home
    change_settings(home.folder, {"min_free_mb": 1 << 40}, version_of(home.folder))
    office.do(home.reload)
    answer = upload(office, ada, token, file)
    assert (answer.status, "the disk is nearly full" in answer.text) == (507, True)
    assert files_in(office) == []


def test_an_upload_that_breaks_off_or_was_killed_leaves_no_draft(office: Consoles) -> None:
    ada = office.sign_in("north")
    token = part("csrf", csrf_of(office, ada).encode())
    truncated = b"".join((token, part("file", CSV, "visits.csv").removesuffix(b"\r\n")))
    given = {**ada, "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    assert office.ask("north", "POST", "/table/upload", truncated, headers=given, token=False).status == 400
    host, _, port = office.ports["north"].address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.putrequest("POST", "/table/upload")
    for name, value in {**given, "Content-Length": "9999999"}.items():
        connection.putheader(name, value)
    connection.endheaders(truncated)
    until("the draft is there", lambda: any(name.startswith(".upload-") for name in files_in(office)), 120)
    connection.close()
    until("the draft is gone", lambda: files_in(office) == [], 120)
    (folder_of(office) / "data" / ".upload-0011").write_bytes(CSV)  # as after kill -9
    office.stop("north")
    office.start("north")
    assert files_in(office) == []


def test_a_file_is_replaced_only_if_asked_and_never_through_a_link(office: Consoles, tmp_path: Path) -> None:
    ada = office.sign_in("north")
    token, file = part("csrf", csrf_of(office, ada).encode()), part("file", CSV, "visits.csv")
    assert upload(office, ada, token, file).status == 303
    again = upload(office, ada, token, part("file", b"class\nill\n", "visits.csv"))
    assert (again.status, "there already" in again.text) == (400, True)
    assert (folder_of(office) / "data" / "visits.csv").read_bytes() == CSV
    assert upload(office, ada, token, part("replace", b"true"), part("file", b"class\nill\n", "visits.csv")).status == 303
    assert (folder_of(office) / "data" / "visits.csv").read_bytes() == b"class\nill\n"
    outside = tmp_path / "outside.csv"
    outside.write_bytes(CSV)
    (folder_of(office) / "data" / "link.csv").symlink_to(outside)
    assert upload(office, ada, token, part("replace", b"true"), part("file", b"x\n1\n", "link.csv")).status == 400
    assert outside.read_bytes() == CSV


def test_a_workbook_that_unpacks_to_more_than_the_limit_is_refused_whatever_it_states(office: Consoles) -> None:
    configure(office, max_upload_mb=1)
    ada = office.sign_in("north")
    token, packed = part("csrf", csrf_of(office, ada).encode()), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"0" * (8 << 20))
    bomb = packed.getvalue()
    size = (8 << 20).to_bytes(4, "little")
    assert bomb.count(size) == 2
    for raw in (bomb, bomb.replace(size, (100).to_bytes(4, "little"))):
        answer = upload(office, ada, token, part("file", raw, "bomb.xlsx"))
        assert (answer.status, "unpacks to more" in answer.text) == (413, True)
    assert upload(office, ada, token, part("file", b"PK nonsense", "bomb.xlsx")).status == 400
    assert upload(office, ada, token, part("file", gzip.compress(b"0" * (8 << 20)), "bomb.csv.gz")).status == 400
    assert files_in(office) == []


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_workbook_whose_packed_part_is_damaged_is_refused(tmp_path: Path, method: int) -> None:
    """The decompressor's own error came through (found by tests/fuzz)."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("xl/sheet", os.urandom(500))
    raw = bytearray(packed.getvalue())
    raw[38 + 4 : 200] = b"\xff" * (200 - 42)
    upload = data_folder.DataFolder(tmp_path / "data", 1 << 20, 0).begin("rows.xlsx")
    upload.write(bytes(raw))
    with pytest.raises(ConfigError, match="not a workbook"):
        upload.finish()
    upload.abandon()


def test_a_parquet_file_whose_rows_unpack_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    folder = data_folder.DataFolder(tmp_path / "data", max_bytes=1 << 20, min_free_bytes=0)
    bomb, fine = io.BytesIO(), io.BytesIO()
    rows = pa.table({"class": ["x" * 1000] * 5000})
    pq.write_table(rows, bomb, compression="zstd", use_dictionary=False)
    pq.write_table(rows, fine, compression="zstd", use_dictionary=False, row_group_size=500)
    for content, refusal in (
        (bomb.getvalue(), "smaller row groups"),
        (b"PAR1" * 9, "not a Parquet file"),
        (fine.getvalue(), ""),
    ):
        assert len(content) < 1 << 18
        upload = folder.begin("rows.parquet")
        upload.write(content)
        if refusal:
            with pytest.raises(ConfigError, match=refusal):
                upload.finish()
            upload.abandon()
            assert list((tmp_path / "data").iterdir()) == []
        else:
            upload.finish()
    assert [each["name"] for each in folder.files()] == ["rows.parquet"]


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


def test_markers_marks_and_maps_leave_the_digest_of_the_rows_as_it_is(tmp_path: Path) -> None:
    """Otherwise the same rows, read in another way, could pass for another table in exact sums."""
    (tmp_path / "rows.csv").write_text("y;job;pay\nno;?;1.234,5\nyes;cook;12\n")
    readings = [Rows("rows.csv"), Rows("rows.csv", missing=("?", "12")), Rows("rows.csv", decimal=",", thousands=".")]
    readings.append(Rows("rows.csv", map={"job": {"from": "job", "values": {"?": "cook"}}}))
    assert len({Tables(tmp_path, rows).digest(b"k" * 32) for rows in readings}) == 1


def test_a_listed_postgresql_server_is_brought_in_with_its_password_by_reference(office: Consoles) -> None:
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


@pytest.mark.parametrize("password", ["plain", "with/slash", "with@sign", "w?h#ash", "${env:SECRET_OF_TEST}"])
def test_the_page_shows_a_database_without_its_password(tmp_path: Path, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_TEST", "plain")
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(rows=Rows("data/rows.csv")))
    source = f"postgres://ada:{password}@db.example:5432/ward#visits"
    change_settings(home.folder, {"rows.source": source}, version_of(home.folder))
    assert describe_source(home) == "postgres://db.example:5432/ward"


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
