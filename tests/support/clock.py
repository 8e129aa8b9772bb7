"""A clock that load cannot hurry: it stands while anything computes, and leaps to the next timer when nothing does.

Sites of one process time their waits by their loop's clock. Under this one a deadline passes when everybody waits for it,
however busy the machine is, and nobody sits it out. What other processes or threads of their own send arrives in no time of
this clock: such tests take the wall's.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

_TICK = 1e-4  # per turn of the loop: who is busy for ever meets its deadline too


class _Leaping(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    loop: LeapingLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        self.loop.now += 0 if self.loop.working else _TICK
        found = super().select(0)
        if found or timeout == 0:  # 0: something is ready to run
            return found  # type: ignore[no-any-return]
        if timeout is None or self.loop.working:
            return super().select(None)  # type: ignore[no-any-return]
        self.loop.now += timeout
        return []


class LeapingLoop(asyncio.SelectorEventLoop):
    """`working`: how many threads of its executor have not answered."""

    def __init__(self) -> None:
        self.now, self.working = 0.0, 0
        selector = _Leaping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, *words: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        answer = super().run_in_executor(*words)
        self.working += 1
        answer.add_done_callback(self._answered)
        return answer

    def _answered(self, _: asyncio.Future[Any]) -> None:
        self.working -= 1

    async def shutdown_default_executor(self, *words: Any) -> None:
        self.working += 1
        try:
            await super().shutdown_default_executor(*words)
        finally:
            self.working -= 1


def bounded(test: Callable[[], Awaitable[Any]], seconds: float = 40, *, wall: bool = False) -> Any:
    """Run an async test, never longer than this, by a clock that leaps; by the wall's where others than this loop send."""

    async def inner() -> Any:
        async with asyncio.timeout(seconds * (3 if wall else 1)):  # on the wall, load counts
            return await test()

    with asyncio.Runner(loop_factory=None if wall else LeapingLoop) as runner:
        return runner.run(inner())
