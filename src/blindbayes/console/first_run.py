"""The first run: a site is set up in a page, and its agent goes on in the same process, under the same session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.folder import SiteFolder
from blindbayes.console.auth import Door, Guard, Visitor, closed, cookie
from blindbayes.console.calls import arguments
from blindbayes.console.invitations import keep_cards
from blindbayes.console.pages import static_file
from blindbayes.console.server import listen
from blindbayes.console.strings import WORD
from blindbayes.console.upload import urlencoded
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError
from blindbayes.net.identity import Identity
from blindbayes.report.theme import look


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a new site is asked for."""

    name: str
    address: str = ""
    source: str | None = None
    epsilon: str = "10"
    max_epsilon_per_run: float = 1.0
    min_parties: int = 3
    exact_sums: bool = False
    passphrase: str | None = None
    invitation: str | None = None


class FirstRun:
    """Serves the form until a site is made."""

    def __init__(self, folder: Path, where: str) -> None:
        self._folder, self._where = folder, SiteConfig(operator=where).operator  # loopback, or refused
        self.door = Door()
        self.address = ""
        self._made: asyncio.Future[tuple[SiteFolder, Identity]] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        routes = [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/static/{name}", static_file),
            *closed([Route("/make", self._make, methods=["POST"]), Route("/{path:path}", self._show)]),
        ]
        self.guard = Guard(Starlette(routes=routes), self.door)  # the agent's own pages take the place of these
        self.listening = await listen(self.guard, self._where)
        self.address = self.listening.address

    async def wait(self) -> tuple[SiteFolder, Identity]:
        """The new site, when somebody has made it."""
        return await self._made

    def _render(self, name: str, request: Request, status: int = 200, **facts: Any) -> Response:
        visitor = request.scope.get("visitor") or Visitor()
        told: dict[str, Any] = {"site": WORD["new_site"], "people": False, "visitor": visitor, "problem": "", "given": {}}
        return HTMLResponse(look("blindbayes.console").get_template(name).render(**told | facts), status)

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            return self._render("login.html", request)
        if not self.door.may_try():
            return self._render("login.html", request, 429, problem=WORD["too_often"])
        entered = self.door.enter(urlencoded(await request.body()))
        if entered is None:
            return self._render("login.html", request, 403, problem=WORD["wrong"])
        answer = RedirectResponse("/", 303)
        answer.set_cookie(**cookie(entered[0]))
        return answer

    async def _show(self, request: Request) -> Response:
        return self._render("first_run.html", request, done=self._made.done())

    async def _make(self, request: Request) -> Response:
        fields = request.scope["fields"]
        try:
            if not self._made.done():
                made = self._create(arguments(Answers, fields, strict=False), request.scope["visitor"].name)
                self._made.set_result(made)
        except BlindbayesError as error:
            fields.pop("passphrase", None)
            return self._render("first_run.html", request, 400, problem=str(error), given=fields, done=False)
        return self._render("first_run.html", request, done=True)

    def _create(self, said: dict[str, Any], who: str) -> tuple[SiteFolder, Identity]:
        address = said["address"].strip()
        policy = Policy(
            max_epsilon_per_run=said["max_epsilon_per_run"], min_parties=said["min_parties"], exact_sums=said["exact_sums"]
        )
        config = SiteConfig(
            listen=f"0.0.0.0:{address.rpartition(':')[2]}" if address else None,
            operator=self.address,
            rows=None if said["source"] is None else Rows(said["source"].strip()),
            policy=policy,
        )
        name, phrase = said["name"].strip(), said["passphrase"]
        home, identity = SiteFolder.create(
            self._folder, name, config=config, address=address, passphrase=phrase, epsilon=said["epsilon"]
        )
        home.audit.append("signed in", who=who)
        if said["invitation"]:
            keep_cards(home, said["invitation"], identity.card)
        return home, identity
