"""Other distributions add protocols and commands by their metadata; the papers are one of them, and the core does without."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from blindbayes import Categorical, Codebook, RowStudy
from blindbayes import _extensions as extensions
from blindbayes.cli import main
from blindbayes.errors import ConfigError
from blindbayes.report import spec as report_spec
from blindbayes.report.spec import protocols, read_spec
from blindbayes.study.tasks import registry as tasks
from blindbayes.testing.loopback import open_policy

ROOT = Path(__file__).parents[1]
BOOK = Codebook("y", ("a", "b"), (Categorical("x", ("u", "v")),))
PAPER_ONLY = {"scalar_product", "distorted_intersection"}


@pytest.fixture
def fresh() -> Iterator[None]:
    """What is installed is looked up again, before and after."""
    for each in (extensions.added, report_spec.spec_pages):
        each.cache_clear()
    yield
    for each in (extensions.added, report_spec.spec_pages):
        each.cache_clear()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    """Nobody adds anything: the core alone."""
    monkeypatch.setattr(extensions.metadata, "entry_points", lambda group: ())


def ends(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = 0
    try:
        main([*words])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_with_the_papers_their_protocols_pages_and_command_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(tasks.names()) > PAPER_ONLY
    assert {*PAPER_ONLY, "set_intersection"} < set(protocols())
    assert "reproduce " in ends(capsys, "--help")[1]
    assert not PAPER_ONLY & set(open_policy().protocols)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", sorted(PAPER_ONLY))
def test_without_them_one_line_names_the_extra(name: str) -> None:
    for ask in (lambda: RowStudy(BOOK, protocol=name), lambda: read_spec(name), lambda: tasks.task_class(name)):
        with pytest.raises(ConfigError, match=rf"^{name} needs an extra: pip install 'blindbayes\[papers\]'$"):
            ask()


@pytest.mark.usefixtures("bare")
def test_without_them_the_command_says_so_and_everything_else_works(capsys: pytest.CaptureFixture[str]) -> None:
    said = "error: reproduce needs an extra: pip install 'blindbayes[papers]'\n"
    assert ends(capsys, "reproduce", "huai2015") == (2, "", said)
    code, out, _ = ends(capsys, "--help")
    assert code == 0
    assert "reproduce" not in out
    assert set(tasks.names()) == set(tasks.own_names())
    assert not {*PAPER_ONLY, "set_intersection"} & set(protocols())
    for kind in ("rows", "columns"):
        assert tasks.known(kind)
    with pytest.raises(ConfigError, match="there is no protocol 'nonsense'; known: masked_sum,"):
        RowStudy(BOOK, protocol="nonsense")


ADDED = {
    "__init__.py": "",
    "way.py": "from blindbayes.study.tasks.sums import task_class as made\n"
    "def task_class(name):\n    return type('Added', (made('reference'),), {'name': name})\n",
    "word.py": "import click\n@click.command()\ndef command():\n    click.echo('hello')\n",
    "strange_sum/SPEC.md": '# strange_sum\n\n```toml\nopened = ["sum"]\n```\n',
}


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: None) -> Iterator[None]:
    """A distribution of somebody else, as pip leaves it; it reaches for a name of the core's too."""
    for name, text in ADDED.items():
        path = tmp_path / "strange" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    facts = tmp_path / "strange-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    lines = ["[blindbayes.tasks]", "strange_sum = strange.way", "masked_sum = strange.way"]
    (facts / "entry_points.txt").write_text(
        "\n".join([*lines, "[blindbayes.commands]", "wave = strange.word", "train = strange.word"])
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "strange"]:
        del sys.modules[name]


@pytest.mark.usefixtures("stranger")
def test_a_strangers_protocol_is_found_by_its_metadata_and_no_site_allows_it_unasked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "strange_sum" in tasks.known("rows")
    assert RowStudy(BOOK, protocol="strange_sum").task_class.name == "strange_sum"
    assert "strange_sum" not in open_policy().protocols
    assert read_spec("strange_sum").opened == ("sum",)
    assert ends(capsys, "wave")[:2] == (0, "hello\n")
    (line,) = (line for line in ends(capsys, "--help")[1].splitlines() if line.startswith("  wave "))
    assert "Added by strange: see wave --help." in line


@pytest.mark.usefixtures("stranger")
def test_nobody_takes_a_name_of_the_core(capsys: pytest.CaptureFixture[str]) -> None:
    assert tasks.task_class("masked_sum").__module__ == "blindbayes.study.tasks.sums"
    assert tasks.names().count("masked_sum") == 1
    assert "hello" not in ends(capsys, "train", "--help")[1]


@pytest.mark.usefixtures("stranger")
def test_metadata_that_a_removed_package_left_behind_add_nothing(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "strange")
    importlib.invalidate_caches()
    assert "strange_sum" not in tasks.names()
    with pytest.raises(ConfigError, match="there is no protocol 'strange_sum'"):
        RowStudy(BOOK, protocol="strange_sum")


def test_the_papers_wheel_has_their_pages_and_its_metadata_the_names(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "papers", check=True, capture_output=True, timeout=120)
    (path,) = tmp_path.glob("blindbayes_papers-*-py3-none-any.whl")
    wheel = zipfile.ZipFile(path)
    assert {name.split("/")[0] for name in wheel.namelist()} == {
        "blindbayes_papers",
        path.name.partition("-py3")[0] + ".dist-info",
    }
    specs = {path.parent.name for path in (ROOT / "papers" / "blindbayes_papers").rglob("SPEC.md")}
    assert {name.split("/")[-2] for name in wheel.namelist() if name.endswith("/SPEC.md")} == specs
    wheel.extractall(tmp_path / "lib")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "lib"), str(ROOT / "src")])}
    command = [sys.executable, "-P", "-c", "import blindbayes_papers as p, blindbayes.cli as c; print(p.__file__); c.main()"]
    shown = subprocess.run(
        [*command, "reproduce", "--help"], capture_output=True, text=True, env=environment, check=True
    ).stdout
    assert shown.startswith(str(tmp_path / "lib"))
    assert "zafarani2020" in shown
