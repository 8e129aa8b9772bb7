"""The MLflow flavour: it predicts as we do, carries the release with its tags, and loads nothing that was changed."""

from __future__ import annotations

import hashlib
import os
import pickletools
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from blindbayes import NaiveBayes, PrivateNaiveBayes, RowStudy, load, save_to_mlflow
from blindbayes.cli import root
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.signatures import SigningKey
from blindbayes.datasets import hospitals
from blindbayes.errors import ConfigError, DataError
from blindbayes.naive_bayes.export import mlflow_pyfunc

DATA = hospitals(900)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = SigningKey.generate(Coins.seeded(bytes(32)))
    model = PrivateNaiveBayes(DATA.codebook, epsilon=1.0).fit(DATA.tables["north"])
    return model.release(tmp_path_factory.mktemp("mlflow") / "release", cover="Readmission", signers={"north": key})


def rows() -> pd.DataFrame:
    """Rows with missing and unlisted values, of the types that users have."""
    frame = DATA.tables["south"].to_pandas().drop(columns="readmitted").astype(object)
    frame.loc[0, "admission"] = "never seen"
    frame.loc[1, ["age", "hba1c"]] = None
    frame.loc[2, "length_of_stay"] = 1e9
    return frame


def test_loader_predicts_as_the_model_file_does(release: Path) -> None:
    ours, loaded = load(release / "model.json"), mlflow_pyfunc._load_pyfunc(str(release))
    assert (loaded.predict(rows()) == ours.predict(rows())).all()
    assert np.array_equal(loaded.predict(rows(), {"probabilities": True}), ours.predict_proba(rows()))


def test_loader_refuses_a_changed_release(release: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in release.rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(release)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (copy / "statement.md").write_text("all is well\n")
    with pytest.raises(DataError, match=r"statement.md was changed"):
        mlflow_pyfunc._load_pyfunc(str(copy))


def test_tags_name_study_codebook_and_model(release: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in release.iterdir() if path.is_file()}
    tags = mlflow_pyfunc._tags(files)
    assert tags["blindbayes.model_sha256"] == hashlib.sha256(files["model.json"]).hexdigest()
    assert tags["blindbayes.codebook"] == DATA.codebook.sha256
    assert tags["blindbayes.epsilon"] == "1.0"
    between = {**files, "run.json": b'{"study": "ab", "run": "cd", "codebook": "ef"}'}
    assert mlflow_pyfunc._tags(between)["blindbayes.study"] == "ab"


def test_no_option_replaces_the_loader(release: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="python_model"):
        save_to_mlflow(release, tmp_path / "saved", python_model=object())  # type: ignore[call-arg]
    assert mlflow_pyfunc._arguments(release, {"owner": "ward 3"})["metadata"]["owner"] == "ward 3"
    with pytest.raises(DataError, match="no checksums"):
        mlflow_pyfunc._arguments(tmp_path, None)


IN_MLFLOW = """
import sys, warnings
warnings.simplefilter("ignore")
import mlflow, numpy as np, pandas as pd
from blindbayes import load, log_to_mlflow, save_to_mlflow
release, rows = sys.argv[1:]
frame = pd.read_pickle(rows)
ours = load(release + "/model.json")
save_to_mlflow(release, "saved")
saved = mlflow.pyfunc.load_model("saved")
assert (saved.predict(frame) == ours.predict(frame)).all()
assert np.array_equal(saved.predict(frame, params={"probabilities": True}), ours.predict_proba(frame))
with mlflow.start_run() as run:
    info = log_to_mlflow(release)
tags = mlflow.get_run(run.info.run_id).data.tags
assert tags["blindbayes.codebook"] == ours.approved_codebook_
assert tags["blindbayes.signed_by"] == "north"
assert (mlflow.pyfunc.load_model(info.model_uri).predict(frame) == ours.predict(frame)).all()
print(saved.metadata.metadata["blindbayes.model_sha256"])
"""


@pytest.mark.slow  # MLflow takes seconds to import; the tests above cover the loader
def test_mlflow_itself_saves_logs_loads_and_predicts_as_we_do(release: Path, tmp_path: Path) -> None:
    rows().to_pickle(tmp_path / "rows.pickle")
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": f"file://{tmp_path}/runs"}
    line = [sys.executable, "-c", IN_MLFLOW, str(release), "rows.pickle"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == hashlib.sha256((release / "model.json").read_bytes()).hexdigest()
    stored = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    names = {path.name for path in stored}
    assert {"model.json", "statement.md", "statement.json", "signatures.json", "checksums", "MLmodel"} <= names
    assert not any(is_pickle(path.read_bytes()) for path in stored)


def is_pickle(content: bytes) -> bool:
    """True for a complete pickle of protocol 2 or later."""
    try:
        return content[:1] == b"\x80" and bool(list(pickletools.genops(content)))
    except Exception:
        return False


@pytest.mark.slow
def test_command_writes_an_mlflow_model_of_a_simulated_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result: Any = RowStudy(DATA.codebook).simulate(DATA.tables)
    result.save("release")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "(?s).*input example")  # which the user of a release cannot give
        done = CliRunner().invoke(root, ["export", "release", "served"])
    assert done.exit_code == 0, done.output
    import mlflow

    frame = rows()
    loaded = mlflow.pyfunc.load_model("served")
    assert (loaded.predict(frame) == result.model.predict(frame)).all()
    assert "leakage.json" in {path.name for path in Path("served").rglob("*")}
    assert isinstance(CliRunner().invoke(root, ["export", "release", "served"]).exception, ConfigError)


def test_command_still_writes_model_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    NaiveBayes(DATA.codebook).fit(DATA.tables["north"]).save("model.json")
    assert CliRunner().invoke(root, ["export", "model.json", "model.pmml"]).exit_code == 0
    assert isinstance(CliRunner().invoke(root, ["export", "model.json", "model.txt"]).exception, ConfigError)


def test_a_release_folder_is_exported_as_its_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    NaiveBayes(DATA.codebook).fit(DATA.tables["north"]).release("release")
    for source, out in (("release", "one.pmml"), ("release/model.json", "two.pmml")):
        done = CliRunner().invoke(root, ["export", source, out])
        assert done.exit_code == 0, done.exception
    assert Path("one.pmml").read_bytes() == Path("two.pmml").read_bytes()
    assert CliRunner().invoke(root, ["export", "release", "model.sql", "--table", "visits"]).exit_code == 0
    Path("release/model.json").write_text(Path("release/model.json").read_text() + " ")
    assert isinstance(CliRunner().invoke(root, ["export", "release", "three.pmml"]).exception, DataError)
