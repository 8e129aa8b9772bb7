"""The R client: its own tests, predictions equal to Python on random models, the vignette against real agents, R CMD check."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes, Text, load
from blindbayes.report.weight_of_evidence import value_names
from blindbayes.study.file import StudyFile
from blindbayes.testing.loopback import Loopback
from support.consoles import Consoles
from support.r import CLIENT, Run, find_rscript, install_client
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")
MODELS = 10


@pytest.fixture(scope="module")
def rscript() -> str:
    return find_rscript()


@pytest.fixture(scope="module")
def run_r(rscript: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return install_client(rscript, tmp_path_factory.mktemp("r"))


def suite(only: str = "") -> str:
    """The code that runs the package's tests, or those of one file."""
    chosen = f', filter = "{only}"' if only else ""
    return f'testthat::test_dir("testthat", package = "blindbayes", load_package = "installed", reporter = "summary"{chosen})'


# -- predictions -----------------------------------------------------------------------------------------------------------

CATEGORIES = (("red", "blue", "größe"), ("1", "2", "10"), ("0.5", "1.5", "x"), ("true", "false"), ("a b", "c,d", '"q"'))
WORDS = ("free", "win", "meeting", "agenda", "prix", "naïve", "offer_2", "οδος")


def features(rng: np.random.Generator) -> list[Any]:
    """Some features of every kind."""
    made: list[Any] = []
    for at in range(int(rng.integers(1, 4))):
        values = CATEGORIES[int(rng.integers(len(CATEGORIES)))]
        other = values[0] if rng.random() < 0.3 else None
        made.append(Categorical(f"c {at}", values, optional=True, missing=("-9",), other=other))
    for at in range(int(rng.integers(1, 5))):
        precision = (1.0, 0.5, 0.01, 10.0, 1 / 3)[int(rng.integers(5))]
        low = float(rng.integers(-50, 50)) * 10
        high = low + float(rng.integers(5, 100)) * 10
        more: dict[str, Any] = {}
        if (form := rng.random()) < 0.25:
            more = {"bins": int(rng.integers(1, 5))}
        elif form < 0.45:
            more = {"edges": (low + (high - low) * 0.3, low + (high - low) * 0.7)}
        elif form < 0.65:
            more = {"bins": int(rng.integers(2, 5)), "spacing": "log"}
        made.append(Numeric(f"n{at}", low, high, precision=precision, optional=True, missing=("-999",), **more))
    if rng.random() < 0.5:
        model = ("multinomial", "bernoulli", "complement")[int(rng.integers(3))]
        bound = None if rng.random() < 0.4 else int(rng.integers(1, 5))
        made.append(Text("text", WORDS, model=model, max_words=bound, optional=True))  # type: ignore[arg-type]
    return made


def clean_column(feature: Any, rng: np.random.Generator, rows: int) -> list[Any]:
    """Values that the codebook lists."""
    if isinstance(feature, Categorical):
        values: list[Any] = rng.choice(feature.values, rows).tolist()
    elif isinstance(feature, Numeric):
        values = rng.uniform(feature.low, feature.high, rows).tolist()
    else:
        values = [" ".join(rng.choice(WORDS, int(rng.integers(0, 12)))) for _ in range(rows)]
    return [None if rng.random() < 0.1 else value for value in values]


def messy_column(feature: Any, rng: np.random.Generator, rows: int) -> tuple[str, list[Any]]:
    """Values as users have them: unlisted, markers, out of bounds, numbers as texts, texts as numbers; and their type in R."""
    clean = clean_column(feature, rng, rows)
    if isinstance(feature, Categorical):
        if feature.values == CATEGORIES[1] and rng.random() < 0.5:
            return "double", [None if v is None else float(rng.choice([1, 2, 10, 3, -9, 2.5])) for v in clean]
        if feature.values == CATEGORIES[3] and rng.random() < 0.5:
            return "logical", [None if v is None else v == "true" for v in clean]
        extra = ["", "never", "-9", "-9.0", " 1", "1.0", "True", "FALSE", "0.50"]
        texts = [rng.choice(extra) if rng.random() < 0.3 else value for value in clean]
        return ("factor" if rng.random() < 0.3 else "character"), [None if v is None else str(v) for v in texts]
    if isinstance(feature, Numeric):
        odd = [-999.0, -1e50, 1e50, 0.0, feature.low, feature.high, 0.1 + 0.2]
        numbers = [float(rng.choice(odd)) if rng.random() < 0.3 else value for value in clean]
        if rng.random() < 0.4:
            texts = [None if v is None else rng.choice([f" {v!r}", f"{v:.3f}", f"{v:.6e}", "-999", ""]) for v in numbers]
            return "character", [None if v is None else str(v) for v in texts]
        return "double", numbers
    extra = ["", "WIN win Win!", "a b c", "offer_2-offer_2 ÜBER", "naïve NAÏVE", "ΟΔΟΣ, Οδος' WİN"]
    return "character", [rng.choice(extra).item() if value is not None and rng.random() < 0.4 else value for value in clean]


def model_of(rng: np.random.Generator) -> Any:
    labels = ("yes", "no") if rng.random() < 0.5 else ("1", "2", "3")
    book = Codebook("y", (*labels, "never"), tuple(features(rng)), max_rows=1000)
    table = {each.name: clean_column(each, rng, 60) for each in book.features}
    kinds = {each.name: pa.float64() if isinstance(each, Numeric) else pa.string() for each in book.features}
    columns = {name: pa.array(values, kinds[name]) for name, values in table.items()}
    rows = pa.table({**columns, "y": rng.choice(labels, 60).tolist()})
    bounded = all(each.max_words for each in book.features if isinstance(each, Text))
    if bounded and rng.random() < 0.4:
        return PrivateNaiveBayes(book, epsilon=float(rng.choice([0.5, 5.0]))).fit(rows)
    return NaiveBayes(book).fit(rows)


def write_case(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = model_of(rng)
    folder.mkdir(parents=True)
    model.save(folder / "model.json")
    model = load(folder / "model.json")
    book, kinds = model.codebook_, {"double": pa.float64(), "logical": pa.bool_()}
    messy = {each.name: messy_column(each, rng, 30) for each in book.features}
    table = pa.table({name: pa.array(values, kinds.get(kind, pa.string())) for name, (kind, values) in messy.items()})
    joint, prob = model.predict_joint_log_proba(table), model.predict_proba(table)
    shown = model.explain(table).to_frame()
    stated = {
        "columns": {name: {"type": kind, "values": values} for name, (kind, values) in messy.items()},
        "joint": [[value if np.isfinite(value) else None for value in row] for row in joint.tolist()],
        "prob": prob.tolist(),
        "parts": list(shown.index.get_level_values("part")[: len(shown) // len(table)]),
        "terms": [[value if np.isfinite(value) else None for value in row] for row in shown.to_numpy().tolist()],
        "cells": {each.name: value_names(each) for each in book.features},
        "class": [str(label) for label in model.predict(table)],
    }
    (folder / "rows.json").write_text(json.dumps(stated))


def test_package_passes_its_own_tests_and_classifies_random_models_as_python_does(run_r: Run, tmp_path: Path) -> None:
    compare(run_r, tmp_path, range(MODELS), "")


@pytest.mark.slow
def test_many_random_models_classify_as_python_does(run_r: Run, tmp_path: Path) -> None:
    compare(run_r, tmp_path, range(MODELS, 200), "cases")


def compare(run_r: Run, folder: Path, seeds: range, only: str) -> None:
    for seed in seeds:
        write_case(folder / "cases" / f"model-{seed}", seed)
    printed = run_r(suite(only), CLIENT / "tests", BLINDBAYES_CASES=str(folder / "cases"))
    assert "DONE" in printed
    assert "BLINDBAYES_CASES is not set" not in printed


def test_that_comparison_finds_a_model_that_differs_in_the_eleventh_digit(run_r: Run, tmp_path: Path) -> None:
    write_case(tmp_path / "cases" / "changed", 3)
    path = tmp_path / "cases" / "changed" / "model.json"
    content = json.loads(path.read_text())
    content["parameters"]["log_prior"][0] *= 1 + 1e-10
    path.write_text(json.dumps(content))
    with pytest.raises(AssertionError, match="1e-12"):
        run_r(suite("cases"), CLIENT / "tests", BLINDBAYES_CASES=str(tmp_path / "cases"))


def test_hashed_words_are_refused_with_the_way_out(run_r: Run, tmp_path: Path) -> None:
    book = Codebook("y", ("a", "b"), (Text("t", buckets=8),), max_rows=100)
    NaiveBayes(book).fit(pa.table({"t": ["one two", "three"], "y": ["a", "b"]})).save(tmp_path / "model.json")
    code = 'cat(tryCatch(predict(blindbayes::read_model("model.json"), data.frame(t = "x")), error = conditionMessage))'
    assert "blindbayes predict" in run_r(code, tmp_path)


# -- agents ----------------------------------------------------------------------------------------------------------------


def story() -> list[str]:
    """The code of the vignette, block by block."""
    text = (CLIENT / "vignettes" / "hospitals.Rmd").read_text(encoding="utf-8")
    return re.findall(r"^```r\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def play(run_r: Run, folder: Path, north: Path, approve: Callable[[StudyFile], None]) -> None:
    """Run the vignette: north's analyst drafts and sends, people approve, the analyst runs and classifies."""
    (folder / "north").symlink_to(north)
    (folder / "codebook.toml").write_text(BOOK.to_toml())
    rng = np.random.default_rng(1)
    with (folder / "visits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["colour", "age"])
        writer.writerows([rng.choice(["red", "blue", "green", "never", ""]), rng.integers(0, 150)] for _ in range(50))
    draft, make, decided, start, classify = story()
    sha256 = run_r(draft + make, folder).split()[-1]
    assert re.fullmatch("[0-9a-f]{64}", sha256)
    approve(StudyFile.from_toml(north / "studies" / f"{sha256}.toml"))
    printed = run_r(f"library(blindbayes)\nsite <- bb_site('north')\n{decided}{start}{classify}", folder)
    assert "Readmission within 30 days" in printed
    assert "Naive Bayes classifier of class" in printed
    model = load(folder / "model.json")
    with (folder / "visits.csv").open(newline="") as file:
        visits = list(csv.DictReader(file))
    table = pa.table({name: [row[name] for row in visits] for name in ("colour", "age")})
    with (folder / "classes.csv").open(newline="") as file:
        classes = list(csv.DictReader(file))
    assert [row["predicted"] for row in classes] == list(model.predict(table))
    chances = np.array([[float(row[label]) for label in BOOK.classes] for row in classes])
    assert np.abs(chances - model.predict_proba(table)).max() < 1e-12
    assert (folder / "statement.md").read_text()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    with Consoles(tmp_path_factory.mktemp("office"), NAMES) as made:
        yield made


def test_client_reads_an_agent_and_names_its_refusals(run_r: Run, office: Consoles) -> None:
    printed = run_r(suite("site"), CLIENT / "tests", BLINDBAYES_SITE=str(office.office.net.sites["north"].home.folder))
    assert "BLINDBAYES_SITE is not set" not in printed


def test_vignette_trains_one_model_over_three_agents_and_classifies(run_r: Run, office: Consoles, tmp_path: Path) -> None:
    net = office.office.net
    play(run_r, tmp_path, net.sites["north"].home.folder, lambda study: office.do(lambda: net.approve(study)))


@pytest.mark.slow  # three agents as processes; the test above runs the same code with agents of this process
def test_vignette_runs_with_agents_in_processes_of_their_own(run_r: Run, tmp_path: Path) -> None:
    (tmp_path / "analyst").mkdir()
    with Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES)) as net:
        play(run_r, tmp_path / "analyst", net.sites["north"].home.folder, net.approve)


@pytest.mark.slow
def test_package_passes_r_cmd_check(rscript: str, tmp_path: Path) -> None:
    """Without manual and vignettes, which need LaTeX and knitr: no error, no warning, no note but on the machine."""
    program = str(Path(rscript).with_name("R"))
    copied = shutil.copytree(CLIENT, tmp_path / "blindbayes")
    environment = {**os.environ, "_R_CHECK_FORCE_SUGGESTS_": "false", "_R_CHECK_SYSTEM_CLOCK_": "0"}
    build = [program, "CMD", "build", "--no-build-vignettes", str(copied)]
    subprocess.run(build, cwd=tmp_path, env=environment, capture_output=True, check=True, timeout=200)
    (archive,) = tmp_path.glob("blindbayes_*.tar.gz")
    line = [program, "CMD", "check", "--no-manual", "--ignore-vignettes", archive.name]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout
    assert "ERROR" not in done.stdout
    assert "WARNING" not in done.stdout
