"""What a newcomer with a messy table of his own stumbles over: each message names the next step, each page tells the truth."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import click
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
import xlsxwriter
from click.testing import CliRunner, Result
from playwright.sync_api import sync_playwright

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes, RowStudy, load
from blindbayes.agent.client import OperatorClient
from blindbayes.cli import main, root
from blindbayes.data import open_table
from blindbayes.datasets import hospitals
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError, ConfigError, DataError
from blindbayes.io.files import read_folder, write_whole
from blindbayes.study.tasks.joined import require_bounds

SPECIES = (
    "Adelie penguin (Pygoscelis adeliae)",
    "Chinstrap penguin (Pygoscelis antarctica)",
    "Gentoo penguin (Pygoscelis papua)",
)
COMMENTS = ("Not enough blood for isotopes.", "Nest never observed with full clutch.", "No delta15N data received from lab.")


def penguins() -> pd.DataFrame:
    """A table like palmerpenguins' raw one: dates, comments, record numbers by species, a constant, gaps."""
    draw, rows = random.Random(33), []
    for species, count in enumerate((150, 70, 124)):
        for number in range(count):
            egg = date(2007, 11, 1) + timedelta(days=draw.randrange(40) + 365 * draw.randrange(3))
            islands = ((0.4, 0.3, 0.3), (0.02, 0.02, 0.96), (0.02, 0.96, 0.02))[species]
            rows.append(
                {
                    "Sample Number": number + 1,
                    "Species": SPECIES[species],
                    "Region": "Anvers",
                    "Island": draw.choices(("Torgersen", "Biscoe", "Dream"), islands)[0],
                    "Date Egg": egg.isoformat(),
                    "Culmen (mm)": round(draw.gauss((38.8, 48.8, 47.5)[species], 2.7), 1),
                    "Sex": draw.choice(("MALE", "FEMALE", None)),
                    "Comments": draw.choice(COMMENTS) if draw.random() < 0.16 else None,
                }
            )
    return pd.DataFrame(rows)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    penguins().to_csv("penguins.csv", index=False)
    return tmp_path


def call(*words: str) -> Result:
    return CliRunner().invoke(root, words)


def done(*words: str) -> str:
    result = call(*words)
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    return result.output


def refused(*words: str) -> str:
    result = call(*words)
    assert isinstance(result.exception, BlindbayesError), repr(result.exception)
    return str(result.exception)


def draft(*more: str) -> str:
    Path("book.toml").unlink(missing_ok=True)
    return done("codebook", "draft", "penguins.csv", "--target", "Species", "--out", "book.toml", *more)


def test_a_draft_leaves_out_dates_free_text_constants_and_record_numbers_with_the_reason() -> None:
    shown = " ".join(draft().split())
    book = Codebook.from_toml("book.toml")
    assert book.names == ("Island", "Culmen (mm)", "Sex")
    assert "phone" not in shown
    for reason in ("dates", "sentences", "constant", "record number"):
        assert reason in shown
        assert reason in Path("book.toml").read_text()


def test_the_next_command_of_a_draft_works_as_printed() -> None:
    penguins().to_csv("penguins.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    shown = draft("--decimal", ",", "--encoding", "latin-1")
    (line,) = [line for line in shown.splitlines() if line.startswith("Next: ")]
    command = shlex.split(line.removeprefix("Next: "))
    assert command[:2] == ["blindbayes", "train"]
    done(*command[1:])
    assert Path("model.json").is_file()


def test_the_offered_map_makes_features_of_dates() -> None:
    lines = [line.strip() for line in draft().splitlines() if line.startswith("  date_egg_")]
    assert [line.partition(" ")[0] for line in lines] == [f"date_egg_{part}" for part in ("month", "weekday", "days", "years")]
    Path("map.toml").write_text("\n".join(lines))
    shown = draft("--map", "map.toml")
    assert {"date_egg_month", "date_egg_weekday", "date_egg_days"} <= set(Codebook.from_toml("book.toml").names)
    (line,) = [line for line in shown.splitlines() if line.startswith("Next: ")]
    done(*shlex.split(line.removeprefix("Next: "))[1:])


def test_dates_that_begin_with_the_day_are_offered_in_that_order() -> None:
    table = penguins()
    table["Date Egg"] = pd.to_datetime(table["Date Egg"]).dt.strftime("%d.%m.%Y")
    table.to_csv("penguins.csv", index=False)
    lines = [line.strip() for line in draft().splitlines() if line.startswith("  date_egg_month")]
    Path("map.toml").write_text("\n".join(lines))
    draft("--map", "map.toml")
    feature = Codebook.from_toml("book.toml").numeric("date_egg_month")
    assert feature.low >= 10
    assert feature.high <= 13


def test_a_datetime_column_of_a_frame_is_a_feature_through_a_map() -> None:
    table = penguins()[["Species", "Culmen (mm)", "Date Egg"]]
    table["Date Egg"] = pd.to_datetime(table["Date Egg"])
    with pytest.raises(DataError, match=r"Dates become features through a map.*month\(date\(col\(\"Date Egg\"\)\)\)"):
        NaiveBayes().fit(table.drop(columns="Species"), table["Species"])
    book = Codebook("Species", SPECIES, (Numeric("Culmen (mm)", 20, 70, 0.1), Numeric("month", 1, 12)))
    with open_table(table, map={"month": 'month(date(col("Date Egg")))'}) as rows:
        model = NaiveBayes(book).fit(rows)
    months = pd.DatetimeIndex(table["Date Egg"]).month
    expected = NaiveBayes(book).fit(table.assign(month=months).drop(columns="Date Egg"))
    assert model.statistics_ == expected.statistics_


def test_train_says_what_it_read_and_how_good_the_model_is() -> None:
    draft()
    shown = done("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--out", "model.json")
    assert f"344 rows: {SPECIES[0]} 150, {SPECIES[1]} 70, {SPECIES[2]} 124" in shown
    assert f"missing values: Sex {int(penguins()['Sex'].isna().sum())}" in shown
    assert "ignored columns: Sample Number, Region, Date Egg, Comments" in shown
    facts = json.loads(
        done("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--out", "model2.json", "--json")
    )
    table = penguins()
    folds, right = np.arange(len(table)) % 5, 0
    for fold in range(5):
        model = NaiveBayes(Codebook.from_toml("book.toml"), extra_columns="ignore").fit(table[folds != fold])
        held = table[folds == fold]
        right += int((model.predict(held.drop(columns="Species")) == held["Species"]).sum())
    assert facts["accuracy"] == pytest.approx(right / len(table))
    assert f"cross-validation: {facts['accuracy']:.3f}" in shown


def test_a_table_with_types_is_validated_and_explained_as_one_of_texts_is() -> None:
    """Truth values as classes gave an accuracy of 0.000, and a decimal number ended `explain --json`."""
    draws = np.random.default_rng(1)
    back = draws.random(300) < 0.4
    table = pa.table(
        {
            "price": pa.array([Decimal(int(each)) / 100 for each in draws.integers(100, 900, 300) + 400 * back]),
            "tier": pa.array(draws.choice(["gold", "silver"], 300)).dictionary_encode(),
            "back": pa.array(back),
        }
    )
    parquet.write_table(table, "orders.parquet")
    csv.write_csv(table.set_column(1, "tier", table["tier"].cast(pa.string())), "orders.csv")
    done("codebook", "draft", "orders.parquet", "--target", "back", "--out", "orders.toml")
    facts = {}
    for name in ("orders.parquet", "orders.csv"):
        asked = ("train", name, "--codebook", "orders.toml", "--out", f"{name}.json", "--json")
        facts[name] = json.loads(done(*asked))
        row = json.loads(done("explain", f"{name}.json", "--data", name, "--row", "3", "--json"))
        assert row["values"]["price"] == str(table["price"][2].as_py())
    assert facts["orders.parquet"]["accuracy"] == facts["orders.csv"]["accuracy"] > 0.7
    numbered = table.set_column(2, "back", pa.array(back.astype(float)))
    parquet.write_table(numbered, "numbered.parquet")
    done("codebook", "draft", "numbered.parquet", "--target", "back", "--out", "numbered.toml")
    asked = ("train", "numbered.parquet", "--codebook", "numbered.toml", "--out", "numbered.json", "--json")
    assert json.loads(done(*asked))["accuracy"] == facts["orders.csv"]["accuracy"]


def test_train_with_epsilon_tells_nothing_that_is_exact() -> None:
    draft()
    command = ["train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--epsilon", "1"]
    shown = done(*command, "--out", "model.json")
    facts = json.loads(done(*command, "--out", "model2.json", "--json").partition("\nno ledger")[0])
    assert not {"rows", "classes", "missing", "accuracy"} & set(facts)
    assert "class shares, by the noisy counts" in shown
    assert "missing" not in shown
    assert "cross-validation" not in shown


def test_one_row_is_explained_on_the_command_line_and_as_a_frame() -> None:
    draft()
    done("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--out", "model.json")
    facts = json.loads(done("explain", "model.json", "--data", "penguins.csv", "--row", "200", "--json"))
    row = penguins().iloc[[199]]
    model = load("model.json")
    explanation = model.explain(row[list(model.codebook_.names)])
    frame = explanation.to_frame()
    assert facts["class"] == model.predict(row[list(model.codebook_.names)])[0]
    assert list(frame.loc[0].index) == ["(prior)", "Island", "Culmen (mm)", "Sex", "(sum)"]
    assert np.allclose(frame.loc[(0, "(sum)")], explanation.terms[0].sum(axis=0))
    island = frame.loc[(0, "Island")]
    assert facts["evidence"]["Island"] == pytest.approx((island - island.mean()).to_dict())
    assert facts["values"]["Culmen (mm)"] == str(row["Culmen (mm)"].iloc[0])
    assert "Biscoe" in done("explain", "model.json", "--data", "penguins.csv", "--row", "300")
    assert "no row 345" in refused("explain", "model.json", "--data", "penguins.csv", "--row", "345")


def test_a_row_with_a_cell_too_many_is_named_by_its_line() -> None:
    draft()
    text = Path("penguins.csv").read_text().splitlines()
    text[1] = text[1].replace("Anvers", '"Anvers\nIsland"')  # a cell over two lines
    text[9] += ",extra"
    Path("penguins.csv").write_text("\n".join(text))
    message = refused("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--out", "model.json")
    assert "line 11 of 'penguins.csv' has 9 cells, and the table has 8 columns" in message
    assert "extra" not in message


def test_titles_above_the_header_are_named() -> None:
    with xlsxwriter.Workbook("report.xlsx") as book:
        for name in ("Cover", "Data 2024"):
            sheet = book.add_worksheet(name)
            for at, row in enumerate((["Quarterly extract"], [], ["age", "job", "left"], [33, "cook", "no"])):
                sheet.write_row(at, 0, row)
    for sheet in ("Cover", "Data 2024"):
        message = refused("codebook", "draft", "report.xlsx", "--target", "left", "--sheet", sheet)
        assert "titles above the header" in message
        assert "'Data 2024'" in message
    Path("report.csv").write_text("Quarterly extract\n\nage,job,left\n33,cook,no\n")
    assert "titles above the header" in refused("codebook", "draft", "report.csv", "--target", "left")


def test_messages_about_a_table_name_the_option() -> None:
    draft()
    table = penguins().drop(columns=["Date Egg", "Comments", "Region", "Sample Number"])
    asked = ("--codebook", "book.toml", "--out", "model.json")
    table.assign(Island="Übersee").to_csv("latin.csv", index=False, encoding="latin-1")
    Path("latin.csv").write_bytes("Ärger,x\n1,2\n".encode("latin-1"))
    assert "--encoding latin-1" in refused("train", "latin.csv", *asked)
    table.to_csv("comma.csv", index=False, sep=";", decimal=",")
    assert "--decimal ," in refused("train", "comma.csv", *asked)
    shown = " ".join(call("codebook", "check", "book.toml", "--data", "comma.csv").output.replace("│", " ").split())
    assert "in all rows" in shown
    table.rename(columns={"Island": "insel", "Sex": "geschlecht"}).to_csv("german.csv", index=False)
    message = refused("train", "german.csv", *asked)
    assert "'Island'" in message
    assert "'Sex'" in message
    assert "--map" in message


def test_train_without_a_codebook_names_the_command_that_drafts_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "penguins.csv", "--out", "model.json"])
    assert "blindbayes codebook draft" in capsys.readouterr().err


def test_a_missing_bound_names_every_party_and_the_least_number() -> None:
    with pytest.raises(BlindbayesError, match=r"clinic, registry: .* from 4,096"):
        require_bounds({}, ("clinic", "registry"))


def test_only_regular_files_are_replaced_and_a_dash_prints_the_model(tmp_path: Path) -> None:
    draft()
    os.mkfifo(tmp_path / "pipe")
    asked = ("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--out")
    assert "not a regular file" in refused(*asked, "pipe")
    assert "pipe exists already" in refused("codebook", "draft", "penguins.csv", "--target", "Species", "--out", "pipe")
    with pytest.raises(BlindbayesError, match="not a regular file"):
        write_whole(Path("pipe"), b"")
    done(*asked, "model.json")
    assert json.loads(done(*asked, "-")) == json.loads(Path("model.json").read_text())


def private_release() -> dict[str, bytes]:
    draft()
    model = PrivateNaiveBayes(Codebook.from_toml("book.toml"), epsilon=2.0, extra_columns="ignore")
    model.fit(penguins()).release("release", cover="Penguins")
    return read_folder("release")


def test_card_plot_and_page_of_a_private_model_show_class_shares_as_class_shares() -> None:
    files = private_release()
    model = load("release/model.json")
    shares = [f"{share:.3f}" for share in np.exp(model.class_log_prior_)]
    card, plot, page = (files[name].decode() for name in ("model_card.md", "plots/priors.svg", "explain.html"))
    assert "- prior:" not in card
    assert "class shares, by the noisy counts: " in card
    assert "Prior of" not in plot
    assert "by the noisy counts" in plot
    assert "<h2>Prior</h2>" not in page
    for share in shares:
        assert share in plot
        assert share in card
        assert share in page


def test_the_codebook_hash_of_a_model_file_is_the_approved_one() -> None:
    files = private_release()
    document = json.loads(files["model.json"])
    approved = Codebook.from_toml("book.toml").sha256
    assert document["codebook_sha256"] == approved
    assert document["cells_sha256"] == load("release/model.json").codebook_.sha256 != approved
    for key in ("codebook_sha256", "cells_sha256"):
        Path("forged.json").write_text(json.dumps(document | {key: "0" * 64}))
        with pytest.raises(BlindbayesError, match=r"hash|another approved codebook"):
            load("forged.json")


def test_report_verify_reads_releases_of_one_table_and_of_a_simulation() -> None:
    draft()
    for name in ("mary", "eve"):
        done("site", "init", name, "--name", name)
    asked = ("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--title", "Penguins", "--release")
    done(*asked, "signed", "--sign", "mary")
    done(*asked, "plain")
    shown = done("report", "verify", "signed", "--card", "mary/card.toml")
    assert "a release of one table" in shown
    assert "signed by mary" in shown
    assert "you brought no card of mary" in refused("report", "verify", "signed", "--card", "eve/card.toml")
    assert "--sign" in refused("report", "verify", "plain")
    assert "Not signed; " in done("report", "plain")
    card = Path("eve/card.toml").read_text().replace('name = "eve"', 'name = "mary"')
    Path("other.toml").write_text(card)
    with pytest.raises(AssertionError):  # a card of that name with another key never passes
        done("report", "verify", "signed", "--card", "other.toml")
    data = hospitals(300)
    RowStudy(data.codebook).simulate(data.tables).save("simulated")
    assert "nobody vouches for a simulation" in refused("report", "verify", "simulated")
    assert "a simulation in one process" in done("report", "verify", "simulated", "--partial")
    assert "Not signed: a simulation in one process." in done("report", "simulated")


def test_the_defaults_of_a_policy_are_those_of_the_first_form() -> None:
    assert Policy().exact_sums is False
    assert Policy().max_epsilon_per_run == 1.0
    done("site", "init", "north", "--name", "north")
    facts = json.loads(done("site", "policy", "--config", "north"))
    assert (facts["exact_sums"], facts["max_epsilon_per_run"]) == (False, 1.0)
    done("site", "init", "south", "--name", "south", "--exact-sums")
    assert json.loads(done("site", "policy", "--config", "south"))["exact_sums"] is True


def test_an_interval_is_not_stretched_to_hold_the_number_shown() -> None:
    """Some parts of a noisy model lie outside their interval; before, every one lay inside."""
    book = Codebook("y", ("a", "b"), (Categorical("c", ("p", "q", "r")), Numeric("n", 0, 50, bins=10)))
    draw = np.random.default_rng(5)
    columns = {"y": draw.choice(["a", "b"], 200), "c": draw.choice(["p", "q", "r"], 200), "n": draw.integers(0, 51, 200)}
    table = pd.DataFrame(columns)
    outside = 0
    for _ in range(8):
        explanation = PrivateNaiveBayes(book, epsilon=1.0).fit(table).explain(table[["c", "n"]][:40])
        low, high = explanation.interval("a")
        odds = explanation.log_odds("a")
        outside += int(((odds < low[:, :-1] - 1e-9) | (odds > high[:, :-1] + 1e-9)).sum())
    assert outside > 0


def test_a_loaded_model_ignores_extra_columns_if_asked() -> None:
    draft()
    done("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--out", "model.json")
    rows = penguins().drop(columns="Species")
    with pytest.raises(DataError, match="'Sample Number' is not in the codebook"):
        load("model.json").predict(rows)
    assert len(load("model.json", extra_columns="ignore").predict(rows)) == len(rows)


def test_a_warning_of_fit_points_at_the_line_that_called_it() -> None:
    table = penguins()[["Species", "Date Egg", "Culmen (mm)"]]
    with pytest.warns(UserWarning, match="dates") as caught:
        NaiveBayes().fit(table.drop(columns="Species"), table["Species"])
    assert caught[0].filename == __file__


def test_one_row_is_not_called_rows() -> None:
    book = Codebook("y", ("a", "b"), (Numeric("n", 0, 9),))
    with pytest.raises(DataError, match="1 row is out of bounds"):
        NaiveBayes(book).fit(pd.DataFrame({"n": [1, 2, 99], "y": ["a", "b", "a"]}))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_a_release_fit_a_phone_and_their_plots_can_be_read(scheme: str, chromium: str) -> None:
    """At 390 pixels nothing overflows, and the text of a plot, whose paper is white, is dark in both schemes."""
    private_release()
    data = hospitals(300)
    RowStudy(data.codebook).simulate(data.tables).save("simulated")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
        for name in ("release/index.html", "release/explain.html", "simulated/index.html", "simulated/leakage.html"):
            page.goto((Path.cwd() / name).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        page.goto((Path.cwd() / "release/index.html").as_uri())
        colour = page.evaluate("getComputedStyle(document.querySelector('svg[font-size] text')).fill")
        assert max(map(int, re.findall(r"\d+", colour))) < 100
        browser.close()


@pytest.mark.filterwarnings("error")
def test_a_draft_names_the_option_that_reads_numbers_with_a_comma() -> None:
    table = penguins()
    table["Mass"] = [f"1,{at % 300 + 100}" for at in range(len(table))]
    table["Culmen (mm)"] = table["Culmen (mm)"].map("{:.1f}".format).str.replace(".", ",")
    table.to_csv("penguins.csv", index=False, sep=";")
    shown = " ".join(draft().replace("│", " ").split())
    book = Codebook.from_toml("book.toml")
    assert {"Mass", "Culmen (mm)"}.isdisjoint(book.names)
    assert "read them with --decimal ," in shown
    assert "read them with --thousands ," in shown
    draft("--decimal", ",", "--keep", "Mass")
    assert Codebook.from_toml("book.toml").numeric("Culmen (mm)").high < 100


def test_a_draft_asks_whether_text_among_numbers_means_no_value() -> None:
    table = penguins()
    table["Mass"] = [f"{3000 + at * 7 % 50}" if at % 10 else "n.k." for at in range(len(table))]
    table.to_csv("penguins.csv", index=False)
    assert "--missing TEXT" in " ".join(draft().replace("│", " ").split())
    assert "--missing TEXT" not in draft("--missing", "n.k.")
    assert Codebook.from_toml("book.toml").numeric("Mass").optional


def test_no_command_declares_an_option_twice() -> None:
    def commands(command: click.Command) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                each = command.get_command(context, name)
                assert each is not None, name
                yield from commands(each)

    for command in commands(root):
        names = [name for option in command.params for name in (*option.opts, *option.secondary_opts)]
        assert len(names) == len(set(names)), command.name


@pytest.mark.parametrize("name", ["train", "predict", "plan", "drift", "train-smooth", "plan-smooth"])
def test_a_command_that_refuses_other_columns_can_leave_them_unread(name: str) -> None:
    """The refusal names --ignore-extra on the command line; `plan` and `drift` did not have it."""
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert "--ignore-extra" in {option for each in command.params for option in each.opts}


def test_a_forecast_leaves_columns_unread_if_asked() -> None:
    draft()
    asked = ("plan", "--codebook", "book.toml", "--proxy", "penguins.csv", "--epsilon", "1", "--repetitions", "1", "--json")
    assert "--ignore-extra" in refused(*asked)
    assert json.loads(done(*asked, "--ignore-extra"))["rows"] == Codebook.from_toml("book.toml").expected_rows


def test_predict_reports_what_it_wrote() -> None:
    penguins().drop(columns=["Date Egg", "Comments", "Region", "Sample Number"]).to_csv("penguins.csv", index=False)
    draft()
    done("train", "penguins.csv", "--codebook", "book.toml", "--out", "model.json")
    assert "344 rows classified: classes.csv" in done("predict", "model.json", "penguins.csv", "--out", "classes.csv")


def test_a_draft_refuses_a_target_that_is_misspelt_or_no_class() -> None:
    words = ("codebook", "draft", "penguins.csv", "--out", "book.toml", "--target")
    assert "did you mean 'Species'?" in refused(*words, "species")
    assert "a number or an identifier?" in refused(*words, "Culmen (mm)")
    penguins()[["Species"]].to_csv("penguins.csv", index=False)
    assert "no column but the class column" in refused(*words, "Species")


def test_predict_and_sql_export_after_a_draft() -> None:
    draft()
    done("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--release", "out", "--title", "Species")
    assert "344 rows" in done("predict", "out", "penguins.csv", "--ignore-extra", "--out", "classes.csv")
    Path("out/model.json").write_text(Path("out/model.json").read_text() + " ")
    assert "changed after the release" in refused("predict", "out", "penguins.csv", "--ignore-extra")
    assert "--table visits" in refused("export", "out/model.json", "model.sql")
    done("export", "out/model.json", "model.sql", "--table", "penguins")
    assert Path("model.sql").read_text().startswith("SELECT ")


def test_a_draft_names_both_options_for_decimal_commas_with_separated_thousands() -> None:
    table = penguins()
    table["Mass"] = [f"1.{at % 300 + 100},5" if at % 3 else f"{at % 300 + 100},5" for at in range(len(table))]
    table.to_csv("penguins.csv", index=False, sep=";", decimal=",")
    shown = " ".join(draft("--decimal", ",").replace("│", " ").split())
    assert "read them with --decimal , --thousands ." in shown
    draft("--decimal", ",", "--thousands", ".")
    assert Codebook.from_toml("book.toml").numeric("Mass").high > 1000
    checked = call("codebook", "check", "book.toml", "--data", "penguins.csv", "--decimal", ",", "--ignore-extra").output
    shown = " ".join(checked.replace("│", " ").split())
    assert "--thousands . separated thousands" in shown


def test_a_dictionary_of_ones_own_lists_its_dates_as_left_out() -> None:
    Path("columns.csv").write_text("name,kind,values,low,high\nborn,date,,,\nage,numeric,,0,120\nill,categorical,no|yes,,\n")
    shown = " ".join(done("codebook", "import", "dictionary", "columns.csv", "--target", "ill", "--out", "own.toml").split())
    assert Codebook.from_toml("own.toml").names == ("age",)
    assert "born" in shown
    assert "dates: a map derives features from them" in shown


def test_a_forecast_without_rows_is_planned_for_those_of_the_codebook() -> None:
    draft()
    text = Path("book.toml").read_text()
    Path("book.toml").write_text(re.sub(r"expected_rows = \d+", "expected_rows = 3100", text))
    shown = done("plan", "--codebook", "book.toml", "--synthetic", "--epsilon", "1", "--repetitions", "1")
    assert "planned for 3100 rows" in " ".join(shown.split())


def test_a_forecast_has_a_column_of_marks_only_where_there_are_some() -> None:
    draft()
    for rows, epsilon, marked in (
        ("344", "0.1", False),
        ("100000", "10", True),
    ):  # the coins of a forecast on made-up rows are fixed
        shown = done(
            "plan",
            "--codebook",
            "book.toml",
            "--synthetic",
            "--expected-rows",
            rows,
            "--epsilon",
            epsilon,
            "--repetitions",
            "1",
        )
        headings = next(line for line in shown.splitlines() if "epsilon" in line and "accuracy" in line)
        empty = [each for each in headings.strip("┃| ").split("┃") if not each.strip()]
        assert len(empty) == marked


def test_a_ledger_names_releases_by_their_titles() -> None:
    draft()
    done("ledger", "init", "ledger.jsonl", "--epsilon", "9")
    asked = ("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--epsilon", "1", "--ledger", "ledger.jsonl")
    done(*asked, "--release", "release", "--title", "Penguins by island")
    done(*asked, "--out", "model.json")
    model = PrivateNaiveBayes(
        Codebook.from_toml("book.toml"), epsilon=1.0, ledger="ledger.jsonl", score_epsilon=1.0, extra_columns="ignore"
    ).fit("penguins.csv")
    model.score(penguins())
    entries = json.loads(done("ledger", "show", "ledger.jsonl", "--json"))["entries"]
    plain = "Naive Bayes classifier of Species"
    assert [each["purpose"] for each in entries[1:]] == ["Penguins by island", plain, plain, f"score of {plain}"]


def test_an_empty_ledger_offers_no_smaller_epsilon() -> None:
    done("ledger", "init", "spent.jsonl", "--epsilon", "1")
    draft()
    asked = ("train", "penguins.csv", "--codebook", "book.toml", "--ignore-extra", "--ledger", "spent.jsonl", "--epsilon")
    assert "take a smaller epsilon" in refused(*asked, "2", "--out", "a.json")
    done(*asked, "1", "--out", "a.json")
    assert "in 1 release, composition" in " ".join(done("ledger", "show", "spent.jsonl").split())
    message = refused(*asked, "0.1", "--out", "b.json")
    assert "smaller epsilon" not in message
    assert "ask the owner of the budget" in message


def test_fit_says_how_it_can_be_given_labels() -> None:
    table = penguins()[["Island", "Sex"]].assign(ill=["no", "yes"] * 172)
    with pytest.raises(ValueError, match="pass y; with a codebook its class column may stand in X"):
        NaiveBayes().fit(table)
    book = Codebook("well", ("no", "yes"), (Categorical("Island", ("Dream", "Biscoe")),))
    with pytest.raises(ValueError, match="or a frame with the class column 'well'"):
        NaiveBayes(book).fit(table)


@pytest.mark.parametrize("setting", ["alpha", "var_smoothing"])
def test_a_text_for_a_number_is_refused_by_its_name(setting: str) -> None:
    table = penguins()
    with pytest.raises(ConfigError, match=setting):
        NaiveBayes(**{setting: "1"}).fit(table[["Island"]], table["Species"])


def test_the_install_page_lists_every_extra() -> None:
    pages = Path(__file__).parents[2]
    extras = tomllib.loads((pages / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (pages / "docs" / "install.md").read_text()
    assert [each for each in extras if f"`blindbayes[{each}]`" not in page] == []


def test_status_says_why_a_site_may_not_be_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    done("site", "init", "north", "--name", "north", "--table", "penguins.csv")
    write_whole(Path("north/operator.token"), b"127.0.0.1:9 token", private=True)
    state = {"site": "north", "fingerprint": "", "proposed": [], "pending_predictions": [], "refused": [], "runs": []}
    peers = {"south": True, "west": False}
    monkeypatch.setattr(OperatorClient, "call", lambda *_: state | {"peers": peers})
    shown = " ".join(done("site", "status", "--config", "north").split())
    assert "wrong_certificate" in shown
    assert "--replace" in shown
    peers["west"] = True
    assert "--replace" not in done("site", "status", "--config", "north")


def test_two_sites_are_offered_the_flag_that_lets_two_sum() -> None:
    draft()
    for name in ("north", "south"):
        done("site", "init", name, "--name", name, "--table", str(shutil.copy("penguins.csv", f"{name}.csv")))
    cards = ("--card", "north/card.toml", "--card", "south/card.toml")
    message = refused("study", "init", "study.toml", "--title", "Two", "--codebook", "book.toml", *cards)
    assert "--min-parties 2" in message
    done(
        "study",
        "init",
        "study.toml",
        "--title",
        "Two",
        "--codebook",
        "book.toml",
        *cards,
        "--min-parties",
        "2",
        "--epsilon",
        "1",
    )


def poll(rows: int = 300) -> pd.DataFrame:
    """A table like carData's poll in Chile: row names, a wide number beside a narrow one, thousands, no label in some rows."""
    draw = random.Random(34)
    vote = [draw.choices(("Y", "N", None), (5, 4, 1))[0] for _ in range(rows)]
    return pd.DataFrame(
        {
            "": range(1, rows + 1),
            "population": [draw.choice((3750, 45000, 175000, 250000)) for _ in range(rows)],
            "income": [f"{draw.randrange(2, 200)},500" for _ in range(rows)],
            "statusquo": [round(draw.gauss(1.0 if each == "Y" else -1.0, 0.5), 5) for each in vote],
            "support": [draw.choice(("low", "high")) for _ in range(rows)],
            "vote": vote,
        }
    )


def labelled_poll() -> tuple[pd.DataFrame, Codebook]:
    table = poll().drop(columns=["", "income"]).dropna()
    return table, Codebook.from_frame(table, "vote")


def next_words(shown: str) -> list[str]:
    (line,) = [line for line in shown.splitlines() if line.startswith("Next: ")]
    return shlex.split(line.removeprefix("Next: blindbayes "))


def test_commands_replace_no_file_that_they_did_not_write() -> None:
    table, book = labelled_poll()
    table.to_csv("poll.csv", index=False)
    book.to_toml("poll.toml")
    before = Path("poll.csv").read_bytes()
    for taken in ("poll.csv", "poll.toml"):
        assert "is no model file" in refused("train", "poll.csv", "--codebook", "poll.toml", "--out", taken)
    done("train", "poll.csv", "--codebook", "poll.toml", "--out", "model.json")
    done("train", "poll.csv", "--codebook", "poll.toml", "--out", "model.json")  # a model file may be replaced
    assert "exists" in refused("explain", "model.json", "--out", "poll.csv")
    assert "another --plot" in refused("drift", "model.json", "poll.csv", "--plot", "poll.csv")
    assert Path("poll.csv").read_bytes() == before
    load("model.json")


def test_a_draft_leaves_out_a_column_that_repeats_another() -> None:
    table = penguins()
    table["Culmen again"] = table["Culmen (mm)"]
    table["Sex."] = table["Sex"]
    table.to_csv("penguins.csv", index=False)
    draft()
    assert Codebook.from_toml("book.toml").names == ("Island", "Culmen (mm)", "Sex")
    assert Path("book.toml").read_text().count("its evidence would count twice") == 2
    draft("--keep", "Sex.")
    assert "Sex." in Codebook.from_toml("book.toml").names


def test_the_next_command_of_a_draft_reads_the_numbers_that_it_could_not_read() -> None:
    penguins().to_csv("penguins.csv", index=False, sep=";", decimal=",")
    again = next_words(draft("--drop", "Sex"))
    assert again[:2] == ["codebook", "draft"]
    assert "--decimal" in again
    done(*next_words(done(*again)))
    assert load("model.json").codebook_.names == ("Island", "Culmen (mm)")


def test_the_next_command_of_a_draft_gives_rows_without_a_label_a_class() -> None:
    poll().to_csv("poll.csv", index=False)
    shown = done("codebook", "draft", "poll.csv", "--target", "vote", "--out", "poll.toml")
    assert "(no name)" in shown
    assert "(no name)" in Path("poll.toml").read_text()
    (rule,) = [line.strip() for line in shown.splitlines() if line.startswith('  "vote" = ')]
    Path("map.toml").write_text(rule + "\n")
    assert "unknown" in done(*next_words(done(*next_words(shown))))
    assert load("model.json").codebook_.classes == ("N", "Y", "unknown")


def test_a_narrow_feature_that_smoothing_drowns_is_named() -> None:
    table, book = labelled_poll()
    with pytest.warns(UserWarning, match="variance of 'statusquo'.*var_smoothing=0"):
        drowned = NaiveBayes(book).fit(table).score(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert NaiveBayes(book, var_smoothing=0).fit(table).score(table) > drowned + 0.1
    table.to_csv("poll.csv", index=False)
    book.to_toml("poll.toml")
    assert "pass --var-smoothing 0" in done("train", "poll.csv", "--codebook", "poll.toml", "--out", "model.json")


def test_a_model_classifies_whatever_it_can_be_fitted_on(folder: Path) -> None:
    table, _ = labelled_poll()
    table["day"] = pd.Timestamp("2024-02-03") + pd.to_timedelta(range(len(table)), unit="D")
    rules = {"month": "month(day)"}
    table.to_csv("poll.csv", index=False)
    with open_table(table, map=rules) as made, open_table("poll.csv", map=rules) as read:
        book = Codebook.from_frame(made, "vote")
        assert book.names == ("population", "statusquo", "support", "month")
        model = NaiveBayes(book, var_smoothing=0).fit(made)
        expected = model.predict(table.assign(month=table["day"].dt.month).drop(columns=["vote", "day"]))
        for source in (made, read):
            assert model.predict(source).tolist() == expected.tolist()
            assert model.score(source) == (expected == table["vote"]).mean()
            assert model.explain(source).terms.shape[0] == len(table)
    plain = table.drop(columns="day")
    plain.to_csv("plain.csv", index=False)
    own = NaiveBayes(Codebook.from_frame("plain.csv", "vote"), var_smoothing=0).fit("plain.csv")
    assert own.score("plain.csv") == own.score(plain) == own.score(plain.drop(columns="vote"), plain["vote"])
    private = PrivateNaiveBayes(own.codebook, epsilon=5.0).fit("plain.csv")
    assert private.score("plain.csv") == private.score(plain)
    done("ledger", "init", "ledger.jsonl", "--epsilon", "9")
    paid = PrivateNaiveBayes(own.codebook, epsilon=5.0, ledger="ledger.jsonl", score_epsilon=1.0).fit(plain)
    with pytest.raises(ConfigError, match="takes a frame"):
        paid.score("plain.csv")


def test_predict_names_features_whose_values_the_codebook_does_not_list() -> None:
    table, book = labelled_poll()
    table.to_csv("poll.csv", index=False)
    book.to_toml("poll.toml")
    done("train", "poll.csv", "--codebook", "poll.toml", "--out", "model.json")
    assert "does not list" not in done("predict", "model.json", "poll.csv", "--out", "same.csv")
    table.assign(support=table["support"] == "high").to_csv("other.csv", index=False)
    shown = done("predict", "model.json", "other.csv", "--out", "other-classes.csv")
    assert f"feature 'support': {len(table)} rows hold a value that the codebook does not list" in shown
    assert "true" not in shown.casefold()


def test_predict_counts_the_numbers_that_lie_out_of_bounds() -> None:
    book = Codebook("y", ("a", "b"), (Numeric("age", 0, 99), Numeric("size", 0, 9, bins=3)), max_rows=100)
    frame = pd.DataFrame({"age": [40, 50, 60, 70], "size": [1, 2, 3, 4], "y": ["a", "b"] * 2})
    frame.to_csv("fit.csv", index=False)
    book.to_toml("ages.toml")
    done("train", "fit.csv", "--codebook", "ages.toml", "--out", "model.json")
    assert "out of bounds" not in done("predict", "model.json", "fit.csv", "--out", "in.csv")
    for name, form in (("months.csv", pd.DataFrame.to_csv), ("months.parquet", pd.DataFrame.to_parquet)):
        form(frame.assign(age=[480, 50, 720, 840], size=[1, 2, 3, -77]), name, index=False)
        shown = done("predict", "model.json", name, "--out", f"{name}.csv")
        assert "feature 'age': 3 rows hold a number out of bounds [0, 99], which counts as the nearest bound" in shown
        assert "feature 'size': 1 row holds a number out of bounds [0, 9]" in shown
        assert not {"480", "720", "840", "-77"} & set(re.findall(r"-?[0-9]+", shown))


def test_one_row_and_rows_of_two_lengths_are_refused_in_words_that_fit() -> None:
    table, book = labelled_poll()
    model = NaiveBayes(book, var_smoothing=0).fit(table)
    features = table.drop(columns="vote")
    for row in (features.iloc[0], features.iloc[0].to_dict()):
        with pytest.raises(DataError, match=r"frame\.iloc\[\[0\]\]"):
            model.predict(row)
    for estimator in (NaiveBayes(book), PrivateNaiveBayes(book, epsilon=1.0)):
        with pytest.raises(ValueError, match=rf"\[{len(table)}, {len(table) - 1}\]"):
            estimator.fit(features, table["vote"][:-1])
    batches = NaiveBayes(var_smoothing=0).partial_fit(
        features[features.support == "low"], table.vote[features.support == "low"], ["N", "Y"]
    )
    with pytest.raises(DataError, match="pass one that covers all batches"):
        batches.partial_fit(features, table.vote)


MISTYPED = [
    (("explain", "model.json", "--row", "3"), "name the table by --data"),
    (("predict", "book.toml", "poll.csv"), "'book.toml': the model file is not valid JSON"),
    (("train", "poll.duckdb", "--codebook", "book.toml", "--out", "x.json"), "'duckdb://poll.duckdb#visits'"),
    (("train", "duckdb://poll.duckdb#vists", "--codebook", "book.toml", "--out", "x.json"), "there are polls, visits"),
    (("train", "jdbc:postgresql://h/db", "--codebook", "book.toml", "--out", "x.json"), "no jdbc: before it"),
]


@pytest.mark.parametrize(("words", "step"), MISTYPED, ids=lambda each: each if isinstance(each, str) else each[0])
def test_a_mistyped_command_is_told_what_would_work(words: tuple[str, ...], step: str) -> None:
    table, book = labelled_poll()
    book.to_toml("book.toml")
    NaiveBayes(book, var_smoothing=0).fit(table).save("model.json")
    table.to_csv("poll.csv", index=False)
    with duckdb.connect("poll.duckdb") as base:
        base.execute("CREATE TABLE visits AS SELECT 1 AS a; CREATE TABLE polls AS SELECT 1 AS a")
    assert step in refused(*words)


def test_commands_of_other_tools_lead_to_ours() -> None:
    for typed, ours in (("evaluate", "drift MODEL TABLE"), ("cross-validate", "prints the accuracy"), ("fit", "train")):
        result = call(typed, "model.json")
        assert result.exit_code == 2
        assert ours in result.output


def test_explain_takes_the_options_of_predict_and_explains_its_brackets() -> None:
    table, book = labelled_poll()
    model = PrivateNaiveBayes(book, epsilon=5.0).fit(table)
    model.save("model.json")
    table.to_csv("poll.csv", index=False)
    assert "row 2: vote" in done("explain", "model.json", "--data", "poll.csv", "--row", "2", "--ignore-extra")
    assert "may lie outside" in done("explain", "model.json", "--feature", "support")


def test_synthetic_rows_name_the_option_of_the_file_that_is_in_the_way() -> None:
    table, book = labelled_poll()
    PrivateNaiveBayes(book, epsilon=5.0).fit(table).save("model.json")
    Path("marginals.csv").write_text("mine")
    assert "choose another --marginals" in refused("report", "synthetic", "model.json", "--rows", "5", "--out", "rows.csv")
    NaiveBayes(book, var_smoothing=0).fit(table).save("exact.json")
    assert "--allow-exact" in refused("report", "synthetic", "exact.json", "--rows", "5", "--out", "rows.csv")


def test_the_interval_of_a_class_share_stands_beside_the_share() -> None:
    table, book = labelled_poll()
    PrivateNaiveBayes(book, epsilon=5.0).fit(table).release("release", cover="Poll")
    page = Path("release/explain.html").read_text()
    shares, offsets = (page.partition(row)[2].partition("</tr>")[0] for row in ("share of the rows", "offset of the score"))
    assert shares.count("[") == len(book.classes)
    assert "[" not in offsets


def test_large_numbers_have_no_exponent_in_the_documents() -> None:
    book = Codebook("y", ("no", "yes"), (Numeric("spent", 0, 20_000_000, 1000, bins=8), Categorical("job", ("cook", "clerk"))))
    draw = random.Random(5)
    rows = [{"spent": draw.randrange(20_000) * 1000, "job": draw.choice(("cook", "clerk")), "y": draw.choice(("no", "yes"))}]
    rows *= 5
    rows += [{"spent": 1_500_000 + 2_500_000 * at, "job": "cook", "y": ("no", "yes")[at % 2]} for at in range(8)]
    NaiveBayes(book).fit(pd.DataFrame(rows)).release("release", cover="Money")
    done("report", "dpia", "release", "--out", "annex.html")
    for path in ("release/explain.html", "release/model_card.md", "annex.html"):
        text = Path(path).read_text()
        assert "20000000" in text
        assert "e+0" not in text


def test_a_table_without_order_is_drafted_from_and_scored_but_classified_where_it_is() -> None:
    table, book = labelled_poll()
    model = NaiveBayes(book, var_smoothing=0).fit(table)
    with open_table(table) as opened:
        spark = replace(opened, label="spark", _owned=False)  # the same rows, as Spark would name them
        assert Codebook.from_frame(spark, "vote").names == book.names
        assert model.score(spark) == model.score(table)
        with pytest.raises(DataError, match="--dialect spark"):
            model.predict(spark)
