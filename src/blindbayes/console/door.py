"""Who may come in. Everything that reaches the console passes here, and every answer leaves with the same headers.

The port is on loopback, which keeps other machines out but neither other people of this machine nor pages of other origins in
somebody's browser. So the Host must be a loopback name (no rebinding), a request that says where it comes from must say this
origin, commands carry the token of the site's folder, browsers a cookie that scripts cannot read and other origins do not
send, and whatever changes something carries a second token from the page itself.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blindbayes.console.upload import fields_of
from blindbayes.errors import ConfigError
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.passwords import is_password
from blindbayes.site.people import ROLES, People, Person

COOKIE = "blindbayes"
MOST_BODY = 1 << 20
_HOSTS = frozenset(("127.0.0.1", "localhost", "[::1]"))
_OPEN = frozenset(("/healthz", "/readyz", "/metrics", "/login"))
_BODY_SECONDS = 20.0
_CODE_SECONDS = 600.0
_SESSION_SECONDS = 12 * 3600.0
_MOST_SESSIONS = 64
_TRIES, _TRY_SECONDS = 5, 60.0
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # none that look alike

_NOBODY = Person("nobody", "analyst")

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
    """Who asks: a command of whoever may read the site's folder, or a person who signed in."""

    name: str = ""
    roles: frozenset[str] = frozenset(ROLES)
    csrf: str = field(default="", repr=False)
    until: float = 0.0


class Door:
    """Tokens, codes and sessions. They live as long as the agent does."""

    def __init__(self, metrics_token: str = "") -> None:
        self.token = _secret()
        self.metrics_token = metrics_token
        self.people: People | None = None  # of the site, once there is one
        self._codes: dict[str, float] = {}  # until when each counts
        self._sessions: dict[str, Visitor] = {}
        self._tries: list[float] = []

    def new_code(self) -> str:
        """A code that signs one person in, once, within ten minutes: twelve signs in three groups, 59 bits."""
        coins = Coins.system()
        signs = [_ALPHABET[coins.below(len(_ALPHABET))] for _ in range(12)]
        code = "-".join("".join(signs[at : at + 4]) for at in (0, 4, 8))
        self._codes = {known: until for known, until in self._codes.items() if until > time.monotonic()}
        self._codes[code] = time.monotonic() + _CODE_SECONDS
        return code

    def may_try(self) -> bool:
        """Five wrong tries a minute to sign in, whoever tries: codes are long, and passwords may not be.

        Each counts when it begins, and no longer when it was right: many at once are no way around.
        """
        now = time.monotonic()
        self._tries = [tried for tried in self._tries if now - tried < _TRY_SECONDS]
        self._tries.append(now)
        return len(self._tries) <= _TRIES

    def redeem(self, code: str) -> bool:
        """Whether a code counts; it is used up."""
        said = "".join(code.lower().split()).replace("-", "")
        right = [known for known in self._codes if _is_same(known.replace("-", ""), said)]
        return any(self._codes.pop(known) > time.monotonic() for known in right)

    def enter(self, people: People, form: Mapping[str, str]) -> tuple[str, Visitor] | None:
        """The cookie of whoever signs in with this form, if it is right: a code, or a person's name and password.

        Where the site has people by name a code lets in one of them, and nobody else; elsewhere the name is what they say.
        """
        known, name = people.all(), form.get("name", "").strip()[:80]
        person = next((each for each in known if each.name == name), None)
        if form.get("password"):
            if not is_password(form["password"], (person or _NOBODY).secret) or person is None:
                return None
        elif not self.redeem(form.get("code", "")) or not name or (known and person is None):
            return None
        roles = frozenset(ROLES) if person is None else frozenset((person.role,))
        key = self.sign_in(name, roles)
        return key, self._sessions[key]

    def sign_in(self, name: str, roles: frozenset[str] = frozenset(ROLES)) -> str:
        """A new session; its cookie."""
        self._tries[-1:] = []
        now = time.monotonic()
        self._sessions = {key: kept for key, kept in self._sessions.items() if kept.until > now}
        while len(self._sessions) >= _MOST_SESSIONS:  # the oldest goes
            del self._sessions[next(iter(self._sessions))]
        key = _secret()
        self._sessions[key] = Visitor(name, roles, _secret(), now + _SESSION_SECONDS)
        return key

    def sign_out(self, key: str) -> None:
        """End a session."""
        self._sessions.pop(key, None)

    def visitor(self, request: Request) -> Visitor | None:
        """Whoever the request speaks for."""
        if _is_same(request.headers.get("authorization", ""), f"Bearer {self.token}"):
            return Visitor()
        found = self._sessions.get(key := request.cookies.get(COOKIE, ""))
        if found is None or found.until <= time.monotonic():
            return None
        if self.people is None or not (known := self.people.all()):
            return found
        roles = frozenset(each.role for each in known if each.name == found.name)
        if not roles:  # removed since they signed in
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
    """The console behind its door."""

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

        request = Request(scope, receive)
        try:
            body = await self._body(request)
            refusal = Response("too large", 413) if body is None else self._refusal(request, body)
        except TimeoutError:
            body, refusal = b"", Response("too slow", 408)
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

    async def _body(self, request: Request) -> bytes | None:
        found = bytearray()
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                found += part
                if len(found) > MOST_BODY:
                    return None
        return bytes(found)

    def _refusal(self, request: Request, body: bytes) -> Response | None:
        headers, path = request.headers, request.url.path
        host = headers.get("host", "")
        if host.rsplit(":", 1)[0] not in _HOSTS:
            return _refused(request, 403, "this port is for this machine only")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _refused(request, 403, "not from another page: type the address")
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return _refused(request, 403, "not from another origin")
        request.scope["visitor"] = visitor = self._door.visitor(request)
        if path in _OPEN or path.startswith("/static/"):
            return None
        if visitor is None:
            if is_api(request) or request.method != "GET":
                return _refused(request, 401, "the token is missing or wrong")
            return RedirectResponse("/login", 303)
        if request.method not in ("GET", "HEAD") and visitor.csrf:
            given = headers.get("x-csrf-token") or _csrf_of(request, body)
            if not _is_same(given, visitor.csrf):
                return _refused(request, 403, "the form is stale: load the page again")
        return None


def is_api(request: Request) -> bool:
    """Whether JSON is expected."""
    return request.url.path.startswith("/api/")


def _csrf_of(request: Request, body: bytes) -> str:
    try:
        return fields_of(request.headers.get("content-type", ""), body).get("csrf", "")
    except ConfigError:
        return ""


def _refused(request: Request, status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status) if is_api(request) else Response(message, status, media_type="text/plain")


def _is_same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())


def _secret() -> str:
    return Coins.system().bytes(24).hex()


def cookie(key: str) -> Mapping[str, Any]:
    """The cookie of a session: no script reads it, no other origin sends it, and it does not outlive the browser."""
    return {"key": COOKIE, "value": key, "httponly": True, "samesite": "strict", "path": "/"}
