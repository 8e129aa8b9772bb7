"""Sign-in by the organisation: the redirect to the provider and its response, bound to one browser.

The browser gets a cookie before it leaves (the pre-session). State, nonce and PKCE verifier stay here under that cookie, are
used once and expire. The way back is the one request that another site may start, and only as a navigation: see
`auth.CALLBACK`. Its answer is a page that leads on by itself, because browsers withhold strict cookies from a redirect that
began elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from blindbayes.agent.agent import Agent
from blindbayes.agent.config import SignIn
from blindbayes.console.auth import BEGIN, CALLBACK, Authenticator, cookie, cookie_name
from blindbayes.console.oidc import Attempt, Provider, SignInRefused, Vouched
from blindbayes.console.strings import STRINGS
from blindbayes.crypto.coins import Coins

_ATTEMPT_SECONDS = 600.0
_MAX_ATTEMPTS = 64
_TRIES, _TRY_SECONDS = 20, 60.0  # of all browsers together: each may cost requests to the provider and a log entry
_AT_ONCE = 4


class Organisation:
    """Routes of the sign-in, and its pending attempts."""

    def __init__(self, agent: Agent, auth: Authenticator, show_login: Callable[..., Response]) -> None:
        self._agent, self._auth, self._show_login = agent, auth, show_login
        self._provider: Provider | None = None
        self._attempts: dict[str, Attempt] = {}  # by the cookie of the pre-session
        self._tries: list[float] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.address = ""  # host:port of the console, once it listens

    def routes(self) -> list[Route]:
        return [Route(BEGIN, self._begin), Route(CALLBACK, self._back)]

    async def _begin(self, request: Request) -> Response:
        try:
            settings = self._require()
            if request.headers.get("host", "") != self.address:
                raise SignInRefused(
                    "address", f"sign in by the organisation at http://{self.address}, which the provider knows"
                )
            attempt = Attempt.begin(settings, f"http://{self.address}{CALLBACK}", time.monotonic() + _ATTEMPT_SECONDS)
            async with self._slots:
                there = await asyncio.to_thread(self._provider_for(settings).address, attempt)
        except SignInRefused as refusal:
            return self._refused(request, refusal)
        now, key = time.monotonic(), Coins.system().bytes(24).hex()
        self._attempts = {known: each for known, each in self._attempts.items() if each.until > now}
        while len(self._attempts) >= _MAX_ATTEMPTS:  # the oldest goes
            del self._attempts[next(iter(self._attempts))]
        self._attempts[key] = attempt
        answer = RedirectResponse(there, 303)
        # Lax, not strict: it has to come back with the navigation that the provider starts.
        name, seconds = _pre_cookie(request), int(_ATTEMPT_SECONDS)
        answer.set_cookie(name, key, httponly=True, samesite="lax", path=BEGIN, max_age=seconds)
        return answer

    async def _back(self, request: Request) -> Response:
        attempt = self._attempts.pop(request.cookies.get(_pre_cookie(request), ""), None)  # used up, whatever follows
        try:
            settings = self._require()
            if attempt is None or attempt.until <= time.monotonic() or attempt.settings != settings:
                raise SignInRefused("state", STRINGS["not_begun"])
            given = request.query_params.multi_items()
            if len(given) > 16 or len({name for name, _ in given}) != len(given):
                raise SignInRefused("state", STRINGS["not_begun"])
            async with self._slots:
                vouched = await asyncio.to_thread(self._provider_for(settings).finish, attempt, dict(given))
            key = self._sign_in(request, vouched, settings)
        except SignInRefused as refusal:
            return self._refused(request, refusal)
        answer = self._show_login(request, page="signed_in.html")
        answer.set_cookie(**cookie(request, key))
        answer.delete_cookie(_pre_cookie(request), path=BEGIN)
        return answer

    def _sign_in(self, request: Request, vouched: Vouched, settings: SignIn) -> str:
        subject = vouched.subject
        seconds = min(vouched.expires - time.time(), settings.max_session_minutes * 60.0)
        if seconds <= 0:
            raise SignInRefused("expired", "the provider's ID token is over: begin again")
        self._agent.home.audit.append("signed in", who=subject, roles=sorted(subject.roles), seconds=int(seconds))
        self._auth.sign_out(request.cookies.get(cookie_name(request), ""))
        return self._auth.admit(subject, seconds, settings)

    def _require(self) -> SignIn:
        """Return the settings. Raises without them, and after too many attempts."""
        settings, now = self._agent.home.config.sign_in, time.monotonic()
        if settings is None:
            raise SignInRefused("off", STRINGS["no_organisation"])
        self._tries = [tried for tried in self._tries if now - tried < _TRY_SECONDS]
        if len(self._tries) >= _TRIES:
            raise SignInRefused("off", STRINGS["too_often_organisation"])
        self._tries.append(now)
        return settings

    def _provider_for(self, settings: SignIn) -> Provider:
        if self._provider is None or self._provider.settings != settings:
            self._provider = Provider(settings, self._agent.home.folder)
        return self._provider

    def _refused(self, request: Request, refusal: SignInRefused) -> Response:
        """Show the reason on the sign-in page; the log gets the name of the rule, and nothing that browser or provider sent."""
        if refusal.rule != "off":  # anybody on this machine could fill the log
            settings = self._agent.home.config.sign_in
            origin = {} if settings is None else {"issuer": settings.issuer}
            self._agent.home.audit.append("sign-in refused", why=refusal.rule, who=refusal.who, **origin)
        answer = self._show_login(request, 503 if refusal.rule == "unreachable" else 403, problem=str(refusal))
        answer.delete_cookie(_pre_cookie(request), path=BEGIN)
        return answer


def _pre_cookie(request: Request) -> str:
    return f"{cookie_name(request)}-sign-in"
