"""Several sites as real processes on this machine, for demonstrations, tests and benchmarks.

Each site has its own folder, keys, rows, agent process and ports on 127.0.0.1. They communicate as organisations do: with
pinned certificates, sealed envelopes, journals and policies.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blindbayes.agent.client import AgentRefused, OperatorClient
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.codebook import Codebook
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Identity, pin
from blindbayes.study.file import StudyFile
from blindbayes.study.roster import Party
from blindbayes.study.study import KINDS

_START_SECONDS = 600.0  # on a loaded machine; a process that ends before is noticed at once
_RESTART_SECONDS = 120.0  # for an agent that is being restarted
_UNKNOWN_SECONDS = 10.0  # for an agent that does not know the run: it may hear of it after the others gave it up


def open_policy(**limits: Any) -> Policy:
    """Return the policy of sites in demonstrations and tests: exact sums are allowed, and an epsilon of 10 per run."""
    return Policy(**{"exact_sums": True, "max_epsilon_per_run": 10.0} | limits)


def free_port() -> int:
    """Return a port that the system gives to nobody else for a minute; a server may bind it.

    A connection that was closed on its side first keeps the port in TIME_WAIT.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        probe.listen(1)
        address: tuple[str, int] = probe.getsockname()
        with socket.create_connection(address):
            probe.accept()[0].close()
        return address[1]


class LoopbackSite:
    """One site's folder and, while it runs, its process."""

    def __init__(self, home: SiteFolder, identity: Identity) -> None:
        self.home, self.identity = home, identity
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def operator(self) -> OperatorClient:
        return OperatorClient(self.home.folder, exit_code=self._poll)

    def _poll(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def start(self, *, environment: Mapping[str, str] | None = None) -> None:
        """Start the agent and wait until it is ready."""
        self.launch(environment=environment)
        self.wait_ready()

    def launch(self, *, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        """Start the agent; `prefix` is a command that starts it elsewhere, such as in a network namespace."""
        command = [*prefix, sys.executable, "-m", "blindbayes.testing.loopback", str(self.home.folder)]
        with (self.home.folder / "agent.err").open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )

    def wait_ready(self) -> None:
        """Wait until the agent listens."""
        if self.process is None or self.process.stdout is None:
            raise ConfigError(f"the agent of {self.name} was not started")
        readable, _, _ = select.select([self.process.stdout], [], [], _START_SECONDS)
        if not readable or not self.process.stdout.readline():
            self.stop()
            raise ConfigError(f"the agent of {self.name} did not start; see agent.err in its folder")

    def kill(self, name: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL wait until the process is gone."""
        if self.process is not None:
            self.process.send_signal(name)
            if name == signal.SIGKILL:
                self._gone()

    def terminate(self) -> None:
        """Ask the process to end, also when it is stopped."""
        self.kill(signal.SIGCONT)
        self.kill(signal.SIGTERM)

    def stop(self) -> None:
        """Terminate the process, and kill it if it does not end."""
        if self.process is not None and self.process.poll() is None:
            self.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._gone()

    def _gone(self) -> None:
        if self.process is not None:
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None


class Loopback:
    """Sites that have pinned each other. As a context manager it starts and stops their processes."""

    site_type = LoopbackSite

    def __init__(
        self,
        folder: Path,
        rows: Mapping[str, str | None],
        *,
        policy: Policy | None = None,
        addresses: Mapping[str, str] | None = None,
        reached: Mapping[str, str] | None = None,
    ) -> None:
        """Make the sites. `rows` maps each to its data source (path or URL), or to None.

        `addresses` are those that they listen on, and `reached` those for the others, if a proxy stands between.
        """
        self.folder = folder
        self.sites: dict[str, LoopbackSite] = {}
        for name, source in rows.items():
            address = addresses[name] if addresses is not None else f"127.0.0.1:{free_port()}"
            config = SiteConfig(
                listen=address,
                operator="127.0.0.1:0",
                rows=None if source is None else Rows(source),
                policy=policy or open_policy(),
            )
            shown = address if reached is None else reached[name]
            home, identity = SiteFolder.create(folder / name, name, config=config, address=shown)
            self.sites[name] = self.site_type(home, identity)
        for site in self.sites.values():
            for other in self.sites.values():
                if other is not site:
                    pin(site.home.folder, other.identity.card)

    def __enter__(self) -> Loopback:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, names: Sequence[str] | None = None) -> None:
        """Start all agents."""
        starting = [self.sites[name] for name in (self.sites if names is None else names)]
        for site in starting:
            site.launch()
        for site in starting:
            site.wait_ready()

    def stop(self) -> None:
        """Stop all agents."""
        for site in self.sites.values():
            site.terminate()
        for site in self.sites.values():
            site.stop()

    def make_study(self, codebook: Codebook, **fields: Any) -> StudyFile:
        """Return a study of all sites; those without rows host roles."""
        parties = tuple(
            Party(name, card.identity.hex(), site.home.config.rows is not None, card.key)
            for name, site in self.sites.items()
            for card in (site.identity.card,)
        )
        return make_study_file(codebook, **{"title": "loopback", "parties": parties, **fields})

    def approve(self, study: StudyFile, *, runs: int = 1) -> None:
        for site in self.sites.values():
            site.home.approvals.approve(study, runs=runs)

    def run(self, study: StudyFile) -> dict[str, dict[str, Any]]:
        """Run an approved study to its end; return the outcome at every site that still answers."""
        first = next(iter(self.sites.values()))
        started = first.operator.start("/runs", {"study": study.sha256})
        return {first.name: started} if started["state"] == "refused" else self.follow(started["run"])

    def evaluate(self, study: StudyFile) -> dict[str, dict[str, Any]]:
        """Evaluate the newest model of an approved study on the held-out rows of all sites; return the outcomes."""
        first = next(iter(self.sites.values()))
        started = first.operator.start("/evaluations", {"study": study.sha256})
        return {first.name: started} if started["state"] == "refused" else self.follow(started["run"])

    def predict(
        self, study: StudyFile, model: str, batch: str, asked: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """Request a batch at the sites of `asked`, each with its `rows` or `count` (and `keep`). Return the outcomes."""
        request = {"study": study.sha256, "model": model, "batch": batch}
        started = {
            name: self.sites[name].operator.call("POST", "/predictions", {**request, **fields})
            for name, fields in asked.items()
        }
        refused = {name: each for name, each in started.items() if each["state"] == "refused"}
        return refused or self.follow(next(iter(started.values()))["run"], tuple(asked))

    def follow(self, run_id: str, names: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
        """Wait for the end of a run; return the outcome at every running site, or at those of these names."""
        running = [name for name, site in self.sites.items() if site.process is not None and (names is None or name in names)]
        return {name: _follow(self.sites[name], run_id) for name in running}


def make_study_file(codebook: Codebook, *, kind: str = "rows", **fields: Any) -> StudyFile:
    """Make a study file from fields of the file and of its study. Roles of a study over rows get their default hosts."""
    own = {name: fields.pop(name) for name in KINDS[kind].__struct_fields__ if name in fields}
    study = KINDS[kind](codebook, **own)
    if kind == "rows" and "hosts" not in fields:
        fields["hosts"] = StudyFile.make(study, fields["title"], fields["parties"]).hosts
    return StudyFile(study=study, **fields)


def _follow(site: LoopbackSite, run_id: str) -> dict[str, Any]:
    until = math.inf
    while True:
        try:
            return site.operator.follow(site.operator.call("GET", f"/runs/{run_id}"))
        except ConfigError as error:
            outcome = site.home.runs.outcome(run_id)
            if outcome is not None:
                return outcome
            patience = _UNKNOWN_SECONDS if isinstance(error, AgentRefused) else _RESTART_SECONDS
            until = min(until, time.monotonic() + patience)
            if time.monotonic() > until:
                return {"state": "unknown", "message": f"{error} (agent.err in its folder)"}
            time.sleep(0.05)


def run_agent(folder: str) -> None:
    """Run the agent of one folder in this process; print one line when it is ready."""
    import asyncio

    from blindbayes.agent.serve import serve
    from blindbayes.console.port import ConsolePort

    home = SiteFolder.open(Path(folder))

    def ready(operator: str, port: int) -> None:
        sys.stdout.write(json.dumps({"operator": operator, "port": port}) + "\n")
        sys.stdout.flush()

    asyncio.run(serve(home, Identity.load(home.folder), ConsolePort, ready=ready))


if __name__ == "__main__":
    run_agent(sys.argv[1])
