"""Sites of one process with their consoles, in a thread of their own, for tests that ask as commands and browsers do."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from blindbayes.console.port import ConsolePort
from support.sites import Office

T = TypeVar("T")


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.raw = response.status, response.headers, response.read()

    @property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


NAMES = ("north", "south", "west")


class Consoles:
    """See the module."""

    def __init__(self, folder: Path, names: Sequence[str], **options: Any) -> None:
        self.office = Office(folder, names, **options)
        self.ports: dict[str, ConsolePort] = {}
        self.visitors: list[Callable[[], None]] = []  # go before a console does: what a page still waits for is no error of it
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Consoles:
        self._thread.start()
        for name in self.office.net.sites:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for leave in self.visitors:
            leave()
        for name in list(self.ports):
            self.stop(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def wait(self, work: Awaitable[T]) -> T:
        """The outcome of what runs in the agents' loop."""

        async def inner() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(inner(), self._loop).result(600)

    def do(self, work: Callable[[], T]) -> T:
        """Call in the agents' loop."""

        async def inner() -> T:
            return work()

        return self.wait(inner())

    def start(self, name: str) -> None:
        self.wait(self._start(name))

    async def _start(self, name: str) -> None:
        agent = await self.office.start(name)
        self.ports[name] = ConsolePort(agent)
        await self.ports[name].start()

    def stop(self, name: str) -> None:
        self.wait(self.ports.pop(name).stop())
        self.wait(self.office.stop(name))

    def url(self, name: str) -> str:
        return f"http://{self.ports[name].address}"

    def ask(
        self, name: str, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, token: bool = True
    ) -> Answer:
        """One request, as a program with the folder's token."""
        host, _, port = self.ports[name].address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=600)
        given = {"Authorization": f"Bearer {self.ports[name].auth.token}"} if token else {}
        payload = body if isinstance(body, str | bytes | None) else json.dumps(body)
        try:
            connection.request(method, path, payload, {**given, **(headers or {})})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def sign_in(self, name: str, person: str = "Ada") -> dict[str, str]:
        """The headers of a browser whose person has signed in."""
        form = urlencode({"code": self.ports[name].auth.new_code(person)})
        answer = self.ask(name, "POST", "/login", form, token=False)
        assert answer.status == 303, answer.text
        return {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}


@contextmanager
def consoles(folder: Path, names: Sequence[str], **options: Any) -> Iterator[Consoles]:
    with Consoles(folder, names, **options) as found:
        yield found


def csrf_of(office: Consoles, signed_in: dict[str, str]) -> str:
    page = office.ask("north", "GET", "/settings", headers=signed_in, token=False).text
    return re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]
