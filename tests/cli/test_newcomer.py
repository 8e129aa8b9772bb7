"""What somebody new gets wrong, and the next step that each error names."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow.csv as csv
import pytest
from click.testing import CliRunner, Result

from blindbayes.cli import main, root
from blindbayes.datasets import hospitals
from blindbayes.errors import BlindbayesError
from blindbayes.net.identity import read_card

DATA = hospitals(300)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    DATA.codebook.to_toml("codebook.toml")
    csv.write_csv(DATA.tables["north"], "north.csv")
    (tmp_path / "empty").mkdir()
    return tmp_path


def call(line: str) -> Result:
    return CliRunner().invoke(root, line.split())


def told(line: str) -> str:
    done = call(line)
    assert done.exit_code != 0, done.output
    assert isinstance(done.exception, BlindbayesError), repr(done.exception)
    return str(done.exception)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("relay serve nowhere --listen 127.0.0.1:1", "blindbayes relay init nowhere"),
        ("relay serve empty --listen 127.0.0.1:1", "blindbayes relay init empty"),
        ("train duckdb://missing.duckdb#visits --codebook codebook.toml --out m.json", "no DuckDB file 'missing.duckdb'"),
        ("train duckdb:///missing.duckdb#visits --codebook codebook.toml --out m.json", "for a path from the root"),
        ("train north.csv --codebook codebok.toml --out m.json", "blindbayes codebook --help"),
        ("predict m.json north.csv", "`blindbayes train` writes one"),
        ("export m.json model.onnx", "`blindbayes train` writes one"),
        ("report empty", "one under releases/ of a site"),
        ("report verify empty", "one under releases/ of a site"),
        ("study check codebook.toml", "blindbayes study init"),
        ("site serve --config nowhere", "blindbayes site init"),
        ("ledger show nope.jsonl", "blindbayes ledger init"),
    ],
)
def test_the_next_step_is_named(line: str, step: str) -> None:
    assert step in told(line)


def test_a_sites_folder_is_no_relay_and_a_relay_without_sites_is_useless() -> None:
    assert call("site init north --name north --table north.csv").exit_code == 0
    assert "blindbayes site serve --config north" in told("relay serve north --listen 127.0.0.1:1")
    assert call("relay init hub --name hub --address localhost:1").exit_code == 0
    assert "blindbayes relay pin hub" in told("relay serve hub --listen 127.0.0.1:1")
    words = read_card(Path("north/card.toml")).words
    assert call(f"relay pin hub north/card.toml --words {words}").exit_code == 0
    assert "blindbayes relay init" in told(f"relay pin empty north/card.toml --words {words}")


def test_a_duckdb_file_that_is_no_duckdb_and_a_table_that_is_not_there() -> None:
    Path("broken.duckdb").write_text("this is text")
    assert "close it where it is open" in told("codebook check codebook.toml --data duckdb://broken.duckdb#visits")
    duckdb.connect("visits.duckdb").close()
    assert "the URL names it after #" in told("codebook check codebook.toml --data duckdb://visits.duckdb#visits")


def three_sites_and_a_study() -> None:
    cards = ""
    for name in ("north", "south", "west"):
        Path(f"{name}.csv").write_bytes(Path("north.csv").read_bytes())  # one table has one site
        assert call(f"site init {name} --name {name} --table {name}.csv").exit_code == 0
        cards += f" --card {name}/card.toml"
    assert call(f"study init study.toml --title Trial --codebook codebook.toml{cards}").exit_code == 0


def test_a_study_a_card_and_a_share_are_told_apart_from_what_was_asked_for() -> None:
    three_sites_and_a_study()
    assert "this is a study, not a codebook" in told("codebook check study.toml")
    assert "a site's card, not a study" in told("study check north/card.toml")
    assert "card.toml" in told("site pin study.toml --words a-b --config north")
    assert "the site's own card" in told("site pin north/card.toml --words a-b --config north")
    Path("some.share").write_bytes(b"blindbayes share 1\n\xff\xfe")
    assert "blindbayes study predict" in told("predict some.share north.csv")


def test_a_place_that_cannot_take_the_release_is_refused_before_the_run() -> None:
    three_sites_and_a_study()
    assert "empty exists already; nothing was started" in told("study run study.toml --config north --out empty")
    assert "nothing was started" in told("study run study.toml --config north --out north.csv/release")
    assert "is not running" in told("study run study.toml --config north --out new/release")  # a good place: the next hurdle


def test_a_wrong_call_under_json_is_one_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["study", "check", "nowhere.toml", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert stop.value.code == told["exit_code"] == 2
    assert "nowhere.toml" in told["message"]
