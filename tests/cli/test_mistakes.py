"""The table of mistakes: what people get wrong with tables, codebooks, models, sites and studies, and the words that help.

Each row is one mistake made at the command line, in a folder with a table `t.csv`, its codebook, a model and a site.
"""

from __future__ import annotations

import shlex
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.csv as csv
import pytest
from click.testing import CliRunner

from blindbayes import NaiveBayes
from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.cli import root
from blindbayes.datasets import hospitals
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import BlindbayesError
from blindbayes.net.identity import Identity, pin

DATA = hospitals(60)
HEADER, FIRST, *REST = (
    "admission,diagnosis,discharge,age,length_of_stay,hba1c,readmitted",
    "emergency,other,home,41,3,7.5,no",
    "elective,cardiac,home,57,0,5.2,yes",
    "transfer,injury,home care,63,9,6.1,no",
)
TRAIN = "train {} --codebook book.toml --out m.json"
PRIVATE = TRAIN.format("t.csv") + " --epsilon 1 --ledger ledger.jsonl"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every mistake starts from."""
    folder = tmp_path_factory.mktemp("made")
    DATA.codebook.to_toml(folder / "book.toml")
    csv.write_csv(DATA.tables["north"], folder / "t.csv")
    model = NaiveBayes(DATA.codebook).fit(DATA.tables["north"])
    model.save(folder / "model.json")
    model.release(folder / "release", cover="Visits")
    for name in ("north", "south"):
        csv.write_csv(DATA.tables[name], folder / f"{name}.csv")
        words = ["site", "init", str(folder / name), "--name", name, "--table", str(folder / f"{name}.csv")]
        assert CliRunner().invoke(root, words).exit_code == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "here"
    shutil.copytree(made, place)
    monkeypatch.chdir(place)
    return place


def table(change: Callable[[str], str] = str, encoding: str = "utf-8") -> Callable[[Path], None]:
    """Write `bad.csv`, a small table that is changed."""
    return lambda place: (place / "bad.csv").write_bytes(change("\n".join((HEADER, FIRST, *REST)) + "\n").encode(encoding))


def swap(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


def book(old: str, new: str) -> Callable[[Path], None]:
    """Change the codebook."""
    return lambda place: (place / "book.toml").write_text((place / "book.toml").read_text().replace(old, new, 1))


def other_north(place: Path) -> None:
    Identity.create(place / "other", "north")
    pin(place / "south", Identity.load(place / "north").card)


def spent(place: Path) -> None:
    Ledger.create(place / "ledger.jsonl", epsilon=0.5)


def tampered(place: Path) -> None:
    spent(place)
    text = (place / "ledger.jsonl").read_text()
    (place / "ledger.jsonl").write_text(text.replace('"0.5"', '"9.5"').replace('"1/2"', '"19/2"'))


def changed_release(place: Path) -> None:
    path = place / "release" / "statement.md"
    path = path if path.exists() else place / "release" / "model_card.md"
    path.write_text(path.read_text() + " ")


def nothing(place: Path) -> None:
    pass


CHECK = "codebook check book.toml --data bad.csv"
COLUMNS = (
    "study init s.toml --title T --codebook book.toml --card north/card.toml --card south/card.toml --labelled north "
    "--holds north=admission,diagnosis,discharge --holds south=age,length_of_stay,hba1c "
)
MISTAKES: dict[str, tuple[Callable[[Path], object], str, tuple[str, ...]]] = {
    # the rows of a table
    "a cell too many": (table(swap("41,3", "41,3,8")), TRAIN.format("bad.csv"), ("line 2", "8 cells", "--delimiter")),
    "latin-1": (table(swap("diagnosis", "diagnöse"), "latin-1"), TRAIN.format("bad.csv"), ("--encoding latin-1",)),
    "decimal comma": (table(swap("7.5", '"7,5"')), TRAIN.format("bad.csv"), ("'hba1c'", "--decimal ,")),
    "decimal comma, checked": (table(swap("7.5", '"7,5"')), CHECK, ("in some rows", "--decimal ,", "--thousands .", "--map")),
    "all decimal commas": (
        table(lambda text: text.replace(",", ";").replace(".", ",")),
        TRAIN.format("bad.csv"),
        ("3 rows", "--decimal ,"),
    ),
    "thousands": (table(swap(",41,", ',"1.041,5",')), TRAIN.format("bad.csv"), ("'age'", "--thousands .")),
    "dates": (table(swap(",41,", ",1983-02-11,")), TRAIN.format("bad.csv"), ("'age'", "derive numbers from dates", "--map")),
    "German names": (
        table(lambda text: text.replace("age", "alter").replace("discharge", "entlassung")),
        TRAIN.format("bad.csv"),
        ("'discharge', 'age'", "--map"),
    ),
    "misspelt column": (
        table(swap("discharge,", "dischrage,")),
        TRAIN.format("bad.csv"),
        ("is 'dischrage' a misspelling of it?",),
    ),
    "column too many": (
        table(lambda text: text.replace("\n", ",x\n")),
        TRAIN.format("bad.csv"),
        ("column 'x' is not in the codebook", "--ignore-extra"),
    ),
    "unknown label": (table(swap("5.2,yes", "5.2,maybe")), TRAIN.format("bad.csv"), ("1 row holds", "add it to classes")),
    "label in capitals": (table(swap("5.2,yes", "5.2,YES")), TRAIN.format("bad.csv"), ("in case or blanks only",)),
    "no label": (table(swap("5.2,yes", "5.2,")), TRAIN.format("bad.csv"), ("1 row has no label", "--map")),
    "unknown category": (
        table(swap("cardiac", "kidney")),
        TRAIN.format("bad.csv"),
        ("'diagnosis'", "add it to values or map it"),
    ),
    "out of bounds": (table(swap("57,0", "570,0")), TRAIN.format("bad.csv"), ("[0.0, 110.0]", "widen the bounds")),
    "missing value": (table(swap("57,0", ",0")), TRAIN.format("bad.csv"), ("'age': 1 row is missing", "optional = true")),
    "empty file": (
        lambda place: (place / "bad.csv").write_text(""),
        TRAIN.format("bad.csv"),
        ("is empty; a table has a header",),
    ),
    "no file": (nothing, TRAIN.format("visits.csv"), ("'visits.csv' does not exist in the folder where the command",)),
    "unknown kind": (
        lambda place: (place / "t.dat").write_text(""),
        TRAIN.format("t.dat"),
        ("'t.dat': a path ends in .csv, .tsv or .txt",),
    ),
    # codebooks
    "misspelt key": (book("low = 0.0", "lwo = 0.0"), TRAIN.format("t.csv"), ("did you mean `low`?",)),
    "broken codebook": (book("target =", "target"), TRAIN.format("t.csv"), ("not valid TOML",)),
    "no target": (nothing, "codebook draft t.csv --target readmited", ("did you mean 'readmitted'?",)),
    "no codebook": (nothing, "train t.csv --out m.json", ("blindbayes codebook draft",)),
    "table for a codebook": (nothing, "train t.csv --codebook t.csv --out m.json", ("codebook draft",)),
    # models, releases, budgets
    "nowhere to write": (nothing, "train t.csv --codebook book.toml", ("--out", "--release")),
    "device": (nothing, TRAIN.format("t.csv").replace("m.json", "/dev/full"), ("'/dev/full' is not a regular file",)),
    "no model": (nothing, "predict m.json t.csv", ("`blindbayes train` writes one",)),
    "changed release": (changed_release, "report verify release", ("changed after the release",)),
    "no ledger": (nothing, PRIVATE, ("blindbayes ledger init",)),
    "spent budget": (spent, PRIVATE, ("budget exceeded", "0.5 of 0.5 left", "take a smaller epsilon")),
    "changed ledger": (tampered, "ledger verify ledger.jsonl", ("entry 0",)),
    "unknown command": (nothing, "trian t.csv", ("train",)),
    # sites and studies
    "no site": (nothing, "site serve --config nowhere", ("blindbayes site init",)),
    "no agent": (nothing, "site status --config north", ("the agent of this site is not running", "blindbayes site serve")),
    "its own card": (nothing, "site pin north/card.toml --config north", ("the site's own card",)),
    "card with its own name": (other_north, "site pin other/card.toml --config north", ("has the name of this site, north",)),
    "another card of a site": (
        other_north,
        "site pin other/card.toml --config south --words OTHER",
        ("another card of north is pinned already", "--replace"),
    ),
    "wrong words": (
        nothing,
        "site pin south/card.toml --config north --words 'babab babab babab babab babab babab babab babab'",
        ("do not trust it",),
    ),
    "two sites": (
        nothing,
        "study init s.toml --title T --codebook book.toml --card north/card.toml --card south/card.toml --epsilon 1",
        ("--min-parties 2",),
    ),
    "numbers in shares": (nothing, COLUMNS + "--n-rows 60 --queries 9", ("'age' is Gaussian", "variance_floor = 0.01")),
    "all at once over a hidden join": (
        nothing,
        COLUMNS + "--protocol joined_sums --key id --bound north=1024",
        ("--bound", "4,096", "variance_floor = 0.01", "queries"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_what_helps(mistake: str, folder: Path) -> None:
    prepare, line, words = MISTAKES[mistake]
    prepare(folder)
    if "OTHER" in line:
        line = line.replace("OTHER", f"'{Identity.load(folder / 'other').card.words}'")
    done = CliRunner().invoke(root, shlex.split(line))
    assert done.exit_code != 0, done.output
    message = " ".join(f"{done.output} {done.exception}".replace("│", " ").split())
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        assert isinstance(done.exception, BlindbayesError), repr(done.exception)
    for each in words:
        assert each in message, message
    for secret in ("maybe", "YES", "kidney", "1.041", "1983", "570", "7,5"):
        assert secret not in message, message


def test_a_port_that_is_taken_is_named_with_what_to_change(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        change_settings(folder / "north", {"operator": place}, version_of(folder / "north"))
        done = CliRunner().invoke(root, ["site", "serve", "--config", "north"])
    assert isinstance(done.exception, BlindbayesError), repr(done.exception)
    assert f"cannot listen on {place} for the console (Address already in use" in str(done.exception)
    assert 'operator = "127.0.0.1:7442" in site.toml' in str(done.exception)  # `serve` has no --operator
