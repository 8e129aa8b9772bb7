"""A process that speaks gRPC starts other programs, as Spark's library starts Java: by fork, with work before the exec."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import asyncio, subprocess
{first}
from grpc import aio

async def main():
    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def talk():
        async with aio.insecure_channel(f"127.0.0.1:{{port}}") as channel:
            while True:
                try:
                    await channel.unary_unary("/a/b")(b"x", timeout=1)
                except aio.AioRpcError:
                    pass

    talking = asyncio.create_task(talk())
    start = lambda: subprocess.Popen(["true"], preexec_fn=int, stdin=subprocess.PIPE).wait()
    print(sum([await asyncio.to_thread(start) != 0 for _ in range(150)]))
    talking.cancel()

asyncio.run(main())
"""


def dead(first: str) -> int:
    """How many of 150 children do not live to do their work."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    command = [sys.executable, "-c", PROGRAM.format(first=first)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def test_children_of_a_process_that_speaks_grpc_live() -> None:
    assert dead("import blindbayes.net.grpc_courier") == 0
