"""Authenticate every request to the console and send every response with the same headers.

The port is on loopback, which keeps other machines out but neither other accounts of this machine nor pages of other origins
in somebody's browser. So the Host must be a loopback name (no rebinding), a request with an Origin must name this origin,
commands carry the token of the site's folder, browsers a cookie that scripts cannot read and other origins do not send, and
every change carries a second token from the page itself. Without one of these a request is refused by its headers alone: its
body is neither read nor parsed. The exceptions are `OPEN` and the static files. An identity provider leads the browser back
to `CALLBACK`: this path alone may be opened from another site, by a navigation. The path judged is the one that the router
uses (`scope["path"]`), never one rebuilt from headers.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blindbayes.agent.approvals.people import ROLES, People, Person, require_name
from blindbayes.agent.config import SignIn
from blindbayes.console.forms import fields_of
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import is_password
from blindbayes.disclosure.audit_log import Subject
from blindbayes.errors import ConfigError

COOKIE = "blindbayes"
STALE = "the form is stale: load the page again"
MAX_BODY = 1 << 20
MAX_OPEN_BODY = 4096  # of a request without a session: name, code and password fit
STREAMED = frozenset(("/table/upload",))  # too large for memory; `console.uploads` reads them piece by piece
BEGIN, CALLBACK = "/sign-in", "/sign-in/back"  # by the organisation
OPEN = frozenset(("/healthz", "/readyz", "/metrics", "/login", BEGIN, CALLBACK))
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.ASCII)
_BODY_SECONDS = 20.0
_CODE_SECONDS = 600.0
_SESSION_SECONDS = 12 * 3600.0
_MAX_SESSIONS = 64
_TRIES, _TRY_SECONDS = 5, 60.0
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no two that look alike

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with none at all browsers say Origin: null on forms
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated caller: a person who signed in, or a command with the folder's token (no name, every role)."""

    name: str = ""
    roles: frozenset[str] = frozenset()
    csrf: str = field(default="", repr=False)
    until: float = 0.0
    until_time: float = 0.0  # by the wall clock, which goes on while the machine sleeps
    settings: SignIn | None = None  # under which a `Subject` signed in


class Authenticator:
    """Tokens, one-time codes and sessions; they live as long as the agent."""

    def __init__(self, metrics_token: str = "") -> None:
        self.token = _secret()
        self.metrics_token = metrics_token
        self.people: People | None = None  # of the site, once there is one
        self.organisation: Callable[[], SignIn | None] = lambda: None  # the current settings
        self._codes: dict[str, tuple[str, float]] = {}  # code -> the person it is for, and until when it is valid
        self._sessions: dict[str, User] = {}
        self._tries: list[float] = []

    def new_code(self, name: str) -> str:
        """Make a code that signs in this person, once, within ten minutes: twelve characters in three groups, 59 bits.

        Raises `ConfigError` for a name that is not in the site's people.toml, and for a person with a password.
        """
        name = require_name(name)
        self._person(name)
        coins = Coins.system()
        signs = [_ALPHABET[coins.below(len(_ALPHABET))] for _ in range(12)]
        code = "-".join("".join(signs[at : at + 4]) for at in (0, 4, 8))
        self._codes = {known: each for known, each in self._codes.items() if each[1] > time.monotonic()}
        self._codes[code] = name, time.monotonic() + _CODE_SECONDS
        return code

    def _person(self, name: str) -> Person | None:
        """Return the person whom a code for this name signs in; None where the site names nobody. Raises if no code may."""
        known = () if self.people is None else self.people.all()
        person = next((each for each in known if each.name == name), None)
        if known and person is None:
            raise ConfigError(f"{name!r} is not in this site's people.toml: a steward adds them with `blindbayes site people`")
        if person is not None and person.secret is not None:
            raise ConfigError(f"{name} signs in with a password: no code replaces it")
        return person

    def may_try(self) -> bool:
        """Return False after five failed attempts to sign in within a minute, by all callers together.

        An attempt counts from its start, so that parallel attempts do not get around the limit; a right one is taken back.
        """
        now = time.monotonic()
        self._tries = [tried for tried in self._tries if now - tried < _TRY_SECONDS]
        self._tries.append(now)
        return len(self._tries) <= _TRIES

    def redeem(self, code: str) -> str | None:
        """Return the name that a valid code is for, and use the code up; None for any other text."""
        given = "".join(code.lower().split()).replace("-", "")
        right = [known for known in self._codes if _is_same(known.replace("-", ""), given)]
        redeemed = [self._codes.pop(known, ("", 0.0)) for known in right]  # two threads may redeem the same code
        return next((name for name, until in redeemed if until > time.monotonic()), None)

    def enter(self, form: Mapping[str, str]) -> tuple[str, User] | None:
        """Return the cookie and the session of a sign-in form: name and password, or a code, which holds its own name.

        None if the form is wrong. A code is checked again when it is used: it does not sign in a person who has been removed
        or given a password since.
        """
        if form.get("password"):
            known = () if self.people is None else self.people.all()
            person = next((each for each in known if each.name == form.get("name", "").strip()), None)
            if not is_password(form["password"], None if person is None else person.secret) or person is None:
                return None
            name = person.name
        else:
            name = self.redeem(form.get("code", "")) or ""
            if not name or form.get("name", "").strip() not in ("", name):
                return None
            try:
                person = self._person(name)
            except ConfigError:
                return None
        key = self.sign_in(name, frozenset(ROLES) if person is None else frozenset((person.role,)))
        return key, self._sessions[key]

    def sign_in(self, name: str, roles: frozenset[str]) -> str:
        """Begin a session and return its cookie."""
        self._tries[-1:] = []
        return self._begin(User(name, roles, _secret(), time.monotonic() + _SESSION_SECONDS))

    def admit(self, subject: Subject, seconds: float, settings: SignIn) -> str:
        """Start a session for a person authenticated by the provider and return its cookie. It cannot be prolonged."""
        until = time.monotonic() + seconds
        return self._begin(User(subject, subject.roles, _secret(), until, time.time() + seconds, settings))

    def _begin(self, user: User) -> str:
        now = time.monotonic()
        self._sessions = {key: user for key, user in self._sessions.items() if user.until > now}
        while len(self._sessions) >= _MAX_SESSIONS:  # the oldest goes
            del self._sessions[next(iter(self._sessions))]
        key = _secret()
        self._sessions[key] = user
        return key

    def sign_out(self, key: str) -> None:
        self._sessions.pop(key, None)

    def authenticate(self, request: Request) -> User | None:
        """Return the user of a request, with their current role; None if it is not authenticated."""
        if _is_same(request.headers.get("authorization", ""), f"Bearer {self.token}"):
            return User(roles=frozenset(ROLES))
        user = self._sessions.get(key := request.cookies.get(cookie_name(request), ""))
        if user is None or user.until <= time.monotonic():
            return None
        if isinstance(user.name, Subject):  # people.toml has no say: a name in it may be equal by chance
            if time.time() < user.until_time and user.settings == self.organisation():
                return user
            self.sign_out(key)
            return None
        try:
            if self.people is None or not (known := self.people.all()):
                return user
        except ConfigError:  # the person's role is unknown
            return None
        roles = frozenset(each.role for each in known if each.name == user.name)
        if not roles or len(user.roles) > 1:  # removed since, or signed in before the site named people
            self.sign_out(key)
            return None
        return replace(user, roles=roles)

    def may_read_metrics(self, request: Request) -> bool:
        """True if the request carries the metrics token or is authenticated."""
        given = request.headers.get("authorization", "")
        return (bool(self.metrics_token) and _is_same(given, f"Bearer {self.metrics_token}")) or self.authenticate(
            request
        ) is not None


class AuthMiddleware:
    """ASGI middleware that applies the checks of this module."""

    def __init__(self, app: ASGIApp, auth: Authenticator) -> None:
        self.app, self._auth = app, auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        request, body = Request(scope, receive), b""
        scope["user"] = user = self._auth.authenticate(request)
        refusal = _refusal(request, user)
        if refusal is None and user is not None and path_of(request) in STREAMED and request.method == "POST":
            await self.app(scope, receive, send_with_headers)  # its endpoint checks the form's token before it stores a byte
            return
        if refusal is None:
            try:
                body = await _body(request, MAX_OPEN_BODY if user is None else MAX_BODY)
                refusal = await _form_refusal(request, user, body)
            except ConfigError as error:
                refusal = _refused(request, 400, str(error))
            except OverflowError:
                refusal = Response("too large", 413)
            except TimeoutError:
                refusal = Response("too slow", 408)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send_with_headers)


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    async with asyncio.timeout(_BODY_SECONDS):
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise OverflowError
    return bytes(body)


def _refusal(request: Request, user: User | None) -> Response | None:
    """Return the refusal that a request's headers call for."""
    headers, host = request.headers, request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        return _refused(request, 403, "this port is for this machine only")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not _leads_back(request):
        return _refused(request, 403, "not from another page: type the address")
    if headers.get("origin", f"http://{host}") != f"http://{host}":
        return _refused(request, 403, "not from another origin")
    if user is not None or is_open(path_of(request)):
        return None
    if is_api(request) or request.method != "GET":
        return _refused(request, 401, "the token is missing or wrong")
    return RedirectResponse("/login", 303)


def _leads_back(request: Request) -> bool:
    """Return True for the navigation that brings the browser back from an identity provider."""
    headers = request.headers
    way = (request.method, path_of(request), headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return way == ("GET", CALLBACK, "navigate", "document")


async def _form_refusal(request: Request, user: User | None, body: bytes) -> Response | None:
    """Parse the form of an authenticated request, in a thread, into `scope["fields"]`, and check its own token."""
    if user is None or request.method in ("GET", "HEAD") or is_open(path_of(request)):
        return None
    fields: dict[str, str] = {}
    if not is_api(request):
        fields = await asyncio.to_thread(fields_of, request.headers.get("content-type", ""), body)
    given = request.headers.get("x-csrf-token") or fields.pop("csrf", "")
    if not has_form_token(user, given):
        return _refused(request, 403, STALE)
    request.scope["fields"] = fields
    return None


def path_of(request: Request) -> str:
    """Return the path that the router matches. Some releases rebuild `request.url` from the Host header."""
    return str(request.scope["path"])


def is_open(path: str) -> bool:
    """True for the paths that need no session."""
    return path in OPEN or (path.startswith("/static/") and "/" not in path.removeprefix("/static/"))


def is_api(request: Request) -> bool:
    """True where JSON is expected."""
    return path_of(request).startswith("/api/")


def closed(routes: Iterable[Route]) -> list[Route]:
    """Return the routes with endpoints that refuse unauthenticated requests themselves, whatever the middleware does."""

    def behind(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if request.scope.get("user") is None:
                return _refused(request, 401, "the token is missing or wrong")
            return await endpoint(request)

        return answer

    return [Route(route.path, behind(route.endpoint), methods=sorted(route.methods or ())) for route in routes]


def _refused(request: Request, status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status) if is_api(request) else Response(message, status, media_type="text/plain")


def has_form_token(user: User, given: str) -> bool:
    """True if the token is that of the user's own pages; commands with the folder's token need none."""
    return not user.csrf or _is_same(given, user.csrf)


def _is_same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())


def _secret() -> str:
    return Coins.system().bytes(24).hex()


def cookie_name(request: Request) -> str:
    """Return the name of the session cookie. It has the port: browsers send the same cookies to every port of a host."""
    return f"{COOKIE}-{request.url.port or 80}"


def cookie(request: Request, key: str) -> Mapping[str, Any]:
    """Return the session cookie: scripts cannot read it, other origins cannot send it, and it ends with the browser."""
    return {"key": cookie_name(request), "value": key, "httponly": True, "samesite": "strict", "path": "/"}
