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
    """A job folder for `submit_job`."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    (config / "config_fed_client.json").write_text(json.dumps(CLIENT, indent=2))
    (config / "config_fed_server.json").write_text(json.dumps(SERVER, indent=2))
    (folder / "meta.json").write_text(json.dumps(META, indent=2))


KINDS = {"flare": flare}


def main(arguments: list[str]) -> int:
    """The command."""
    if len(arguments) != 2 or arguments[0] not in KINDS or Path(arguments[1]).exists():
        sys.stderr.write(f"usage: python -m blindbayes_engines {'|'.join(KINDS)} FOLDER (a new one)\n")
        return 2
    KINDS[arguments[0]](Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
