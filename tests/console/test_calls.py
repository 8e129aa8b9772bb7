"""The site's JSON API: who may call it, what it says of itself, and that nothing thrown at it is its own mistake."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blindbayes.console.auth import Authenticator
from blindbayes.console.port import _metrics_token
from blindbayes.errors import ConfigError
from blindbayes.study.file import Deadlines, StudyFile
from support.consoles import Consoles
from support.sites import BOOK


@pytest.fixture(scope="module")
def study(office: Consoles) -> StudyFile:
    made = office.office.net.make_study(BOOK, deadlines=Deadlines(step=20, join=20, run=35))
    office.office.net.approve(made, runs=5)
    return made


def test_a_program_begins_a_run_and_waits_for_its_end(office: Consoles, study: StudyFile) -> None:
    begun = office.ask("north", "POST", "/api/runs", {"study": study.sha256})
    assert begun.status == 200
    run = begun.json
    for _ in range(200):
        run = office.ask("north", "GET", f"/api/runs/{run['run']}?after={quote(run['text'])}").json
        if run["state"] in ("done", "failed"):
            break
    assert run["state"] == "done", run
    assert office.ask("north", "GET", f"/api/runs/{run['run']}").json["seconds"] == run["seconds"]  # its clock stands still
    assert office.ask("north", "GET", "/api/runs/" + "0" * 32).status == 404


def test_what_the_agent_refuses_is_a_refusal_with_its_code(office: Consoles) -> None:
    answer = office.ask("north", "POST", "/api/runs", {"study": "0" * 64})
    assert answer.status == 409
    assert answer.json["state"] == "refused"
    assert answer.json["exit_code"] == 4


def test_nobody_comes_in_without_a_token_or_under_another_name(office: Consoles) -> None:
    good = {"Authorization": f"Bearer {office.ports['north'].auth.token}"}
    assert office.ask("north", "GET", "/api/status", token=False).status == 401
    assert office.ask("north", "GET", "/api/status", headers={"Authorization": "Bearer x"}).status == 401
    assert office.ask("north", "GET", "/api/status", headers={"Host": "evil.example"}).status == 403
    assert office.ask("north", "GET", "/api/status", headers={"Host": "127.0.0.1.evil.example:7441"}).status == 403
    assert office.ask("north", "POST", "/api/runs", "{}", headers={"Origin": "http://evil.example"}).status == 403
    assert office.ask("north", "POST", "/api/runs", "{}", headers={"Origin": "null"}).status == 403
    assert office.ask("north", "GET", "/api/status", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert office.ask("north", "GET", "/api/status", headers={"Sec-Fetch-Site": "same-site"}).status == 403
    assert office.ask("north", "GET", "/api/status", headers=good).status == 200
    assert office.ask("north", "GET", "/api/status", headers={"Authorization": good["Authorization"] + "é"}).status == 401


def test_every_answer_forbids_what_a_page_does_not_need(office: Consoles) -> None:
    for path in ("/api/status", "/healthz", "/api/nothing", "/metrics"):
        headers = office.ask("north", "GET", path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "uvicorn" not in str(headers)


def test_health_is_for_all_and_metrics_have_a_token_that_lasts_and_does_no_more(office: Consoles, tmp_path: Path) -> None:
    assert office.ask("north", "GET", "/healthz", token=False).json == {"alive": True}
    assert office.ask("north", "GET", "/readyz", token=False).json == {"ready": True}
    assert office.ask("north", "GET", "/metrics", token=False).status == 401
    path = office.office.net.sites["north"].home.folder / "metrics.token"
    assert path.stat().st_mode & 0o077 == 0
    reader = {"Authorization": f"Bearer {path.read_text().strip()}"}
    found = office.ask("north", "GET", "/metrics", token=False, headers=reader)
    assert found.headers["Content-Type"].startswith("application/openmetrics-text")
    assert found.text.endswith("# EOF\n")
    assert office.ask("north", "GET", "/api/status", token=False, headers=reader).status == 401
    assert office.ask("north", "POST", "/api/runs", {}, token=False, headers=reader).status == 401
    office.stop("north")
    office.start("north")
    assert office.ask("north", "GET", "/metrics", token=False, headers=reader).status == 200


def test_the_probes_can_have_a_port_of_their_own_and_nothing_else_is_there(tmp_path: Path) -> None:
    office = Consoles(tmp_path, ("north", "south", "west"))
    home = office.office.net.sites["north"].home
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    home.config = msgspec.structs.replace(home.config, metrics=f"127.0.0.1:{port}")
    with office:
        office.ports["probes"] = auth = office.ports["north"].__class__(office.office.agents["north"])
        auth.address = f"127.0.0.1:{port}"
        assert office.ask("probes", "GET", "/healthz", token=False).status == 200
        assert office.ask("probes", "GET", "/metrics", token=False).status == 401
        reader = {"Authorization": f"Bearer {(home.folder / 'metrics.token').read_text().strip()}"}
        assert office.ask("probes", "GET", "/metrics", token=False, headers=reader).status == 200
        right = {"Authorization": f"Bearer {office.ports['north'].auth.token}"}
        assert office.ask("probes", "GET", "/api/status", token=False, headers=right).status == 404
        del office.ports["probes"]


def test_a_damaged_log_makes_the_site_not_ready(tmp_path: Path) -> None:
    with Consoles(tmp_path, ("north", "south", "west")) as office:
        path = office.office.net.sites["north"].home.audit.path
        path.write_bytes(path.read_bytes().replace(b"north", b"nerth", 1))
        answer = office.ask("north", "GET", "/readyz", token=False)
        assert answer.status == 503
        assert answer.json == {"ready": False, "problem": "LedgerError"}


def test_log_and_ledger_are_checked_from_the_first_byte_when_asked(tmp_path: Path) -> None:
    with Consoles(tmp_path, ("north", "south", "west")) as office:
        home = office.office.net.sites["north"].home
        for page in ("/log", "/ledger"):
            text = office.ask("north", "GET", page, token=False, headers=office.sign_in("north")).text
            assert "Verify the whole log and ledger now" in text
        found = office.ask("north", "POST", "/api/verify").json
        log, ledger = found["checks"]
        assert (log["problem"], ledger["problem"], ledger["entries"]) == ("", "", len(home.ledger.entries()))
        assert home.audit.entries()[-1]["event"] == "chains checked"
        assert home.audit.entries()[log["entries"] - 1]["hash"] == log["head"]
        home.ledger.path.write_bytes(home.ledger.path.read_bytes().replace(b"north", b"nerth", 1))
        log, ledger = office.ask("north", "POST", "/api/verify").json["checks"]
        assert log["problem"] == ""
        assert "ledger" in ledger["problem"]
        home.audit.path.write_bytes(home.audit.path.read_bytes()[:-200])
        assert all(each["problem"] for each in office.ask("north", "POST", "/api/verify").json["checks"])


def test_a_site_from_a_backup_is_not_ready_before_its_people_have_spoken(tmp_path: Path) -> None:
    with Consoles(tmp_path, ("north", "south", "west")) as office:
        audit = office.office.net.sites["north"].home.audit
        audit.append("restored", of="yesterday", at=0)
        answer = office.ask("north", "GET", "/readyz", token=False)
        assert (answer.status, answer.json) == (503, {"ready": False, "problem": "restored, not acknowledged"})
        audit.append("acknowledged", why="nothing ran", who="Ada", exact_sums=True)
        assert office.ask("north", "GET", "/readyz", token=False).json == {"ready": True}


def test_an_approval_has_a_last_day_through_the_api_and_the_page(office: Consoles, study: StudyFile) -> None:
    there, words = f"/studies/{study.sha256}", study.roster.sha256[:8]
    said = office.ask("north", "POST", f"/api{there}/approve", {"compared": words, "until": "2020-01-01"})
    assert said.status == 400
    assert "is over: name today or a later day" in said.json["message"]
    for bad in ("tomorrow", "2020-02-30", 7):
        assert office.ask("north", "POST", f"/api{there}/approve", {"compared": words, "until": bad}).status == 400
    body = {"compared": words, "runs": 5, "until": "2999-12-31"}
    assert office.ask("north", "POST", f"/api{there}/approve", body).status == 200
    assert office.ask("north", "GET", f"/api{there}").json["until"] == "2999-12-31"
    page = office.ask("north", "GET", there, token=False, headers=office.sign_in("north")).text
    assert "until 2999-12-31 (UTC)" in page
    assert office.ask("north", "POST", f"/api{there}/approve", {"compared": words, "runs": 5}).json["runs_left"] == 5


def test_a_code_signs_in_once_and_five_tries_a_minute_are_all() -> None:
    auth = Authenticator("x")
    code = auth.new_code("Ada")
    assert auth.redeem("wrong") is None
    assert auth.redeem(code.upper().replace("-", " ")) == "Ada"
    assert auth.redeem(code) is None
    assert [auth.may_try() for _ in range(6)] == [True] * 5 + [False]


@pytest.mark.parametrize("study", ["a" * 300, "x", "%2e%2e", "0" * 63, "0" * 64])
def test_a_hash_that_names_no_file_is_refused(office: Consoles, study: str) -> None:
    answer = office.ask("north", "POST", f"/api/studies/{study}/revoke", {})
    assert (answer.status, answer.json["message"]) == (400, "no study of that hash is approved here")


def test_a_damaged_metrics_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.token").write_bytes(b"\xff\xfe")
    (tmp_path / "metrics.token").chmod(0o600)
    with pytest.raises(ConfigError, match=r"metrics.token is damaged"):
        _metrics_token(tmp_path)


def test_large_and_slow_bodies_are_refused(office: Consoles) -> None:
    assert office.ask("north", "POST", "/api/runs", b" " * (1 << 21)).status == 413
    assert office.ask("north", "POST", "/api/runs", b"[" * 100_000).status == 400


# -- the description is true, and nothing thrown at the API is a mistake of its own ------------------------------------------


def test_the_description_names_every_call_and_is_valid_by_its_own_schemas(office: Consoles) -> None:
    from jsonschema import Draft202012Validator

    said = office.ask("north", "GET", "/api/openapi.json").json
    assert said["openapi"].startswith("3.1")
    assert {"/api/status", "/api/runs", "/api/runs/{run}"} <= set(said["paths"])
    for schema in said["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    names = [call["operationId"] for path in said["paths"].values() for call in path.values()]
    assert len(names) == len(set(names))


_TEXT = st.text(max_size=40) | st.sampled_from(["", "../../etc/passwd", "\x00", "0" * 64, "é" * 30, "<b>", "-1", "1e999"])
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)


def _of(schema: dict[str, Any], parts: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a schema, most of them; some are anything."""
    if "$ref" in schema:
        return _of(parts[schema["$ref"].rpartition("/")[2]], parts)
    if "properties" in schema:
        fields = {name: _of(each, parts) | _VALUE for name, each in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional=fields) | st.fixed_dictionaries(fields)
    if "anyOf" in schema:
        return st.one_of(*(_of(each, parts) for each in schema["anyOf"]))
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "string": _TEXT,
        "integer": st.integers(),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
        "array": st.lists(_TEXT, max_size=3),
        "null": st.none(),
    }
    return kinds.get(schema.get("type", ""), _VALUE)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_nothing_thrown_at_the_api_is_a_server_error(office: Consoles, data: st.DataObject) -> None:
    """What schemathesis does, from the same description: every call, with fields that fit their schemas and with others."""
    said = office.ask("north", "GET", "/api/openapi.json").json
    parts = said["components"]["schemas"]
    calls = [(path, method, call) for path, methods in sorted(said["paths"].items()) for method, call in methods.items()]
    path, method, call = data.draw(st.sampled_from(calls))
    query = {}
    for each in call["parameters"]:
        drawn = data.draw(_TEXT if each["in"] == "query" else _TEXT.filter(lambda text: "/" not in text and text))
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(drawn))
        elif each["name"] != "after":
            query[each["name"]] = drawn
    body = None
    if method == "post":
        schema = call["requestBody"]["content"]["application/json"]["schema"]
        body = json.dumps(data.draw(_of(schema, parts) | _VALUE))
    answer = office.ask("north", method.upper(), f"{path}?{urlencode(query)}", body)
    assert answer.status in {int(code) for code in call["responses"]} | {413}, (answer.status, path, answer.text)
    if answer.status != 200:
        assert "message" in answer.json
