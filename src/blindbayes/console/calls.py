"""How one table becomes an API, its description, and pages.

A `View` is what can be looked at: facts, as JSON under `/api`, and through its template as a page. An `Action` is what can be
done: a body of JSON under `/api`, or a form of the same fields on a page. Nothing is reached on one way that the other lacks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from blindbayes.agent.agent import Agent
from blindbayes.agent.people import MAY, ROLES, Act, account
from blindbayes.console.auth import Visitor
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.untrusted import convert, read_json_table

log = logging.getLogger("blindbayes.console")


class Missing(Exception):
    """There is no such thing here."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a call is answered: which agent, and for whom."""

    agent: Agent
    visitor: Visitor

    @property
    def who(self) -> str | None:
        """The name for the log; None: whoever may read the site's folder."""
        return self.visitor.name or None

    def log(self, event: str, **facts: Any) -> None:
        """Who did what; without a name of their own, the account that may read the site's folder."""
        self.agent.home.audit.append(event, **facts, who=self.who or account())


@cache
def taken_by(call: Callable[..., Any], path: str) -> type[msgspec.Struct]:
    """What a call takes beside the desk and the parts of its path: a record made of its signature."""
    hints, named = get_type_hints(call), {"desk", *re.findall(r"{(\w+)}", path)}
    given = [each for name, each in signature(call).parameters.items() if name not in named]
    fields = [(each.name, hints[each.name], *(() if each.default is each.empty else (each.default,))) for each in given]
    about = {"__doc__": summary_of(call)}
    return msgspec.defstruct(call.__name__.title(), fields, namespace=about, frozen=True, forbid_unknown_fields=True)


def summary_of(call: Callable[..., Any]) -> str:
    """The first line of its docstring."""
    return (call.__doc__ or "").partition("\n")[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class View:
    """What can be looked at."""

    path: str
    facts: Callable[..., Any]  # of a Desk, the parts of the path by name, and the query
    page: str = ""  # its template; empty: for programs alone

    @property
    def takes(self) -> type[msgspec.Struct]:
        return taken_by(self.facts, self.path)

    @property
    def summary(self) -> str:
        """What it shows, in a line."""
        return summary_of(self.facts)


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done."""

    path: str
    do: Callable[..., Any]  # of a Desk, the parts of the path by name, and the body
    act: Act | None = None  # what people need a role for, where the site has people by name
    back: str = "/"  # the page whose form it is: shown again, with what was wrong
    then: str = "/"  # the page that follows; {name}: from the path or the answer
    told: str = ""  # what that page says; the answer's own `told` counts more
    page: str = ""  # a template for the answer itself, instead of a page that follows

    @property
    def takes(self) -> type[msgspec.Struct]:
        return taken_by(self.do, self.path)

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return summary_of(self.do)

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES if self.act is None else MAY[self.act]

    def refusal(self, visitor: Visitor) -> str:
        """Why a visitor may not; empty: they may."""
        return "" if visitor.roles & set(self.roles) else f"this is for: {', '.join(self.roles)}"


def arguments(kind: type[msgspec.Struct], fields: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    """The fields of a query, a form or a body, checked; those of a form are texts, and an empty one is none."""
    if not strict:
        fields = {name: value for name, value in fields.items() if value != ""}
    found = convert(fields, kind, "the request", strict=strict)
    return {name: getattr(found, name) for name in kind.__struct_fields__}


async def settle(found: Any) -> Any:
    """What a view or an action gives, now or later."""
    return await found if isinstance(found, Awaitable) else found


def refused(error: BlindbayesError) -> dict[str, Any]:
    """An error of the package, for programs."""
    return {"state": "refused", "error": type(error).__name__, "message": str(error), "exit_code": error.code}


def api_route(agent: Agent, call: View | Action) -> Route:
    """The JSON side of a call."""

    async def answer(request: Request) -> Response:
        visitor: Visitor = request.scope["visitor"]
        desk = Desk(agent, visitor)
        try:
            if isinstance(call, View):
                asked = arguments(call.takes, dict(request.query_params), strict=False)
                return JSONResponse(await settle(call.facts(desk, **request.path_params, **asked)))
            if problem := call.refusal(visitor):
                return JSONResponse({"message": problem}, 403)
            body = await request.body()
            given = read_json_table(body, "the request") if body else {}
            asked = arguments(call.takes, given, strict=True)
            return JSONResponse(await settle(call.do(desk, **request.path_params, **asked)))
        except Missing as missing:
            return JSONResponse({"message": str(missing)}, 404)
        except ConfigError as error:
            return JSONResponse(refused(error), 400)
        except BlindbayesError as error:
            return JSONResponse(refused(error), 409)

    method = "GET" if isinstance(call, View) else "POST"
    return Route(f"/api{call.path.rstrip('/')}" if call.path != "/" else "/api/today", answer, methods=[method])


async def unexpected(request: Request, error: Exception) -> Response:
    """Our own mistake. Its text may quote a value: neither shown nor logged."""
    log.error("unexpected error in a call of the console")
    return JSONResponse({"message": f"unexpected {type(error).__name__}"}, 500)


# -- the description -------------------------------------------------------------------------------------------------------

_ID = {"study": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "run": {"type": "string", "pattern": "^[0-9a-f]{16,64}$"}}


def describe(calls: Sequence[View | Action], version: str) -> dict[str, Any]:
    """The API in OpenAPI 3.1, made from the table."""
    schemas, parts = msgspec.json.schema_components([call.takes for call in calls], ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    refusal = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}}
    answers = {
        "200": {"description": "Done", "content": {"application/json": {"schema": {"type": ["object", "array"]}}}},
        "400": {"description": "Not understood, or against a rule", **refusal},
        "401": {"description": "Token missing or wrong", **refusal},
        "403": {"description": "Not for you", **refusal},
        "404": {"description": "No such thing here", **refusal},
        "409": {"description": "Refused", **refusal},
    }
    for call, schema in zip(calls, schemas, strict=True):
        route = api_route(None, call)  # type: ignore[arg-type]
        method = "get" if isinstance(call, View) else "post"
        named = re.findall(r"{(\w+)}", route.path)
        told: dict[str, Any] = {
            "operationId": f"{method}{re.sub('[^a-z]+', '_', route.path.removeprefix('/api'))}".rstrip("_"),
            "summary": call.summary,
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": _ID.get(name, {"type": "string"})} for name in named
            ],
            "responses": answers,
        }
        if isinstance(call, View):
            fields = parts.get(call.takes.__name__, {}).get("properties", {})
            told["parameters"] += [{"name": name, "in": "query", "schema": each} for name, each in fields.items()]
        else:
            told["description"] = f"For: {', '.join(call.roles)}."
            told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        paths.setdefault(route.path, {})[method] = told
    refusal_schema = {
        "type": "object",
        "properties": {"message": {"type": "string"}, "error": {"type": "string"}, "exit_code": {"type": "integer"}},
        "required": ["message"],
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "blindbayes site",
            "version": version,
            "description": "One site's agent, for its own people and programs, on loopback. No answer holds a value of a row.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Refusal": refusal_schema, **parts},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The second word of operator.token."}
            },
        },
        "security": [{"token": []}],
    }
