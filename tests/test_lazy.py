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
import pyarrow as pa
from blindbayes import Categorical, Codebook, NaiveBayes, PrivateNaiveBayes, RowStudy, cli

book = Codebook("y", ("a", "b"), (Categorical("c", ("x", "z")),))
table = pa.table({"y": ["a", "b"] * 50, "c": ["x", "z", "z", "x"] * 25})
joint = RowStudy(book).simulate({"north": table, "south": table, "west": table}).model
assert joint.statistics_.class_counts.tolist() == [150, 150]
PrivateNaiveBayes(book, epsilon=1.0).fit(table).save("model.json")
cli.main()
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


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["site", "serve", "--config", "north"], "agent"),
        (["relay", "serve", "hub", "--listen", "127.0.0.1:0"], "agent"),
        (["train", "duckdb:///{folder}/t.duckdb#t", "--codebook", "book.toml", "--out", "m.json"], "sql"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_command_that_installs_it(
    tmp_path: Path, arguments: list[str], extra: str
) -> None:
    (tmp_path / "t.duckdb").write_bytes(b"")
    set_up = [
        ["site", "init", "north", "--name", "north", "--address", "127.0.0.1:7443", "--listen", "127.0.0.1:0"],
        ["relay", "init", "hub", "--name", "hub", "--address", "127.0.0.1:7444"],
    ]
    book = "from blindbayes import Categorical, Codebook; from pathlib import Path; b = Codebook('y', ('a', 'b'), "
    book += "(Categorical('c', ('x', 'z')),)); Path('book.toml').write_text(b.to_toml())"
    assert run(tmp_path, book, set()).returncode == 0
    for command in set_up:
        made = run(tmp_path, f"from blindbayes.cli import main; main({command!r})", set(EXTRAS))
        assert made.returncode == 0, made.stderr
    if "relay" in arguments:
        pin = "from pathlib import Path; from blindbayes.net.identity import pin, read_card; "
        pin += "pin(Path('hub'), read_card(Path('north/card.toml')))"
        assert run(tmp_path, pin, set()).returncode == 0
    asked = [each.format(folder=tmp_path) for each in arguments]
    done = run(tmp_path, f"from blindbayes.cli import main; main({asked!r})", set(EXTRAS))
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


@pytest.mark.parametrize("command", ["site init north --name north", "site serve", "demo --out demo", "study run study.toml"])
def test_without_file_locks_the_library_works_and_sites_are_refused(command: str, tmp_path: Path) -> None:
    program = f"import sys; sys.argv = ['blindbayes', *{command.split()!r}]\n{ELSEWHERE}"
    done = run(tmp_path, program, NO_POSIX)
    assert (tmp_path / "model.json").exists(), done.stderr[-2000:]
    assert done.returncode == 2, done.stderr[-2000:]
    assert "Linux or macOS" in done.stderr
