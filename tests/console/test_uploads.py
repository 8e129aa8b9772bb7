"""Uploads: who may, of which size and kind, and what is left when one breaks off."""

from __future__ import annotations

import errno
import gzip
import http.client
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.agent.store import data_folder
from support.consoles import NAMES, Consoles
from support.engines import until
from support.table_page import BOUNDARY, CSV, configure, csrf_of, files_in, folder_of, part, upload


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Consoles]:
    with Consoles(tmp_path, NAMES) as opened:
        yield opened


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
