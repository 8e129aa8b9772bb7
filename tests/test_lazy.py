"""The core install fits frames and files and releases private models; each extra's library is missing with one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from blindbayes._lazy import EXTRAS

ROOT = Path(__file__).parents[1]
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
FITS = """
import json
from pathlib import Path
import pyarrow as pa, pyarrow.csv as pacsv, pyarrow.parquet as pq
from blindbayes import Categorical, Codebook, Ledger, NaiveBayes, PrivateNaiveBayes, Numeric, load

book = Codebook("y", ("a", "b"), (Categorical("c", ("x", "z")), Numeric("n", 0, 10)))
table = pa.table({"y": ["a", "b"] * 50, "c": ["x", "z", "z", "x"] * 25, "n": [float(row % 10) for row in range(100)]})
pq.write_table(table, "t.parquet")
pacsv.write_csv(table, "t.csv")
plain = [NaiveBayes(book).fit(source) for source in (table, "t.parquet", "t.csv")]
Ledger.create("ledger.jsonl", epsilon=3.0)
private = [PrivateNaiveBayes(book, epsilon=1.0, ledger="ledger.jsonl").fit(source) for source in (table, "t.parquet", "t.csv")]
private[0].save("model.json")
print(json.dumps([[each.statistics_.class_counts.tolist() for each in plain], len(load("model.json").predict(table))]))
"""


ELSEWHERE = """
import contextlib, io, json
import pyarrow as pa
from blindbayes import Categorical, Codebook, NaiveBayes, PrivateNaiveBayes, RowStudy, cli

book = Codebook("y", ("a", "b"), (Categorical("c", ("x", "z")),))
table = pa.table({"y": ["a", "b"] * 50, "c": ["x", "z", "z", "x"] * 25})
joint = RowStudy(book).simulate({"north": table, "south": table, "west": table}).model
assert joint.statistics_.class_counts.tolist() == [150, 150]
PrivateNaiveBayes(book, epsilon=1.0).fit(table).save("model.json")

def ask(commands):
    answers = []
    for words in commands:
        with contextlib.redirect_stderr(io.StringIO()) as error:
            try:
                cli.main(words)
                code = 0
            except SystemExit as stop:
                code = stop.code
        answers.append((code, error.getvalue()))
    print(json.dumps(answers))
"""
NO_POSIX = {"fcntl", "grp", "pwd", "resource", "termios"}


def run(folder: Path, program: str, names: set[str]) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(BLOCKED.format(names=names))
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", ""), str(ROOT / "src")])
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=200
    )


def test_the_core_fits_frames_and_files_and_releases_private_models(tmp_path: Path) -> None:
    done = run(tmp_path, FITS, set(EXTRAS))
    assert done.returncode == 0, done.stderr[-2000:]
    counts, predictions = json.loads(done.stdout)
    assert counts == [[50, 50]] * 3
    assert predictions == 100


SET_UP = """
from pathlib import Path
from blindbayes import Categorical, Codebook
from blindbayes.cli import main
from blindbayes.net.identity import pin, read_card

main(["site", "init", "north", "--name", "north", "--address", "127.0.0.1:7443", "--listen", "127.0.0.1:0"])
main(["relay", "init", "hub", "--name", "hub", "--address", "127.0.0.1:7444"])
pin(Path("hub"), read_card(Path("north/card.toml")))
Path("book.toml").write_text(Codebook("y", ("a", "b"), (Categorical("c", ("x", "z")),)).to_toml())
Path("t.duckdb").write_bytes(b"")
"""


@pytest.fixture(scope="module")
def set_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site, a relay, a codebook and a table, made without any extra."""
    folder = tmp_path_factory.mktemp("core")
    made = run(folder, SET_UP, set(EXTRAS))
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["site", "serve", "--config", "north"], "agent"),
        (["relay", "serve", "hub", "--listen", "127.0.0.1:0"], "agent"),
        (["train", "duckdb:///{folder}/t.duckdb#t", "--codebook", "book.toml", "--out", "m.json"], "sql"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(set_up: Path, arguments: list[str], extra: str) -> None:
    asked = [each.format(folder=set_up) for each in arguments]
    done = run(set_up, f"from blindbayes.cli import main; main({asked!r})", set(EXTRAS))
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert line.endswith(f"is not installed: pip install 'blindbayes[{extra}]'")


def test_every_extra_of_the_table_exists_and_none_of_its_libraries_is_a_core_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])
    core = {
        "".join(letter for letter in each.split(";")[0] if letter not in " <>=,.0123456789[]")
        for each in project["dependencies"]
    }
    assert not core & {"grpcio", "starlette", "uvicorn", "ibis-framework", "duckdb", "gmpy"}


def test_without_file_locks_the_library_works_and_sites_are_refused(tmp_path: Path) -> None:
    commands = ["site init north --name north", "site serve", "demo --out demo", "study run study.toml"]
    done = run(tmp_path, f"{ELSEWHERE}\nask({[command.split() for command in commands]!r})", NO_POSIX)
    assert (tmp_path / "model.json").exists(), done.stderr[-2000:]
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    for command, (code, error) in zip(commands, answers, strict=True):
        assert code == 2, command
        assert "Linux or macOS" in error, command
