"""`blindbayes study evaluate` with agents that are processes: the table on the screen, the release, and its verification."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn import metrics

from blindbayes import Estimation, load
from blindbayes.agent.runs.context import FolderSite
from blindbayes.cli import root
from blindbayes.data import open_source
from blindbayes.data.split import Split
from blindbayes.datasets import hospitals
from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import Loopback
from blindbayes_papers import declared
from support.forked import new_interpreters
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")
UNHURRIED = Deadlines(step=1800, join=1800, run=3600)  # whatever else the machine does


def run_command(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(root, list(words), standalone_mode=False)
    if code:
        assert result.exception is not None, result.output
        return str(result.exception)
    assert result.exception is None, (words, result.exception, result.output)
    return result.output


WATCH = """
import asyncio, pathlib, sys, threading
folder, seen = pathlib.Path(sys.argv[-1]), set()

def watch(event, given):
    if event == "import" and threading.current_thread() is threading.main_thread() and asyncio._get_running_loop():
        if given[0] not in seen and (folder / "operator.token").exists():
            seen.add(given[0])
            with (folder / "imported").open("a") as file:
                file.write(given[0] + " ")

if folder.parent.name == "sites":
    sys.addaudithook(watch)
"""


def test_three_processes_evaluate_the_model_that_they_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(WATCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hook"), prepend=os.pathsep)
    with new_interpreters(), Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES, rows=120)) as net:
        study = net.make_study(BOOK, title="good?", estimation=Estimation(held_out=0.4), deadlines=UNHURRIED)
        path = tmp_path / "study.toml"
        path.write_text(study.to_toml())
        homes = {name: str(site.home.folder) for name, site in net.sites.items()}
        for folder in homes.values():
            approved = run_command("site", "approve", str(path), "--as", "Ada", "--runs", "2", "--config", folder)
            assert "held_out" in approved
        assert "train first" in run_command("study", "evaluate", str(path), "--config", homes["north"], code=1)
        run_command("study", "run", str(path), "--config", homes["north"], "--out", str(tmp_path / "release"))
        model, out = str(tmp_path / "release"), str(tmp_path / "evaluation")
        shown = run_command("study", "evaluate", str(path), "--model", model, "--config", homes["south"], "--out", out)
        assert "accuracy:" in shown
        assert "| true class | predicted ill | predicted well |" in shown
        figures = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["figures"]
        trained = json.loads((tmp_path / "release" / "statement.json").read_text())["rows"]
        assert figures["rows"] + trained == 3 * 120
        net.follow(
            json.loads((tmp_path / "evaluation" / "run.json").read_text())["run"]
        )  # the others write theirs a little later
        for name in ("north", "west"):  # each compares the figures with those of its own release
            run_command("report", "sign", out, "--config", homes[name])
        run_command("report", "verify", out, "--config", homes["west"])
        for folder in homes.values():  # modules are imported before an agent listens, or in threads
            watched = Path(folder, "imported")
            assert not watched.exists(), watched.read_text()


@pytest.mark.parametrize("name", ["mushroom", pytest.param("adult", marks=pytest.mark.slow), "hospitals"])
def test_processes_open_the_pooled_evaluation_of_real_tables(name: str, tmp_path: Path, dataset: Callable[[str], Path]) -> None:
    if name == "hospitals":
        synthetic = hospitals(3_000)
        book, parts = synthetic.codebook, {site: table.to_pandas() for site, table in synthetic.tables.items()}
    else:
        book = {"mushroom": declared.MUSHROOM, "adult": declared.ADULT}[name]
        frame = pd.read_csv(dataset(name), dtype=str, keep_default_na=False)[[*book.names, book.target]]
        parts = {site: frame.iloc[at::3] for at, site in enumerate(NAMES)}
    sources: dict[str, str | None] = {}
    for site, part in parts.items():
        part.to_csv(tmp_path / f"{site}.csv", index=False)
        sources[site] = str(tmp_path / f"{site}.csv")
    with Loopback(tmp_path / "sites", sources) as net:
        study = net.make_study(book, estimation=Estimation(held_out=0.25), deadlines=UNHURRIED)
        net.approve(study, runs=2)
        trained = net.run(study)
        assert {each["state"] for each in trained.values()} == {"done"}, trained
        first = next(iter(net.sites.values()))
        ended = net.evaluate(study)
        assert {each["state"] for each in ended.values()} == {"done"}, ended
        stored = json.loads((Path(ended[first.name]["release"]) / "evaluation.json").read_text())
        model = load(Path(trained[first.name]["release"]) / "model.json")
        test = []
        for site, node in net.sites.items():
            split = Split(0.25, True, FolderSite(node.home, node.identity, study).split_key)
            with open_source(sources[site]) as opened:
                test.append(split.filter(opened.rows(book), book).to_pyarrow().to_pandas())
    rows = pd.concat(test)
    truth, queries = rows[book.target].to_numpy(), rows[list(book.names)]
    predicted, labels = model.predict(queries), list(book.classes)
    assert stored["confusion"] == metrics.confusion_matrix(truth, predicted, labels=labels).tolist()
    assert abs(stored["figures"]["accuracy"] - metrics.accuracy_score(truth, predicted)) < 1e-12
    assert abs(stored["figures"]["balanced_accuracy"] - metrics.balanced_accuracy_score(truth, predicted)) < 1e-12
    for at, label in enumerate(labels):
        scores, figures = model.predict_proba(queries)[:, at], stored["figures"]["classes"][label]
        assert figures["auc"]["low"] <= metrics.roc_auc_score(truth == label, scores) <= figures["auc"]["high"]
        brier = metrics.brier_score_loss(truth == label, scores)
        assert figures["brier"]["low"] - 1e-12 <= brier <= figures["brier"]["high"] + 1e-12
