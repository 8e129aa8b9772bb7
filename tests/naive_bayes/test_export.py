"""Exports answer as the model does, in other people's engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, ConfigError, NaiveBayes, Numeric, PrivateNaiveBayes
from blindbayes.datasets import hospitals
from blindbayes.naive_bayes.export import to_onnx, to_pmml, to_sql


def binned_and_whole() -> tuple[Codebook, pa.Table]:
    """Bins, integer labels, a coarse grid, and an optional category."""
    codebook = Codebook(
        "label",
        ("0", "1", "2"),
        (
            Numeric("height", -3.0, 5.0, 0.25, bins=7, optional=True),
            Numeric("weight", 0, 1000, 10, optional=True),
            Categorical("colour", ("red", "green & <blue>"), optional=True),
        ),
    )
    rng = np.random.default_rng(3)
    label = rng.integers(0, 3, 400)
    rows = {
        "height": pa.array(np.clip(rng.normal(label, 2, 400), -3, 5), mask=rng.random(400) < 0.2),
        "weight": pa.array(np.clip(rng.normal(300 + 100 * label, 90, 400), 0, 1000), mask=rng.random(400) < 0.1),
        "colour": pa.array(np.array(["red", "green & <blue>"])[(rng.random(400) < 0.3 + 0.2 * label).astype(int)]),
        "label": pa.array(label),
    }
    return codebook, pa.table(rows)


def unequal_cells() -> tuple[Codebook, pa.Table]:
    """Edges by hand, and cells that grow with the distance from zero, on both sides of it."""
    codebook, table = binned_and_whole()
    features = (
        Numeric("height", -3.0, 5.0, 0.25, edges=(-1.0, 0.25, 0.5, 3.0), optional=True),
        Numeric("weight", -20, 1000, 10, bins=6, spacing="log", optional=True),
        codebook.features[2],
    )
    return codebook.with_features(features), table


def cases() -> list[tuple[str, NaiveBayes, pa.Table]]:
    data = hospitals(900)
    codebook, table = binned_and_whole()
    return [
        ("hospitals", NaiveBayes(data.codebook).fit(pa.concat_tables(data.tables.values())), data.tables["west"]),
        ("bins", NaiveBayes(codebook).fit(table), table),
        ("unequal cells", NaiveBayes(unequal_cells()[0]).fit(table), table),
    ]


def queries(model: NaiveBayes, table: pa.Table) -> pa.Table:
    """Rows as they may come: some numbers beyond the bounds, some categories nobody knows."""
    table = table.drop_columns([model.codebook_.target])
    for at, feature in enumerate(model.codebook_.features):
        values = table.column(feature.name).to_pylist()
        if isinstance(feature, Categorical):
            values[::17] = ["unheard of"] * len(values[::17])
        else:
            values[::19] = [feature.high * 3 + 1] * len(values[::19])
        table = table.set_column(at, feature.name, pa.array(values))
    return table


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0])
def test_onnx_gives_the_same_classes_and_probabilities(case: tuple[str, NaiveBayes, pa.Table]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    _, model, table = case
    rows = queries(model, table)
    session = runtime.InferenceSession(to_onnx(model.parameters_, label_kind=model.label_kind_).SerializeToString())
    feed: dict[str, Any] = {}
    for feature in model.codebook_.features:
        values = rows.column(feature.name).to_pylist()
        if isinstance(feature, Categorical):
            feed[feature.name] = np.array([value or "" for value in values], dtype=object).reshape(-1, 1)
        else:
            feed[feature.name] = np.array([np.nan if value is None else value for value in values]).reshape(-1, 1)
    labels, probabilities = session.run(["label", "probabilities"], feed)
    assert np.array_equal(labels.astype(model.classes_.dtype), model.predict(rows))
    assert np.allclose(probabilities, model.predict_proba(rows), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0])
def test_pmml_gives_the_same_classes_and_probabilities_in_jpmml(
    case: tuple[str, NaiveBayes, pa.Table], tmp_path: Path, tool: Callable[[str], str]
) -> None:
    tool("java")
    evaluator = pytest.importorskip("jpmml_evaluator")
    _, model, table = case
    rows = queries(model, table).slice(0, 200)
    path = tmp_path / "model.pmml"
    path.write_text(to_pmml(model.parameters_, label_kind=model.label_kind_), encoding="utf-8")
    loaded = evaluator.make_evaluator(str(path)).verify()
    labels, expected = model.predict(rows), model.predict_proba(rows)
    for at, row in enumerate(rows.to_pylist()):
        answer = loaded.evaluate(row)
        assert answer["label"] == labels[at]
        shares = [answer[f"P({label})"] for label in model.codebook_.classes]
        assert np.allclose(shares, expected[at], rtol=1e-9, atol=1e-12)


def in_duckdb(model: NaiveBayes, rows: pa.Table) -> tuple[Any, Any]:
    """Classes and probabilities of rows by the exported query."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as base:
        base.register("visits", rows)
        answers = base.execute(to_sql(model.parameters_, "visits")).to_arrow_table()
    shares = [answers.column(f"P({label})").to_numpy() for label in model.codebook_.classes]
    return np.array(answers.column("predicted").to_pylist()).astype(model.classes_.dtype), np.stack(shares, axis=1)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case[0])
def test_sql_gives_the_same_classes_and_probabilities_in_duckdb(case: tuple[str, NaiveBayes, pa.Table]) -> None:
    _, model, table = case
    rows = queries(model, table)
    classes, shares = in_duckdb(model, rows)
    assert np.array_equal(classes, model.predict(rows))
    assert np.allclose(shares, model.predict_proba(rows), rtol=1e-9, atol=1e-12)


def test_sql_classifies_with_a_private_model_markers_and_another_value() -> None:
    data = hospitals(900)
    private = PrivateNaiveBayes(data.codebook, epsilon=1.0).fit(data.tables["north"])
    rows = data.tables["south"].drop_columns(["readmitted"])
    assert np.array_equal(in_duckdb(private, rows)[0], private.predict(rows))
    features = (
        Categorical("it's", ("a", "rest"), optional=True, missing=("?",), other="rest"),
        Numeric('wide "x"', 0, 10, 1, bins=3, optional=True, missing=("99",)),
        Numeric("n", 0, 10, 0.5, optional=True, missing=("-1",)),
    )
    names, label = [feature.name for feature in features], pa.array(["u'", "v\\", "v\\", "u'"])
    cells = pa.table([["a", "b", "?", None], [1, 99, 9, None], [0.5, 7.5, -1.0, None]], names=names)
    model = NaiveBayes(Codebook("y", ("u'", "v\\"), features)).fit(cells, label)
    classes, shares = in_duckdb(model, cells)
    assert np.array_equal(classes, model.predict(cells))
    assert np.allclose(shares, model.predict_proba(cells), rtol=1e-9)
    assert "`it's`" in (spark := to_sql(model.parameters_, "a.b", dialect="spark"))
    assert r"'v\\'" in spark
    with pytest.raises(ConfigError, match=r"named by letters.*as the engine quotes it"):
        to_sql(model.parameters_, "visits; DROP TABLE visits")


@pytest.mark.parametrize("name", ["visits", "main.visits", '"Visits 2024"', 'main."Kunden (neu)"'])
def test_sql_names_a_table_as_its_engine_quotes_it(name: str) -> None:
    model = NaiveBayes(Codebook("y", ("a", "b"), (Numeric("x", 0, 9, bins=3),))).fit(pa.table({"x": [1, 8], "y": ["a", "b"]}))
    with pytest.importorskip("duckdb").connect() as base:
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM (VALUES (1), (9)) AS t(x)")
        assert [row[0] for row in base.execute(f"SELECT predicted FROM ({to_sql(model.parameters_, name)})").fetchall()] == [
            "a",
            "b",
        ]


@pytest.mark.parametrize("name", ["Visits 2024", 'a"; DROP TABLE b; --', '"a" "b"', "a.b.c.d", '""', ""])
def test_sql_takes_no_other_name_of_a_table(name: str) -> None:
    model = NaiveBayes(Codebook("y", ("a", "b"), (Numeric("x", 0, 9, bins=3),))).fit(pa.table({"x": [1, 8], "y": ["a", "b"]}))
    with pytest.raises(ConfigError, match="as the engine quotes it"):
        to_sql(model.parameters_, name)
