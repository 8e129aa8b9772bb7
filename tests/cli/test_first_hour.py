"""Mistakes of a first hour: the message names what to do, and nothing is lost."""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.ensemble import VotingClassifier
from sklearn.tree import DecisionTreeClassifier

import blindbayes
from blindbayes import (
    Categorical,
    Codebook,
    ColumnStudy,
    JoinStudy,
    Limits,
    NaiveBayes,
    Numeric,
    Privacy,
    PrivateNaiveBayes,
    RowStudy,
)
from blindbayes.agent.config import SiteConfig
from blindbayes.cli import root
from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import BlindbayesError, ConfigError, PrivacyError
from blindbayes.io.untrusted import require_port

BOOK = Codebook("bought", ("no", "yes"), (Categorical("job", ("clerk", "nurse")), Numeric("age", 0, 120)), expected_rows=40)
ROWS = pd.DataFrame({"job": ["clerk", "nurse"] * 20, "age": range(20, 60), "bought": ["no", "no", "yes", "yes"] * 10})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    BOOK.to_toml("book.toml")
    ROWS.to_csv("rows.csv", index=False)
    return tmp_path


@dataclass(frozen=True)
class Told:
    output: str
    error: BaseException | None


def run(*arguments: str) -> Told:
    done = CliRunner().invoke(root, arguments)
    assert done.exception is None or isinstance(done.exception, BlindbayesError), repr(done.exception)
    return Told(f"{done.output}{done.exception or ''}", done.exception)


def train(table: str = "rows.csv", *more: str, book: str = "book.toml") -> Told:
    return run("train", table, "--codebook", book, "--out", "model.json", *more)


def test_a_table_given_for_a_codebook_is_told_how_to_make_one() -> None:
    assert "codebook draft" in train(book="rows.csv").output


@pytest.mark.parametrize("column", ["bought", "job"])
def test_a_value_that_differs_in_case_only_is_said_to(column: str) -> None:
    ROWS.assign(**{column: ROWS[column].str.title()}).to_csv("title.csv", index=False)
    for source in ("title.csv", "title.parquet"):
        if source.endswith("parquet"):
            pd.read_csv("title.csv").to_parquet(source)
        assert "case or blanks only" in train(source).output
    with pytest.raises(BlindbayesError, match="case or blanks only"):
        NaiveBayes(BOOK).fit(pd.read_csv("title.csv"))
    assert "case" not in train(_other()).output


def _other() -> str:
    ROWS.assign(job="pilot").to_csv("other.csv", index=False)
    return "other.csv"


def test_one_class_is_noted_but_never_of_a_private_release() -> None:
    ROWS.assign(bought="no").to_csv("one.csv", index=False)
    assert "all rows have one class" in train("one.csv").output
    private = train("one.csv", "--epsilon", "1")
    assert private.error is None
    assert "one class" not in private.output


def test_an_absurd_epsilon_is_refused_before_the_ledger_pays() -> None:
    Ledger.create("ledger.jsonl", epsilon=10**7)
    refused = train("rows.csv", "--epsilon", "1e6", "--ledger", "ledger.jsonl")
    assert "epsilon lies between" in refused.output
    assert [entry.kind for entry in Ledger("ledger.jsonl").entries()] == ["budget"]
    with pytest.raises(PrivacyError, match="epsilon lies between"):
        RowStudy(BOOK, privacy=Privacy(epsilon=1e6))
    with pytest.raises(PrivacyError, match="epsilon lies between"):
        PrivateNaiveBayes(BOOK, epsilon=1e6).fit(ROWS.drop(columns="bought"), ROWS["bought"])


def test_a_large_epsilon_is_said_to_promise_little() -> None:
    assert "promises little" in train("rows.csv", "--epsilon", "50").output


def test_a_table_given_for_a_ledger_is_no_ledger() -> None:
    assert "this is not a ledger" in train("rows.csv", "--epsilon", "1", "--ledger", "rows.csv").output


def test_predict_names_the_file_that_was_asked_for() -> None:
    assert train().error is None
    output = run("predict", "model.json", "rows.csv", "--ignore-extra", "--out", "nosuch/classes.csv").output
    assert "classes.csv" in output
    assert ".part" not in output


@pytest.mark.parametrize("place", ["127.0.0.1:99999", "localhost", ":7440", "127.0.0.1:", "::1:7440", "host:-1", "host:http"])
def test_a_place_without_a_port_is_refused_before_anything_is_made(place: str, folder: Path) -> None:
    for option in ("--listen", "--address", "--operator"):
        refused = run("site", "init", "north", "--name", "north", option, place)
        assert "a host and a port" in refused.output
    assert not (folder / "north").exists()


@pytest.mark.parametrize("place", ["127.0.0.1:7440", "[::1]:0", "north.example:65535"])
def test_a_place_with_a_port_is_taken(place: str) -> None:
    require_port(place, "listen")


def test_a_site_with_a_bad_name_leaves_no_folder(folder: Path) -> None:
    assert run("site", "init", "bad", "--name", "Bad!").error
    assert not (folder / "bad").exists()


def test_a_misspelt_setting_is_met_with_the_nearest_one(folder: Path) -> None:
    (folder / "site.toml").write_text("[policy]\nmin_row = 3\n")
    with pytest.raises(ConfigError, match="did you mean `min_rows`"):
        SiteConfig.read(folder / "site.toml")
    text = (folder / "book.toml").read_text()
    (folder / "book.toml").write_text(text.replace("values", "valeus"))
    assert "did you mean `values`" in train().output
    (folder / "book.toml").write_text(text.replace('kind = "numeric"', 'kind = "birthdate"'))
    assert "it is one of categorical, numeric" in train().output.replace("words, ", "")


def test_wrong_kinds_of_arguments_are_refused_by_name() -> None:
    for wrong in ("book.toml", None, {"target": "bought"}):
        with pytest.raises(ConfigError, match="must be a Codebook"):
            RowStudy(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="maps the name of each party"):
        RowStudy(BOOK).simulate(["rows.csv"])  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="positive number"):
        RowStudy(BOOK, privacy=Privacy(epsilon="1"))  # type: ignore[arg-type]


def test_completion_finds_the_public_names() -> None:
    assert set(dir(blindbayes)) == set(blindbayes.__all__)


def test_classes_stand_beside_the_columns_that_were_asked_for() -> None:
    train()
    ROWS.assign(number=range(100, 140)).to_csv("numbered.csv", index=False)
    assert (
        run("predict", "model.json", "numbered.csv", "--keep", "number", "--keep", "job", "--out", "classes.csv").error is None
    )
    classes = pd.read_csv("classes.csv")
    assert [*classes] == ["number", "job", "bought"]
    assert [*classes["number"]] == [*range(100, 140)]
    assert [*classes["job"]] == [*ROWS["job"]]
    assert "no column 'nubmer'" in run("predict", "model.json", "numbered.csv", "--keep", "nubmer").output
    assert "written already" in run("predict", "model.json", "numbered.csv", "--keep", "bought", "--ignore-extra").output
    assert "'number'" in run("predict", "model.json", "numbered.csv", "--keep", "job").output  # still refused as unknown


def test_a_plan_and_a_check_of_identifiers_read_what_train_reads() -> None:
    ROWS.rename(columns={"age": "years"}).to_csv("other.csv", index=False, sep="|", encoding="utf-16")
    Path("map.toml").write_text('age = "years"\n')
    asked = ("--delimiter", "|", "--encoding", "utf-16", "--map", "map.toml")
    told = run("plan", "--codebook", "book.toml", "--proxy", "other.csv", "--epsilon", "1", "--repetitions", "2", *asked)
    assert told.error is None, told.output
    book = Codebook("y", ("a", "b"), BOOK.features, identifier=IdRecipe((IdPart("born", "date"),)))
    book.to_toml("ids.toml")
    Path("born.csv").write_text("birthday;n\n31.12.1980;1\n1.2.1999;2\n31.02.1999;3\n")
    Path("map.toml").write_text("born = 'iso(date(birthday, \"DMY\"))'\n")
    told = run("ids", "check", "ids.toml", "--data", "born.csv", "--map", "map.toml", "--json")
    assert '"distinct": 2' in told.output, told.output


def test_a_data_dictionary_declares_the_identifier() -> None:
    Path("columns.csv").write_text("name,kind,values,normalise\nmail,identifier,,email\njob,,clerk|nurse,\nbought,,no|yes,\n")
    book = Codebook.from_dictionary("columns.csv", "bought")
    assert book.identifier == IdRecipe((IdPart("mail", "email"),))
    assert book.names == ("job",)


def test_a_study_shows_what_is_not_the_default() -> None:
    assert repr(RowStudy(BOOK)) == "RowStudy(<codebook of 'bought'>)"
    assert (
        repr(RowStudy(BOOK, privacy=Privacy(epsilon=1.0), limits=Limits(min_rows=7)))
        == "RowStudy(<codebook of 'bought'>, privacy=Privacy(epsilon=1.0), limits=Limits(min_rows=7))"
    )
    assert repr(ColumnStudy(BOOK)) == "ColumnStudy(<codebook of 'bought'>)"
    assert repr(JoinStudy(BOOK, duplicates="first")).endswith(", duplicates='first')")


def test_a_lazy_frame_is_a_table() -> None:
    polars = pytest.importorskip("polars")
    lazy, features = polars.from_pandas(ROWS).lazy(), ROWS[["job", "age"]]
    expected = NaiveBayes(BOOK).fit(ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = NaiveBayes(BOOK).fit(lazy)
        assert [*found.predict(lazy.drop("bought"))] == [*expected.predict(features)]
        assert NaiveBayes().fit(lazy.drop("bought"), ROWS["bought"]).score(lazy.drop("bought"), ROWS["bought"]) > 0.4
        tables = dict.fromkeys(("a", "b", "c"), lazy)
        assert RowStudy(BOOK).simulate(tables).statistics == RowStudy(BOOK).simulate(dict.fromkeys(tables, ROWS)).statistics


def test_a_vote_takes_the_estimator_beside_others() -> None:
    voters = [("ours", NaiveBayes()), ("tree", DecisionTreeClassifier(max_depth=2))]
    frame = ROWS.assign(job=(ROWS["job"] == "nurse").astype(int))
    voted = VotingClassifier(voters, voting="soft").fit(frame[["job", "age"]], frame["bought"])
    assert set(voted.predict(frame[["job", "age"]])) <= {"no", "yes"}
    coded = Codebook("bought", ("0", "1"), (Numeric("job", 0, 1), Numeric("age", 0, 120)))  # a vote numbers the classes
    voted = VotingClassifier([("ours", NaiveBayes(coded)), voters[1]]).fit(frame[["job", "age"]], frame["bought"])
    assert set(voted.predict(frame[["job", "age"]])) <= {"no", "yes"}


def test_a_notebook_shows_the_promise_and_who_learned_what() -> None:
    result = RowStudy(BOOK).simulate({"<b>north": ROWS, "south": ROWS, "west": ROWS})
    assert result.report is not None
    page = result._repr_html_()
    assert "&lt;b&gt;north" in page
    assert "<b>north" not in page
    assert result.report._repr_html_() in page


def test_all_extras_but_spark_come_by_one_name() -> None:
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    named = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    assert {*named} == {*extras} - {"all", "spark", "net", "mlflow"}
