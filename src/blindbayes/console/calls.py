"""Turn a table of views and actions into a JSON API, its OpenAPI description, and pages.

A `View` returns facts: JSON under `/api`, or a page through its template. An `Action` changes something: it takes a JSON body
under `/api`, or a form with the same fields. The API and the pages offer the same calls.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, TypeVar, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from blindbayes.agent.agent import Agent
from blindbayes.agent.approvals.people import MAY, ROLES, Act, account
from blindbayes.console.auth import User
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.untrusted import convert, read_json_table

T = TypeVar("T", bound=msgspec.Struct)
log = logging.getLogger("blindbayes.console")


class Missing(Exception):
    """The requested run, study or release does not exist here."""


@dataclass(frozen=True, slots=True)
class Context:
    """The first argument of every call: the agent, and the user who calls."""

    agent: Agent
    user: User

    @property
    def who(self) -> str | None:
        """The user's name; None for a command that has the token of the site's folder."""
        return self.user.name or None

    def log(self, event: str, **facts: Any) -> None:
        """Append to the audit log, under the user's name or that of the operating system's account."""
        self.agent.home.audit.append(event, **facts, who=self.who or account())


@cache
def _parameters(call: Callable[..., Any], path: str) -> type[msgspec.Struct]:
    """Return the struct that a call takes as `request`, or one made of its parameters beside the context and the path."""
    hints, named = get_type_hints(call), {"context", *re.findall(r"{(\w+)}", path)}
    if "request" in hints:
        declared: type[msgspec.Struct] = hints["request"]
        return declared
    given = [each for name, each in signature(call).parameters.items() if name not in named]
    fields = [(each.name, hints[each.name], *(() if each.default is each.empty else (each.default,))) for each in given]
    about = {"__doc__": _summary(call)}
    return msgspec.defstruct(call.__name__.title(), fields, namespace=about, frozen=True, forbid_unknown_fields=True)


def _summary(call: Callable[..., Any]) -> str:
    return (call.__doc__ or "").partition("\n")[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class View:
    """A call that returns facts and changes nothing."""

    path: str
    facts: Callable[..., Any]  # takes a Context, the parts of the path by name, and the query
    page: str = ""  # its template; empty: API only

    @property
    def takes(self) -> type[msgspec.Struct]:
        return _parameters(self.facts, self.path)

    @property
    def summary(self) -> str:
        return _summary(self.facts)


@dataclass(frozen=True, slots=True)
class Action:
    """A call that changes something."""

    path: str
    do: Callable[..., Any]  # takes a Context, the parts of the path by name, and the body
    act: Act | None = None  # the right that people need, where the site names people
    back: str = "/"  # the page with its form, shown again if the action is refused
    then: str = "/"  # the page that follows; {name} is taken from the path or the answer
    notice: str = ""  # key of the notice on that page; the answer's own `notice` takes precedence
    page: str = ""  # a template for the answer, in place of the page that follows
    form: Callable[[dict[str, str]], dict[str, Any]] | None = None  # turns the fields of its form into those of the call
    again: Callable[..., Any] | None = None  # facts for `again_page` after a refusal, with what was typed
    again_page: str = ""
    has_api: bool = True  # False: for people in a browser only

    @property
    def takes(self) -> type[msgspec.Struct]:
        return _parameters(self.do, self.path)

    @property
    def summary(self) -> str:
        return _summary(self.do)

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES if self.act is None else MAY[self.act]

    def refusal(self, user: User) -> str:
        """Return why the user may not do this, or the empty string."""
        return "" if user.roles & set(self.roles) else f"this needs one of the roles: {', '.join(self.roles)}"


def validated(kind: type[T], fields: dict[str, Any], *, strict: bool) -> T:
    """Validate the fields of a query, a form or a body. Without `strict` they are texts, and empty ones are left out."""
    if not strict:
        fields = {name: value for name, value in fields.items() if value != ""}
    return convert(fields, kind, "the request", strict=strict)


async def invoke(
    call: View | Action, context: Context, path: Mapping[str, str], fields: dict[str, Any], *, strict: bool = False
) -> Any:
    """Validate the fields of a request and run its call."""
    function = call.facts if isinstance(call, View) else call.do
    given = validated(call.takes, fields, strict=strict)
    if "request" in signature(function).parameters:
        result = function(context, request=given, **path)
    else:
        result = function(context, **path, **{name: getattr(given, name) for name in given.__struct_fields__})
    return await result if isinstance(result, Awaitable) else result


def refused(error: BlindbayesError) -> dict[str, Any]:
    """Return the JSON form of an error of the package."""
    return {"state": "refused", "error": type(error).__name__, "message": str(error), "exit_code": error.code}


def api_route(agent: Agent, call: View | Action) -> Route:

    async def answer(request: Request) -> Response:
        user: User = request.scope["user"]
        context = Context(agent, user)
        try:
            if isinstance(call, View):
                return JSONResponse(await invoke(call, context, request.path_params, dict(request.query_params)))
            if problem := call.refusal(user):
                return JSONResponse({"message": problem}, 403)
            body = await request.body()
            given = read_json_table(body, "the request") if body else {}
            return JSONResponse(await invoke(call, context, request.path_params, given, strict=True))
        except Missing as missing:
            return JSONResponse({"message": str(missing)}, 404)
        except ConfigError as error:
            return JSONResponse(refused(error), 400)
        except BlindbayesError as error:
            return JSONResponse(refused(error), 409)

    method = "GET" if isinstance(call, View) else "POST"
    return Route(f"/api{call.path.rstrip('/')}" if call.path != "/" else "/api/today", answer, methods=[method])


async def unexpected(request: Request, error: Exception) -> Response:
    """Answer a request that failed by our fault. The error may quote a value: it is neither shown nor logged."""
    log.error("unexpected error in a call of the console")
    return JSONResponse({"message": f"unexpected {type(error).__name__}"}, 500)


_ID = {"study": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "run": {"type": "string", "pattern": "^[0-9a-f]{16,64}$"}}


def describe(calls: Sequence[View | Action], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of the calls."""
    schemas, parts = msgspec.json.schema_components([call.takes for call in calls], ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    refusal = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}}
    answers = {
        "200": {"description": "Done", "content": {"application/json": {"schema": {"type": ["object", "array"]}}}},
        "400": {"description": "Invalid request", **refusal},
        "401": {"description": "Token missing or wrong", **refusal},
        "403": {"description": "Role missing", **refusal},
        "404": {"description": "Not found", **refusal},
        "409": {"description": "Refused", **refusal},
    }
    for call, schema in zip(calls, schemas, strict=True):
        route = api_route(None, call)  # type: ignore[arg-type]
        method = "get" if isinstance(call, View) else "post"
        named = re.findall(r"{(\w+)}", route.path)
        operation: dict[str, Any] = {
            "operationId": f"{method}{re.sub('[^a-z]+', '_', route.path.removeprefix('/api'))}".rstrip("_"),
            "summary": call.summary,
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": _ID.get(name, {"type": "string"})} for name in named
            ],
            "responses": answers,
        }
        if isinstance(call, View):
            fields = parts.get(call.takes.__name__, {}).get("properties", {})
            operation["parameters"] += [{"name": name, "in": "query", "schema": each} for name, each in fields.items()]
        else:
            operation["description"] = f"Roles: {', '.join(call.roles)}."
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        paths.setdefault(route.path, {})[method] = operation
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
            "description": "One site's agent, for its own staff and programs, on loopback. No answer holds a value from a row.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Refusal": refusal_schema, **parts},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The second field of operator.token."}
            },
        },
        "security": [{"token": []}],
    }
