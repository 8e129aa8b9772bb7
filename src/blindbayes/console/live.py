"""Live parts of pages. Each page that somebody looks at is rendered once per change, for all who look at it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from blindbayes.console.calls import Missing
from blindbayes.errors import BlindbayesError

SECONDS = 0.4  # between looks: people see no more
_MOST = 128
_BEAT = 15.0  # a comment, so that a browser that went away is noticed


class Live:
    """Who looks at what."""

    def __init__(self, render: Callable[[str], Awaitable[str]]) -> None:
        self._render = render
        self._looking: dict[str, dict[asyncio.Queue[str | None], str]] = {}  # by path: who, and what they know
        self._task: asyncio.Task[None] | None = None

    async def follow(self, path: str) -> AsyncIterator[str]:
        """What the live part of a page becomes, as server-sent events; nothing if too many look."""
        if sum(map(len, self._looking.values())) >= _MOST:
            return
        queue: asyncio.Queue[str | None] = asyncio.Queue(1)
        self._looking.setdefault(path, {})[queue] = ""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="live pages")
        yield "retry: 2000\n\n"
        try:
            while True:
                try:
                    async with asyncio.timeout(_BEAT):  # unlike wait_for it loses no cancellation that news overtakes
                        news = await queue.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if news is None:
                    return
                yield f"data: {news}\n\n"
        finally:
            self._looking[path].pop(queue, None)
            if not self._looking[path]:
                del self._looking[path]

    async def _watch(self) -> None:
        while self._looking:
            for path in list(self._looking):
                with contextlib.suppress(BlindbayesError, Missing, OSError):  # as the page itself would say
                    news = await self._render(path)
                    looking = self._looking.get(path, {})
                    for queue in [each for each, known in looking.items() if known != news]:
                        with contextlib.suppress(asyncio.QueueEmpty):
                            queue.get_nowait()  # the newest counts
                        queue.put_nowait(news)
                        looking[queue] = news
            await asyncio.sleep(SECONDS)

    async def close(self) -> None:
        """Everybody is sent away."""
        for queue in [each for looking in self._looking.values() for each in looking]:
            with contextlib.suppress(asyncio.QueueEmpty):
                queue.get_nowait()
            queue.put_nowait(None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def event(turn: str, html: str) -> str:
    """One state of a live part; another `turn`, and the whole page is to be loaded anew."""
    return json.dumps({"turn": turn, "html": html})
