"""Top-level documents match the repository."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from blindbayes import __version__
from conftest import tenth_of
from support.locks import pins

ROOT = Path(__file__).parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "README.md"])
def test_links_and_paths_and_make_targets_of_a_page_exist(name: str) -> None:
    page = text(name)
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", page):
        assert (ROOT / link).exists(), link
    for path in re.findall(r"`((?:tests|src|docs|\.ci)/[\w./-]+)`", page):
        assert (ROOT / path).exists(), path
    for target in re.findall(r"`(?:[A-Z_]+=\d )?make ([a-z-]+)", page):
        assert target in targets(), target


def test_the_rooms_of_the_map_are_those_of_the_package() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", text("CONTRIBUTING.md").split("## What is good")[0], flags=re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`([a-z_]+)`", row)}
    there = {
        path.stem
        for path in (ROOT / "src" / "blindbayes").iterdir()
        if not path.name.startswith("__") and path.name != "py.typed" and (path.suffix == ".py" or any(path.glob("*.py")))
    }
    assert there - named <= {"datasets"}
    assert named <= there


def test_the_architecture_page_names_files_that_exist() -> None:
    paths = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text("docs/architecture.md"))
    assert len(paths) > 60
    missing = {path for path in paths if not (ROOT / "src" / "blindbayes" / path).exists() and not (ROOT / path).exists()}
    assert missing == set()


def test_the_architecture_page_lists_every_module() -> None:
    page = runpy.run_path(str(ROOT / "tools" / "modules.py"))["page"]
    assert text("docs/architecture.md") == page(), "run `python tools/modules.py`"


TESTED_ELSEWHERE = {  # only shrinks
    "cli/options.py": "tests/cli/test_commands.py, by every command that takes the options",
    "console/oidc.py": "tests/console/test_organisation.py, where a provider runs",
    "data/libraries.py": "names of lazy imports alone",
    "disclosure/value.py": "tests/disclosure/test_plain.py, which renders the value",
    "dp/accounting/stage.py": "tests/dp/test_statement.py: a stage is a line of the statement",
    "naive_bayes/base.py": "tests/naive_bayes/test_estimator.py: the base of both estimators",
    "naive_bayes/load.py": "tests/naive_bayes/test_model_file.py, where models come back",
    "study/agreement.py": "tests/study/test_file_columns.py: an agreement is read from a study file",
    "testing/loopback.py": "tests/agent/test_serve.py, whose sites it starts",
}


def test_the_tests_of_a_module_are_found_by_its_path() -> None:
    """`a/b/c.py` has a test in `tests/a` that is named for `c` or for `b` (`test_c.py`, `test_c_more.py`), or lies in `b`."""
    tests = [path.relative_to(ROOT / "tests").parts for path in (ROOT / "tests").rglob("test_*.py")]
    missing = set()
    for path in (ROOT / "src" / "blindbayes").rglob("*.py"):
        *folders, name = path.relative_to(ROOT / "src" / "blindbayes").with_suffix("").parts
        if name not in ("__init__", "__main__"):
            names = "|".join([*folders[1:], name.lstrip("_")])
            own = [test[len(folders[:1]) :] for test in tests if test[:-1][:1] == tuple(folders[:1])]
            if not any(
                re.fullmatch(rf"(?:\w+/)*(?:(?:{names})/.*|test_(?:{names})(?:_\w+)?\.py)", "/".join(test)) for test in own
            ):
                missing.add("/".join([*folders, f"{name}.py"]))
    assert missing == set(TESTED_ELSEWHERE)
    for place in TESTED_ELSEWHERE.values():
        for named in re.findall(r"tests/[\w/]+\.py", place):
            assert (ROOT / named).exists(), named


def test_the_workflow_calls_what_ci_calls_for_every_python_that_the_package_names() -> None:
    workflow = yaml.safe_load(text(".github/workflows/test.yml"))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    assert {command.split()[1] for command in commands if command.startswith("make ")} <= targets()
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", text("pyproject.toml"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_version_and_licence_are_the_same_everywhere() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["dynamic"] == ["version"]
    citation = yaml.safe_load(text("CITATION.cff"))
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
    assert f"## {__version__} " in text("CHANGELOG.md")
    papers = tomllib.loads(text("papers/pyproject.toml"))["project"]
    assert (papers["version"], papers["license"]) == (__version__, project["license"])
    assert f"blindbayes=={__version__}" in papers["dependencies"]
    assert project["optional-dependencies"]["papers"] == [f"blindbayes-papers=={__version__}"]


def test_hooks_run_the_tools_of_the_environment() -> None:
    (repo,) = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    assert all(hook["entry"].startswith(".venv/bin/") for hook in repo["hooks"])


def test_make_help_lists_every_target() -> None:
    command = ["make", "--no-print-directory", "help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in shown.splitlines() if line[:1].islower()} == targets()


def test_the_demo_installs_a_part_of_the_lock_without_the_tools_of_developers() -> None:
    whole, part = pins("requirements.lock"), pins("requirements-demo.lock")
    assert part
    assert all(whole[pin] == hashes for pin, hashes in part.items())
    names = {library for library, _ in part}
    assert {"scikit-learn", "pyarrow", "grpcio", "hatchling"} <= names
    assert not names & {"mypy", "playwright", "onnxruntime", "mkdocs", "pandas", "duckdb", "polars", "matplotlib", "pytest"}
    planned = subprocess.run(["make", "-n", "-B", "demo"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "-r requirements-demo.lock" in planned
    assert "-r requirements.lock" not in planned


def test_every_slow_test_belongs_to_one_tenth_and_none_is_empty() -> None:
    names = [f"tests/a/test_b.py::test_{number}" for number in range(2000)]
    found = [tenth_of(name) for name in names]
    assert set(found) == set(range(10))
    assert max(map(found.count, range(10))) < 300
    assert [tenth_of(name) for name in names] == found


@pytest.mark.parametrize("name", ["test.yml", "release.yml"])
def test_actions_are_pinned_by_hash(name: str) -> None:
    used = re.findall(r"uses: (\S+)(.*)", text(f".github/workflows/{name}"))
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment), action


def test_the_release_workflow_calls_targets_of_make_and_publishes_without_a_password() -> None:
    workflow = yaml.safe_load(text(".github/workflows/release.yml"))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert {command.removeprefix("make ") for command in commands if command.startswith("make ")} == {
        "advisories",
        "release-check",
        "release-emulate",
    }
    assert workflow["jobs"]["publish"]["permissions"]["id-token"] == "write"
    assert "secrets." not in text(".github/workflows/release.yml")
