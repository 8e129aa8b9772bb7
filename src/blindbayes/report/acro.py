"""Export a release as an ACRO session: the `results.json` that ACRO and the SACRO viewer load, made from `disclosure.json`.

ACRO loads sessions of its own version only, so the version is an argument. Written from the fields that its loader reads
(`acro.record.load_records`, ACRO 1.0.2), and loaded with it. What ACRO has and we do not (cells that its own suppression
changed, the command that a researcher typed) is empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from blindbayes import __version__
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_json_table
from blindbayes.report.output_check import DISCLOSURE, FORMAT

ACRO_VERSION = "1.0.2"
"""The version of ACRO whose loader was tried."""
_OUTPUTS = ("model.json", "cells.csv", "evaluation.json", "evaluation.md", "cross_validation.json", "statement.md")


def acro_session(files: Mapping[str, bytes], version: str = ACRO_VERSION) -> dict[str, bytes]:
    """Return the files of an ACRO session, by name. Raises `ConfigError` for a release without `disclosure.json`."""
    if DISCLOSURE not in files:
        raise ConfigError(f"the folder holds no {DISCLOSURE}: name a release of blindbayes")
    checked = read_json_table(files[DISCLOSURE], DISCLOSURE)
    if checked.get("format") != FORMAT:
        raise ConfigError(f"{DISCLOSURE} has another format than {FORMAT}: convert it with the version that wrote it")
    shown = {name: files[name] for name in (*_OUTPUTS, DISCLOSURE) if name in files}
    results = {each["uid"]: _result(each, checked, list(shown)) for each in checked["outputs"]}
    tool = {"@type": "SoftwareApplication", "name": "blindbayes", "version": __version__}
    session = {"version": version, "tool": tool, "results": results}
    return {"results.json": (json.dumps(session, indent=4) + "\n").encode(), **shown}


def _result(output: Mapping[str, Any], checked: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    checks = output["checks"]
    sdc = {"summary": {check["name"]: check["result"] for check in checks}, "risk_appetite": checked["risk_appetite"]}
    exception = output["exception"] or {}
    granted = f" (granted by {', '.join(exception['granted_by'])})" if exception.get("granted_by") else ""
    comments = [f"{check['name']}: {check['result']}. {check['summary']}" for check in checks]
    return {
        "uid": output["uid"],
        "status": output["status"],
        "type": output["output_type"],
        "properties": {"name": output["name"], "statbarn": output["statbarn"], "to": output["to"]},
        "files": [{"name": name, "sdc": sdc} for name in names],
        "outcome": {},
        "command": "",
        "summary": f"{output['status']}; " + "; ".join(f"{check['name']}: {check['result']}" for check in checks),
        "timestamp": "",
        "comments": comments,
        "exception": f"{exception['reason']}{granted}" if exception else "",
        "fair": {"five_safes": checked["five_safes"], "rules": checked["rules"]},
    }
