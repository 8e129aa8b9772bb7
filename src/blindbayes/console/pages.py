"""The pages: every view of the table that has a template, every action as a form, signing in, and what makes pages live."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, compile_path

from blindbayes.agent.agent import Agent
from blindbayes.console import qr as code
from blindbayes.console.auth import COOKIE, Door, Visitor, cookie, path_of
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import Action, Desk, Missing, View, arguments, settle
from blindbayes.console.downloads import downloads, may_download
from blindbayes.console.facts import badges
from blindbayes.console.live import Live, event
from blindbayes.console.strings import NAVIGATION, WORD, plain
from blindbayes.console.upload import urlencoded
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.report.prose import to_html
from blindbayes.report.theme import look, style

_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def _day(text: str) -> str:
    """A moment of a log, with its zone."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%-d %b %Y, %H:%M UTC")
    except ValueError:
        return text


def _bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


FILTERS: dict[str, Callable[..., str]] = {
    "amount": lambda number: f"{float(number):.4g}",
    "bytes": _bytes,
    "clock": _clock,
    "code": lambda sha256: code.path(sha256.upper()),
    "day": _day,
    "number": lambda number: f"{number:,}",
    "plain": plain,
    "prose": lambda text: Markup(to_html(text, below=1)),  # noqa: S704 - it escapes every text
}


class Pages:
    """The pages of one agent."""

    def __init__(self, agent: Agent, door: Door) -> None:
        self._agent, self._door = agent, door
        self._look = look("blindbayes.console")
        self._look.filters.update(FILTERS)
        self._look.tests["downloadable"] = may_download
        self.live = Live(self._render_live)
        shown = [call for call in CALLS if isinstance(call, View) and call.page]
        self._views = [(compile_path(view.path)[0], view) for view in shown]
        parts = set(self._look.list_templates())
        self._live_views = [each for each in self._views if each[1].page.replace(".html", "_live.html") in parts]

    def open_routes(self) -> list[Route]:
        """Return the pages that need no session."""
        return [Route("/login", self._login, methods=["GET", "POST"]), Route("/static/{name}", static_file)]

    def routes(self) -> list[Route]:
        """Return all other pages."""
        return [
            Route("/logout", self._logout, methods=["POST"]),
            Route("/events", self._events),
            *downloads(self._agent),
            *(self._view(call) for call in CALLS if isinstance(call, View) and call.page),
            *(self._action(call) for call in CALLS if isinstance(call, Action)),
        ]

    def _render(self, name: str, request: Request, status: int = 200, **facts: Any) -> Response:
        visitor = request.scope.get("visitor") or Visitor()
        told = {"word": WORD, "navigation": NAVIGATION, "site": self._agent.name, "visitor": visitor, "here": path_of(request)}
        told |= {"told": "", "problem": "", "badges": {} if request.scope.get("visitor") is None else badges(self._agent)}
        return HTMLResponse(self._look.get_template(name).render(**told | facts), status)

    def _view(self, view: View) -> Route:
        async def answer(request: Request) -> Response:
            return await self._show(request, view)

        return Route(view.path, answer)

    async def _show(self, request: Request, view: View, *, path: dict[str, str] | None = None, problem: str = "") -> Response:
        """A view's page; after an action that was refused, with what was wrong."""
        given = dict(request.query_params) if request.method == "GET" else {}
        told = given.pop("told", "")
        try:
            desk = Desk(self._agent, request.scope["visitor"])
            asked = arguments(view.takes, given, strict=False)
            facts = await settle(view.facts(desk, **(request.path_params if path is None else path), **asked))
        except Missing as missing:
            return self._render("problem.html", request, 404, title="Not here", problem=str(missing))
        except BlindbayesError as error:
            return self._render("problem.html", request, 409, title="This cannot be shown", problem=str(error))
        told = told if told in _TOLD else ""
        return self._render(view.page, request, 400 if problem else 200, x=facts, told=_TOLD.get(told, ""), problem=problem)

    def _action(self, action: Action) -> Route:
        async def answer(request: Request) -> Response:
            visitor: Visitor = request.scope["visitor"]
            back = action.back.format(**request.path_params)
            try:
                if problem := action.refusal(visitor):
                    raise BlindbayesError(problem)
                asked = arguments(action.takes, request.scope["fields"], strict=False)
                found = await settle(action.do(Desk(self._agent, visitor), **request.path_params, **asked))
            except Missing as missing:
                return self._render("problem.html", request, 404, title="Not here", problem=str(missing))
            except BlindbayesError as error:
                return await self._again(request, back, str(error))
            if action.page:
                return self._render(action.page, request, x=found)
            there = action.then.format(**{**request.path_params, **found})
            said = found.get("told") or action.told
            return RedirectResponse(f"{there}?{urlencode({'told': said})}" if said else there, 303)

        return Route(action.path, answer, methods=["POST"])

    async def _again(self, request: Request, back: str, problem: str) -> Response:
        for form, view in self._views:
            if found := form.match(back):
                return await self._show(request, view, path=found.groupdict(), problem=problem)
        return self._render("problem.html", request, 409, title="Refused", problem=problem)

    # -- signing in --------------------------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        try:
            again = {"people": bool(self._agent.home.people.all())}
        except ConfigError as error:
            return self._render("login.html", request, 409, problem=str(error), people=False)
        if request.method == "GET":
            return self._render("login.html", request, **again)
        if not self._door.may_try():
            return self._render("login.html", request, 429, problem=WORD["too_often"], **again)
        entered = await asyncio.to_thread(self._door.enter, urlencoded(await request.body()))
        if entered is None:
            return self._render("login.html", request, 403, problem=WORD["wrong"], **again)
        key, visitor = entered
        self._agent.home.audit.append("signed in", who=visitor.name or None, roles=sorted(visitor.roles))
        answer = RedirectResponse("/", 303)
        answer.set_cookie(**cookie(key))
        return answer

    async def _logout(self, request: Request) -> Response:
        self._door.sign_out(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    # -- parts -------------------------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        path = request.query_params.get("of", "")
        if not any(form.match(path) for form, _ in self._live_views):
            return Response("no such page", 404, media_type="text/plain")

        async def while_signed_in() -> AsyncIterator[str]:
            async for news in self.live.follow(path):
                if self._door.visitor(request) is None:  # removed, signed out, or twelve hours over
                    return
                yield news

        return StreamingResponse(while_signed_in(), media_type="text/event-stream")

    async def _render_live(self, path: str) -> str:
        """The live part of a page; it holds nothing that is for one visitor alone."""
        for form, view in self._live_views:
            if found := form.match(path):
                facts = await settle(view.facts(Desk(self._agent, Visitor()), **found.groupdict()))
                part = self._look.get_template(view.page.replace(".html", "_live.html"))
                return event(str(facts.get("turn", "")), part.render(x=facts))
        raise Missing(path)


async def static_file(request: Request) -> Response:
    """Style, script and icon: parts of the package."""
    name = request.path_params["name"]
    if name == "look.css":
        return Response(style(), media_type="text/css")
    place = files("blindbayes.console") / "static" / name
    if not re.fullmatch(r"[a-z]+\.(css|js|svg)", name) or not place.is_file():
        return Response("no such file", 404, media_type="text/plain")
    return Response(place.read_bytes(), media_type=_KINDS[name.rpartition(".")[2]])


_TOLD = {
    "invited": "The cards are here. None is trusted before you compared its words by telephone.",
    "approved": "Approved. The run begins when one of the sites asks for it.",
    "asked": "Your yes is written down; another steward must say yes too.",
    "refused": "Refused. Whoever of the study asks for a run is told why.",
    "revoked": "The approval is taken back.",
    "stopped": "The run is being stopped; every site is told.",
    "destroyed": "The share is destroyed; nobody can classify with that model any more.",
    "pinned": "Pinned.",
    "kept": "The study's file is here now. Nothing is approved yet.",
    "reloaded": "Settings were read anew.",
}
