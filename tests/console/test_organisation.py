"""Sign-in by the organisation against a provider that runs as a process of its own, and attacks on it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import pytest

from blindbayes.agent.approvals.people import Person
from blindbayes.agent.config import SignIn
from blindbayes.console import auth as auth_module
from blindbayes.console import fetch as fetch_module
from blindbayes.console import oidc as oidc_module
from blindbayes.console.auth import BEGIN, CALLBACK
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.net.identity import speak
from blindbayes.study.file import StudyFile
from support.consoles import NAMES, Answer, Consoles
from support.provider import ProviderProcess
from support.sites import BOOK

pytest.importorskip("jwt", reason="the oidc extra is not installed")
USERS = {
    "5f1c-ada": {"name": "Ada", "roles": ["bb-steward", "other"]},
    "77aa-grace": {"name": "Grace", "roles": ["bb-steward"]},
    "90ee-alan": {"name": "Alan", "roles": "bb-analyst"},
    "none-eve": {"name": "Eve", "roles": ["visitor"]},
}
SESSION = re.compile(r"blindbayes-[0-9]+=")
NAVIGATION = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def process() -> Iterator[ProviderProcess]:
    found = ProviderProcess()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    with Consoles(tmp_path_factory.mktemp("office"), NAMES) as found:
        yield found


class Desk:
    """One site with sign-in by the organisation, and its provider."""

    def __init__(self, office: Consoles, provider: ProviderProcess) -> None:
        self.office, self.provider = office, provider
        self.home, self.port = office.office.net.sites["north"].home, office.ports["north"]

    def configure(self, **fields: Any) -> None:
        roles = {"bb-steward": "steward", "bb-analyst": "analyst"}
        given = {"issuer": self.provider.issuer, "client_id": "console", "roles": roles, "secret_file": "oidc.secret"} | fields
        settings = msgspec.convert(given, SignIn)
        self.office.do(lambda: self.use(sign_in=settings))

    def use(self, **fields: Any) -> None:
        self.home.config = self.home.decisions.config = msgspec.structs.replace(self.home.config, **fields)

    def get(self, path: str, cookie: str = "", **headers: str) -> Answer:
        given = {"Cookie": cookie} if cookie else {}
        return self.office.ask("north", "GET", path, headers={**given, **headers}, token=False)

    def begin(self) -> tuple[str, str]:
        """The address of the provider, and the cookie of the pre-session."""
        answer = self.get(BEGIN)
        assert answer.status == 303, answer.text
        return answer.headers["Location"], answer.headers["Set-Cookie"].split(";")[0]

    def back(self, address: str, cookie: str, **more: str) -> Answer:
        parts = urlsplit(address)
        query = urlencode({**dict(parse_qsl(parts.query)), **more})
        return self.get(f"{parts.path}?{query}", cookie, **NAVIGATION)

    def try_as(self, sub: str = "5f1c-ada", **more: str) -> Answer:
        address, cookie = self.begin()
        return self.back(self.provider.sign_in(address, sub), cookie, **more)

    def sign_in(self, sub: str = "5f1c-ada") -> str:
        answer = self.try_as(sub)
        assert answer.status == 200, answer.text
        return session_of(answer)

    def events(self, event: str) -> list[dict[str, Any]]:
        return self.home.audit.where("event", event)

    def require_refused(self, answer: Answer, rule: str, status: int = 403) -> None:
        """The page says no, nobody is signed in, and the log has the rule without anything of the token."""
        assert (answer.status, session_of(answer)) == (status, ""), answer.text
        assert 'role="alert"' in answer.text
        assert self.events("sign-in refused")[-1]["why"] == rule
        assert self.port.auth._sessions == {}
        written = self.home.audit.path.read_text() + answer.text
        assert "eyJ" not in written
        assert "secret-canary" not in written

    def act(self, cookie: str, path: str, **fields: str) -> Answer:
        page = self.get("/settings", cookie).text
        csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]
        body = urlencode({"csrf": csrf, **fields})
        return self.office.ask("north", "POST", path, body, headers={"Cookie": cookie}, token=False)


def session_of(answer: Answer) -> str:
    cookies = answer.headers.get_all("Set-Cookie") or []
    return next((each.split(";")[0] for each in cookies if SESSION.match(each) and "Max-Age=0" not in each), "")


@contextlib.contextmanager
def open_desk(office: Consoles, process: ProviderProcess) -> Iterator[Desk]:
    found = Desk(office, process)
    before = found.home.config
    redirect = f"http://{found.port.address}{CALLBACK}"
    clients = {
        "console": {"secret": "s3cret", "redirects": [redirect]},
        "public": {"secret": None, "redirects": [redirect]},
    }
    process.set(users=USERS, clients=clients, faults={})
    secret = found.home.folder / "oidc.secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    organisation = found.port._pages.organisation
    organisation._tries.clear()
    organisation._provider = None
    found.port.auth._sessions.clear()
    found.port.auth._tries.clear()
    found.configure()
    yield found
    office.do(lambda: found.use(**{name: getattr(before, name) for name in before.__struct_fields__}))


@pytest.fixture
def desk(office: Consoles, process: ProviderProcess) -> Iterator[Desk]:
    with open_desk(office, process) as found:
        yield found


@pytest.fixture
def staffed(tmp_path: Path, process: ProviderProcess) -> Iterator[Desk]:
    """A site of its own, which also has a people.toml with two stewards, Alan and Ada."""
    with Consoles(tmp_path, NAMES) as office, open_desk(office, process) as found:
        found.home.people.add(Person("Ada", "steward", secret=hash_password("correct horse battery", Coins.system())))
        found.home.people.add(Person("Alan", "steward"), who="Ada")
        yield found


# -- the way there and back ------------------------------------------------------------------------------------------------


def test_a_person_signs_in_and_the_log_has_subject_and_issuer(desk: Desk) -> None:
    cookie = desk.sign_in("90ee-alan")
    assert "Alan" in desk.get("/settings", cookie).text
    entry = desk.events("signed in")[-1]
    assert (entry["subject"], entry["issuer"], entry["roles"]) == ("90ee-alan", desk.provider.issuer, ["analyst"])
    refused = desk.act(cookie, "/reload")
    assert "this needs one of the roles: steward" in refused.text
    kept = desk.act(desk.sign_in(), "/reload")
    assert kept.status == 303


def test_the_request_has_pkce_state_and_nonce_of_its_own(desk: Desk) -> None:
    asked = [dict(parse_qsl(urlsplit(desk.begin()[0]).query)) for _ in range(2)]
    for name in ("state", "nonce", "code_challenge"):
        assert len({each[name] for each in asked}) == 2
        assert len(asked[0][name]) == 43
    assert (asked[0]["code_challenge_method"], asked[0]["response_type"]) == ("S256", "code")
    assert asked[0]["redirect_uri"] == f"http://{desk.port.address}{CALLBACK}"
    assert "offline_access" not in asked[0]["scope"]


def test_a_public_client_and_an_elliptic_curve_key_sign_in_too(desk: Desk) -> None:
    desk.configure(client_id="public", secret_file=None)
    desk.provider.set(faults={"alg": "ES256"})
    assert desk.sign_in()


def test_the_roles_can_stand_in_a_nested_claim_as_keycloak_has_them(desk: Desk) -> None:
    desk.configure(roles_claim="realm_access.roles")
    desk.provider.set(users={"5f1c-ada": {"name": "Ada", "realm_access": {"roles": ["bb-steward"]}}})
    assert desk.sign_in()


def test_without_the_setting_nothing_is_asked_of_a_provider(desk: Desk) -> None:
    desk.office.do(lambda: desk.use(sign_in=None))
    before = len(desk.provider.set())
    answer = desk.get(BEGIN)
    assert (answer.status, "no sign-in by the organisation" in answer.text) == (403, True)
    assert desk.back(f"{CALLBACK}?code=x&state=y", "").status == 403
    assert "Sign in by the organisation" not in desk.get("/login").text
    desk.configure()
    assert "Sign in by the organisation" in desk.get("/login").text
    assert len(desk.provider.set()) == before


def test_a_provider_that_is_down_leaves_codes_and_passwords(staffed: Desk) -> None:
    desk = staffed
    desk.configure(issuer="http://127.0.0.1:9")
    desk.require_refused(desk.get(BEGIN), "unreachable", 503)
    assert "sign in with a code or password" in desk.get(BEGIN).text
    form = urlencode({"name": "Ada", "password": "correct horse battery"})
    assert desk.office.ask("north", "POST", "/login", form, token=False).status == 303
    form = urlencode({"code": desk.port.auth.new_code("Alan")})
    assert desk.office.ask("north", "POST", "/login", form, token=False).status == 303


def test_a_provider_that_others_wrote_signs_a_person_in(desk: Desk) -> None:
    """oidc-provider-mock (Authlib): it issues codes, nonces and RS256 tokens as we expect them; it does not check PKCE."""
    pytest.importorskip("oidc_provider_mock", reason="oidc-provider-mock is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    user = json.dumps({"sub": "mock-ada", "name": "Ada", "roles": ["bb-steward"]})
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "--user-claims", user]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as process:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            desk.configure(issuer=f"http://127.0.0.1:{port}")
            address, cookie = desk.begin()
            parts, there = urlsplit(address), http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            there.request("POST", f"{parts.path}?{parts.query}", "sub=mock-ada", form)
            answer = desk.back(there.getresponse().headers["Location"], cookie)
            there.close()
        finally:
            process.terminate()
    assert answer.status == 200, answer.text
    entry = desk.events("signed in")[-1]
    assert (entry["issuer"], entry["subject"]) == (f"http://127.0.0.1:{port}", "mock-ada")


# -- attacks ---------------------------------------------------------------------------------------------------------------


def test_another_state_signs_nobody_in(desk: Desk) -> None:
    desk.require_refused(desk.try_as(state="x" * 43), "state")


def test_a_state_works_once(desk: Desk) -> None:
    address, cookie = desk.begin()
    back = desk.provider.sign_in(address, "5f1c-ada")
    assert desk.back(back, cookie).status == 200
    desk.port.auth._sessions.clear()
    desk.require_refused(desk.back(back, cookie), "state")


def test_signing_a_victim_in_as_the_attacker_fails(desk: Desk) -> None:
    """Sign-in CSRF: the attacker's own answer, in a browser that began nothing, or began something else."""
    address, _ = desk.begin()
    back = desk.provider.sign_in(address, "77aa-grace")
    desk.require_refused(desk.back(back, ""), "state")
    _, victim = desk.begin()
    desk.require_refused(desk.back(back, victim), "state")
    desk.require_refused(desk.back(back, f"{victim.partition('=')[0]}={'0' * 48}"), "state")


def test_a_cookie_that_was_planted_before_is_no_session_after(desk: Desk) -> None:
    """Session fixation: the cookie changes at sign-in, and a session that was there before ends."""
    address, cookie = desk.begin()
    planted = f"{cookie.partition('-sign-in')[0]}={'a' * 48}"
    answer = desk.back(desk.provider.sign_in(address, "5f1c-ada"), f"{cookie}; {planted}")
    assert session_of(answer) not in ("", planted)
    assert desk.get("/settings", planted).status == 303
    old = desk.sign_in("90ee-alan")
    address, cookie = desk.begin()
    desk.back(desk.provider.sign_in(address, "5f1c-ada"), f"{cookie}; {old}")
    assert desk.get("/settings", old).status == 303
    strict = [each for each in answer.headers.get_all("Set-Cookie") or [] if SESSION.match(each)]
    assert ["samesite=strict" in each.lower() and "httponly" in each.lower() for each in strict] == [True]


def test_a_code_works_once(desk: Desk) -> None:
    address, cookie = desk.begin()
    used = dict(parse_qsl(urlsplit(desk.provider.sign_in(address, "5f1c-ada")).query))
    desk.back(f"{CALLBACK}?{urlencode(used)}", cookie)
    desk.port.auth._sessions.clear()
    address, cookie = desk.begin()
    fresh = dict(parse_qsl(urlsplit(address).query))["state"]
    desk.require_refused(desk.back(f"{CALLBACK}?{urlencode(used | {'state': fresh})}", cookie), "code")


def test_anothers_code_is_useless_without_its_verifier(desk: Desk) -> None:
    """A stolen code under the thief's own state: PKCE refuses it at the provider."""
    victim, _ = desk.begin()
    stolen = dict(parse_qsl(urlsplit(desk.provider.sign_in(victim, "5f1c-ada")).query))["code"]
    desk.require_refused(desk.try_as("90ee-alan", code=stolen), "code")


@pytest.mark.parametrize(
    ("faults", "rule"),
    [
        ({"claims": {"nonce": "another"}}, "nonce"),
        ({"claims": {"nonce": 5}}, "nonce"),
        ({"claims": {"nonce": "absent"}}, "missing claim"),
        ({"claims": {"aud": "other"}}, "audience"),
        ({"claims": {"aud": ["console", "other"]}}, "audience"),
        ({"claims": {"aud": ["console", "other"], "azp": "other"}}, "audience"),
        ({"claims": {"azp": "other"}}, "audience"),
        ({"claims": {"iss": "https://evil.example"}}, "issuer"),
        ({"claims": {"exp": 1_700_000_000}}, "expired"),
        ({"claims": {"exp": "absent"}}, "missing claim"),
        ({"claims": {"exp": "soon"}}, "malformed token"),
        ({"claims": {"iat": 9_000_000_000}}, "not yet valid"),
        ({"claims": {"auth_time": 1_700_000_000}}, "old sign-in"),
        ({"claims": {"auth_time": "now"}}, "old sign-in"),
        ({"claims": {"auth_time": True}}, "old sign-in"),
        ({"claims": {"exp": True}}, "expired"),
        ({"claims": {"exp": 1e400}}, "malformed token"),
        ({"claims": {"iat": "then"}}, "malformed token"),
        ({"claims": {"aud": []}}, "missing claim"),
        ({"claims": {"aud": {"console": True}}}, "audience"),
        ({"claims": {"iss": ["x"]}}, "issuer"),
        ({"header": {"jwk": {"kty": "oct", "k": "AA"}, "alg": "HS512"}}, "algorithm"),
        ({"header": {"jku": "https://evil.example/jwks", "kid": "r2"}}, "unknown key"),
        ({"claims": {"sub": "absent"}}, "missing claim"),
        ({"claims": {"sub": 7}}, "malformed token"),
        ({"claims": {"sub": "x" * 256}}, "malformed token"),
        ({"claims": {"sub": "line\nbreak"}}, "malformed token"),
        ({"claims": {"name": ["Ada"]}}, "name claim"),
        ({"claims": {"name": "A\u202eda"}}, "name claim"),
        ({"claims": {"name": "x" * 81}}, "name claim"),
        ({"alg": "none"}, "algorithm"),
        ({"alg": "HS256"}, "algorithm"),
        ({"header": {"alg": "nOnE"}}, "algorithm"),
        ({"header": {"crit": ["b64"], "b64": False}}, "malformed token"),
        ({"header": {"typ": "at+jwt"}}, "algorithm"),
        ({"header": {"kid": "unknown"}}, "unknown key"),
        ({"header": {"kid": 5}}, "malformed token"),
        ({"header": {"kid": "e1"}}, "unknown key"),
        ({"header": {"alg": "PS256"}}, "unknown key"),
        ({"key": "foreign"}, "signature"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_token_that_fails_one_check_signs_nobody_in(desk: Desk, faults: dict[str, Any], rule: str) -> None:
    desk.provider.set(faults=faults)
    desk.require_refused(desk.try_as(), rule)


@pytest.mark.parametrize(
    ("roles", "rule"),
    [
        ("absent", "no role"),
        ([], "no role"),
        (["visitor"], "no role"),
        ("", "no role"),
        ({"bb-steward": True}, "roles claim"),
        (["bb-steward", 5], "roles claim"),
        (True, "roles claim"),
        ([["bb-steward"]], "roles claim"),
        ("bb-steward bb-analyst", "no role"),
    ],
)
def test_without_a_role_there_is_no_access(desk: Desk, roles: Any, rule: str) -> None:
    desk.provider.set(faults={"claims": {"roles": roles}})
    desk.require_refused(desk.try_as(), rule)
    assert desk.events("sign-in refused")[-1]["subject"] == "5f1c-ada"


@pytest.mark.parametrize("issuer", ["https://evil.example", "absent"])
def test_an_answer_of_another_provider_is_refused(desk: Desk, issuer: str) -> None:
    """Mix-up: the response names its issuer (RFC 9207), and this provider announces that it does."""
    address, cookie = desk.begin()
    back = dict(parse_qsl(urlsplit(desk.provider.sign_in(address, "5f1c-ada")).query))
    back = {name: value for name, value in back.items() if name != "iss"} | ({} if issuer == "absent" else {"iss": issuer})
    desk.require_refused(desk.back(f"{CALLBACK}?{urlencode(back)}", cookie), "response issuer")


def test_a_parameter_that_is_given_twice_and_an_error_sign_nobody_in(desk: Desk) -> None:
    address, cookie = desk.begin()
    back = desk.provider.sign_in(address, "5f1c-ada")
    twice = f"{CALLBACK}?{urlsplit(back).query}&code=x"
    desk.require_refused(desk.get(twice, cookie, **NAVIGATION), "state")
    desk.require_refused(desk.try_as(error="access_denied"), "provider")
    desk.require_refused(desk.try_as(code=""), "code")


@pytest.mark.parametrize(
    ("metadata", "rule"),
    [
        ({"issuer": "https://evil.example"}, "discovery"),
        ({"token_endpoint": "http://evil.example/token"}, "discovery"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "discovery"),
        ({"jwks_uri": "file:///etc/passwd"}, "discovery"),
        ({"authorization_endpoint": "https://a.example/\r\nSet-Cookie: x=y"}, "discovery"),
        ({"token_endpoint": "https://id..example/token"}, "discovery"),
        ({"jwks_uri": f"https://{'a' * 64}.example/jwks"}, "discovery"),
        ({"code_challenge_methods_supported": ["plain"]}, "discovery"),
    ],
)
def test_a_discovery_document_that_leads_elsewhere_is_refused(desk: Desk, metadata: dict[str, Any], rule: str) -> None:
    desk.provider.set(faults={"metadata": metadata})
    desk.require_refused(desk.get(BEGIN), rule)


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
def test_an_https_issuer_leads_to_no_http_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    issuer = "https://id.example"
    right = dict.fromkeys(("authorization_endpoint", "token_endpoint", "jwks_uri"), f"{issuer}/x") | {"issuer": issuer}
    settings, answers = msgspec.convert(VALID | {"issuer": issuer}, SignIn), [right, right | {name: "http://127.0.0.1/x"}]
    monkeypatch.setattr(oidc_module, "fetch", lambda *_, **__: json.dumps(answers.pop(0)).encode())
    assert oidc_module.Provider(settings, tmp_path).metadata().issuer == issuer
    with pytest.raises(oidc_module.SignInRefused, match="not https"):
        oidc_module.Provider(settings, tmp_path).metadata()


def test_keys_are_cached_and_an_unknown_key_id_does_not_have_them_fetched_at_will(desk: Desk) -> None:
    def fetched() -> int:
        return desk.provider.set().count("/jwks")

    before = fetched()
    desk.sign_in()
    desk.port.auth._sessions.clear()
    desk.provider.set(faults={"header": {"kid": "unknown"}})
    for _ in range(3):
        desk.require_refused(desk.try_as(), "unknown key")
    assert fetched() == before + 1
    provider = desk.port._pages.organisation._provider
    assert provider
    provider._clock = lambda: time.monotonic() + 31
    desk.require_refused(desk.try_as(), "unknown key")
    assert fetched() == before + 2


@pytest.mark.parametrize("fault", ["oversize", "slow", "malformed", "wrong types", "redirect", "broken"])
@pytest.mark.parametrize("place", ["discovery", "token", "jwks"])
def test_answers_that_are_too_long_too_slow_or_malformed_end_in_a_refusal(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, place: str, fault: str
) -> None:
    if fault == "slow":
        monkeypatch.setattr(fetch_module, "SECONDS", 0.3)
    desk.provider.set(faults={place: fault})
    reached = fault in ("malformed", "wrong types")
    rule = {"discovery": "discovery", "token": "token answer", "jwks": "key set"}[place] if reached else "unreachable"
    answer = desk.get(BEGIN) if place == "discovery" else desk.try_as()
    desk.require_refused(answer, rule, 403 if reached else 503)
    assert "/elsewhere" not in desk.provider.set()
    desk.provider.set(faults={})
    assert desk.sign_in()  # nothing bad was cached


def test_the_redirect_address_is_the_consoles_own_whatever_the_host_header(desk: Desk) -> None:
    _, _, port = desk.port.address.rpartition(":")
    answer = desk.get(BEGIN, Host=f"localhost:{port}")
    desk.require_refused(answer, "address")
    assert desk.get(BEGIN, Host="evil.example").status == 403
    address, _ = desk.begin()
    elsewhere = address.replace("127.0.0.1", "evil.example")
    assert desk.provider.ask("POST", elsewhere.removeprefix(desk.provider.issuer), "sub=5f1c-ada").status == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Site": "cross-site"},
        {**NAVIGATION, "Origin": "https://evil.example"},
    ],
)
def test_only_a_navigation_leads_back_from_another_site(desk: Desk, headers: dict[str, str]) -> None:
    address, cookie = desk.begin()
    parts = urlsplit(desk.provider.sign_in(address, "5f1c-ada"))
    assert desk.get(f"{parts.path}?{parts.query}", cookie, **headers).status == 403
    for path in (BEGIN, "/login", "/", "/settings"):
        assert desk.get(path, cookie, **NAVIGATION).status == 403
    assert desk.port.auth._sessions == {}


def test_attempts_are_bounded(desk: Desk) -> None:
    for _ in range(40):
        answer = desk.back(f"{CALLBACK}?code=x&state=y", "")
    assert (answer.status, "Too many attempts" in answer.text) == (403, True)
    desk.port._pages.organisation._tries.clear()
    for _ in range(4):
        for _ in range(17):
            desk.begin()
        desk.port._pages.organisation._tries.clear()
    assert len(desk.port._pages.organisation._attempts) == 64
    for _ in range(20):
        desk.back(f"{CALLBACK}?code=x&state=y", "")
    count = len(desk.events("sign-in refused"))
    desk.get(BEGIN)
    assert len(desk.events("sign-in refused")) == count


def test_a_secret_that_others_can_read_is_not_used(desk: Desk) -> None:
    (desk.home.folder / "oidc.secret").chmod(0o644)
    desk.require_refused(desk.try_as(), "settings")


def test_a_missing_library_is_a_refusal_with_the_command_that_installs_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ConfigError(f"{name} is not installed: pip install 'blindbayes[oidc]'")

    monkeypatch.setattr(oidc_module, "need", missing)
    answer = desk.get(BEGIN)
    desk.require_refused(answer, "settings")
    assert "blindbayes[oidc]" in answer.text


# -- how long a session lasts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("life", "minutes", "seconds"), [(120, 480, 120), (7200, 30, 1800), (10**15, 480, 28_800)])
def test_a_session_ends_with_its_token_or_at_the_maximum(desk: Desk, life: int, minutes: int, seconds: int) -> None:
    desk.configure(max_session_minutes=minutes)
    desk.provider.set(faults={"claims": {"exp": int(time.time()) + life}})
    cookie = desk.sign_in()
    (user,) = desk.port.auth._sessions.values()
    assert seconds - 60 <= user.until - time.monotonic() <= seconds
    assert seconds - 60 <= user.until_time - time.time() <= seconds
    asked = len(desk.provider.set())
    assert desk.get("/settings", cookie).status == 200
    assert len(desk.provider.set()) == asked  # nothing is refreshed


@pytest.mark.parametrize("clock", ["monotonic", "time"])
def test_after_its_end_a_session_is_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch, clock: str) -> None:
    cookie = desk.sign_in()
    clocks = {"monotonic": time.monotonic, "time": time.time}
    clocks[clock] = lambda inner=clocks[clock]: inner() + 3700
    monkeypatch.setattr(auth_module, "time", SimpleNamespace(**clocks))  # not the event loop's
    assert desk.get("/settings", cookie).status == 303


@pytest.mark.parametrize("fields", [{"roles": {"bb-steward": "analyst"}}, {"client_id": "public", "secret_file": None}])
def test_other_settings_end_the_sessions_from_before(desk: Desk, fields: dict[str, Any]) -> None:
    cookie = desk.sign_in()
    desk.configure(**fields)
    assert desk.get("/settings", cookie).status == 303
    desk.configure()
    assert desk.get("/settings", cookie).status == 303


# -- four eyes -------------------------------------------------------------------------------------------------------------


def approve(desk: Desk, cookie: str, study: StudyFile) -> Answer:
    words = " ".join(speak(bytes.fromhex(study.roster.sha256)[:16]).split("-")[:2])
    return desk.act(cookie, f"/studies/{study.sha256}/approve", compared=words, runs="1")


def make_study(desk: Desk, title: str) -> StudyFile:
    made = desk.office.office.net.make_study(BOOK, title=title[:60])
    folder = desk.home.folder / "studies"
    folder.mkdir(exist_ok=True)
    (folder / f"{made.sha256}.toml").write_text(made.to_toml())
    policy = msgspec.structs.replace(desk.home.config.policy, approvers=2)
    desk.office.do(lambda: desk.use(policy=policy))
    return made


@pytest.fixture
def study(desk: Desk, request: pytest.FixtureRequest) -> StudyFile:
    return make_study(desk, request.node.name)


def is_approved(desk: Desk, study: StudyFile) -> bool:
    return desk.home.approvals.find(study.sha256) is not None


def test_two_subjects_approve_and_the_log_names_both(desk: Desk, study: StudyFile) -> None:
    """The short form of the journey in a browser."""
    assert approve(desk, desk.sign_in(), study).status == 303
    entry = desk.events("approval asked")[-1]
    assert (entry["subject"], entry["issuer"]) == ("5f1c-ada", desk.provider.issuer)
    assert not is_approved(desk, study)
    grace = desk.sign_in("77aa-grace")
    assert approve(desk, grace, study).status == 303
    assert is_approved(desk, study)
    page = desk.get(f"/studies/{study.sha256}", grace)  # of a site without a ledger
    assert (page.status, "Start a run" in page.text) == (200, True)
    entry = desk.events("approved")[-1]
    assert (entry["subjects"], entry["issuer"]) == (["5f1c-ada", "77aa-grace"], desk.provider.issuer)
    desk.act(desk.sign_in(), f"/studies/{study.sha256}/revoke", why="second thoughts")
    assert desk.events("revoked")[-1]["subject"] == "5f1c-ada"


def test_everything_that_a_subject_does_is_logged_with_subject_and_issuer(desk: Desk, study: StudyFile) -> None:
    other = desk.office.office.net.make_study(BOOK, title="kept by a subject").to_toml()
    cookie, before, here = desk.sign_in(), len(desk.home.audit.entries()), f"/studies/{study.sha256}"
    for path, fields in {
        "/verify": {}, f"{here}/dry-run": {}, f"{here}/send": {}, "/studies": {"text": other}, f"{here}/refuse": {"why": "no"},
    }.items():  # fmt: skip
        assert desk.act(cookie, path, **fields).status in (200, 303), path
    approve(desk, cookie, study)
    entries = desk.home.audit.entries()[before:]
    did = {"chains checked", "dry run", "invitation sent", "study kept", "study refused", "approval asked"}
    assert {entry["event"] for entry in entries} == did
    assert {(entry["subject"], entry["issuer"]) for entry in entries} == {("5f1c-ada", desk.provider.issuer)}


def test_who_signs_out_is_out_and_has_to_enter_the_password_again(desk: Desk) -> None:
    """The provider's own session goes on in the browser: without prompt=login the next person at it would be Ada."""
    cookie = desk.sign_in()
    assert desk.act(cookie, "/logout").headers["Location"] == "/login"
    assert desk.get("/settings", cookie).headers["Location"] == "/login"
    assert dict(parse_qsl(urlsplit(desk.begin()[0]).query))["prompt"] == "login"


def test_the_way_back_leads_nowhere_else(desk: Desk) -> None:
    """No parameter of the redirect names a page: an open redirect would let a link look like the console."""
    address, cookie = desk.begin()
    answer = desk.back(desk.provider.sign_in(address, "5f1c-ada"), cookie, next="//evil.example", to="https://evil.example")
    assert session_of(answer)
    assert "evil.example" not in answer.text + str(answer.headers)


def test_two_sessions_of_one_subject_are_one_approver_under_any_name(desk: Desk, study: StudyFile) -> None:
    approve(desk, desk.sign_in(), study)
    desk.provider.set(users={**USERS, "5f1c-ada": {"name": "Grace", "roles": ["bb-steward"]}})
    approve(desk, desk.sign_in(), study)
    assert not is_approved(desk, study)
    assert len({entry["who"] for entry in desk.events("approval asked") if entry["study"] == study.sha256}) == 2


def test_two_subjects_of_one_name_are_two_approvers(desk: Desk, study: StudyFile) -> None:
    desk.provider.set(users={**USERS, "77aa-grace": {"name": "Ada", "roles": ["bb-steward"]}})
    approve(desk, desk.sign_in(), study)
    approve(desk, desk.sign_in("77aa-grace"), study)
    assert is_approved(desk, study)


@pytest.mark.parametrize("first", ["file", "organisation"])
def test_a_person_of_the_file_and_a_subject_do_not_make_four_eyes(
    staffed: Desk, request: pytest.FixtureRequest, first: str
) -> None:
    """They may be one person, by whatever names."""
    desk, study = staffed, make_study(staffed, request.node.name)
    by_code = desk.office.sign_in("north", "Alan")["Cookie"]
    by_organisation = desk.sign_in("77aa-grace")
    for cookie in (by_code, by_organisation)[:: 1 if first == "file" else -1]:
        assert approve(desk, cookie, study).status == 303
    assert not is_approved(desk, study)
    approve(desk, desk.sign_in("5f1c-ada"), study)
    assert is_approved(desk, study)


def test_a_name_of_the_file_gives_a_subject_no_role(staffed: Desk) -> None:
    """Alan is a steward in people.toml, and the subject of that name an analyst."""
    assert "this needs one of the roles: steward" in staffed.act(staffed.sign_in("90ee-alan"), "/reload").text
    with pytest.raises(PrivacyError):
        staffed.home.people.require("approve", "Ada [5f1c-ada]")  # typed on the command line


@pytest.mark.parametrize("roles", [["bb-analyst"], []], ids=["another role", "no role"])
def test_a_first_approval_does_not_outlive_its_stewards_role(desk: Desk, study: StudyFile, roles: list[str]) -> None:
    approve(desk, desk.sign_in(), study)
    desk.provider.set(users={**USERS, "5f1c-ada": {"name": "Ada", "roles": roles}})
    assert desk.try_as().status == (200 if roles else 403)
    approve(desk, desk.sign_in("77aa-grace"), study)
    assert not is_approved(desk, study)


# -- settings --------------------------------------------------------------------------------------------------------------

VALID = {"issuer": "https://id.example/realms/x", "client_id": "c", "roles": {"s": "steward"}}
