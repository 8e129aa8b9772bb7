"""Threads for the computations of runs, apart from those that the event loop uses for short work.

Both pools have as many threads. A run that computes for hours takes one of these, so a call of the console, which reads a file
in one of the others, is answered whatever the runs do.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")

_POOLS: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()


async def compute(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that may take long in a thread of the runs, and return what it returns."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    if (pool := _POOLS.get(loop)) is None:
        pool = _POOLS[loop] = ThreadPoolExecutor(thread_name_prefix="run")
    return await loop.run_in_executor(pool, lambda: context.run(function, *args, **kwargs))
