"""Authenticate every request to the console and send every response with the same headers.

The port is on loopback, which keeps other machines out but neither other accounts of this machine nor pages of other origins
in somebody's browser. So the Host must be a loopback name (no rebinding), a request with an Origin must name this origin,
commands carry the token of the site's folder, browsers a cookie that scripts cannot read and other origins do not send, and
every change carries a second token from the page itself. Without one of these a request is refused by its headers alone: its
body is neither read nor parsed. The exceptions are `OPEN` and the static files. The path judged is the one that the router
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

from blindbayes.agent.people import ROLES, People, Person, require_name
from blindbayes.console.upload import fields_of
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import is_password
from blindbayes.errors import ConfigError

COOKIE = "blindbayes"
MAX_BODY = 1 << 20
MAX_OPEN_BODY = 4096  # of a request without a session: name, code and password fit
OPEN = frozenset(("/healthz", "/readyz", "/metrics", "/login"))
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.ASCII)
_BODY_SECONDS = 20.0
_CODE_SECONDS = 600.0
_SESSION_SECONDS = 12 * 3600.0
_MOST_SESSIONS = 64
_TRIES, _TRY_SECONDS = 5, 60.0
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # none that look alike

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
class Visitor:
    """An authenticated caller: a command with the folder's token (no name, every role), or a person who signed in."""

    name: str = ""
    roles: frozenset[str] = frozenset()
    csrf: str = field(default="", repr=False)
    until: float = 0.0


class Door:
    """Tokens, codes and sessions. They live as long as the agent does."""

    def __init__(self, metrics_token: str = "") -> None:
        self.token = _secret()
        self.metrics_token = metrics_token
        self.people: People | None = None  # of the site, once there is one
        self._codes: dict[str, tuple[str, float]] = {}  # code -> the person it is for, and until when it is valid
        self._sessions: dict[str, Visitor] = {}
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
        """Five wrong tries a minute to sign in, whoever tries: codes are long, and passwords may not be.

        Each counts when it begins, and no longer when it was right: many at once are no way around.
        """
        now = time.monotonic()
        self._tries = [tried for tried in self._tries if now - tried < _TRY_SECONDS]
        self._tries.append(now)
        return len(self._tries) <= _TRIES

    def redeem(self, code: str) -> str | None:
        """Return the name that a valid code is for, and use the code up; None for any other text."""
        given = "".join(code.lower().split()).replace("-", "")
        right = [known for known in self._codes if _is_same(known.replace("-", ""), given)]
        redeemed = [self._codes.pop(known, ("", 0.0)) for known in right]  # two threads may try the same one
        return next((name for name, until in redeemed if until > time.monotonic()), None)

    def enter(self, form: Mapping[str, str]) -> tuple[str, Visitor] | None:
        """Return the cookie and the session of a sign-in form: name and password, or a code, which holds its own name.

        None if the form is wrong. What a code may do is decided when it is used: a person who was removed, or given a
        password, since it was made does not get in with it.
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
        now = time.monotonic()
        self._sessions = {key: kept for key, kept in self._sessions.items() if kept.until > now}
        while len(self._sessions) >= _MOST_SESSIONS:  # the oldest goes
            del self._sessions[next(iter(self._sessions))]
        key = _secret()
        self._sessions[key] = Visitor(name, roles, _secret(), now + _SESSION_SECONDS)
        return key

    def sign_out(self, key: str) -> None:
        self._sessions.pop(key, None)

    def visitor(self, request: Request) -> Visitor | None:
        """Return the caller that a request authenticates, with the role of now; None for anybody else."""
        if _is_same(request.headers.get("authorization", ""), f"Bearer {self.token}"):
            return Visitor(roles=frozenset(ROLES))
        found = self._sessions.get(key := request.cookies.get(COOKIE, ""))
        if found is None or found.until <= time.monotonic():
            return None
        try:
            if self.people is None or not (known := self.people.all()):
                return found
        except ConfigError:  # nobody knows what this person may do
            return None
        roles = frozenset(each.role for each in known if each.name == found.name)
        if not roles or len(found.roles) > 1:  # removed since, or signed in under a free name before anybody was named
            self.sign_out(key)
            return None
        return replace(found, roles=roles)

    def may_measure(self, request: Request) -> bool:
        """Whether a request may read the metrics: with their own token, which lasts, or as a visitor."""
        given = request.headers.get("authorization", "")
        return (bool(self.metrics_token) and _is_same(given, f"Bearer {self.metrics_token}")) or self.visitor(
            request
        ) is not None


class Guard:
    """The application behind the checks of this module."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app, self._door = app, door

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
        scope["visitor"] = visitor = self._door.visitor(request)
        refusal = _refusal(request, visitor)
        if refusal is None:
            try:
                body = await _body(request, MAX_OPEN_BODY if visitor is None else MAX_BODY)
                refusal = await _form_refusal(request, visitor, body)
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


def _refusal(request: Request, visitor: Visitor | None) -> Response | None:
    """Return the refusal that a request's headers call for."""
    headers, host = request.headers, request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        return _refused(request, 403, "this port is for this machine only")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return _refused(request, 403, "not from another page: type the address")
    if headers.get("origin", f"http://{host}") != f"http://{host}":
        return _refused(request, 403, "not from another origin")
    if visitor is not None or is_open(path_of(request)):
        return None
    if is_api(request) or request.method != "GET":
        return _refused(request, 401, "the token is missing or wrong")
    return RedirectResponse("/login", 303)


async def _form_refusal(request: Request, visitor: Visitor | None, body: bytes) -> Response | None:
    """Parse the form of an authenticated request, in a thread, into `scope["fields"]`, and check its own token."""
    if visitor is None or request.method in ("GET", "HEAD") or is_open(path_of(request)):
        return None
    fields: dict[str, str] = {}
    if not is_api(request):
        fields = await asyncio.to_thread(fields_of, request.headers.get("content-type", ""), body)
    given = request.headers.get("x-csrf-token") or fields.pop("csrf", "")
    if visitor.csrf and not _is_same(given, visitor.csrf):
        return _refused(request, 403, "the form is stale: load the page again")
    request.scope["fields"] = fields
    return None


def path_of(request: Request) -> str:
    """Return the path by which the router chooses. `request.url` is rebuilt from the Host header in some releases."""
    return str(request.scope["path"])


def is_open(path: str) -> bool:
    """True for the paths that need no session."""
    return path in OPEN or (path.startswith("/static/") and "/" not in path.removeprefix("/static/"))


def is_api(request: Request) -> bool:
    """True where JSON is expected."""
    return path_of(request).startswith("/api/")


def closed(routes: Iterable[Route]) -> list[Route]:
    """Return the routes with endpoints that refuse whatever is not authenticated, whatever stands before them."""

    def behind(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if request.scope.get("visitor") is None:
                return _refused(request, 401, "the token is missing or wrong")
            return await endpoint(request)

        return answer

    return [Route(route.path, behind(route.endpoint), methods=sorted(route.methods or ())) for route in routes]


def _refused(request: Request, status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status) if is_api(request) else Response(message, status, media_type="text/plain")


def _is_same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())


def _secret() -> str:
    return Coins.system().bytes(24).hex()


def cookie(key: str) -> Mapping[str, Any]:
    """The cookie of a session: no script reads it, no other origin sends it, and it does not outlive the browser."""
    return {"key": COOKIE, "value": key, "httponly": True, "samesite": "strict", "path": "/"}
