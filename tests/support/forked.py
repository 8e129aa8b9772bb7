"""Agents as processes that are forked with everything imported.

A new interpreter takes seconds of CPU until an agent has imported what its first run needs. A test that kills agents again and
again would spend nine tenths of its time there.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from blindbayes.testing.loopback import Loopback, LoopbackSite, run_agent

IMPORTED = (
    "blindbayes.testing.loopback",
    "blindbayes.agent.serve",
    "blindbayes.console.port",
    "blindbayes.data.digest",
    "blindbayes.data.infer",
    "blindbayes.naive_bayes.private",
    "blindbayes_papers.vaidya2008.ring_sum.roles",
    "blindbayes_papers.huai2015.oblivious_sum.roles",
    "blindbayes_papers.azimian2022.chain_sum.roles",
    "ibis.backends.duckdb",
    "pandas",
    "sklearn.utils.validation",
)
"""What an agent imports until its first run is done."""


class ForkedProcess:
    """A process of multiprocessing with the interface of `subprocess.Popen` that `LoopbackSite` uses."""

    def __init__(self, process: Any, stdout: Connection) -> None:
        self._process, self.pid = process, process.pid
        self.stdout = os.fdopen(os.dup(stdout.fileno()), "rb")

    def send_signal(self, name: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, name)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("agent", timeout or 0)
        return code


class ForkedSite(LoopbackSite):
    """A site whose agent is forked."""

    def launch(self, *, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        assert not environment, "a forked agent has the environment of its server"
        assert not prefix
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(IMPORTED))
        stdout, writer = context.Pipe(duplex=False)
        process = context.Process(target=_agent, args=(str(self.home.folder), writer), daemon=True)
        process.start()
        writer.close()
        made: Any = ForkedProcess(process, stdout)
        stdout.close()
        self.process = made


class ForkedLoopback(Loopback):
    """Sites whose agents are forked."""

    site_type = ForkedSite


def _agent(folder: str, stdout: Connection) -> None:
    os.dup2(stdout.fileno(), 1)
    stdout.close()
    errors = os.open(Path(folder) / "agent.err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(errors, 2)
    os.close(errors)
    run_agent(folder)
