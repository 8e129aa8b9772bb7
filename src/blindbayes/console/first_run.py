"""Set up a new site in a page; its agent then continues in the same process, with the same port and sessions."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.console.auth import Authenticator, AuthMiddleware, User, closed, cookie
from blindbayes.console.calls import validated
from blindbayes.console.forms import urlencoded
from blindbayes.console.invitations import keep_cards, read_cards
from blindbayes.console.pages import static_file
from blindbayes.console.port import listen
from blindbayes.console.strings import STRINGS
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.net.identity import Identity
from blindbayes.report.theme import templates
from blindbayes.study.form import typed_number

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of the form."""

    name: str
    address: str = ""
    source: str | None = None
    epsilon: str = "10"
    max_epsilon_per_run: str = str(Policy().max_epsilon_per_run)
    min_parties: int = Policy().min_parties
    exact_sums: bool = Policy().exact_sums
    passphrase: str | None = None
    invitation: str | None = None


def require_free(listen: str | None) -> None:
    """Raise if the agent could not listen on this address. After the form is closed only a terminal would show the error."""
    host, _, port = (listen or "").rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return  # none, or one that the settings refuse
    try:
        socket.create_server((host.strip("[]"), int(port)), family=socket.AF_INET6 if "[" in host else socket.AF_INET).close()
    except OSError:
        raise ConfigError(f"Address for the other sites: port {port} is in use on this machine; choose another") from None


class FirstRun:
    """Serve the form until a site is made."""

    def __init__(self, folder: Path, where: str) -> None:
        self._folder, self._where = folder, SiteConfig(operator=where).operator  # raises unless it is loopback
        self.auth = Authenticator()
        self.address = ""
        self._made: asyncio.Future[tuple[SiteFolder, Identity]] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        routes = [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/static/{name}", static_file),
            *closed([Route("/make", self._make, methods=["POST"]), Route("/{path:path}", self._show)]),
        ]
        self.middleware = AuthMiddleware(Starlette(routes=routes), self.auth)  # ConsolePort replaces the application
        self.listening = await listen(self.middleware, self._where)
        self.address = self.listening.address

    async def wait(self) -> tuple[SiteFolder, Identity]:
        """Return the new site once the form was sent."""
        return await self._made

    def _render(self, name: str, request: Request, status: int = 200, **facts: Any) -> Response:
        user = request.scope.get("user") or User()
        common: dict[str, Any] = {
            "site": STRINGS["new_site"],
            "people": False,
            "organisation": False,
            "user": user,
            "problem": "",
            "given": {},
            "folder": str(self._folder.resolve()),
        }
        return HTMLResponse(templates("blindbayes.console").get_template(name).render(**common | facts), status)

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            return self._render("login.html", request)
        if not self.auth.may_try():
            return self._render("login.html", request, 429, problem=STRINGS["too_often"])
        session = self.auth.enter(urlencoded(await request.body()))
        if session is None:
            return self._render("login.html", request, 403, problem=STRINGS["wrong"])
        answer = RedirectResponse("/", 303)
        answer.set_cookie(**cookie(request, session[0]))
        return answer

    async def _show(self, request: Request) -> Response:
        return self._render("first_run.html", request, done=self._made.done())

    async def _make(self, request: Request) -> Response:
        fields = request.scope["fields"]
        try:
            if not self._made.done():
                self._made.set_result(self._create(validated(Answers, fields, strict=False), request.scope["user"].name))
        except BlindbayesError as error:
            fields.pop("passphrase", None)
            return self._render("first_run.html", request, 400, problem=str(error), given=fields, done=False)
        return self._render("first_run.html", request, done=True)

    def _require_table(self, source: str) -> None:
        """Raise before the site is made if its table is a file that does not exist."""
        path = self._folder / source
        if "://" not in source and not any(mark in source for mark in "*?[") and not path.exists():
            raise ConfigError(
                f"there is no file {str(path)!r}: a relative path counts from the new site's folder. Correct it, or leave it "
                "empty and upload the table afterwards on the page Table"
            )

    def _create(self, form: Answers, who: str) -> tuple[SiteFolder, Identity]:
        if form.source is not None:
            self._require_table(form.source.strip())
        if form.invitation:
            read_cards(form.invitation)  # before anything is made
        address = form.address.strip()
        host, _, port = address.rpartition(":")
        if address and not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ConfigError("Address for the other sites: write host and port, such as north.example:7440")
        listen = (address if host in _LOOPBACK else f"0.0.0.0:{port}") if address else None
        require_free(listen)
        config = SiteConfig(
            listen=listen,
            operator=self.address,
            rows=None if form.source is None else Rows(form.source.strip()),
            policy=Policy(
                max_epsilon_per_run=typed_number(form.max_epsilon_per_run, "Maximum per run"),
                min_parties=form.min_parties,
                exact_sums=form.exact_sums,
            ),
        )
        home, identity = SiteFolder.create(
            self._folder,
            form.name.strip(),
            config=config,
            address=address,
            passphrase=form.passphrase,
            epsilon=str(typed_number(form.epsilon, "Total privacy budget")),
        )
        home.audit.append("signed in", who=who)
        if form.invitation:
            keep_cards(home, form.invitation, identity.card)
        return home, identity
