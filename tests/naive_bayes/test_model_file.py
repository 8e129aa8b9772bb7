"""The model file: bit-identical predictions back, and nothing but a well-formed file is read."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes, load
from blindbayes.errors import ConfigError
from blindbayes.naive_bayes import dump_model, parse_model

CODEBOOK = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Categorical("k", ("u", "v")),
        Numeric("x", 0, 9, 0.1, optional=True),
        Numeric("h", 0, 9, bins=3),
        Numeric("never", 0, 1, optional=True),
    ),
)


def frame(rows: int = 40) -> pd.DataFrame:
    generator = np.random.default_rng(6)
    return pd.DataFrame(
        {
            "k": generator.choice(["u", "v"], rows),
            "x": np.round(generator.random(rows) * 9, 1),
            "h": generator.integers(0, 10, rows),
            "never": [None] * rows,
            "y": generator.choice(["a", "b"], rows),  # class c has no rows
        }
    )


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    NaiveBayes(CODEBOOK, alpha=0.7).fit(frame()).save(tmp_path / "model.json")
    loaded: dict[str, Any] = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    return loaded


def test_a_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    rows = frame()
    model = NaiveBayes(CODEBOOK, alpha=0.7, var_smoothing=1e-4).fit(rows)
    model.save(tmp_path / "model.json")
    back = load(tmp_path / "model.json")
    assert back.predict_joint_log_proba(rows).tobytes() == model.predict_joint_log_proba(rows).tobytes()
    assert back.statistics_ == model.statistics_
    assert back.codebook_.sha256 == CODEBOOK.sha256
    assert (back.alpha, back.var_smoothing) == (0.7, 1e-4)
    assert back.feature_names_in_.tolist() == list(CODEBOOK.names)
    back.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.json", "model.json"]


def test_a_model_of_wide_statistics_comes_back(tmp_path: Path) -> None:
    codebook = Codebook("y", ("a", "b"), (Numeric("x", -(2.0**45), 2.0**45),))
    rows = pd.DataFrame({"x": [2**45, -(2**45), 2**45 - 1], "y": ["a", "b", "b"]})
    model = NaiveBayes(codebook).fit(rows)
    model.save(tmp_path / "m.json")
    assert load(tmp_path / "m.json").statistics_ == model.statistics_


def change(path: tuple[Any, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        node: Any = document
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return apply


def remove(*path: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        node: Any = document
        for key in path[:-1]:
            node = node[key]
        del node[path[-1]]

    return apply


TERMS = ("parameters", "terms")
TAMPERED = {
    "format of tomorrow": change(("format",), "blindbayes.naive_bayes/2"),
    "unknown field": change(("script",), "import os"),
    "field missing": remove("privacy"),
    "codebook changed": change(("codebook", "classes", 0), "z"),
    "hash changed": change(("codebook_sha256",), "0" * 64),
    "codebook of another type": change(("codebook",), [1]),
    "label kind": change(("label_kind",), "pickle"),
    "prior too short": change(("parameters", "log_prior"), [0.0]),
    "prior of nothing": change(("parameters", "log_prior"), [None, None, None]),
    "prior as text": change(("parameters", "log_prior", 0), "-1.5"),
    "prior infinite": change(("parameters", "log_prior", 0), "@1e999"),
    "prior enormous": change(("parameters", "log_prior", 0), "@" + "9" * 400),
    "prior true": change(("parameters", "log_prior", 0), True),
    "term missing": remove(*TERMS, "k"),
    "term unknown": change((*TERMS, "z"), {"log_prob": [[0.0]]}),
    "term of another kind": change((*TERMS, "k"), {"mean": [0, 0, 0], "variance": [1, 1, 1]}),
    "table ragged": change((*TERMS, "k", "log_prob", 0), [0.0]),
    "table as text": change((*TERMS, "k", "log_prob"), "table"),
    "table with null": change((*TERMS, "k", "log_prob", 0, 0), None),
    "table tampered": change((*TERMS, "k", "log_prob", 0, 0), -0.5),
    "mean infinite": change((*TERMS, "x", "mean", 0), "@1e999"),
    "mean tampered": change((*TERMS, "x", "mean", 0), 4.0),
    "variance zero": change((*TERMS, "x", "variance", 0), 0.0),
    "variance negative": change((*TERMS, "x", "variance", 0), -1.0),
    "variance tampered": change((*TERMS, "x", "variance", 0), 4.0),
    "extra in a term": change((*TERMS, "x", "code"), 1),
    "statistics too large": change(("statistics", "class_counts", 0), 2**70),
    "statistics fractional": change(("statistics", "class_counts", 0), 0.5),
    "statistics tampered": change(("statistics", "class_counts", 0), 7),
    "statistics of another type": change(("statistics",), [1, 2]),
    "statistics section missing": remove("statistics", "sums"),
    "settings missing": change(("settings",), {}),
    "settings unknown": change(("settings", "more"), 1),
    "settings of another type": change(("settings",), None),
    "alpha as text": change(("settings", "alpha"), "1"),
    "alpha changed": change(("settings", "alpha"), 1.0),
    "alpha negative": change(("settings", "alpha"), -1.0),
    "privacy as text": change(("privacy",), "none"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_tampered_file_is_refused(case: str, document: dict[str, Any], tmp_path: Path) -> None:
    TAMPERED[case](document)
    text = json.dumps(document)
    for mark in ('"@1e999"', '"@' + "9" * 400 + '"'):
        text = text.replace(mark, mark.strip('"@'))
    (tmp_path / "model.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        load(tmp_path / "model.json")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", '{"format": NaN}', '{"format": Infinity}', "[" * 100_000, "9" * 5000, "\0"]
)
def test_what_is_no_model_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_model(text)


def test_numbers_that_json_does_not_have_are_refused(document: dict[str, Any]) -> None:
    document["parameters"]["terms"]["x"]["mean"][0] = math.nan
    with pytest.raises(ConfigError, match="number that JSON does not have"):
        parse_model(json.dumps(document))


def test_an_oversize_file_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.json"
    NaiveBayes(CODEBOOK).fit(frame()).save(path)
    monkeypatch.setattr("blindbayes.naive_bayes.model_file.MAX_MODEL_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr("blindbayes.naive_bayes.load.MAX_MODEL_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr("json.JSONDecoder.decode", lambda *_, **__: pytest.fail("parsed"))
    with pytest.raises(ConfigError, match="size limit"):
        load(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_mangled_file_is_refused_or_loads_as_a_model(data: st.DataObject) -> None:
    text = dump_model(NaiveBayes(CODEBOOK).fit(frame(5))._record())
    at = data.draw(st.integers(0, len(text) - 1))
    mangled = text[:at] + data.draw(st.text(max_size=3)) + text[at + data.draw(st.integers(0, 3)) :]
    try:
        record = parse_model(mangled)
    except ConfigError:
        return
    assert set(record.parameters.terms) == set(record.parameters.codebook.names)


def test_files_that_cannot_be_read_or_written_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "binary.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        NaiveBayes(CODEBOOK).fit(frame()).save(tmp_path / "no folder" / "m.json")
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        NaiveBayes(CODEBOOK).fit(frame()).save(tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["binary.json", "taken"]


def test_rows_are_not_added_to_a_model_released_with_noise(tmp_path: Path) -> None:
    codebook = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v")),))
    rows = pd.DataFrame({"k": ["u", "v"] * 50, "y": ["a", "b"] * 50})
    PrivateNaiveBayes(codebook, epsilon=1.0).fit(rows).save(tmp_path / "noisy.json")
    noisy = load(tmp_path / "noisy.json")
    assert noisy.predict(rows).shape == (100,)
    assert isinstance(noisy, PrivateNaiveBayes)
    assert (noisy.epsilon, noisy.delta) == (1.0, 0.0)
    assert not hasattr(noisy, "partial_fit")


def test_a_model_of_histograms_comes_back_as_it_was_and_goes_on_alike(tmp_path: Path) -> None:
    """Its file was refused as not made of its own statistics, and a loaded model was one of Gaussians."""
    numbers = (Numeric("x", 0, 1000), Numeric("z", 0, 10**5, spacing="log"), Numeric("w", 0, 10, bins=5))
    book = Codebook("y", ("a", "b"), numbers, max_rows=10**6)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.exponential(50, (300, 2)).round(), rng.integers(0, 10, 300)])
    y = np.where(X[:, 0] > 40, "a", "b")
    model = NaiveBayes(book, numeric="histogram").fit(X, y)
    model.save(tmp_path / "m.json")
    for again in (load(tmp_path / "m.json"), pickle.loads(pickle.dumps(model))):
        assert (again.numeric, again.codebook) == ("histogram", book)
        assert (again.predict_proba(X) == model.predict_proba(X)).all()
        further = NaiveBayes(book, numeric="histogram").fit(np.vstack([X, X]), np.append(y, y))
        assert (again.partial_fit(X, y).predict_proba(X) == further.predict_proba(X)).all()
    changed = (tmp_path / "m.json").read_text().replace('"z": "log"', '"z": "linear"')
    (tmp_path / "m.json").write_text(changed)
    with pytest.raises(ConfigError, match="cells are not those of this version"):
        load(tmp_path / "m.json")
