"""A model file of a stranger: small, well formed, and made to hang, to crash, or to say one thing here and another there."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from click.testing import CliRunner, Result

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes, Text, load
from blindbayes.cli.commands.explain import command as explain_command
from blindbayes.cli.commands.export import command as export_command
from blindbayes.cli.commands.predict import command as predict_command
from blindbayes.cli.commands.report import command as report_command
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.naive_bayes.export import to_onnx, to_pmml
from blindbayes.report.page import model_page

BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (
        Categorical("smoker", ("never", "now", "rest"), other="rest", optional=True, missing=("?",)),
        Numeric("age", 0, 99, bins=4),
        Numeric("pressure", 0, 200, optional=True),
    ),
    max_rows=1000,
)
TABLE = pa.table(
    {
        "ill": ["no", "yes", "no", "yes"] * 10,
        "smoker": ["never", "now", "rest", "rest"] * 9 + ["never", "now", "now", "rest"],
        "age": [1, 50, 70, 90] * 10,
        "pressure": [100, 120, 130, 160] * 10,
    }
)


def document(tmp_path: Path, *, private: bool = False) -> dict[str, Any]:
    """A good model file. Without its statistics, which parameters are compared with: a release need not hold them."""
    model = PrivateNaiveBayes(BOOK, epsilon=1.0) if private else NaiveBayes(BOOK)
    model.fit(TABLE).save(tmp_path / "good.json")
    found: dict[str, Any] = json.loads((tmp_path / "good.json").read_text())
    return found if private else {**found, "statistics": None}


def changed(found: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with another value at a place such as parameters.log_prior."""
    made = copy.deepcopy(dict(found))
    *before, last = path.split(".")
    inner = made
    for name in before:
        inner = inner[name]
    inner[last] = value
    return made


def every_use(tmp_path: Path, found: Mapping[str, Any]) -> dict[str, Result]:
    """What a user does with a model file, and what comes of it. Raises what is no error of the package."""
    model, rows = tmp_path / "hostile.json", tmp_path / "rows.csv"
    model.write_text(json.dumps(found))
    pacsv.write_csv(TABLE.drop_columns(["ill"]), rows)
    results = {}
    for name, command, arguments in (
        ("predict", predict_command, [str(model), str(rows), "--probabilities"]),
        ("explain", explain_command, [str(model)]),
        ("page", explain_command, [str(model), "--out", str(tmp_path / "page.html")]),
        ("pmml", export_command, [str(model), str(tmp_path / "model.pmml")]),
        ("onnx", export_command, [str(model), str(tmp_path / "model.onnx")]),
        ("report", report_command, [str(model)]),
    ):
        result = results[name] = CliRunner().invoke(command, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit | BlindbayesError):
            raise AssertionError(name) from result.exception
    return results


HOSTILE = {
    "a prior that is no logarithm": ("parameters.log_prior", [1e308, 1e308]),
    "a table that is none": ("parameters.terms.smoker.log_prob", [[800.0, -800.0, 1e308], [-1e308, -1.0, -1.0]]),
    "moments without a score": ("parameters.terms.pressure", {"mean": [1e308, -1e308], "variance": [1e-308, 1e-308]}),
    "no moments of one class": ("parameters.terms.pressure", {"mean": [1.0, 1.0], "variance": [1.0, None]}),
    "other priors in its settings": ("settings.priors", [1.0, 0.0]),
    "priors that are a number": ("settings.priors", 5),
    "smoothing below zero": ("settings.alpha", -5.0),
    "a statement that is a number": ("privacy", {"statement": 5}),
    "a statement with gaps": ("privacy", {"statement": {"epsilon": 0.1}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_parameters_that_no_training_gives_are_refused_at_the_door(tmp_path: Path, name: str) -> None:
    """They gave nan for every probability, errors of other libraries, or one model to `predict` and another to a report."""
    found = changed(document(tmp_path), *HOSTILE[name])
    assert {type(result.exception) for result in every_use(tmp_path, found).values()} == {ConfigError}


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        ("integer", ["no", "yes"]),
        ("integer", ["1", "01"]),
        ("integer", ["9" * 30, "0"]),
        ("real", ["1", "1.0"]),
        ("real", ["nan", "1"]),
    ],
)
def test_two_classes_stay_two_whatever_kind_the_file_says_they_have(tmp_path: Path, kind: str, classes: list[str]) -> None:
    found = document(tmp_path)
    found["codebook"]["classes"], found["label_kind"] = classes, kind
    found["codebook_sha256"] = Codebook.from_dict(found["codebook"]).sha256
    results = every_use(tmp_path, found)
    assert {line.split(",")[0].strip('"') for line in results["predict"].output.splitlines()[1:]} == set(classes)
    assert [*load(tmp_path / "hostile.json").classes_] == classes


RECORDS = {
    "amounts that fill the memory": {"epsilon": "1e999999999"},
    "a scale that does": {"sized": {"counts": [1, 2], "scale": "1e999999999"}},
    "rows of nobody": {"rows_per_unit": 0},
    "no odds": {"epsilon": "-1"},
    "cells wider than the table": {"cuts": [["smoker", "cells", [0, 10**9, 2 * 10**9, 3 * 10**9], True]]},
    "cells that go back": {"cuts": [["smoker", "cells", [0, -5, 1, 3], True]]},
    "honest nobody": {"sum": {"mechanism": "skellam", "epsilon": "1", "delta": 1e-6, "honest": 0, "touched": 1, "reach": 1}},
    "a variance that fills the memory": {"sum": {"mechanism": "skellam", "variance": "1e999999999"}},
}


@pytest.mark.parametrize("name", RECORDS)
def test_what_a_file_says_of_its_noise_cannot_hang_who_looks_at_it(tmp_path: Path, name: str) -> None:
    """15 kB kept `explain` busy for good, or asked for all the memory there is."""
    found, change = document(tmp_path, private=True), copy.deepcopy(RECORDS[name])
    released = found["privacy"]["released"]
    if "cuts" in change:
        change["cuts"] += released["cuts"][1:]
    if "sum" in change:
        usual = {"mechanism": "skellam", "epsilon": "1", "delta": 1e-6, "honest": 2, "touched": 1, "reach": 1}
        change["sum"] = {**usual, "unit": "record", "variance": "100", "shares": 2, **change["sum"]}
    start = time.process_time()
    results = every_use(tmp_path, changed(found, "privacy.released", {**released, **change}))
    assert isinstance(results["explain"].exception, ConfigError)
    assert isinstance(results["page"].exception, ConfigError)
    assert time.process_time() - start < 5


def test_the_number_of_features_costs_no_time_by_its_square(tmp_path: Path) -> None:
    """Two megabytes of 10,000 features kept `explain` busy for two minutes, and `predict` for half a one; here are 4,000."""
    features = tuple(Categorical(f"x{number}", ("a", "b")) for number in range(4000))
    book = Codebook("ill", ("no", "yes"), features, max_rows=1000)
    found = {**document(tmp_path), "codebook": book.to_dict(), "codebook_sha256": book.sha256}
    half = {"log_prob": [[-0.7, -0.7]] * 2}
    found["parameters"] = {"log_prior": [-0.7, -0.7], "terms": dict.fromkeys(book.names, half)}
    record = {"format": "blindbayes.released/1", "mechanism": "discrete_laplace", "epsilon": "1", "delta": 0.0}
    cuts = [[name, "cells", [0, 1, 2], False] for name in book.names]
    found["privacy"] = {"released": {**record, "rows_per_unit": 1, "cuts": cuts, "tables": [[[1.0, 1.0]] * 2] * 4000}}
    model, rows = tmp_path / "wide.json", tmp_path / "wide.csv"
    model.write_text(json.dumps(found))
    pacsv.write_csv(pa.table({name: ["a"] for name in book.names}), rows)
    start = time.process_time()
    assert CliRunner().invoke(predict_command, [str(model), str(rows)]).exception is None
    assert load(model)._noise_interval() is not None
    assert time.process_time() - start < 6


def test_a_claim_that_nobody_vouches_for_is_shown_as_one(tmp_path: Path) -> None:
    """Exact counts, and a statement of another model that promises an epsilon: a file can always say so."""
    statement = document(tmp_path, private=True)["privacy"]["statement"]
    stages = [{**statement["stages"][0], "epsilon": 0.001}]
    promise = {**statement, "epsilon": 0.001, "stages": stages}
    results = every_use(tmp_path, changed(document(tmp_path), "privacy", {"statement": promise}))
    said = results["report"].output
    assert said.index("Nothing confirms the contents of this file") < said.index("epsilon = 0.001")
    results = every_use(tmp_path, changed(document(tmp_path), "privacy", {}))
    assert "holds no privacy statement" in results["report"].output


def test_statistics_beyond_any_table_are_refused(tmp_path: Path) -> None:
    """Of a private model they need not be those of a table; they are shown as numbers of rows all the same."""
    features = (Categorical("smoker", ("never", "now")), Numeric("x", 0, 2**40))
    rows = pa.table({"ill": ["no", "yes"], "smoker": ["never", "now"], "x": [1, 2]})
    NaiveBayes(Codebook("ill", ("no", "yes"), features, max_rows=2**40)).fit(rows).save(tmp_path / "wide.json")
    found = {**json.loads((tmp_path / "wide.json").read_text()), "privacy": {}}
    found["statistics"]["counts"]["smoker"][0][0] = 10**1000
    assert {type(result.exception) for result in every_use(tmp_path, found).values()} == {ConfigError}


# -- one model, one answer ---------------------------------------------------------------------------------------------


def queries() -> pa.Table:
    return pa.table(
        {"smoker": ["strange", "?", None, "never", "rest"], "age": [30] * 5, "pressure": [120, 120, 120, 500, None]}
    )


def onnx_answers(model: NaiveBayes, rows: pa.Table) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(to_onnx(model.parameters_, label_kind=model.label_kind_).SerializeToString())
    feed = {}
    for feature in model.codebook_.features:
        text = isinstance(feature, Categorical)
        values = [("" if text else np.nan) if value is None else value for value in rows.column(feature.name).to_pylist()]
        feed[feature.name] = np.array(values, dtype=object if text else np.float64).reshape(-1, 1)
    return session.run(["probabilities"], feed)[0]


def test_a_value_that_is_not_listed_counts_alike_in_every_export(tmp_path: Path) -> None:
    """`other` was what an unknown value counts as in prediction; exports took it for a missing one."""
    model, rows = NaiveBayes(BOOK).fit(TABLE), queries()
    expected = model.predict_proba(rows)
    assert not np.allclose(expected[0], expected[1])
    assert np.allclose(onnx_answers(model, rows), expected)
    assert 'invalidValueReplacement="rest"' in to_pmml(model.parameters_)


@pytest.mark.parametrize("name", ["log_prior", "input_0", "score_0", "own:log_prior", "own::scale_2", "x on grid", "P(no)"])
def test_a_column_can_be_called_like_a_part_of_the_export(name: str) -> None:
    """An initial value of an ONNX graph that is called like an input is that input's default."""
    book = Codebook("x on grid_", ("no", "yes"), (Numeric(name, 0, 99), Numeric("x", 0, 200)), max_rows=1000)
    rows = TABLE.select(["ill", "age", "pressure"]).rename_columns(["x on grid_", name, "x"])
    model = NaiveBayes(book).fit(rows)
    asked = rows.drop_columns(["x on grid_"])
    assert np.allclose(onnx_answers(model, asked), model.predict_proba(asked))
    text = to_pmml(model.parameters_)
    names = [
        line.split('name="')[1].split('"')[0] for line in text.splitlines() if "Field name=" in line and "Mining" not in line
    ]
    assert len(names) == len(set(names))


def test_a_column_called_like_an_answer_is_refused_by_name() -> None:
    book = Codebook("ill", ("no", "yes"), (Numeric("label", 0, 99),), max_rows=1000)
    model = NaiveBayes(book).fit(TABLE.select(["ill", "age"]).rename_columns(["ill", "label"]))
    with pytest.raises(ConfigError, match="called like an output"):
        to_onnx(model.parameters_)
    assert 'name="label_"' in to_pmml(model.parameters_)


def test_a_probability_that_pmml_would_hold_as_none_is_refused(tmp_path: Path) -> None:
    found = changed(document(tmp_path), "parameters.terms.smoker.log_prob", [[-0.1, -800.0, -5.0], [-0.2, -1.0, -1.0]])
    results = every_use(tmp_path, found)
    assert isinstance(results["pmml"].exception, ConfigError)
    assert "too small for PMML" in str(results["pmml"].exception)
    assert results["onnx"].exception is None


def test_the_page_that_answers_has_the_grid_and_bounds_of_prediction() -> None:
    model = NaiveBayes(BOOK).fit(TABLE)
    page = model_page(model.parameters_)
    assert "&#34;low&#34;: 0, &#34;high&#34;: 200, &#34;scale&#34;: 1.0" in page
    empty = NaiveBayes(BOOK).fit(TABLE.set_column(3, "pressure", pa.array([None] * 40, pa.float64())))
    assert "pressure" in model_page(empty.parameters_)  # nobody has a value: no number to ask for


def test_texts_of_every_model_are_read_back(tmp_path: Path) -> None:
    """What the checks must not refuse: a complement's terms are no logarithms but their opposite."""
    for kind in ("multinomial", "bernoulli", "complement"):
        book = Codebook("ill", ("no", "yes"), (Text("note", ("cough", "fever"), model=kind),), max_rows=1000)
        rows = pa.table({"ill": ["no", "yes"], "note": ["cough", "cough fever"]})
        NaiveBayes(book).fit(rows).save(tmp_path / "model.json")
        assert len(load(tmp_path / "model.json").predict(rows.drop_columns(["ill"]))) == 2
