"""HTML pages: every view of the call table that has a template, every action as a form, sign-in, downloads, live updates."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, compile_path

from blindbayes.agent.agent import Agent
from blindbayes.agent.preview import HOW_MISFITS_COUNT
from blindbayes.agent.runs.folders import require_run_id
from blindbayes.console.auth import Authenticator, User, cookie, cookie_name, path_of
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import Action, Context, Missing, View, invoke
from blindbayes.console.forms import urlencoded
from blindbayes.console.invitations import invitation_of
from blindbayes.console.organisation import Organisation
from blindbayes.console.strings import NAVIGATION, NOTICES, STRINGS, in_console, linked, on_table_page, plain, words_on
from blindbayes.console.uploads import UPLOAD, receive_table
from blindbayes.console.views import badges
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import read_folder
from blindbayes.report.checksums import CHECKSUMS, verify_files
from blindbayes.report.dpia import annex_page, read_documents
from blindbayes.report.leakage import describe_label
from blindbayes.report.prose import to_html
from blindbayes.report.theme import render, templates

_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_DOWNLOADS = ("html", "json", "md", "toml", "svg", "pmml", "onnx")  # not csv: classes.csv holds keys of this site's rows
# A page of a release gets an origin of its own, so that a script in it reaches nothing of the console.
_SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_POLL_SECONDS = 0.4
_MAX_WATCHERS = 128
_HEARTBEAT_SECONDS = 15.0  # a comment, so that a closed browser is noticed


def _day(text: str) -> str:
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


def may_download(name: str) -> bool:
    """True for files of a release that hold only what was released, and nothing from this site's rows."""
    return name in ("checksums", "common") or name.rpartition(".")[2] in _DOWNLOADS


FILTERS: dict[str, Callable[..., Any]] = {
    "amount": lambda number: f"{float(number):.4g}",
    "bytes": _bytes,
    "clock": _clock,
    "day": _day,
    "here": lambda message: linked(in_console(message)),
    "on_table": on_table_page,
    "linked": linked,
    "label": describe_label,
    "list_pair": lambda name: (name, name),
    "study_pair": lambda each: (each["study"], each["title"]),
    "number": lambda number: f"{number:,}",
    "plain": plain,
    "picture": lambda svg: Markup(svg),  # noqa: S704 - `report.plots` drew it here, and escapes every text
    "prose": lambda text: Markup(to_html(text, below=1)),  # noqa: S704 - it escapes every text
}


_ACTIONS = [(compile_path(call.path)[0], call) for call in CALLS if isinstance(call, Action)]


def _lacking(user: User, path: str) -> str:
    """Return why a user may not send the form of this path, or the empty string."""
    return next((action.refusal(user) for pattern, action in _ACTIONS if pattern.match(path)), "")


class Pages:
    """The pages of one agent."""

    def __init__(self, agent: Agent, auth: Authenticator) -> None:
        self._agent, self._auth = agent, auth
        self._templates = templates("blindbayes.console")
        self._templates.filters.update(FILTERS)
        self._templates.globals |= {"how_misfits_count": HOW_MISFITS_COUNT, "lacking": _lacking}
        self._templates.tests["downloadable"] = may_download
        self.live = LiveParts(self._render_live)
        self.organisation = Organisation(agent, auth, self._show_login)
        shown = [call for call in CALLS if isinstance(call, View) and call.page]
        self._views = [(compile_path(view.path)[0], view) for view in shown]
        parts = set(self._templates.list_templates())
        self._live_views = [each for each in self._views if each[1].page.replace(".html", "_live.html") in parts]

    def open_routes(self) -> list[Route]:
        """Return the pages that need no session."""
        login = Route("/login", self._login, methods=["GET", "POST"])
        return [login, Route("/static/{name}", static_file), *self.organisation.routes()]

    def routes(self) -> list[Route]:
        """Return the pages that need a session."""
        return [
            Route("/logout", self._logout, methods=["POST"]),
            Route("/events", self._events),
            Route(UPLOAD, self._upload, methods=["POST"]),
            Route("/releases/{run}/files/{name:path}", self._release_file),
            Route("/releases/{run}/annex.html", self._annex),
            Route("/releases/{run}/release.zip", self._release_archive),
            Route("/card.toml", self._card),
            Route("/invitation.toml", self._invitation),
            *(self._view(call) for call in CALLS if isinstance(call, View) and call.page),
            *(self._action(call) for call in CALLS if isinstance(call, Action)),
        ]

    def _render(self, name: str, request: Request, status: int = 200, **facts: Any) -> Response:
        user = request.scope.get("user")
        common: dict[str, Any] = {
            "strings": STRINGS,
            "navigation": NAVIGATION,
            "site": self._agent.name,
            "here": path_of(request),
        }
        common |= {"user": user or User(), "badges": {} if user is None else badges(self._agent), "notice": "", "problem": ""}
        return HTMLResponse(self._templates.get_template(name).render(**common | facts), status)

    def _view(self, view: View) -> Route:
        async def answer(request: Request) -> Response:
            return await self._show(request, view)

        return Route(view.path, answer)

    async def _show(
        self, request: Request, view: View, *, path: dict[str, str] | None = None, problem: str = "", status: int = 200
    ) -> Response:
        """Render a view, with the problem if an action was refused."""
        given = dict(request.query_params) if request.method == "GET" else {}
        notice = NOTICES.get(given.pop("notice", ""), "")
        try:
            context = Context(self._agent, request.scope["user"])
            facts = await invoke(view, context, request.path_params if path is None else path, given)
        except Missing as missing:
            return self._render("problem.html", request, 404, title="Not found", problem=str(missing))
        except BlindbayesError as error:
            return self._render("problem.html", request, 409, title="This cannot be shown", problem=in_console(str(error)))
        return self._render(view.page, request, status, x=facts, notice=notice, problem=problem)

    def _action(self, action: Action) -> Route:
        async def answer(request: Request) -> Response:
            user: User = request.scope["user"]
            back, fields = action.back.format(**request.path_params), request.scope["fields"]
            try:
                if problem := action.refusal(user):
                    raise BlindbayesError(problem)
                given = fields if action.form is None else action.form(fields)
                result = await invoke(action, Context(self._agent, user), request.path_params, given)
            except Missing as missing:
                return self._render("problem.html", request, 404, title="Not found", problem=str(missing))
            except BlindbayesError as error:
                if action.again is not None and not action.refusal(user):
                    facts = await action.again(Context(self._agent, user), fields)
                    shown = words_on(action.again_page)(str(error))
                    return self._render(action.again_page, request, 400, x=facts, problem=shown)
                return await self.show_again(request, back, str(error))
            if action.page:
                return self._render(action.page, request, x=result)
            there = action.then.format(**{**request.path_params, **result})
            notice = result.get("notice") or action.notice
            mark = "&" if "?" in there else "?"
            return RedirectResponse(f"{there}{mark}{urlencode({'notice': notice})}" if notice else there, 303)

        return Route(action.path, answer, methods=["POST"])

    async def show_again(self, request: Request, back: str, problem: str, status: int = 400) -> Response:
        """Render the page of a form again, with the problem."""
        for pattern, view in self._views:
            if match := pattern.match(back):
                shown = words_on(view.page)(problem)
                return await self._show(request, view, path=match.groupdict(), problem=shown, status=status)
        return self._render("problem.html", request, 409, title="Refused", problem=in_console(problem))

    def _show_login(self, request: Request, status: int = 200, *, problem: str = "", page: str = "login.html") -> Response:
        """Render the sign-in page, or the one after a sign-in by the organisation."""
        people, organisation = False, self._agent.home.config.sign_in is not None
        with contextlib.suppress(ConfigError):
            people = bool(self._agent.home.people.all())
        return self._render(page, request, status, problem=problem, people=people, organisation=organisation)

    async def _login(self, request: Request) -> Response:
        try:
            self._agent.home.people.all()
        except ConfigError as error:
            return self._show_login(request, 409, problem=str(error))
        if request.method == "GET":
            return self._show_login(request)
        if not self._auth.may_try():
            return self._show_login(request, 429, problem=STRINGS["too_often"])
        session = await asyncio.to_thread(self._auth.enter, urlencoded(await request.body()))
        if session is None:
            return self._show_login(request, 403, problem=STRINGS["wrong"])
        key, user = session
        self._agent.home.audit.append("signed in", who=user.name or None, roles=sorted(user.roles))
        answer = RedirectResponse("/", 303)
        answer.set_cookie(**cookie(request, key))
        return answer

    async def _logout(self, request: Request) -> Response:
        self._auth.sign_out(request.cookies.get(cookie_name(request), ""))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(cookie_name(request))
        return answer

    def _release(self, request: Request) -> dict[str, bytes]:
        place = self._agent.home.folder / "releases" / require_run_id(request.path_params["run"])
        if not place.is_dir():
            raise ConfigError("this site has no release of that run")
        return read_folder(place)

    async def _annex(self, request: Request) -> Response:
        """Answer with the annex to an impact assessment, made from the files of a release now."""

        def page() -> str:
            release = self._release(request)
            verify_files(release)
            return annex_page(read_documents(release), hashlib.sha256(release[CHECKSUMS]).hexdigest())

        try:
            text = await asyncio.to_thread(page)
        except BlindbayesError as error:
            return PlainTextResponse(str(error), 404)
        return HTMLResponse(text, headers={"content-security-policy": _SANDBOX})

    async def _release_archive(self, request: Request) -> Response:
        """Answer with the whole folder of a release, unless one of its files stays at this site."""

        def pack() -> bytes:
            release, name = self._release(request), request.path_params["run"][:8]
            if not all(map(may_download, release)):
                raise ConfigError("a file of this release holds keys of this site's rows: the folder stays at this site")
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for path, content in sorted(release.items()):
                    archive.writestr(zipfile.ZipInfo(f"release-{name}/{path}"), content, zipfile.ZIP_DEFLATED)
            return packed.getvalue()

        try:
            content = await asyncio.to_thread(pack)
        except BlindbayesError as error:
            return PlainTextResponse(str(error), 404)
        return _attachment(content, f"release-{request.path_params['run'][:8]}.zip")

    async def _release_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            release = await asyncio.to_thread(self._release, request)
        except BlindbayesError as error:
            return PlainTextResponse(str(error), 404)
        if name not in release or not may_download(name):
            return PlainTextResponse("no such file; a file that holds rows is only in the site's folder", 404)
        if name.endswith(".html"):
            return Response(release[name], media_type="text/html", headers={"content-security-policy": _SANDBOX})
        if name.endswith(".svg"):  # for <img>, in which nothing of it runs
            return Response(release[name], media_type="image/svg+xml", headers={"content-security-policy": _SANDBOX})
        return _attachment(release[name], name.rpartition("/")[2])

    async def _upload(self, request: Request) -> Response:
        status, problem, name = await receive_table(self._agent, request)
        if problem:
            return await self.show_again(request, "/table", problem, status)
        return RedirectResponse(f"/table?{urlencode({'file': name, 'notice': 'uploaded'})}", 303)

    async def _card(self, _: Request) -> Response:
        return _attachment(self._agent.identity.card.to_toml().encode(), f"{self._agent.name}-card.toml")

    async def _invitation(self, _: Request) -> Response:
        text = invitation_of([self._agent.identity.card, *self._agent.home.peers().values()])
        return _attachment(text.encode(), "invitation.toml")

    async def _events(self, request: Request) -> Response:
        path = request.query_params.get("of", "")
        if not any(pattern.match(path) for pattern, _ in self._live_views):
            return Response("no such page", 404, media_type="text/plain")

        async def while_signed_in() -> AsyncIterator[str]:
            async for event in self.live.follow(path):
                if self._auth.authenticate(request) is None:  # removed, signed out or expired
                    return
                yield event

        return StreamingResponse(while_signed_in(), media_type="text/event-stream")

    async def _render_live(self, path: str) -> str:
        """Render the live part of a page, which is the same for all users.

        If `turn` changes, the browser loads the whole page again.
        """
        for pattern, view in self._live_views:
            if match := pattern.match(path):
                facts = await invoke(view, Context(self._agent, User()), match.groupdict(), {})
                part = self._templates.get_template(view.page.replace(".html", "_live.html"))
                return json.dumps({"turn": str(facts.get("turn", "")), "html": part.render(x=facts)})
        raise Missing(path)


class LiveParts:
    """Push the live parts of pages to browsers. Each page is rendered once per change, for all who watch it."""

    def __init__(self, render: Callable[[str], Awaitable[str]]) -> None:
        self._render = render
        self._watching: dict[str, dict[asyncio.Queue[str | None], str]] = {}  # path -> watcher -> last state sent
        self._task: asyncio.Task[None] | None = None

    async def follow(self, path: str) -> AsyncIterator[str]:
        """Yield the states of a page's live part as server-sent events; nothing if there are too many watchers."""
        if sum(map(len, self._watching.values())) >= _MAX_WATCHERS:
            return
        queue: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._watching.setdefault(path, {})[queue] = ""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="live pages")
        yield "retry: 2000\n\n"
        try:
            while True:
                try:
                    async with asyncio.timeout(_HEARTBEAT_SECONDS):  # wait_for can lose a cancellation
                        state = await queue.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if state is None:
                    return
                yield f"data: {state}\n\n"
        finally:
            self._watching[path].pop(queue, None)
            if not self._watching[path]:
                del self._watching[path]

    async def _watch(self) -> None:
        while self._watching:
            for path in list(self._watching):
                with contextlib.suppress(BlindbayesError, Missing, OSError):  # the page itself shows these
                    state = await self._render(path)
                    watchers = self._watching.get(path, {})
                    for queue in [each for each, known in watchers.items() if known != state]:
                        _replace(queue, state)
                        watchers[queue] = state
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """End all streams."""
        for queue in [each for watchers in self._watching.values() for each in watchers]:
            _replace(queue, None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _replace(queue: asyncio.Queue[str | None], state: str | None) -> None:
    with contextlib.suppress(asyncio.QueueEmpty):
        queue.get_nowait()
    queue.put_nowait(state)


async def static_file(request: Request) -> Response:
    """Return a style sheet, script or icon of the package."""
    name = request.path_params["name"]
    if name == "theme.css":
        return Response(render("theme.css"), media_type="text/css")
    place = files("blindbayes.console") / "static" / name
    if not re.fullmatch(r"[a-z]+\.(css|js|svg)", name) or not place.is_file():
        return Response("no such file", 404, media_type="text/plain")
    return Response(place.read_bytes(), media_type=_KINDS[name.rpartition(".")[2]])


def _attachment(data: bytes, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)
