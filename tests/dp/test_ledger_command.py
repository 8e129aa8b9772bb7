"""`blindbayes ledger`: what a person and a script see."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from blindbayes.cli import main
from blindbayes.cli.commands.ledger import command
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import Ledger


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_init_show_verify(tmp_path: Path) -> None:
    path = str(tmp_path / "site.ledger")
    opened = json.loads(run("init", path, "--epsilon", "1", "--delta", "1e-6", "--json"))
    assert opened["epsilon"] == 1
    Ledger(path).charge(Spend(Fraction(1, 4)), unit="one record", purpose="spring [red]release")
    shown = json.loads(run("show", path, "--json"))
    assert shown["spent_epsilon"] == 0.25
    assert [entry["kind"] for entry in shown["entries"]] == ["budget", "charge"]
    text = run("show", path)
    assert "[red]" in text  # shown as it stands, not taken for markup
    assert "0.75 left" in text
    odometer = run("show", path, "--delta", "1e-6", "--delta", "1e-8")
    assert "At delta 1e-06: epsilon 0.25 for a total fixed beforehand; epsilon 0.25 whenever one looks (odometer)." in odometer
    at = json.loads(run("show", path, "--delta", "1e-8", "--json"))["spent_at"]
    assert at == [{"delta": 1e-8, "epsilon": 0.25, "any_time": 0.25}]
    assert json.loads(run("verify", path, "--head", opened["head"], "--json"))["head"] == shown["head"]
    assert "2 entries verify" in run("verify", path)


def test_a_changed_ledger_ends_with_exit_code_nine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "site.ledger"
    run("init", str(path), "--epsilon", "1")
    path.write_bytes(path.read_bytes().replace(b'"epsilon":"1"', b'"epsilon":"9"'))
    with pytest.raises(SystemExit) as stop:
        main(["ledger", "verify", str(path), "--json"])
    assert stop.value.code == 9
    assert json.loads(capsys.readouterr().out)["error"] == "LedgerError"
