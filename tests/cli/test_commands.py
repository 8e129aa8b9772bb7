"""The command line: help, exit codes, JSON, files, and what it never prints.

`main` runs in this process, as the console script calls it; two tests start the script itself.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, load
from blindbayes.cli import COMMANDS, main, root
from blindbayes.cli.terminal import Public, Redact, set_up_logging

CANARY = "CANARYTEXT"
CODEBOOK = Codebook(
    "outcome",
    ("no", "yes"),
    (Categorical("sex [bold]", ("f", "m")), Numeric("age", 0, 120, optional=True, missing=("?",))),
    max_rows=10_000,
)


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def call(*arguments: object) -> Outcome:
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Outcome(code, captured.out.decode(), captured.err.decode())

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    CODEBOOK.to_toml(tmp_path / "codebook.toml")
    rows().to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path


def rows(count: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(9)
    y = generator.integers(0, 2, count)
    ages = [str(age) for age in generator.integers(20, 60, count) + 30 * y]
    ages[3] = "?"
    return pd.DataFrame({"sex [bold]": generator.choice(["f", "m"], count), "age": ages, "outcome": np.where(y, "yes", "no")})


# -- every command -----------------------------------------------------------------------------------------------------


def leaves(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            if child is not None:
                found += leaves(child, (*path, name))
    return found


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_subcommand_has_help_with_an_example(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    group = command.get_help(click.Context(command, info_name=name))
    for path, leaf in leaves(command, (name,)):
        text = leaf.get_help(click.Context(leaf, info_name=" ".join(path)))
        shown = text if re.search("Examples?:", text) else group  # a group may show the examples of its commands
        if not isinstance(leaf, click.Group):
            assert re.search("Examples?:", shown), " ".join(path)
            assert "blindbayes " + name in shown, " ".join(path)
        for parameter in leaf.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{' '.join(path)}: {parameter.opts[0]} has no help"


def test_the_help_lists_every_command_without_importing_it() -> None:
    script = (
        "import sys\n"
        "from blindbayes.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('sklearn', 'ibis', 'duckdb', 'pandas', 'grpc') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.splitlines()[-1] == "[]"
    for name in COMMANDS:
        assert f"  {name}" in out


def test_the_console_script_runs() -> None:
    script = Path(sys.executable).parent / "blindbayes"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "0.1.0" in done.stdout) == (0, True)


def test_unknown_commands_and_options_exit_with_2(run: Any) -> None:
    assert run("no-such-command").code == 2
    assert "Did you mean 'train'?" in run("trian").err
    assert run("predict").code == 2
    assert run("codebook", "show", "--no-such-option").code == 2


# -- codebook ----------------------------------------------------------------------------------------------------------


def test_codebook_show_hash_and_check_agree_on_the_hash(run: Any, folder: Path) -> None:
    path = folder / "codebook.toml"
    shown = run("codebook", "show", path)
    assert shown.code == 0
    assert CODEBOOK.sha256 in shown.out
    assert "sex [bold]" in shown.out
    assert run("codebook", "hash", path).out.strip() == CODEBOOK.sha256
    assert run("codebook", "show", path, "--json").json()["sha256"] == CODEBOOK.sha256
    assert CODEBOOK.sha256 in run("codebook", "check", path).out
    assert run("codebook", "check", path, "--json").json() == {"ok": True, "sha256": CODEBOOK.sha256}


def test_hostile_names_are_shown_as_they_are(run: Any, tmp_path: Path) -> None:
    hostile = Codebook(
        "[/]",
        ("[red]a", "[/red]"),
        (Categorical("[link=file:///]x[/]", ("[b]", "'; DROP")), Numeric("n[/]", 0, 1, unit="[/]")),
    )
    hostile.to_toml(tmp_path / "h.toml")
    shown = run("codebook", "show", tmp_path / "h.toml")
    assert shown.code == 0
    for name in ("[/]", "[red]a", "[/red]", "[link=file:///]x[/]", "[b]", "n[/]"):
        assert name in shown.out
    frame = pd.DataFrame({"[link=file:///]x[/]": ["[b]"], "n[/]": ["1"], "[/]": ["[red]a"]})
    frame.to_csv(tmp_path / "h.csv", index=False)
    assert run("codebook", "check", tmp_path / "h.toml", "--data", tmp_path / "h.csv").code == 0


def test_codebook_check_counts_and_exits_with_3_without_values(run: Any, folder: Path) -> None:
    bad = rows()
    bad.loc[[0, 1], "sex [bold]"] = CANARY
    bad.loc[5, "age"] = CANARY
    bad.to_csv(folder / "bad.csv", index=False)
    arguments = ("codebook", "check", folder / "codebook.toml", "--data", folder / "bad.csv")
    for extra in ((), ("--json",)):
        report = run(*arguments, *extra)
        assert report.code == 3
        assert CANARY not in report.out + report.err
    documents = io.StringIO(run(*arguments, "--json").out)
    counts, position = json.JSONDecoder().raw_decode(documents.getvalue())
    by_name = {column["name"]: column for column in counts["columns"]}
    assert (by_name["sex [bold]"]["unmapped"], by_name["age"]["unreadable"], by_name["age"]["missing"]) == (2, 1, 1)
    assert json.loads(documents.getvalue()[position:])["exit_code"] == 3
    assert CANARY in run(*arguments, "--show-codes").out  # asked for, on the site's own screen
    plain = run("codebook", "check", folder / "codebook.toml", "--data", folder / "rows.csv")
    assert plain.code == 0
    assert "no row has a value" not in plain.out
    empty = rows().assign(age="")
    empty.to_csv(folder / "empty.csv", index=False)
    assert "age: no row has a value" in run("codebook", "check", folder / "codebook.toml", "--data", folder / "empty.csv").out


def test_codebook_draft_warns_of_the_leak_and_never_overwrites(run: Any, folder: Path) -> None:
    out = folder / "new.toml"
    done = run("codebook", "draft", folder / "rows.csv", "--target", "outcome", "--missing", "?", "--out", out)
    assert done.code == 0
    assert "leak" in done.err
    codebook = Codebook.from_toml(out)
    assert codebook.provenance == "public frame"
    assert codebook.classes == ("no", "yes")
    assert isinstance(codebook.feature("age"), Numeric)
    assert codebook.feature("age").optional
    # What it wrote accepts the table it was made from.
    assert run("codebook", "check", out, "--data", folder / "rows.csv").code == 0
    before = out.read_bytes()
    again = run("codebook", "draft", folder / "rows.csv", "--target", "outcome", "--out", out)
    assert (again.code, out.read_bytes()) == (2, before)


def test_codebook_draft_reads_labels_and_codes_as_text_stands(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("zip,level,y\n007,low,1.0\n010,high,2.0\n012,low,1.0\n", encoding="utf-8")
    out = tmp_path / "c.toml"
    assert run("codebook", "draft", path, "--target", "y", "--out", out).code == 0
    assert Codebook.from_toml(out).classes == ("1.0", "2.0")
    assert run("codebook", "check", out, "--data", path).code == 0


def test_codebook_from_dictionary_prints_toml(run: Any, tmp_path: Path) -> None:
    import tomllib

    (tmp_path / "d.csv").write_text("name,values,low,high\nsex,f|m,,\nage,,0,120\ny,a|b,,\n", encoding="utf-8")
    done = run("codebook", "import", "dictionary", tmp_path / "d.csv", "--target", "y")
    assert done.code == 0
    assert Codebook.from_dict(tomllib.loads(done.out)).names == ("sex", "age")


def test_codebook_schema_prints_the_published_schema(run: Any) -> None:
    published = Path(__file__).parents[2] / "docs" / "codebook.schema.json"
    assert run("codebook", "schema").json() == json.loads(published.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["target = ", 'target = "y"\nclasses = []', ""])
def test_a_broken_codebook_exits_with_2(text: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    plain = run("codebook", "hash", tmp_path / "c.toml")
    assert (plain.code, plain.out) == (2, "")
    assert plain.err.startswith("error: ")
    as_json = run("codebook", "show", tmp_path / "c.toml", "--json")
    assert as_json.code == 2
    assert (as_json.json()["error"], as_json.json()["exit_code"]) == ("ConfigError", 2)


# -- train and predict -------------------------------------------------------------------------------------------------


@pytest.fixture
def model(run: Any, folder: Path) -> Path:
    path = folder / "model.json"
    assert run("train", folder / "rows.csv", "--codebook", folder / "codebook.toml", "--out", path).code == 0
    return path


def test_train_writes_the_model_that_fit_makes(run: Any, folder: Path, model: Path) -> None:
    assert load(model).statistics_ == NaiveBayes(CODEBOOK).fit(rows()).statistics_
    done = run(
        "train",
        folder / "rows.csv",
        "--codebook",
        folder / "codebook.toml",
        "--out",
        folder / "m2.json",
        "--alpha",
        "2",
        "--json",
    )
    assert done.json()["codebook"] == CODEBOOK.sha256
    assert load(folder / "m2.json").alpha == 2.0


def test_train_spends_nothing_on_a_model_that_cannot_be_written(run: Any, folder: Path) -> None:
    ledger = folder / "ledger.jsonl"
    assert run("ledger", "init", ledger, "--epsilon", "1").code == 0
    before = ledger.read_bytes()
    book, out = folder / "codebook.toml", folder / "nowhere" / "model.json"
    done = run("train", folder / "rows.csv", "--codebook", book, "--out", out, "--epsilon", "1", "--ledger", ledger)
    assert done.code == 2
    assert "nowhere" in done.err
    assert ledger.read_bytes() == before


def test_a_misspelt_column_is_named(run: Any, folder: Path) -> None:
    book = folder / "codebook.toml"
    name = CODEBOOK.names[0]
    rows().rename(columns={name: f"{name}s"}).to_csv(folder / "typo.csv", index=False)
    done = run("train", folder / "typo.csv", "--codebook", book, "--out", folder / "m.json")
    assert done.code == 3
    assert f"is '{name}s' a misspelling of it?" in done.err


def test_predict_prints_one_line_per_row_in_order(run: Any, folder: Path, model: Path) -> None:
    expected = load(model).predict(rows()).tolist()
    printed = list(csv.DictReader(io.StringIO(run("predict", model, folder / "rows.csv").out)))
    assert [line["outcome"] for line in printed] == expected
    lines = run("predict", model, folder / "rows.csv", "--probabilities", "--json").out.splitlines()
    probabilities = load(model).predict_proba(rows())
    assert len(lines) == len(expected)
    for line, label, shares in zip(map(json.loads, lines), expected, probabilities, strict=True):
        assert line == {"outcome": label, "P(no)": shares[0], "P(yes)": shares[1]}


def test_predict_reads_every_kind_of_file(run: Any, folder: Path, model: Path) -> None:
    expected = run("predict", model, folder / "rows.csv").out
    rows().to_parquet(folder / "rows.parquet")
    with gzip.open(folder / "rows.csv.gz", "wt", encoding="utf-8") as file:
        rows().drop(columns="outcome").to_csv(file, index=False)
    assert run("predict", model, folder / "rows.parquet").out == expected
    assert run("predict", model, folder / "rows.csv.gz").out == expected


def test_predict_keeps_the_order_of_a_large_file(run: Any, folder: Path, model: Path) -> None:
    many = pd.concat([rows()] * 2000, ignore_index=True)
    many.to_parquet(folder / "many.parquet", row_group_size=10_000)
    out = folder / "answer.csv"
    assert run("predict", model, folder / "many.parquet", "--out", out).code == 0
    expected = load(model).predict(rows()).tolist() * 2000
    assert pd.read_csv(out)["outcome"].tolist() == expected
    assert not list(folder.glob("*.part"))


def test_predict_on_an_empty_table_prints_the_header(run: Any, folder: Path, model: Path) -> None:
    rows().iloc[:0].to_csv(folder / "none.csv", index=False)
    assert run("predict", model, folder / "none.csv").out.strip().strip('"') == "outcome"
    assert run("predict", model, folder / "none.csv", "--json").out == ""


def test_a_failed_predict_leaves_no_file(run: Any, folder: Path, model: Path) -> None:
    bad = pd.concat([rows()] * 1500, ignore_index=True)
    bad.loc[len(bad) - 1, "age"] = CANARY  # in the last batch, after others were written
    bad.to_csv(folder / "bad.csv", index=False)
    before = sorted(folder.iterdir())
    failed = run("predict", model, folder / "bad.csv", "--out", folder / "answer.csv")
    assert failed.code == 3
    assert CANARY not in failed.out + failed.err
    assert sorted(folder.iterdir()) == before
    assert run("predict", model, folder / "rows.csv", "--out", folder / "no" / "answer.csv").code == 2


def test_predict_does_not_overwrite(run: Any, folder: Path, model: Path) -> None:
    (folder / "answer.csv").write_text("mine", encoding="utf-8")
    assert run("predict", model, folder / "rows.csv", "--out", folder / "answer.csv").code == 2
    assert (folder / "answer.csv").read_text(encoding="utf-8") == "mine"


def test_predict_refuses_extra_columns_unless_told(run: Any, folder: Path, model: Path) -> None:
    rows().assign(note=CANARY).to_csv(folder / "extra.csv", index=False)
    assert run("predict", model, folder / "extra.csv").code == 3
    assert run("predict", model, folder / "extra.csv", "--ignore-extra").code == 0


def test_a_failed_train_leaves_no_model_and_shows_no_value(run: Any, folder: Path) -> None:
    bad = rows()
    bad.loc[7, "sex [bold]"] = CANARY
    bad.to_csv(folder / "bad.csv", index=False)
    for verbose in ((), ("-v",), ("-vv",)):
        failed = run(*verbose, "train", folder / "bad.csv", "--codebook", folder / "codebook.toml", "--out", folder / "m.json")
        assert failed.code == 3
        assert "feature 'sex [bold]': 1 row" in failed.err
        assert CANARY not in failed.out + failed.err
        assert not list(folder.glob("m.json*"))
    as_json = run("train", folder / "bad.csv", "--codebook", folder / "codebook.toml", "--out", folder / "m.json", "--json")
    assert as_json.json()["error"] == "DataError"


def test_missing_files_exit_with_their_codes(run: Any, folder: Path, model: Path) -> None:
    assert run("predict", folder / "no.json", folder / "rows.csv").code == 2
    assert run("predict", model, folder / "no.csv").code == 3
    assert run("train", folder / "rows.csv", "--codebook", folder / "no.toml", "--out", folder / "m.json").code == 2
    assert (
        run("train", folder / "rows.csv", "--codebook", folder / "codebook.toml", "--out", folder / "no" / "m.json").code == 2
    )


def test_an_unexpected_error_shows_its_kind_only(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr("blindbayes.codebook.Codebook.from_toml", broken)
    failed = run("codebook", "hash", folder / "codebook.toml")
    assert failed.code == 1
    assert "RuntimeError" in failed.err
    assert CANARY not in failed.out + failed.err
    assert "Traceback" not in failed.err


# -- the log -----------------------------------------------------------------------------------------------------------


def logged(*arguments: Any, **more: Any) -> str:
    logger = logging.Logger("t", logging.DEBUG)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(Redact())
    logger.addHandler(handler)
    logger.warning(*arguments, **more)
    return stream.getvalue()


def test_the_log_shows_counts_and_public_names_only() -> None:
    line = logged("column %s: %d rows, value %s, %r", Public("age"), 12, CANARY, {"row": CANARY})
    assert line == "column age: 12 rows, value <str>, '<dict>'\n"
    assert logged("%(a)s %(b)d", {"a": CANARY, "b": 3}) == "<str> 3\n"


def test_the_log_shows_no_traceback_of_a_library() -> None:
    try:
        raise ValueError(CANARY)
    except ValueError:
        assert CANARY not in logged("it failed", exc_info=True)


def test_the_packages_logger_redacts_and_stays_apart_from_the_roots(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("blindbayes")
    before = list(logger.handlers)
    try:
        logger.handlers.clear()
        set_up_logging(2)
        set_up_logging(0)
        assert len(logger.handlers) == 1
        logging.getLogger("blindbayes.data").error("saw %s", CANARY)
        logging.getLogger("blindbayes.data").info("quiet")
    finally:
        logger.handlers[:] = before
    err = capfd.readouterr().err
    assert "saw <str>" in err
    assert "quiet" not in err
    assert not logger.propagate


def test_training_reads_the_table_as_every_option_says() -> None:
    """An option that is not handed on would be ignored."""
    from blindbayes.cli.commands import train
    from blindbayes.cli.options import table_options

    @table_options
    def described(**_: Any) -> None: ...

    options = {option.name for option in described.__click_params__}  # type: ignore[attr-defined]
    assert set(train._READING) == options


def test_training_and_checks_read_an_omop_database(run: Any, tmp_path: Path) -> None:
    from agent.test_omop_sites import BOOK as declared
    from support import omop as cdm

    url = cdm.duckdb_cdm(tmp_path / "hospital.duckdb", cdm.synthetic(60))
    declared.to_toml(tmp_path / "codebook.toml")
    book = tmp_path / "codebook.toml"
    checked = run("codebook", "check", book, "--data", url, "--omop", "cdm", "--json")
    facts = checked.json()
    assert facts["rows"] == facts["omop"]["cohort"] > 10
    trained = run("train", url, "--omop", "cdm", "--codebook", book, "--out", tmp_path / "model.json", "--json")
    assert trained.json()["rows"] == facts["rows"]
