"""A real Flower on this machine: a SuperLink and some SuperNodes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from blindbayes.testing.loopback import free_port
from support.engines import ENGINES, Processes, engine_python, until


class Flower:
    """Use as a context manager. `sockets` maps each site's name in Flower to the socket file of its agent."""

    def __init__(self, folder: Path, sockets: Mapping[str, Path]) -> None:
        self.python = engine_python("flower")
        self.folder, self.sockets, self.port = folder, dict(sockets), free_port()
        (folder / "home").mkdir(parents=True)
        environment = {
            "PYTHONPATH": str(ENGINES),
            "PATH": f"{self.python.parent}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        }
        self.processes = Processes(folder, environment)
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "trial"\n[superlink.trial]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        command = [str(self.python), "-m", "blindbayes_engines", "flower", str(folder / "app")]
        subprocess.run(command, check=True, timeout=60, env={"PYTHONPATH": str(ENGINES)})

    def _tool(self, name: str) -> str:
        return str(self.python.parent / name)

    def __enter__(self) -> Flower:
        link = [self._tool("flower-superlink"), "--insecure", "--disable-runtime-dependency-installation"]
        self.processes.start("superlink", [*link, "--host", "127.0.0.1", "--port", str(self.port)])
        try:
            until("the SuperLink listens", lambda: self._listens(), 60)
            for name, path in self.sockets.items():
                node = [self._tool("flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{self.port}"]
                options = ["--node-config", f'site="{name}"', "--port", str(free_port())]
                self.processes.start(name, [*node, *options], BLINDBAYES_SOCKET=str(path))
        except BaseException:
            self.processes.stop()
            raise
        return self

    def _listens(self) -> bool:
        import socket

        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        self.processes.stop()

    def submit(self) -> None:
        """Start the app."""
        self.processes.start("submit", [self._tool("flwr"), "run", str(self.folder / "app"), "trial"])
        until("the app is submitted", lambda: self.processes.ended("submit") is not None, 90)
        assert self.processes.ended("submit") == 0, self.processes.log("submit")
