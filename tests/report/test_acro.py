"""A release as a session of ACRO: what the loader of ACRO 1.0.2 reads is there, with the checks that were made."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blindbayes import Estimation, Privacy, RowStudy
from blindbayes.cli import root
from blindbayes.datasets import hospitals
from blindbayes.errors import ConfigError
from blindbayes.report.acro import ACRO_VERSION, acro_session

READ = {"uid", "status", "type", "properties", "fair", "command", "summary", "outcome", "comments", "exception", "timestamp"}
"""The fields of a result that `acro.record.load_records` reads, beside `files` with `name` and `sdc`."""
DATA = hospitals(600)


def session(release: Path, out: Path, *options: str) -> dict[str, Any]:
    result = CliRunner().invoke(root, ["report", "acro", str(release), "--out", str(out), *options], standalone_mode=False)
    assert result.exception is None, result.exception
    loaded: dict[str, Any] = json.loads((out / "results.json").read_text())
    return loaded


def test_a_release_becomes_a_session_that_acro_loads(tmp_path: Path) -> None:
    study = RowStudy(DATA.codebook, estimation=Estimation(held_out=0.3))
    trained = study.simulate(DATA.tables)
    trained.save(tmp_path / "exact")
    study.evaluate(trained, DATA.tables).save(tmp_path / "evaluation")
    study.replace(privacy=Privacy(epsilon=1.0)).simulate(DATA.tables).save(tmp_path / "noisy")
    statuses = {}
    for name in ("exact", "evaluation", "noisy"):
        loaded = session(tmp_path / name, tmp_path / f"acro-{name}")
        assert loaded["version"] == ACRO_VERSION
        for uid, result in loaded["results"].items():
            assert set(result) >= READ | {"files"}
            assert uid == result["uid"]
            for file in result["files"]:
                assert set(file) == {"name", "sdc"}
                assert (tmp_path / f"acro-{name}" / file["name"]).is_file()
        (only,) = loaded["results"].values()
        statuses[name] = only["status"], only["type"], bool(only["exception"])
    assert statuses == {
        "exact": ("fail", "table and model", True),
        "evaluation": ("fail", "evaluation", True),
        "noisy": ("pass", "table and model", False),
    }
    assert session(tmp_path / "noisy", tmp_path / "later", "--acro-version", "1.1.0")["version"] == "1.1.0"


LOADER = """
import json, sys
from acro.record import load_records
from acro.version import __version__
read = load_records(sys.argv[1]).results
print(json.dumps([__version__, {uid: [each.status, each.output_type, each.exception] for uid, each in read.items()}]))
"""


@pytest.mark.slow
def test_the_loader_of_acro_reads_a_session(tmp_path: Path) -> None:
    """Needs a Python that has acro, which is not among our requirements: it pins old versions of pandas and statsmodels."""
    python = os.environ.get("BLINDBAYES_ACRO")
    if not python:
        pytest.skip("set BLINDBAYES_ACRO to a Python with acro from PyPI")
    RowStudy(DATA.codebook).simulate(DATA.tables).save(tmp_path / "release")
    ours = session(tmp_path / "release", tmp_path / "acro")
    command = [python, "-c", LOADER, str(tmp_path / "acro")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    version, read = json.loads(done.stdout.splitlines()[-1])
    assert version == ACRO_VERSION
    assert read == {uid: [each["status"], each["type"], each["exception"]] for uid, each in ours["results"].items()}
    assert [status for status, _, _ in read.values()] == ["fail"]


def test_other_folders_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no disclosure\.json"):
        acro_session({"model.json": b"{}"})
    with pytest.raises(ConfigError, match="another format"):
        acro_session({"disclosure.json": b'{"format": "blindbayes.disclosure/2"}'})
