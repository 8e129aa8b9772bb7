"""What the tests of agents stand on: a clock that load cannot hurry, and ports that nobody takes before their agent does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import pytest

from blindbayes.testing.loopback import free_port
from support.clock import bounded


def test_an_hour_that_nobody_works_in_passes_at_once() -> None:
    begun = time.monotonic()
    bounded(lambda: asyncio.sleep(3600), 3601)
    assert time.monotonic() - begun < 60


def test_no_deadline_passes_while_a_thread_computes() -> None:
    async def test() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.to_thread(time.sleep, 0.1)

    bounded(test)


def test_who_is_busy_for_ever_meets_the_deadline() -> None:
    async def test() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        bounded(test, 0.5)


def test_a_port_stays_free_until_a_server_binds_it() -> None:
    ports = {free_port() for _ in range(500)}
    with contextlib.ExitStack() as held:
        for _ in range(500):  # of some 28,000: without a hold on them, some nine would be taken
            other = held.enter_context(socket.socket())
            other.bind(("127.0.0.1", 0))
            assert other.getsockname()[1] not in ports
    socket.create_server(("127.0.0.1", ports.pop())).close()
