"""Each paper's protocols between three agents, a process each: `blindbayes reproduce PAPER --between-sites`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from blindbayes import NaiveBayes, load
from blindbayes.errors import ConfigError
from blindbayes.report.spec import protocols, read_spec
from blindbayes_papers import PAPERS, between
from blindbayes_papers.between import BOOK, CASES, SITES, Ran, made_up, run_between_sites
from blindbayes_papers.command import command
from blindbayes_papers.zafarani2020.estimator import SmoothNaiveBayes

ROWS = pd.DataFrame(made_up(900)).replace("", None)
POOLED = NaiveBayes(BOOK).fit(ROWS[list(BOOK.names)], ROWS["ill"])
ROOT = Path(__file__).parents[2]
EXACT = {"ring_sum", "chain_sum", "oblivious_sum"}
NEAR = {"opened_ratio": 0.9, "noisy_histograms": 0.9, "scalar_product": 0.99}


def require_result(ran: Ran) -> None:
    """What was opened stands in the SPEC, and a model is the pooled one, or as near as its openings allow."""
    table = read_spec(ran.protocol).table
    allowed = {label for key, labels in table.items() if key.startswith("opened") for label in labels}
    opened = {label for labels in ran.opened.values() for label in labels}
    noisy = ran.protocol in EXACT and "noisy_sum" in opened
    assert opened <= ({"noisy_sum"} if noisy else allowed)
    assert any(ran.opened.values())
    for folder in ran.releases.values():
        assert {"leakage.html", "statement.md", "checksums"} <= {path.name for path in folder.iterdir()}
    models = [load(folder / "model.json") for folder in ran.releases.values() if (folder / "model.json").exists()]
    assert bool(models) == (ran.protocol in EXACT | set(NEAR))
    assert ("statistics of pooled training" in str(ran)) == (ran.protocol in EXACT and not noisy)
    for model in models:
        if ran.protocol in EXACT and not noisy:
            assert model.statistics_ == POOLED.statistics_
        else:
            answers = model.predict(ROWS[list(BOOK.names)])
            assert (answers == POOLED.predict(ROWS[list(BOOK.names)])).mean() >= NEAR.get(ran.protocol, 0.9)
    if ran.protocol == "private_maximum":
        assert json.loads((ran.releases["north"] / "maximum.json").read_text()) == {"party_rows": 300}


@pytest.mark.parametrize(
    ("paper", "quick"),
    [
        *(pytest.param(paper, True, marks=[pytest.mark.slow] if paper == "huai2015" else []) for paper in CASES),  # 30 s
        pytest.param("vaidya2008", False, marks=pytest.mark.slow),
    ],
)
def test_a_papers_protocols_run_between_three_processes(
    paper: str, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(run_between_sites(paper, Path("out"), quick=quick))  # relative, as the command's default
    assert [ran.protocol for ran in found] == [case.protocol for case in CASES[paper] if not (quick and case.slow)]
    for ran in found:
        assert set(ran.releases) == set(SITES)
        require_result(ran)


def test_the_paper_about_one_table_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    assert set(PAPERS) - set(CASES) == {"zafarani2020"}
    with pytest.raises(ConfigError, match="train-smooth"):
        next(run_between_sites("zafarani2020", tmp_path))
    ROWS.drop(columns="id").to_csv(tmp_path / "rows.csv", index=False)
    BOOK.to_toml(tmp_path / "book.toml")
    asked = ["train-smooth", "rows.csv", "--codebook", "book.toml", "--out", "model.json", "--epsilon", "20"]
    done = subprocess.run(
        [sys.executable, "-m", "blindbayes", *asked], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    model = load(tmp_path / "model.json")
    assert model.privacy_["mechanism"] == SmoothNaiveBayes(BOOK, epsilon=1.0).mechanism
    answers = model.predict(ROWS[list(BOOK.names)])
    assert (answers == POOLED.predict(ROWS[list(BOOK.names)])).mean() > 0.9


def test_all_papers_between_sites_pass_over_the_paper_about_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error after the runs of the other four; and of two runs of one protocol JSON had the second alone."""

    def ran(paper: str, out: Path, *, quick: bool) -> list[Ran]:
        return [Ran(case.protocol, {"north": out}, {}, "") for case in CASES[paper]]

    monkeypatch.setattr(between, "run_between_sites", ran)
    result = CliRunner().invoke(command, ["--all", "--between-sites", "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stderr == f"zafarani2020: {between.NO_SITES}\n"
    lines = result.stdout.replace("}\n{", "}\0{").split("\0")
    found = {each["paper"]: [run["protocol"] for run in each["runs"]] for each in map(json.loads, lines)}
    assert found == {paper: [case.protocol for case in cases] for paper, cases in CASES.items()}


@pytest.mark.parametrize("page", ["README.md", "papers/README.md"])
def test_both_tables_of_the_papers_name_what_there_is(page: str) -> None:
    rows = [line.split("|")[1:-1] for line in (ROOT / page).read_text("utf-8").splitlines() if "corrected here" not in line]
    found = {}
    for cells in (cells for cells in rows if len(cells) == 5 and "blindbayes" in cells[2]):
        paper, names = re.findall(r"`(\w+)/?`", cells[3])[0], set(re.findall(r"`(\w+)`", cells[3]))
        found[paper] = names
        assert (ROOT / "papers" / "blindbayes_papers" / paper).is_dir()
        assert f"reproduce {paper} --between-sites" in cells[2] or paper not in CASES
    assert set(found) == set(PAPERS)
    for paper, cases in CASES.items():
        assert {case.protocol for case in cases} <= found[paper] <= set(protocols())


def test_the_table_of_parties_that_deviate_has_every_protocol() -> None:
    section = (ROOT / "papers" / "README.md").read_text("utf-8").split("## Parties that deviate", 1)[1]
    named = {
        name for line in section.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert {case.protocol for cases in CASES.values() for case in cases} <= named
