"""The site's JSON API: who may call it, what it says of itself, and that nothing thrown at it is its own mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blindbayes.console.auth import Authenticator
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


def test_a_damaged_log_makes_the_site_not_ready(tmp_path: Path) -> None:
    with Consoles(tmp_path, ("north", "south", "west")) as office:
        path = office.office.net.sites["north"].home.audit.path
        path.write_bytes(path.read_bytes().replace(b"north", b"nerth", 1))
        answer = office.ask("north", "GET", "/readyz", token=False)
        assert answer.status == 503
        assert answer.json == {"ready": False, "problem": "LedgerError"}


def test_a_site_from_a_backup_is_not_ready_before_its_people_have_spoken(tmp_path: Path) -> None:
    with Consoles(tmp_path, ("north", "south", "west")) as office:
        audit = office.office.net.sites["north"].home.audit
        audit.append("restored", of="yesterday", at=0)
        answer = office.ask("north", "GET", "/readyz", token=False)
        assert (answer.status, answer.json) == (503, {"ready": False, "problem": "restored, not acknowledged"})
        audit.append("acknowledged", why="nothing ran", who="Ada", exact_sums=True)
        assert office.ask("north", "GET", "/readyz", token=False).json == {"ready": True}


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


def test_large_and_slow_bodies_are_refused(office: Consoles) -> None:
    assert office.ask("north", "POST", "/api/runs", b" " * (1 << 21)).status == 413
    assert office.ask("north", "POST", "/api/runs", b"[" * 100_000).status == 400


# -- the description is true, and nothing thrown at the API is a mistake of its own ------------------------------------------


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
