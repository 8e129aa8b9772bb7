"""Threads of runs, apart from those that answer calls."""

from __future__ import annotations

import asyncio
import threading

from blindbayes.net.threads import compute
from support.clock import bounded


def test_short_work_is_done_while_every_thread_of_the_runs_computes() -> None:
    """Calls of the console waited for the computations of runs where both had the same threads."""
    gate = threading.Event()

    async def ask() -> str:
        computing = [asyncio.create_task(compute(gate.wait)) for _ in range(100)]
        await asyncio.sleep(0)  # all of them are queued
        try:
            return await asyncio.wait_for(asyncio.to_thread(lambda: "answered"), 60)
        finally:
            gate.set()
            assert await asyncio.gather(*computing) == [True] * 100

    assert bounded(ask, wall=True) == "answered"
