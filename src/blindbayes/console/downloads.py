"""Files that a browser is given: a release's papers, its PDF, and the site's own card. None that holds rows."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from blindbayes.agent.agent import Agent
from blindbayes.agent.runs import require_run_id
from blindbayes.console.invitations import invitation_of
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.folder import read_folder
from blindbayes.report.checksums import verify_files
from blindbayes.report.pdf import pdf_of

# A release's page stands alone: within the console it gets an origin of its own, so that a script in it reaches nothing.
_ALONE = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_SHOWN = ("html", "json", "md", "toml", "svg", "pmml", "onnx")  # classes.csv stands beside this site's own rows: not by browser


def may_download(name: str) -> bool:
    """Whether a file of a release holds what was released, and nothing of this site's rows."""
    return name in ("checksums", "common") or name.rpartition(".")[2] in _SHOWN


def downloads(agent: Agent) -> list[Route]:
    """See the module's docstring."""

    def folder(request: Request) -> dict[str, bytes]:
        place = agent.home.folder / "releases" / require_run_id(request.path_params["run"])
        if not place.is_dir():
            raise ConfigError("no release of that run is here")
        return read_folder(place)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            files = await asyncio.to_thread(folder, request)
        except BlindbayesError as error:
            return PlainTextResponse(str(error), 404)
        if name not in files or not may_download(name):
            return PlainTextResponse("no such file, or one that holds rows: it lies in the site's folder", 404)
        if name.endswith(".html"):
            return Response(files[name], media_type="text/html", headers={"content-security-policy": _ALONE})
        return _attached(files[name], name.rpartition("/")[2])

    async def pdf(request: Request) -> Response:
        def make() -> bytes:
            files = folder(request)
            return pdf_of(files, verify_files(files))

        try:
            return _attached(await asyncio.to_thread(make), f"{request.path_params['run']}.pdf", "application/pdf")
        except BlindbayesError as error:
            return PlainTextResponse(str(error), 409)

    async def card(_: Request) -> Response:
        return _attached(agent.identity.card.to_toml().encode(), f"{agent.name}-card.toml")

    async def invitation(_: Request) -> Response:
        text = invitation_of([agent.identity.card, *agent.home.peers().values()])
        return _attached(text.encode(), "invitation.toml")

    return [
        Route("/releases/{run}/files/{name:path}", file),
        Route("/releases/{run}/pdf", pdf),
        Route("/card.toml", card),
        Route("/invitation.toml", invitation),
    ]


def _attached(data: bytes, name: str, kind: str = "application/octet-stream") -> Response:
    headers: dict[str, Any] = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type=kind, headers=headers)
