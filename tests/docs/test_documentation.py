"""The documentation: it builds without a warning, and what it shows can be pasted and runs."""

from __future__ import annotations

import csv
import html
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from playwright.sync_api import sync_playwright

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, Text
from blindbayes.cli import root
from blindbayes.crypto.psi.cuckoo import bin_count
from blindbayes.report.spec import protocols
from blindbayes.testing.loopback import free_port
from support.r import find_rscript, install_client
from support.spark import spark_session

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def blocks(page: str) -> list[tuple[str, str]]:
    """What is meant to be run: python and bash. Blocks marked console or text are not."""
    found = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    return [(kind, text) for kind, text in found if kind in ("python", "bash")]


PASTED = ("tutorials/consortium.md", "tutorials/companies.md")  # into a shell
RUN = [page for page in PAGES if blocks(page) and page not in PASTED]


def run_shell(text: str) -> None:
    """The lines of a bash block, in this process."""
    for line in text.replace("\\\n", " ").splitlines():
        run_shell_line(line)


def run_shell_line(line: str) -> None:
    """A line of a bash block, in this process."""
    words = shlex.split(line)
    assert words[0] == "blindbayes", f"only commands of the package are run here: {line}"
    root.main(args=words[1:], prog_name="blindbayes", standalone_mode=False)


def test_there_is_something_to_run() -> None:
    assert {"index.md", "tutorials/hospitals.md", "tutorials/census.md", "tutorials/columns.md"} <= set(RUN)


@pytest.mark.parametrize("page", RUN)
def test_what_a_page_shows_runs_from_top_to_bottom(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page, "exec"), names)
        else:
            run_shell(text)


def test_the_output_on_the_home_page_is_what_the_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text block after a bash block is the standard output of its last lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    found = BLOCK.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    compared = 0
    for (kind, text), (after, shown) in zip(found, [*found[1:], ("", "")], strict=True):
        if kind == "python" and "write_csv" in text:
            exec(compile(text, "index.md", "exec"), {})
        elif kind == "bash":
            output = ""
            for line in text.replace("\\\n", " ").splitlines():
                done = CliRunner().invoke(root, shlex.split(line)[1:])
                assert done.exit_code == 0, done.output
                output += done.stdout
            if after == "text":
                assert output.endswith(shown)
                compared += 1
    assert compared == 2


def code(page: str, kind: str) -> list[str]:
    """The blocks of a page in one language."""
    return [text for language, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")) if language == kind]


def test_the_code_for_r_gives_the_classes_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, run_r = "how-to/r-spark-sql.md", install_client(find_rscript(), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code(page, "python")[0], page, "exec"), names)
    expected = list(names["model"].predict(names["data"].tables["south"].drop_columns(["readmitted"])))
    files = ("classes-r.csv", "classes.csv")
    for text, file in zip(code(page, "r"), files, strict=True):
        run_r(text, tmp_path)
        with (tmp_path / file).open(newline="") as rows:
            assert [row["readmitted"] for row in csv.DictReader(rows)] == expected


@pytest.mark.slow
def test_the_code_for_spark_counts_and_classifies_as_a_frame_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "how-to/r-spark-sql.md"
    with spark_session(tmp_path / "warehouse") as spark:
        monkeypatch.chdir(tmp_path)
        hadoop = spark._jvm.org.apache.hadoop.fs  # of the JVM of this process, which began elsewhere
        hadoop.FileSystem.get(spark._jsc.hadoopConfiguration()).setWorkingDirectory(hadoop.Path(str(tmp_path)))
        names: dict[str, Any] = {"__name__": "__main__", "spark": spark}
        for kind, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
            if kind == "bash":
                run_shell(text)
            elif kind in ("python", "py"):
                exec(compile(text, page, "exec"), names)
        data = names["data"]
        assert names["trained"].statistics_ == NaiveBayes(data.codebook).fit(data.tables["south"]).statistics_
        assert sorted(names["spark_classes"]) == sorted(names["classes"])


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["hospitals", "census", "columns"])
def test_the_notebooks_are_the_tutorials_and_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert text == maker().made(name), "out of date: python docs/notebooks.py"
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            if source.startswith("!"):
                for line in source.splitlines():
                    run_shell_line(line.removeprefix("!"))
            else:
                exec(compile(source, name, "exec"), names)


def pasted(page: str, folder: Path) -> str:
    """A page's blocks in one shell, as somebody pastes them; what it said."""
    script = ["set -eu", f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"]
    for at, (kind, text) in enumerate(blocks(page)):
        if kind == "python":
            (folder / f"step{at}.py").write_text(text)
            script.append(f"{shlex.quote(sys.executable)} step{at}.py")
        else:
            script.append(text)
    script.append("wait")
    ports: dict[str, str] = {}  # free ones, for those that the page names
    text = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda found: ports.setdefault(found[0], str(free_port())), "\n".join(script))
    done = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_consortium_runs_as_it_is_pasted(tmp_path: Path) -> None:
    said = pasted("tutorials/consortium.md", tmp_path)
    assert (tmp_path / "release" / "model.json").is_file()
    assert "the key on its card" in " ".join(said.split())
    assert "nobody is missing" in said


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_two_companies_run_as_they_are_pasted(tmp_path: Path) -> None:
    said = pasted("tutorials/companies.md", tmp_path)
    classes = (tmp_path / "classes.csv").read_text().splitlines()
    assert classes[0].replace('"', "").split(",") == ["row", "email", "defaulted"]
    assert len(classes) == 2001
    assert len(list((tmp_path / "sites" / "telecom" / "releases").iterdir())) == 2
    assert not list((tmp_path / "sites" / "telecom" / "releases").rglob("classes.csv"))
    for party in ("bank", "telecom"):
        pages = [path.read_text() for path in (tmp_path / "sites" / party / "releases").rglob("leakage.html")]
        assert all("What bank learns" in page and "What telecom learns" in page for page in pages)
    assert f"{bin_count(4096)} of 6000 queries used" in said


RENEWAL = """
set -eu
serve() {{ blindbayes site serve --config $1 > $1.log 2>&1 & echo $! > $1.pid; }}
systemctl() {{
  site=${{2#blindbayes@}}
  if [ $1 = start ]; then serve $site; else kill $(cat $site.pid); wait $(cat $site.pid) || true; fi
}}
words() {{ sed -n '2s/^# //p' $1/card.toml; }}
connected() {{
  for i in $(seq 240); do blindbayes site status --config south 2>&1 | grep -q "north: connected" && return; sleep 0.5; done
  cat *.log; exit 1
}}
blindbayes site init north --name north --listen 127.0.0.1:{0} --address 127.0.0.1:{0} --operator 127.0.0.1:{1}
blindbayes site init south --name south --listen 127.0.0.1:{2} --address 127.0.0.1:{2} --operator 127.0.0.1:{3}
blindbayes site pin south/card.toml --words "$(words south)" --config north
blindbayes site pin north/card.toml --words "$(words north)" --config south
trap 'kill $(cat *.pid)' EXIT
serve north; serve south; connected
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_keys_and_identities_are_renewed_as_the_page_says(tmp_path: Path) -> None:
    """The page had `rotate` beside a running agent, which refuses, and `pin` without `--replace`, which refuses too."""
    parts = re.split(r"^## ", (DOCS / "how-to" / "operate.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    renew, replaced = (next(part for part in parts if part.startswith(name)) for name in ("Renew keys", "Replace an identity"))
    (rotate, pin), (succeed,) = ([text for kind, text in BLOCK.findall(part) if kind == "sh"] for part in (renew, replaced))
    ports = [free_port() for _ in range(4)]
    script = ["export PATH=" + shlex.quote(str(Path(sys.executable).parent)) + ":$PATH", RENEWAL.format(*ports)]
    for at_north in (rotate, succeed + "mv north old; mv north-new north; systemctl start blindbayes@north\n"):
        script += [at_north, "cp north/card.toml north-card.toml", f"words north | ({pin.strip()})", "connected"]
    done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("The running agent has reloaded it") == 2


def test_the_site_builds_with_warnings_as_errors_and_is_searched_from_its_folder(tmp_path: Path, chromium: str) -> None:
    for module in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        if os.environ.get("CI") != "true":
            pytest.importorskip(module, reason="the documentation's tools are not installed: pip install --group docs")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in {*protocols()} - {"reference"}:  # of the tests
        text = (tmp_path / "site" / "protocols" / f"{name}.html").read_text(encoding="utf-8")
        assert text.count("Who learns what</p>") == 1, f"{name} has no closing box"
    surface = (tmp_path / "site" / "api" / "codebook.html").read_text(encoding="utf-8")
    for kind in (Codebook, Categorical, Numeric, Text):
        for field in kind.__struct_fields__:
            assert f'id="blindbayes.{kind.__name__}.{field}"' in surface
    for page in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8"))
        assert fetched == [], f"{page.name} fetches from elsewhere"
    search_in_a_folder(tmp_path / "site", chromium)


def search_in_a_folder(site: Path, chromium: str) -> None:
    """No server, no other host, no error on the console."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        told: list[str] = []
        page.on("console", lambda message: told.append(message.text))
        page.on("request", lambda request: told.append(request.url) if not request.url.startswith("file:") else None)
        page.goto((site / "how-to" / "codebook.html").as_uri())
        page.focus("input.md-search__input")  # which starts the search
        page.wait_for_function("document.querySelector('.md-search-result__meta').textContent.includes('Type')", timeout=60_000)
        page.fill("input.md-search__input", "smooth")
        page.keyboard.press("End")  # it looks when a key comes up
        page.wait_for_selector(".md-search-result__item", timeout=30_000, state="attached")
        for words, first in (("decimal comma", "how-to/tables.html"), ("GDPR", "how-to/data-protection.html")):
            page.fill("input.md-search__input", "")
            page.fill("input.md-search__input", words)
            page.keyboard.press("End")
            page.wait_for_function(
                "first => document.querySelector('.md-search-result__item a')?.href.includes(first)", arg=first, timeout=30_000
            )
        assert told == []
        browser.close()


def commands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                found += commands(below, f"{path} {name}")
    return found


def test_every_command_has_an_example_and_every_option_a_help() -> None:
    without = []
    for path, command in commands(root, "blindbayes")[1:]:
        if not re.search(rf"^\s+{path}\b", command.help or "", flags=re.MULTILINE):
            without.append(path)
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.help:
                without.append(f"{path} {parameter.opts[0]}")
    assert without == []


def shown_lines() -> list[str]:
    """Every command line that the help texts, the pages and the README show, outside of running text."""
    texts = [command.help or "" for _, command in commands(root, "blindbayes")]
    pages = [ROOT / "README.md", *(DOCS / page for page in PAGES)]
    for page in pages:
        texts += re.findall(r"^```[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [line for text in texts for line in re.findall(r"^ *(blindbayes .*)$", text.replace("\\\n", " "), re.MULTILINE)]


def test_every_command_line_that_is_shown_could_be_typed() -> None:
    lines = shown_lines()
    assert len(lines) > 60
    for line in lines:
        words = shlex.split(re.sub(r"\$\([^)]*\)", "HASH", re.split(r" (?:2?>|&)", line)[0]))[1:]
        command: click.Command | None = root
        context = click.Context(root)
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            group = command
            _, command, words = group.resolve_command(context, words)
            context = click.Context(group, parent=context)
        assert command is not None, line
        given, _, order = command.make_parser(click.Context(command)).parse_args(words)  # refuses an unknown option
        if "--help" not in words and "-h" not in words and not isinstance(command, click.Group):
            for parameter in command.params:
                assert not parameter.required or parameter.name in given, f"{line}: {parameter.name} is required"
            assert not [word for word in order if isinstance(word, click.Argument) and given.get(word.name) is None], line


def test_every_setting_of_a_study_and_of_the_estimator_is_described() -> None:
    import inspect

    from blindbayes import ColumnStudy, Estimation, JoinStudy, Limits, NaiveBayes, Privacy, RowStudy

    for kind in (RowStudy, ColumnStudy, JoinStudy, Privacy, Limits, Estimation, NaiveBayes):
        described = inspect.cleandoc(kind.__doc__ or "").split("Parameters\n----------\n")[1]  # indented up to Python 3.12
        for name in inspect.signature(kind).parameters:
            assert re.search(rf"\b{name}\b", described), f"{kind.__name__}: {name}"


FILE_TABLES = {"study", "parties", "privacy", "limits", "estimation", "deadlines", "columns"}
STUDY = "blindbayes.study.file:StudyFile blindbayes.study.file:RowStudy blindbayes.study.file:JoinStudy"


def settings(section: str, below: str) -> dict[str, str]:
    """The table under a heading of the page of settings: name and default."""
    page = (DOCS / "settings.md").read_text(encoding="utf-8").split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    part = f"\n### x\n{page}".split(f"\n### {below}\n", 1)[1].split("\n### ", 1)[0]
    return {name: default.strip() for name, default in re.findall(r"^\| `(\w+)` \| (.*?) \|", part, flags=re.MULTILINE)}


SITE_TABLES = {"rows", "relay", "carrier", "courier", "tls", "policy", "console", "notify", "sign_in"}


@pytest.mark.parametrize(
    ("section", "below", "kind", "elsewhere"),
    [
        ("site.toml", "x", "blindbayes.agent.config:SiteConfig", SITE_TABLES),
        ("site.toml", "[rows]", "blindbayes.agent.config:Rows", set()),
        ("site.toml", "[relay]", "blindbayes.agent.config:RelayUse", set()),
        ("site.toml", "[carrier]", "blindbayes.agent.config:Carrier", set()),
        ("site.toml", "[courier]", "blindbayes.agent.config:AddedCourier", set()),
        ("site.toml", "[tls]", "blindbayes.agent.config:Tls", set()),
        ("site.toml", "[console]", "blindbayes.agent.config:ConsoleSettings", set()),
        ("site.toml", "[notify]", "blindbayes.agent.config:Notify", set()),
        ("site.toml", "[sign_in]", "blindbayes.agent.config:SignIn", set()),
        ("site.toml", "[policy]", "blindbayes.disclosure.policy:Policy", set()),
        ("study.toml", "x", STUDY, FILE_TABLES),
        ("study.toml", "[columns]", "blindbayes.study.file:Holdings", set()),
        ("study.toml", "[[parties]]", "blindbayes.study.file:Party", set()),
        ("study.toml", "[privacy]", "blindbayes.study.file:Privacy", set()),
        ("study.toml", "[limits]", "blindbayes.study.file:Limits", set()),
        ("study.toml", "[deadlines]", "blindbayes.study.file:Deadlines", set()),
        ("study.toml", "[estimation]", "blindbayes.study.file:Estimation", set()),
    ],
)
def test_every_setting_of_a_file_is_on_its_page_with_its_default(
    section: str, below: str, kind: str, elsewhere: set[str]
) -> None:
    told, fields = settings(section, below), dict[str, msgspec.structs.FieldInfo]()
    for module, _, name in (each.partition(":") for each in kind.split()):
        for field in msgspec.structs.fields(getattr(importlib.import_module(module), name)):
            fields.setdefault(field.name, field)
    assert told.pop("kind", "`rows`") == "`rows`"  # the tag of the study's struct
    assert set(told) == set(fields) - elsewhere
    for field, text in told.items():
        default = fields[field].default
        assert (text == "required") == (fields[field].required), field
        if isinstance(default, bool):
            assert text == f"`{str(default).lower()}`", field
        elif isinstance(default, str | int) or (isinstance(default, float) and field != "honest_fraction"):
            assert text == f"`{default}`", field
        elif isinstance(default, tuple):
            assert text == (", ".join(f"`{item}`" for item in default) or "none"), field


def test_the_settings_page_is_made_from_the_one_table() -> None:
    from blindbayes.cli.commands.settings import FIELDS, page
    from blindbayes.study.settings import SETTINGS

    assert (DOCS / "settings.md").read_text(encoding="utf-8") == page(), "run `blindbayes settings > docs/settings.md`"
    named = {f"{section}.{name}" for section, fields in FIELDS.items() for name in fields}
    assert named == set(SETTINGS)


def test_each_text_about_a_setting_stands_in_one_place() -> None:
    """Comments of both files and help of the command are the table's; nothing else repeats one."""
    from blindbayes.agent.config import SiteConfig
    from blindbayes.cli.commands.study import init
    from blindbayes.study.settings import SETTINGS

    texts = {each for found in SETTINGS.values() for each in (found.doc,) if len(each) > 20}
    for path in (DOCS.parent / "src" / "blindbayes").rglob("*.py"):
        if path.name != "settings.py":
            source = path.read_text(encoding="utf-8")
            assert not [text for text in texts if f'"{text}"' in source], path
    sentences = {found.sentence for found in SETTINGS.values()}
    own = {"path", "cards", "without_rows", "holds", "help", "protocol"}
    given = [
        each
        for each in init.get_params(click.Context(init))[:-1]
        if each.name not in own and not each.name.startswith("options__")
    ]
    assert {each.help.partition(" [default:")[0] for each in given} <= sentences
    written = SiteConfig().to_toml("north").decode()
    assert all(f"# {SETTINGS[f'site.policy.{name}'].line}" in written for name in ("min_rows", "reveal_matches"))


def test_the_page_on_python_lists_the_public_surface_and_nothing_else() -> None:
    import blindbayes
    import blindbayes.testing

    texts = [path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md"))]
    listed = [name for text in texts for name in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)]
    public = [f"blindbayes.{name}" for name in blindbayes.__all__ if name != "__version__"]
    assert sorted(listed) == sorted([*public, *(f"blindbayes.testing.{name}" for name in blindbayes.testing.__all__)])
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]
    for page in pages:
        inner = set(re.findall(r"^\s*from (blindbayes\.\S+) import", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
        assert inner <= {"blindbayes.datasets", "blindbayes.testing"}, page


def test_the_page_of_every_paper_is_published_whole() -> None:
    """As the command wrote it: its reference, its claims, its pictures, and no empty value."""
    from blindbayes_papers import PAPERS, REFERENCES

    index = (ROOT / "docs" / "papers" / "index.md").read_text(encoding="utf-8")
    for paper in PAPERS:
        folder = ROOT / "docs" / "papers" / paper
        page = (folder / "index.html").read_text(encoding="utf-8")
        assert html.escape(REFERENCES[paper]) in page
        assert f"({paper}/index.html)" in index
        assert not re.search(r">[^<]*\bNone\b", page)
        for name in re.findall(r'<img src="([^"]+)"', page):
            assert (folder / name).stat().st_size < 250_000, name
