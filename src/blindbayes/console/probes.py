"""For whoever watches the site: is it alive, is it ready, and its counts as OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from blindbayes.agent.agent import Agent
from blindbayes.agent.metrics import numbers
from blindbayes.errors import BlindbayesError

_KIND = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def probes(agent: Agent, may_measure: Callable[[Request], bool]) -> list[Route]:
    """`/healthz` and `/readyz` for everybody who reaches the port, `/metrics` with a token."""

    async def health(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def ready(_: Request) -> Response:
        problem = ""
        try:
            agent.home.ledger.head, agent.home.audit.head  # noqa: B018 - both can be read, and verify
            problem = "" if agent.home.history.behind() is None else "restored, not acknowledged"
        except (BlindbayesError, OSError) as error:
            problem = type(error).__name__
        return JSONResponse({"ready": not problem, **({"problem": problem} if problem else {})}, 503 if problem else 200)

    async def measure(request: Request) -> Response:
        if not may_measure(request):
            return JSONResponse({"message": "the token is missing or wrong"}, 401)
        return PlainTextResponse(metrics(agent), media_type=_KIND)

    return [Route("/healthz", health), Route("/readyz", ready), Route("/metrics", measure)]


def metrics(agent: Agent) -> str:
    """OpenMetrics: counts of runs, frames and bytes, and who is connected. Labels are names of sites."""
    courier = agent.board.courier
    running = sum(1 for run in agent.runs.values() if not run.done.is_set())
    lines = [
        "# TYPE blindbayes_runs counter",
        f'blindbayes_runs_total{{state="done"}} {agent.counters["runs_done"]}',
        f'blindbayes_runs_total{{state="failed"}} {agent.counters["runs_failed"]}',
        "# TYPE blindbayes_runs_under_way gauge",
        f"blindbayes_runs_under_way {running}",
        "# TYPE blindbayes_offers_refused counter",
        f"blindbayes_offers_refused_total {agent.counters['offers_refused']}",
        "# TYPE blindbayes_site_connected gauge",
        *(f'blindbayes_site_connected{{site="{name}"}} {int(courier.is_up(name))}' for name in sorted(agent.home.peers())),
        "# TYPE blindbayes_frames_refused counter",
        *(f'blindbayes_frames_refused_total{{site="{name}"}} {count}' for name, count in agent.board.refused_frames.items()),
        "# TYPE blindbayes_courier_bytes counter",
        f'blindbayes_courier_bytes_total{{direction="in"}} {getattr(courier, "bytes_in", 0)}',
        f'blindbayes_courier_bytes_total{{direction="out"}} {getattr(courier, "bytes_out", 0)}',
        *(f"# TYPE blindbayes_{name} gauge\nblindbayes_{name} {value:.15g}" for name, value in numbers(agent).items()),
        "# EOF",
    ]
    return "\n".join(lines) + "\n"
