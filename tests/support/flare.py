"""A real federation of NVIDIA FLARE on this machine: provisioned, with mutual TLS, one server and some sites."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindbayes.testing.loopback import free_port
from support.engines import ENGINES, Processes, engine_python, until

_PROJECT = """
api_version: 3
name: trial
description: sites on one machine
participants:
  - {{name: localhost, type: server, org: trial, fed_learn_port: {port}}}
{sites}
  - {{name: admin@trial.org, type: admin, org: trial, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {{template_file: [master_template.yml]}}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""
_ADMIN = """
import sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
kit, job, sites = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = new_secure_session("admin@trial.org", kit, timeout=60)
while len(session.get_system_info().client_info) < sites:
    time.sleep(0.2)
number = session.submit_job(job)
print("submitted", number, flush=True)
sys.stdin.read()  # until the test closes it
try:
    session.abort_job(number)
    session.monitor_job(number, timeout=60, poll_interval=0.2)
finally:
    print("status", session.get_job_meta(number).get("status"), flush=True)
    session.close()
"""


def _below(folder: Path, settings: Any) -> Any:
    """FLARE's settings, with each folder that they name put below one of the trial's own."""
    if isinstance(settings, dict):
        return {name: _below(folder, value) for name, value in settings.items()}
    if isinstance(settings, list):
        return [_below(folder, value) for value in settings]
    return f"{folder}{settings}" if isinstance(settings, str) and settings.startswith("/") else settings


class Flare:
    """Use as a context manager. `sockets` maps each site's name in FLARE to the socket file of its agent."""

    def __init__(self, folder: Path, sockets: Mapping[str, Path], *, allow: str = "blindbayes_engines.flare.") -> None:
        self.python = engine_python("flare")
        self.folder, self.sockets = folder, dict(sockets)
        self.admin: subprocess.Popen[str] | None = None
        folder.mkdir(parents=True)
        environment = {"PYTHONPATH": str(ENGINES), "HOME": str(folder), "PATH": f"{self.python.parent}:/usr/bin:/bin"}
        self.processes = Processes(folder, environment)
        lines = "\n".join(f"  - {{name: {name}, type: client, org: trial}}" for name in sockets)
        (folder / "project.yml").write_text(_PROJECT.format(port=free_port(), sites=lines))
        command = [str(self.python.parent / "nvflare"), "provision", "-p", "project.yml", "-w", "kits", "--force"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        self.kits = folder / "kits" / "trial" / "prod_00"
        for name in ("localhost", *sockets):
            local = self.kits / name / "local"
            resources = _below(folder / "kept", json.loads((local / "resources.json.default").read_text()))
            resources["class_allow_list"] = [allow]  # nothing else may run, of what FLARE brings neither
            if name != "localhost":
                resources["allow_log_streaming"] = False
            (local / "resources.json").write_text(json.dumps(resources))
        self.job = folder / "job"
        command = [str(self.python), "-m", "blindbayes_engines", "flare", str(self.job)]
        subprocess.run(command, check=True, timeout=60, env={"PYTHONPATH": str(ENGINES)})

    def __enter__(self) -> Flare:
        try:
            self._start("localhost", "server")
            for name, path in self.sockets.items():
                self._start(name, "client", BLINDBAYES_SOCKET=str(path))
        except BaseException:
            self.processes.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.stop()
        if self.admin is not None and self.admin.poll() is None:
            self.admin.kill()
            self.admin.communicate()

    def _start(self, name: str, kind: str, **environment: str) -> None:
        module = f"nvflare.private.fed.app.{kind}.{kind}_train"
        options = [f"uid={name}", "org=trial", "secure_train=true", "config_folder=config"]
        command = [
            str(self.python),
            "-u",
            "-m",
            module,
            "-m",
            str(self.kits / name),
            "-s",
            f"fed_{kind}.json",
            "--set",
            *options,
        ]
        self.processes.start(name, command, cwd=self.kits / name, **environment)

    def submit(self) -> None:
        """Start the job, once all sites are there."""
        command = [str(self.python), "-c", _ADMIN, str(self.kits / "admin@trial.org"), str(self.job), str(len(self.sockets))]
        self.admin = subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        until("the job is submitted", lambda: self._said("submitted"), 90)

    def _said(self, word: str) -> bool:
        if self.admin is None or self.admin.stdout is None:
            return False
        for line in self.admin.stdout:
            if line.startswith(word):
                return True
        raise AssertionError("the administrator's session ended")

    def end(self) -> str:
        """Abort the job; what the administrator's session says of it."""
        assert self.admin is not None
        said, _ = self.admin.communicate("", timeout=90)
        return said

    def kill(self, site: str) -> None:
        """A site's engine dies: its process and its job."""
        self.processes.kill(site)
