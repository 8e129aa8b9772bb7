"""What a caller without a session can make the console do, and whom a one-time code signs in."""

from __future__ import annotations

import email.parser
import http.client
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import starlette.datastructures

from blindbayes.agent.approvals.people import Person
from blindbayes.console import auth as auth_module
from blindbayes.console.auth import Authenticator, closed
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import View
from blindbayes.console.first_run import FirstRun
from blindbayes.console.forms import fields_of
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.errors import ConfigError
from support.consoles import NAMES, Answer, Consoles
from support.forms import FORM, form, nested


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every parse of a multipart form, by whichever parser."""
    seen: list[str] = []
    inner, mail = fields_of, email.parser.BytesParser.parsebytes

    def ours(kind: str, body: bytes) -> dict[str, str]:
        seen.extend(["form"] * kind.startswith("multipart"))
        return inner(kind, body)

    def theirs(self: Any, *given: Any, **more: Any) -> Any:
        seen.append("mail")
        return mail(self, *given, **more)

    monkeypatch.setattr(auth_module, "fields_of", ours)
    monkeypatch.setattr(email.parser.BytesParser, "parsebytes", theirs)
    return seen


@pytest.mark.parametrize("body", [nested(3, 0), nested(250, 900_000), form(("name", b"Ada"), ("code", b"x"))])
def test_nothing_multipart_is_parsed_before_there_is_a_session(office: Consoles, parses: list[str], body: bytes) -> None:
    """One such form, sent by another account of the machine, stopped the agent for 198 seconds."""
    office.ports["north"].auth._tries.clear()
    for path in ("/login", "/studies", "/peers", "/api/studies", "/logout"):
        answer = office.ask("north", "POST", path, body, headers={"Content-Type": FORM}, token=False)
        assert answer.status in (401, 403, 413), path
    assert parses == []


def test_a_body_without_a_session_is_read_to_four_kilobytes_and_no_further(office: Consoles) -> None:
    for path in ("/login", "/healthz", "/readyz", "/metrics"):
        assert office.ask("north", "POST", path, b"x=" + b"y" * 5000, token=False).status == 413
    office.ports["north"].auth._tries.clear()
    assert office.ask("north", "POST", "/login", b"code=" + b"y" * 3000, token=False).status == 403


def test_the_form_of_a_person_who_signed_in_is_parsed_once_and_off_the_event_loop(
    office: Consoles, parses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    office.ports["north"].auth._tries.clear()
    ada, threads = office.sign_in("north"), []
    inner = auth_module.fields_of

    def watched(kind: str, body: bytes) -> dict[str, str]:
        threads.append(threading.current_thread())
        return inner(kind, body)

    monkeypatch.setattr(auth_module, "fields_of", watched)
    page = office.ask("north", "GET", "/settings", headers=ada, token=False).text
    csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]
    body = form(("csrf", csrf.encode()), ("text", b""), ("text", b"no invitation"))
    answer = office.ask("north", "POST", "/invitations", body, headers={**ada, "Content-Type": FORM}, token=False)
    assert (answer.status, parses) == (400, ["form"])
    assert "TOML" in answer.text
    assert office.do(threading.current_thread) not in threads
    broken = office.ask("north", "POST", "/invitations", b"--x", headers={**ada, "Content-Type": FORM}, token=False)
    assert broken.status == 400


# -- one-time codes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def staffed(tmp_path: Path) -> Iterator[Consoles]:
    """A site with two stewards, one of them with a password, and an analyst."""
    with Consoles(tmp_path, NAMES) as consoles:
        people = consoles.office.net.sites["north"].home.people
        people.add(Person("Ada", "steward", secret=hash_password("correct horse battery", Coins.system())))
        people.add(Person("Grace", "steward"), who="Ada")
        people.add(Person("Alan", "analyst"), who="Ada")
        yield consoles


def enter(consoles: Consoles, **fields: str) -> Answer:
    consoles.ports["north"].auth._tries.clear()
    return consoles.ask("north", "POST", "/login", urlencode(fields), token=False)


@pytest.mark.parametrize("name", ["Ada", "Grace", "Nobody"])
def test_an_analysts_code_signs_in_nobody_else(staffed: Consoles, name: str) -> None:
    """It signed in whichever person the form named, past her password and past `approvers = 2`."""
    code = staffed.ports["north"].auth.new_code("Alan")
    assert enter(staffed, name=name, code=code).status == 403
    assert enter(staffed, name="Alan", code=code).status == 403  # the wrong try used it up
    entries = staffed.office.net.sites["north"].home.audit.where("event", "signed in")
    assert entries == []


@pytest.mark.parametrize("password", ["none", "anything", "scrypt"])
def test_a_person_without_a_password_does_not_sign_in_by_one(staffed: Consoles, password: str) -> None:
    assert enter(staffed, name="Grace", password=password).status == 403


def test_removing_a_person_ends_their_session(staffed: Consoles) -> None:
    answer = enter(staffed, code=staffed.ports["north"].auth.new_code("Alan"))
    cookie = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
    assert staffed.ask("north", "GET", "/settings", headers=cookie, token=False).status == 200
    staffed.office.net.sites["north"].home.people.remove("Alan", who="Ada")
    assert staffed.ask("north", "GET", "/settings", headers=cookie, token=False).status == 303


def test_a_code_brings_its_own_name_and_role(staffed: Consoles) -> None:
    answer = enter(staffed, code=staffed.ports["north"].auth.new_code("Alan"))
    assert answer.status == 303
    cookie = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
    page = staffed.ask("north", "GET", "/settings", headers=cookie, token=False).text
    csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]
    done = staffed.ask("north", "POST", "/reload", urlencode({"csrf": csrf}), headers=cookie, token=False)
    assert "this needs one of the roles: steward" in done.text
    for name in ("/settings", "/reload"):  # what a person may not do is shown, not offered
        assert "<fieldset disabled>" in page.split(f'action="{name}"')[1].split("</form>")[0]
    entries = staffed.office.net.sites["north"].home.audit.where("event", "signed in")
    assert [(entry["who"], entry["roles"]) for entry in entries] == [("Alan", ["analyst"])]


def test_no_code_replaces_a_password(staffed: Consoles) -> None:
    auth, people = staffed.ports["north"].auth, staffed.office.net.sites["north"].home.people
    with pytest.raises(ConfigError, match="signs in with a password"):
        auth.new_code("Ada")
    refused = staffed.ask("north", "POST", "/api/codes", {"name": "Ada"})
    assert (refused.status, "password" in refused.json["message"]) == (400, True)
    code = auth.new_code("Grace")  # made before she had one
    people.add(Person("Grace", "steward", secret=hash_password("another password", Coins.system())), who="Ada")
    assert enter(staffed, code=code).status == 403
    assert enter(staffed, name="Grace", password="another password").status == 303


def test_a_session_from_before_anybody_was_named_is_nobodys(tmp_path: Path) -> None:
    """Its name was free: it must not become that of a steward with a password."""
    with Consoles(tmp_path, NAMES) as consoles:
        early = consoles.sign_in("north", "Ada")
        assert consoles.ask("north", "GET", "/api/log", headers=early, token=False).status == 200
        people = consoles.office.net.sites["north"].home.people
        people.add(Person("Ada", "steward", secret=hash_password("correct horse battery", Coins.system())))
        assert consoles.ask("north", "GET", "/api/log", headers=early, token=False).status == 401


def test_a_code_for_somebody_who_was_removed_signs_nobody_in(staffed: Consoles) -> None:
    code = staffed.ports["north"].auth.new_code("Alan")
    staffed.office.net.sites["north"].home.people.remove("Alan", who="Ada")
    assert enter(staffed, code=code).status == 403


def test_a_list_of_people_that_was_emptied_ends_every_session(staffed: Consoles) -> None:
    answer = enter(staffed, code=staffed.ports["north"].auth.new_code("Grace"))
    cookie = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
    code = staffed.ports["north"].auth.new_code("Grace")
    staffed.office.net.sites["north"].home.people.path.write_text("")
    assert staffed.ask("north", "GET", "/api/log", headers=cookie, token=False).status == 401
    for refused in (enter(staffed, code=code), staffed.ask("north", "GET", "/login", token=False)):
        assert (refused.status, "names no steward" in refused.text) == (409, True)
    assert staffed.ask("north", "POST", "/api/codes", {"name": "Mallory"}).status == 400


def test_a_page_that_is_watched_ends_with_the_person_who_watches(staffed: Consoles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events went on to a person who had been removed."""
    monkeypatch.setattr("blindbayes.console.pages._HEARTBEAT_SECONDS", 0.2)
    answer = enter(staffed, code=staffed.ports["north"].auth.new_code("Alan"))
    host, _, port = staffed.ports["north"].address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", "/events?of=/", headers={"Cookie": answer.headers["Set-Cookie"].split(";")[0]})
    events = connection.getresponse()
    assert events.readline() == b"retry: 2000\n"
    staffed.office.net.sites["north"].home.people.remove("Alan", who="Ada")
    lines = list(iter(events.readline, b""))  # it ends
    assert not any(b"person removed" in line for line in lines)
    connection.close()


def test_codes_are_asked_for_by_name(staffed: Consoles) -> None:
    for body in ({}, {"name": ""}, {"name": 3}, {"name": "Nobody"}, {"name": "Alan", "role": "steward"}, [], "x"):
        assert staffed.ask("north", "POST", "/api/codes", body).status == 400
    code = staffed.ask("north", "POST", "/api/codes", {"name": "Alan"}).json["code"]
    assert enter(staffed, code=code).status == 303


# -- the path and the Host -------------------------------------------------------------------------------------------------


def ask_as(consoles: Consoles, host: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    name, _, port = consoles.ports["north"].address.rpartition(":")
    connection = http.client.HTTPConnection(name, int(port), timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """`request.url` as Starlette 1.0.0 builds it, out of the Host header (CVE-2026-48710)."""
    original = starlette.datastructures.URL.__init__

    def as_in_1_0_0(self: Any, url: str = "", scope: Any = None, **components: Any) -> None:
        if scope is None:
            original(self, url, scope, **components)
            return
        host = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"host"), "x")
        self._url = f"{scope.get('scheme', 'http')}://{host}{scope['path']}"

    monkeypatch.setattr(starlette.datastructures.URL, "__init__", as_in_1_0_0)


VIEWS = sorted(f"/api{call.path}".rstrip("/") for call in CALLS if isinstance(call, View) and "{" not in call.path)[1:]


@pytest.mark.parametrize("path", [*VIEWS, "/api/openapi.json", "/invitation.toml", "/card.toml", "/", "/log", "/events?of=/"])
@pytest.mark.usefixtures("poisoned")
def test_no_host_header_opens_a_view(office: Consoles, path: str) -> None:
    for host in ("127.0.0.1:1/static/x?", "localhost/login?", "127.0.0.1:1/healthz#", "[::1]:80/metrics?"):
        assert ask_as(office, host, path)[0] == 403
    status, body = ask_as(office, "127.0.0.1:1", path)
    assert status in (303, 401)
    assert b"north" not in body


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80:80",
        "localhost:",
        "127.0.0.1@evil",
        "",
        "[::1",
        "127.0.0.1:999999",
    ],
)
def test_the_host_is_compared_whole(office: Consoles, host: str) -> None:
    assert ask_as(office, host, "/healthz")[0] == 403
    for right in ("127.0.0.1", "localhost:7441", "[::1]:1"):
        assert ask_as(office, right, "/healthz")[0] == 200


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("path", [*VIEWS, "/invitation.toml", "/", "/releases/ab/files/x", "/api/codes"])
def test_a_route_refuses_without_a_visitor_even_if_the_guard_lets_a_request_through(
    office: Consoles, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(auth_module, "_refusal", lambda request, user: None)
    method = "POST" if path == "/api/codes" else "GET"
    status, body = ask_as(office, "127.0.0.1", path, method)
    assert (status, b"north" in body) == (401, False)


@pytest.mark.parametrize(
    "path", ["/static/x/../../api/log", "/static//api/log", "/login/", "//login", "/static/..%2fapi%2flog"]
)
def test_paths_that_only_look_open_are_closed(office: Consoles, path: str) -> None:
    status, body = ask_as(office, "127.0.0.1", path)
    assert status in (303, 404)
    assert b"entries" not in body


def test_the_first_run_is_closed_by_default_too(tmp_path: Path) -> None:
    import asyncio

    async def made() -> list[bool]:
        page = FirstRun(tmp_path / "new", "127.0.0.1:0")
        await page.start()
        routes = page.middleware.app.routes  # type: ignore[attr-defined]
        await page.listening.close()
        return [
            route.endpoint.__qualname__.startswith(closed.__name__)
            for route in routes
            if route.path not in ("/login", "/static/{name}")
        ]

    assert asyncio.run(made()) == [True, True]
    assert Authenticator().people is None
