"""Writes what an engine is started with: a job of FLARE, or an app of Flower. Configuration only; the code is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

CLIENT = {
    "format_version": 2,
    "executors": [{"tasks": ["blindbayes_carry"], "executor": {"path": "blindbayes_engines.flare.Carry", "args": {}}}],
    "task_result_filters": [],
    "task_data_filters": [],
    "components": [],
}
SERVER = {
    "format_version": 2,
    "task_data_filters": [],
    "task_result_filters": [],
    "components": [],
    "workflows": [{"id": "wait", "path": "blindbayes_engines.flare.Wait", "args": {}}],
}
META = {"name": "blindbayes", "resource_spec": {}, "min_clients": 2, "deploy_map": {"app": ["@ALL"]}}


def flare(folder: Path) -> None:
    """Write a job folder for `submit_job`."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    (config / "config_fed_client.json").write_text(json.dumps(CLIENT, indent=2))
    (config / "config_fed_server.json").write_text(json.dumps(SERVER, indent=2))
    (folder / "meta.json").write_text(json.dumps(META, indent=2))


FLOWER = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "blindbayes-carrier"
version = "0.1.0"
description = "Carries sealed frames between blindbayes agents. The code is installed at the SuperLink and at every SuperNode."
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "blindbayes"

[tool.flwr.app.components]
serverapp = "blindbayes_engines.flower:server_app"
clientapp = "blindbayes_engines.flower:client_app"

[tool.flwr.app.config]
seconds = 86400
"""


def flower(folder: Path) -> None:
    """Write an app folder for `flwr run`."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(FLOWER)


KINDS = {"flare": flare, "flower": flower}


def main(arguments: list[str]) -> int:
    """Run the command line."""
    if len(arguments) != 2 or arguments[0] not in KINDS or Path(arguments[1]).exists():
        sys.stderr.write(f"usage: python -m blindbayes_engines {'|'.join(KINDS)} FOLDER (a new one)\n")
        return 2
    KINDS[arguments[0]](Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
