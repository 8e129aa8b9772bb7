"""Text as bags of words: equal to scikit-learn, sparse all the way, the same from a column of texts and from a matrix."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB, ComplementNB, MultinomialNB
from sklearn.pipeline import make_pipeline

from blindbayes import Categorical, Codebook, ConfigError, DataError, NaiveBayes, Numeric, RowStudy, Text, load
from blindbayes.data.infer import draft_codebook
from blindbayes.naive_bayes.export.onnx import to_onnx
from support.studies import make_study

WORDS = ("free", "offer", "meeting", "minutes", "win", "café", "the")
MODELS = {"multinomial": MultinomialNB, "bernoulli": BernoulliNB, "complement": ComplementNB}
MAILS = [
    "Free offer! FREE win, the offer",
    "The minutes of the meeting",
    "meeting at the café",
    "win win win",
    "minutes, minutes; the unknown words do not count",
    "!!!",
]
LABELS = ["spam", "ham", "ham", "spam", "ham", "ham"]


def book(model: str = "multinomial", words: Any = WORDS, classes: tuple[str, ...] = ("ham", "spam"), **more: Any) -> Codebook:
    return Codebook("class", classes, (Text("body", tuple(words), model=model, **more),), max_rows=10**6)


def drawn(rows: int, words: int, classes: int, seed: int, density: float = 0.1) -> tuple[sp.csr_array, np.ndarray]:
    rng = np.random.default_rng(seed)
    counts = sp.random_array(
        (rows, words), density=density, rng=rng, format="csr", data_sampler=lambda size: rng.integers(1, 6, size)
    )
    return counts.astype(np.int64), rng.permutation(np.arange(rows) % classes)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("alpha", [1.0, 0.01])
def test_equals_scikit_learn_on_random_counts(model: str, classes: int, alpha: float) -> None:
    X, y = drawn(300, 80, classes, seed=classes)
    reference = MODELS[model](alpha=alpha).fit(X, y)
    codebook = book(model, [f"w{at}" for at in range(80)], tuple(map(str, range(classes))))
    # ComplementNB leaves the priors out; class_weight says so.
    ours = NaiveBayes(codebook, alpha=alpha, class_weight="balanced" if model == "complement" else None).fit(X, y)
    assert np.array_equal(ours.classes_, reference.classes_)
    np.testing.assert_allclose(ours.feature_log_prob_["body"], reference.feature_log_prob_, rtol=1e-12, atol=1e-14)
    fresh = drawn(50, 80, classes, seed=9)[0]
    np.testing.assert_allclose(ours.predict_proba(fresh), reference.predict_proba(fresh), rtol=1e-9, atol=1e-12)
    assert np.array_equal(ours.predict(fresh), reference.predict(fresh))


@pytest.mark.parametrize("model", MODELS)
def test_a_column_of_texts_is_read_as_scikit_learn_reads_it(model: str) -> None:
    vectorizer = CountVectorizer(vocabulary=list(WORDS))
    reference = make_pipeline(vectorizer, MODELS[model]()).fit(MAILS, LABELS)
    frame = pd.DataFrame({"body": MAILS, "class": LABELS})
    ours = NaiveBayes(book(model), class_weight="balanced" if model == "complement" else None).fit(frame)
    np.testing.assert_allclose(ours.predict_proba(frame[["body"]]), reference.predict_proba(MAILS), rtol=1e-12)
    by_matrix = NaiveBayes(book(model)).fit(vectorizer.transform(MAILS), LABELS)
    assert by_matrix.statistics_ == ours.statistics_


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array, sp.lil_array, sp.csr_matrix, np.asarray])
def test_every_form_of_matrix_counts_alike(form: Any) -> None:
    X, y = drawn(40, 7, 2, seed=1, density=0.4)
    labels = np.array(["ham", "spam"])[y]
    made = X.toarray() if form is np.asarray else form(X)
    assert NaiveBayes(book()).fit(made, labels).statistics_ == NaiveBayes(book()).fit(X, labels).statistics_


def test_without_a_codebook_the_error_says_how_to_write_one() -> None:
    X, y = drawn(60, 30, 3, seed=2)
    with pytest.raises(TypeError, match=r"Codebook\('class', labels, \(Text\('words', vectorizer"):
        NaiveBayes().fit(X, y)


@pytest.mark.parametrize("value", [0.5, -1, np.nan, np.inf])
def test_what_is_no_count_is_refused(value: float) -> None:
    X = sp.csr_array(np.array([[0, value, 0, 0, 0, 0, 1.0]]))
    with pytest.raises(DataError, match="must hold counts"):
        NaiveBayes(book()).fit(X, ["ham"])


def test_a_sparse_matrix_beside_other_features_is_refused_in_words() -> None:
    mixed = Codebook("class", ("ham", "spam"), (Text("body", WORDS), Categorical("from", ("in", "out"))))
    with pytest.raises(TypeError, match="the one feature, of kind text"):
        NaiveBayes(mixed).fit(sp.csr_array((2, 7), dtype=int), ["ham", "spam"])


def test_no_dense_copy_is_made() -> None:
    X, y = drawn(2000, 50_000, 2, seed=3, density=5e-4)
    codebook = Codebook("class", ("0", "1"), (Text("body", buckets=50_000),))
    model = NaiveBayes(codebook).fit(X[:10], y[:10])
    tracemalloc.start()
    model.fit(X, y)
    model.predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6  # dense: 800 MB


def test_batches_and_weights_are_exact() -> None:
    X, y = drawn(90, 7, 2, seed=4, density=0.4)
    labels = np.array(["ham", "spam"])[y]
    whole = NaiveBayes(book()).fit(X, labels)
    parts = NaiveBayes(book())
    for start in (0, 30, 60):
        parts.partial_fit(X[start : start + 30], labels[start : start + 30])
    assert parts.statistics_ == whole.statistics_
    twice = NaiveBayes(book()).fit(sp.vstack([X, X]), np.concatenate([labels, labels]))
    assert NaiveBayes(book()).fit(X, labels, sample_weight=np.full(90, 2)).statistics_ == twice.statistics_
    huge = NaiveBayes(Codebook("class", ("ham", "spam"), (Text("body", WORDS),), max_rows=2**48))
    heavy = huge.fit(X, labels, sample_weight=np.full(90, 2**31)).statistics_
    assert (heavy.bags["body"] == whole.statistics_.bags["body"].astype(object) * 2**31).all()


def test_every_source_counts_alike(tmp_path: Path) -> None:
    codebook = Codebook(
        "class",
        ("ham", "spam"),
        (Text("body", WORDS, optional=True), Text("title", buckets=16, model="bernoulli", optional=True), Numeric("n", 0, 9)),
    )
    titles = ["Free", None, "meeting", "", "Free win", "café"]
    frame = pd.DataFrame({"body": [*MAILS[:-1], None], "title": titles, "n": range(6), "class": LABELS})
    frame.to_csv(tmp_path / "mail.csv", index=False)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, tmp_path / "mail.parquet")
    with duckdb.connect(str(tmp_path / "mail.duckdb")) as connection:
        connection.register("rows", table)
        connection.execute("CREATE TABLE mail AS SELECT * FROM rows")
    expected = NaiveBayes(codebook).fit(frame).statistics_
    assert expected.documents("title").tolist() == [3, 1]
    import ibis

    there = ibis.duckdb.connect()
    sources = [table, tmp_path / "mail.csv", tmp_path / "mail.parquet", f"duckdb://{tmp_path / 'mail.duckdb'}#mail"]
    for source in [*sources, there.create_table("mail", table)]:
        assert NaiveBayes(codebook).fit(source).statistics_ == expected
    there.disconnect()


def test_a_missing_document_is_an_error_unless_it_is_optional() -> None:
    frame = pd.DataFrame({"body": ["free", None], "class": ["spam", "ham"]})
    with pytest.raises(DataError, match="1 row is missing, and the feature is not optional"):
        NaiveBayes(book()).fit(frame)
    model = NaiveBayes(book("bernoulli", optional=True)).fit(frame)
    assert model.statistics_.documents("body").tolist() == [0, 1]
    missing = model.predict_joint_log_proba(pd.DataFrame({"body": [None]}))
    np.testing.assert_allclose(missing[0], model.class_log_prior_)


def test_words_go_to_the_same_bucket_everywhere() -> None:
    """The rule of `data.words`, by hand: a site in another language can follow it."""
    from hashlib import blake2b

    frame = pd.DataFrame({"body": ["Café café minutes"], "class": ["ham"]})
    statistics = NaiveBayes(Codebook("class", ("ham", "spam"), (Text("body", buckets=1000),))).fit(frame).statistics_
    for word, times in (("café", 2), ("minutes", 1)):
        at = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % 1000
        assert statistics.bags["body"][0, at] == times


@pytest.mark.parametrize("model", MODELS)
def test_a_model_file_keeps_everything(model: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"body": MAILS, "class": LABELS})
    fitted = NaiveBayes(book(model)).fit(frame)
    fitted.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert np.array_equal(again.predict_proba(frame[["body"]]), fitted.predict_proba(frame[["body"]]))
    assert again.statistics_ == fitted.statistics_
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace('"words": {', '"words": {"more": [[1]], ', 1))
    with pytest.raises((ConfigError, DataError)):
        load(tmp_path / "model.json")


def test_text_stands_beside_other_features() -> None:
    frame = pd.DataFrame({"body": MAILS, "from": ["out", "in", "in", "out", "in", "in"], "class": LABELS})
    features = (Categorical("from", ("in", "out")), Text("body", WORDS))
    both = NaiveBayes(Codebook("class", ("ham", "spam"), features)).fit(frame)
    X = frame[["body", "from"]]
    parts = [NaiveBayes(Codebook("class", ("ham", "spam"), (each,))).fit(frame[[each.name, "class"]]) for each in features]
    expected = sum(part.predict_joint_log_proba(X[[each.name]]) for part, each in zip(parts, features, strict=True))
    np.testing.assert_allclose(both.predict_joint_log_proba(X), expected - both.class_log_prior_, rtol=1e-12)
    told = both.explain(X)
    np.testing.assert_allclose(told.terms.sum(axis=1), both.predict_joint_log_proba(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({}, "give either its words or the number of buckets"),
        ({"words": ("a",), "buckets": 3}, "either its words or"),
        ({"words": ("a", "a")}, "occurs twice"),
        ({"buckets": 0}, "buckets must be"),
        ({"words": ("a",), "max_words": 0}, "max_words must be"),
        ({"words": ("a",), "model": "poisson"}, "model must be multinomial, bernoulli or complement"),
    ],
)
def test_what_makes_no_text_is_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        Text("body", **fields)


def test_a_codebook_of_many_words_is_written_and_read(tmp_path: Path) -> None:
    codebook = book(words=[f"word{at}" for at in range(5000)], max_words=200)
    codebook.to_toml(tmp_path / "codebook.toml")
    again = Codebook.from_toml(tmp_path / "codebook.toml")
    assert again == codebook
    assert again.sha256 == codebook.sha256


def test_a_data_dictionary_and_a_draft_know_text() -> None:
    rows = [{"name": "body", "kind": "text", "values": "free|win", "max_words": "60"}, {"name": "y", "values": "a|b"}]
    assert Codebook.from_dictionary(rows, "y").features == (Text("body", ("free", "win"), max_words=60),)
    frame = pd.DataFrame({"body": [f"mail {at} of many" for at in range(60)], "kind": ["ham", "spam"] * 30})
    with pytest.raises(DataError, match="kind = 'text' with a public vocabulary"):
        draft_codebook(frame, "kind", max_rows=100)


@pytest.mark.parametrize("model", MODELS)
def test_onnx_scores_a_matrix_of_counts_alike(model: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    fitted = NaiveBayes(book(model)).fit(pd.DataFrame({"body": MAILS, "class": LABELS}))
    counts = CountVectorizer(vocabulary=list(WORDS)).transform(MAILS)
    session = runtime.InferenceSession(to_onnx(fitted.parameters_).SerializeToString())
    labels, shares = session.run(None, {"body": counts.toarray().astype(np.float64)})
    np.testing.assert_allclose(shares, fitted.predict_proba(counts), rtol=1e-9)
    assert labels.tolist() == fitted.predict(counts).tolist()


# -- studies -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_providers_that_share_no_mail_get_the_pooled_model(model: str) -> None:
    frame = pd.DataFrame({"body": MAILS * 20, "class": LABELS * 20})
    result = RowStudy(book(model)).simulate({"a": frame[:40], "b": frame[40:90], "c": frame[90:]})
    assert result.statistics == NaiveBayes(book(model)).fit(frame).statistics_


def test_fifty_thousand_words_cost_eight_bytes_a_cell() -> None:
    X, y = drawn(300, 50_000, 2, seed=6, density=1e-3)
    codebook = Codebook("class", ("0", "1"), (Text("body", buckets=50_000),), max_rows=10**6)
    parts = {name: NaiveBayes(codebook).fit(X[at::3], y[at::3]).statistics_ for at, name in enumerate("abc")}
    result = RowStudy(codebook).simulate(parts)
    assert result.statistics == NaiveBayes(codebook).fit(X, y).statistics_
    sent = max(result.cost.parties[name].sent_bytes for name in "abc")
    assert sent < 1.01 * 8 * (100_000 + 2)


@pytest.mark.parametrize(
    "study",
    [
        {"kind": "columns", "protocol": "noisy_histograms", "epsilon": 1.0},
        {"kind": "join", "key": "id"},
        {"protocol": "private_ratio"},
    ],
)
def test_where_a_row_needs_one_value_text_is_refused_in_plain_words(study: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"'body' is text: a study over .* a document has many words"):
        make_study(book(), **study)
