"""A reviewer's attacks on what happens before noise: how rows are read, what is raised, what is charged.

Two of them measured epsilon 3.3 and 7.2 at a claimed 1: with `missing = ["?", "0.0"]` a 0 was missing in a column of numbers
and present in one of texts, and a single record with "?" decided which for all rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import beta
from sklearn.model_selection import GridSearchCV, cross_val_score

from blindbayes import ColumnStudy, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table
from blindbayes.data.columns import open_columns
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.noise.knorm_histograms import centred_knorms
from blindbayes.dp.release.forecast import private_forecast
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.naive_bayes.estimator import NaiveBayes
from blindbayes.naive_bayes.private import PrivateNaiveBayes
from blindbayes.study.tasks.sum_plan import Sum
from support.mechanisms import fit_by
from support.studies import make_study

MARKED = Codebook(
    "y",
    ("a", "b"),
    (Categorical("c", ("1", "0"), optional=True), Numeric("x", 0, 10, 1.0, bins=2, optional=True)),
    max_rows=1000,
    missing=("?", "0.0"),
)
ROWS = 100


def rows(more: bool) -> tuple[list[list[Any]], list[str]]:
    """Equal rows, and one record that once changed how they were read."""
    return [[1, 0]] * ROWS + [["?", "?"]] * more, ["a"] * (ROWS + more)


def as_frame(more: bool) -> pd.DataFrame:
    X, y = rows(more)
    columns = {name: pd.Series([row[at] for row in X], dtype=object) for at, name in enumerate(("c", "x"))}
    return pd.DataFrame({**columns, "y": y})


def most_certain_epsilon(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], confidence: float = 0.999) -> float:
    """The largest epsilon that samples of a statistic certify: a threshold from one half, Clopper-Pearson on the other."""
    halves = [np.split(sample, 2) for sample in (first, second)]
    best = 0.0
    for low, high in ((0, 1), (1, 0)):
        for sign in (1, -1):
            train_low, test_low = (sign * half for half in halves[low])
            train_high, test_high = (sign * half for half in halves[high])
            cuts = np.unique(np.concatenate([train_low, train_high]))
            rates = [((train_high >= cut).mean() + 1e-9) / ((train_low >= cut).mean() + 1 / len(train_low)) for cut in cuts]
            cut = cuts[int(np.argmax(rates))]
            hit, miss, size = int((test_high >= cut).sum()), int((test_low >= cut).sum()), len(test_low)
            lower = beta.ppf(1 - confidence, hit, size - hit + 1) if hit else 0.0
            upper = beta.ppf(confidence, miss + 1, size - miss) if miss < size else 1.0
            if lower > 0:
                best = max(best, math.log(lower / upper))
    return best


# -- the two breaks, exactly ------------------------------------------------------------------------------------------------


def test_a_record_of_a_list_does_not_change_how_the_others_are_read() -> None:
    blocks = [PrivateNaiveBayes(MARKED, epsilon=1.0)._private_block(*rows(more), MARKED) for more in (False, True)]
    for name, codes in blocks[0].columns.items():
        assert (blocks[1].columns[name][:ROWS] == codes).all()


def test_a_record_of_a_frame_of_objects_does_not_change_how_a_study_reads_the_others() -> None:
    study = RowStudy(MARKED, privacy=Privacy(epsilon=1.0))
    book = Sum.make(study, ("p", "q", "r")).counting
    moved = [count_table(as_frame(more), book, lenient=True).vector for more in (False, True)]
    assert int(np.abs(moved[1] - moved[0]).sum()) == 1  # the class count; both values are missing


# -- and as the reviewer measured them ------------------------------------------------------------------------------------


def test_fits_of_lists_stay_below_their_epsilon() -> None:
    """Was 3.25: every fit told the two tables apart."""
    samples = []
    for more in (False, True):
        fits = (
            fit_by("discrete_laplace", PrivateNaiveBayes(MARKED, epsilon=1.0, expected_rows=ROWS), *rows(more))
            for _ in range(150)
        )
        samples.append(np.array([model.feature_log_prob_["x"][0, 0] for model in fits]))
    assert most_certain_epsilon(*samples) < 1


def test_shares_of_a_study_of_frames_stay_below_their_epsilon() -> None:
    """Was 7.18, with all three parties' noise in the sum."""
    study = RowStudy(MARKED, privacy=Privacy(epsilon=1.0))
    planned = Sum.make(study, ("p", "q", "r"))
    plan = planned.plan
    assert plan is not None
    coins, samples = Coins.seeded(bytes(32)), []
    for more in (False, True):
        exact = plan.vector(count_table(as_frame(more), plan.codebook, lenient=True))
        drawn = [sum(plan.noise.share(coins.derive(f"{more} {at} {party}")) for party in range(3)) for at in range(400)]
        samples.append(np.array(drawn) + exact)
    weights = samples[1].mean(axis=0) - samples[0].mean(axis=0)
    assert most_certain_epsilon(samples[0] @ np.sign(weights), samples[1] @ np.sign(weights)) < 1


# -- a private fit is a total function --------------------------------------------------------------------------------------

BOOK = Codebook(
    "y",
    ("0", "1"),
    (Categorical("c", ("u", "v")), Numeric("x", 0, 10, 1.0), Numeric("z", 0, 9, 1.0, bins=3)),
    max_rows=1000,
)
HOSTILE: list[Any] = [
    None, float("nan"), float("inf"), -float("inf"), 1e300, "CANARY", "", "99999", True, [1], object(), 10**400, "\ud800", b"x",
]  # fmt: skip


@pytest.mark.parametrize("mechanism", [None, "discrete_laplace"])
@pytest.mark.parametrize("at", range(4))
def test_no_value_of_a_record_is_an_error(at: int, mechanism: str | None) -> None:
    """An outlier raised, free of charge, with its exact number, and advised to widen the bounds."""
    for value in HOSTILE:
        record: list[Any] = ["u", 3, 5, "1"]
        record[at] = value
        X, y = [["u", 1, 2], ["v", 2, 3], record[:3]], ["0", "1", record[3]]
        model = fit_by(mechanism, PrivateNaiveBayes(BOOK, epsilon=1.0), X, y)
        assert model.predict(X[:2]).shape == (2,)


@pytest.mark.parametrize("kind", ["empty", "one class", "all missing", "no label known"])
def test_tables_of_little_fit_like_any_other(kind: str) -> None:
    full = pd.DataFrame({"c": ["u", "v"], "x": [1.0, 2.0], "z": [3.0, 4.0], "y": pd.Series([0, 1], dtype=object)})
    tables = {
        "empty": full[:0],
        "one class": full.assign(y=pd.Series([0, 0], dtype=object)),
        "all missing": full.assign(c=None, x=np.nan, z=np.nan),
        "no label known": full.assign(y=pd.Series(["q", None], dtype=object)),
    }
    models = [PrivateNaiveBayes(BOOK, epsilon=1.0).fit(table) for table in (full, tables[kind])]
    assert {name: type(value) for name, value in vars(models[0]).items()} == {
        name: type(value) for name, value in vars(models[1]).items()
    }
    assert models[0].label_kind_ == models[1].label_kind_
    assert models[0].classes_.dtype == models[1].classes_.dtype
    noisy = ("released", "reasons", "features")  # what the noisy number of rows decides
    facts = [{name: value for name, value in model.privacy_.items() if name not in noisy} for model in models]
    assert facts[0] == facts[1]
    assert set(models[0].privacy_) == set(models[1].privacy_)


@pytest.mark.parametrize("make", [list, lambda y: np.array(y, dtype=object), lambda y: pd.Series(y, dtype=object)])
def test_the_type_of_labels_does_not_tell_an_empty_table_from_one_with_a_record(make: Any) -> None:
    """y = [] gave "real", ["1"] "text"; object arrays "text" and "integer"."""
    rows = [["u", 1, 2]]
    kinds = {
        PrivateNaiveBayes(BOOK, epsilon=1.0).fit(rows[:size], make(y[:size])).label_kind_
        for y in (["1"], [1])
        for size in (0, 1)
    }
    assert kinds == {"integer"}


def test_a_study_counts_what_does_not_fit_without_a_word() -> None:
    study = RowStudy(BOOK, privacy=Privacy(epsilon=2.0))
    good = pd.DataFrame({"c": ["u"] * 5, "x": [1.0] * 5, "z": [1.0] * 5, "y": ["0"] * 5})
    bad = pd.DataFrame({"c": ["CANARY"] * 5, "x": [1e9] * 5, "z": [np.nan] * 5, "y": ["0", "1", None, "q", "0"]})
    result = study.simulate({"p": good, "q": bad, "r": good[:0]}, coins=Coins.seeded(bytes(32)))
    assert "CANARY" not in result.statement


def test_an_unlisted_category_is_what_the_codebook_calls_other() -> None:
    feature = Categorical("c", ("u", "rest"), other="rest")
    book = Codebook("y", ("0", "1"), (feature,), max_rows=10)
    frame = pd.DataFrame({"c": ["u", "CANARY", "rest"], "y": ["0", "0", "1"]})
    for lenient in (False, True):
        assert count_table(frame, book, lenient=lenient).counts["c"].tolist() == [[1, 1], [0, 1]]
    scores = NaiveBayes(book).fit(frame).predict_proba(pd.DataFrame({"c": ["zzz", "rest"]}))
    assert (scores[0] == scores[1]).all()


# -- ledgers, delta, statements ---------------------------------------------------------------------------------------------

COLUMNS = Codebook("y", ("a", "b"), (Categorical("c", ("u", "v")), Categorical("d", ("u", "v"))), max_rows=1000)


def test_a_charge_without_its_unit_cannot_be_made(tmp_path: Path) -> None:
    """A person-level ledger accepted a bare Spend(1) of a record-level release as if it protected persons."""
    ledger = Ledger.create(tmp_path / "ledger", epsilon=2, unit="one person with at most 5 records")
    with pytest.raises(ConfigError, match="whom the release protects"):
        ledger.charge(Spend(Fraction(1)), purpose="histograms")
    with pytest.raises(PrivacyError, match="epsilon 5 "):  # at the price of all five records
        ledger.charge(Spend(Fraction(1)), purpose="histograms", unit="one record")
    with pytest.raises(PrivacyError, match="one unit"):
        ledger.charge(Spend(Fraction(1)), purpose="histograms", unit="one household")
    entry = ledger.charge(Spend(Fraction(1)), purpose="persons", unit="one person with at most 5 records")
    assert entry.fields["unit"] == "one person with at most 5 records"


def test_noisy_histograms_pay_like_the_rest(tmp_path: Path) -> None:
    study = ColumnStudy(COLUMNS, protocol="noisy_histograms", privacy=Privacy(epsilon=1.0))
    frame = pd.DataFrame({"c": ["u", "v"] * 5, "d": ["u", "v"] * 5, "y": ["a", "b"] * 5})
    tables = {"p": frame[["c", "y"]], "q": frame[["d", "y"]]}
    ledgers = {name: Ledger.create(tmp_path / name, epsilon=Fraction(1, 2)).path for name in tables}
    study.simulate(tables, ledgers=ledgers)
    assert [Ledger(path).balance().basic_epsilon for path in ledgers.values()] == [Fraction(1, 2)] * 2
    with pytest.raises(PrivacyError, match="budget exceeded"):
        study.simulate(tables, ledgers=ledgers)
    other = {"p": Ledger.create(tmp_path / "persons", epsilon=1, unit="one person with at most 5 records").path}
    with pytest.raises(PrivacyError, match=r"epsilon 2\.5 "):  # at the price of all five records of a person
        study.simulate(tables, ledgers=other)


@pytest.mark.parametrize(("delta", "rows"), [(0.5, None), (0.01, 1000), (1.1e-6, 10**6), (1.0, None)])
def test_a_delta_that_would_show_a_record_is_refused(delta: float, rows: int | None) -> None:
    """Study(delta=0.5) was accepted, and a central 0.01 with 1000 declared rows."""
    with pytest.raises(PrivacyError, match="delta"):
        RowStudy(BOOK, privacy=Privacy(epsilon=1.0, delta=delta, expected_rows=rows))
    with pytest.raises(PrivacyError, match="delta"):
        PrivateNaiveBayes(BOOK, epsilon=1.0, delta=delta, expected_rows=rows).fit([["u", 1, 2]], ["0"])
    with pytest.raises(PrivacyError, match="delta"):
        private_forecast(BOOK, epsilons=(1.0,), delta=delta, rows=rows)
    RowStudy(BOOK, privacy=Privacy(epsilon=1.0, delta=1e-3, expected_rows=1000, allow_large_delta=True))


def test_a_statement_does_not_assert_what_the_software_cannot_know() -> None:
    """It said that nothing was tuned on the private table, also after a grid search."""
    X, y = [["u", 1, 2]] * 20 + [["v", 3, 4]] * 20, [0] * 20 + [1] * 20
    search = GridSearchCV(PrivateNaiveBayes(BOOK, epsilon=0.5), {"alpha": [0.5, 1.0]}, cv=2).fit(X, y)
    assert search.best_estimator_.statement_.tuning.startswith("Assumed, not checked")
    told = PrivateNaiveBayes(BOOK, epsilon=0.5, tuning_note="bounds from the ministry's tables").fit(X, y).statement_.tuning
    assert told == "Declared by those who hold the tables, not checked: bounds from the ministry's tables"
    assert (
        "Nothing was tuned"
        not in RowStudy(BOOK, privacy=Privacy(epsilon=1.0)).simulate({name: _whole(X, y) for name in "pqr"}).statement
    )


def test_a_study_says_how_settings_were_chosen_and_that_nobody_checked() -> None:
    X, y = [["u", 1, 2]] * 20 + [["v", 3, 4]] * 20, [0] * 20 + [1] * 20
    study = RowStudy(BOOK, privacy=Privacy(epsilon=1.0, tuning_note="bounds from the ministry's tables"))
    told = study.simulate({name: _whole(X, y) for name in "pqr"}).statement
    assert "Declared by those who hold the tables, not checked: bounds from the ministry's tables" in told
    assert (
        RowStudy(BOOK, privacy=Privacy(epsilon=1.0)).sha256
        == RowStudy(BOOK, privacy=Privacy(epsilon=1.0, tuning_note=None)).sha256
        != study.sha256
    )
    columns = ColumnStudy(COLUMNS, protocol="noisy_histograms", privacy=Privacy(epsilon=1.0))
    frame = pd.DataFrame({"c": ["u", "v"] * 5, "d": ["u", "v"] * 5, "y": ["a", "b"] * 5})
    assert "Assumed, not checked" in columns.simulate({"p": frame[["c", "y"]], "q": frame[["d", "y"]]}).statement
    with pytest.raises(PrivacyError, match="tuning_note is about noise"):
        RowStudy(BOOK, privacy=Privacy(tuning_note="nothing"))


def test_every_private_study_says_what_its_promise_rests_on() -> None:
    """Of ratios with noise it was not said that cryptography, and two parties' steps, carry it; of histograms, nothing."""
    X, y = [["u", 1, 2]] * 20 + [["v", 3, 4]] * 20, [0] * 20 + [1] * 20
    ratios = RowStudy(BOOK, protocol="opened_ratio", options={"opening": "noisy", "minimum": 2}, privacy=Privacy(epsilon=1.0))
    told = " ".join(ratios.simulate({name: _whole(X, y) for name in "pqr"}).statement.split())
    assert "is computational" in told
    assert "two computing parties follow the protocol and do not collude" in told
    assert "it does so by its exact number of rows" in told
    columns = ColumnStudy(COLUMNS, protocol="noisy_histograms", privacy=Privacy(epsilon=1.0))
    frame = pd.DataFrame({"c": ["u", "v"] * 5, "d": ["u", "v"] * 5, "y": ["a", "b"] * 5})
    told = columns.simulate({"p": frame[["c", "y"]], "q": frame[["d", "y"]]}).statement
    assert "it does so by its exact number of rows" in told
    assert "no other party, and not the miner, is relied on" in told


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc", None])
def test_scorers_of_scikit_learn_do_not_get_by_the_price_of_a_score(scoring: str | None, tmp_path: Path) -> None:
    """With `scoring="accuracy"` cross-validation showed exact figures of private folds, unpaid."""
    ledger = Ledger.create(tmp_path / "ledger", epsilon=20)
    X, y = [["u", 1, 2]] * 20 + [["v", 3, 4]] * 20, np.array([0] * 20 + [1] * 20)
    model = PrivateNaiveBayes(BOOK, epsilon=0.5, ledger=ledger.path, score_epsilon=0.5)
    if scoring is None:
        assert len(cross_val_score(model, X, y, cv=2)) == 2
        assert ledger.balance().charges == 4
        return
    with pytest.raises(PrivacyError, match="exact score"):
        cross_val_score(model, X, y, cv=2, scoring=scoring, error_score="raise")
    assert model.fit(X, y).predict(X).shape == (40,)  # predictions themselves are what the model is for


SCORED = Codebook(
    "y", ("0", "1"), (Categorical("k", ("0", "1")), Categorical("t", ("true", "false")), Numeric("x", 0, 10, 1.0))
)
BESIDE: dict[str, tuple[list[Any], Any]] = {
    "a label that is text": ([1, True, 1.0], "?"),
    "a label that is none": ([1, True, 1.0], None),
    "a cell that is text": (["?", True, 1.0], 1),
    "no number": ([1, True, "abc"], 1),
    "infinity": ([1, True, math.inf], 1),
}


@pytest.mark.parametrize("case", BESIDE)
def test_a_record_moves_a_paid_score_by_itself_alone_and_is_no_error(case: str, tmp_path: Path) -> None:
    """One label "?" in a list made texts of all labels, so that the score fell from 1 to 0; infinity was an error, unpaid."""
    ledger = Ledger.create(tmp_path / "ledger", epsilon=10_000)
    y = [0, 1] * 100
    X: list[list[Any]] = [[label, bool(label), 5.0] for label in y]
    model = PrivateNaiveBayes(SCORED, epsilon=1000.0, ledger=ledger.path, score_epsilon=1000.0).fit(X, y)
    record, label = BESIDE[case]
    assert model.score(X, y) == 1.0
    assert model.score([*X, record], [*y, label]) == pytest.approx(1.0, abs=1 / 200)
    assert 0 <= model.score([], []) <= 1
    assert ledger.balance().charges == 4


def test_a_score_counts_as_many_rows_of_a_person_as_its_fit(tmp_path: Path) -> None:
    """A person with a hundred rows moved a score by all of them, at the price of one with two."""
    book = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v")),), identifier=IdRecipe((IdPart("who", "exact"),)))
    ledger = Ledger.create(tmp_path / "ledger", epsilon=10_000, unit="one person with at most 2 records")
    people = pd.DataFrame({"k": ["u", "v"] * 50, "y": ["a", "b"] * 50, "who": [str(at) for at in range(100)]})
    wrong = pd.DataFrame({"k": ["u"] * 100, "y": ["b"] * 100, "who": ["one"] * 100})
    model = PrivateNaiveBayes(book, epsilon=1000.0, rows_per_person=2, ledger=ledger.path, score_epsilon=1000.0).fit(people)
    both = pd.concat([people, wrong])
    assert model.score(both.drop(columns="y"), both["y"]) == pytest.approx(100 / 102, abs=1 / 200)


LABELS: dict[str, tuple[Any, Any]] = {
    "pandas, nullable": (pd.Series([0, 1], dtype="Int64"), pd.Series([0, 1, None], dtype="Int64")),
    "pandas, truth values": (pd.Series([True], dtype="boolean"), pd.Series([True, None], dtype="boolean")),
    "pandas, categories": (pd.Series([0, 1], dtype="category"), pd.Series([0, 1, None], dtype="category")),
    "pandas, categories of texts": (pd.Series(["0"], dtype="category"), pd.Series(["0", 5], dtype="category")),
    "polars": (pl.Series([0, 1]), pl.Series([0, 1, None])),
    "polars, large": (pl.Series([2**53 + 1]), pl.Series([2**53 + 1, None])),
}


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize("classes", [("0", "1", str(2**53 + 1)), ("0", "1", "true", "unknown", str(2**53 + 1))])
def test_a_missing_label_changes_neither_the_type_of_labels_nor_other_rows(case: str, classes: tuple[str, ...]) -> None:
    """A gap makes objects, or floats, of whole numbers: `label_kind_`, which stands in the model file, told of it."""
    book = Codebook("y", classes, (Categorical("k", ("u", "v")),))
    kinds, blocks = set(), []
    for y in LABELS[case]:
        for inside in (False, True):
            frame = (pl.DataFrame if isinstance(y, pl.Series) else pd.DataFrame)({"k": ["u"] * len(y), "y": y})
            model = PrivateNaiveBayes(book, epsilon=1.0)
            blocks.append(model._private_block(frame if inside else [["u"]] * len(y), None if inside else y, book).labels)
            kinds.add((inside, model.label_kind_, model.classes_.dtype.kind))
    assert len(kinds) == 2
    assert all(found is not None and found.tolist() == blocks[0].tolist() for found in blocks)  # type: ignore[union-attr]


def test_a_record_of_a_frame_with_numbers_for_names_does_not_change_how_the_others_are_read() -> None:
    """NumPy makes floats of whole numbers beside floats, and objects of both beside a text."""
    large = str(2**53 + 1)
    book = Codebook("y", ("a",), (Categorical("k", (large,)), Numeric("x", 0, 10, bins=2)))
    frames = [pd.DataFrame({0: [2**53 + 1] * 3, 1: [1.0, 2.0, 3.0]}), pd.DataFrame({0: [2**53 + 1] * 3, 1: [1.0, 2.0, "?"]})]
    found = [PrivateNaiveBayes(book, epsilon=1.0)._private_block(frame, ["a"] * 3, book).columns["k"] for frame in frames]
    assert found[0].tolist() == found[1].tolist() == [0, 0, 0]


def test_the_type_of_classes_follows_from_the_array_or_the_codebook() -> None:
    """The objects of a list are facts about its rows: its labels come back as the codebook's classes read."""
    X, y = [["u", 1, 2], ["v", 3, 4]], ["0", "1"]
    for made in (y, np.array(y, dtype=object), pd.Series(y, dtype=object), [0, 1]):
        assert PrivateNaiveBayes(BOOK, epsilon=1.0).fit(X, made).classes_.tolist() == [0, 1]
    assert PrivateNaiveBayes(BOOK, epsilon=1.0).fit(X, np.array(y)).classes_.tolist() == ["0", "1"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kind": "columns"}, "one entity"),
        ({"kind": "join"}, "identifier with all its rows"),
        ({"unit": "party", "party_rows": 10}, "all rows of a party"),
        ({"epsilon": None}, "without epsilon"),
    ],
)
def test_a_bound_on_persons_that_would_do_nothing_is_refused_with_the_reason(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_study(BOOK, **{"epsilon": 1.0, "rows_per_person": 3, **settings})


def _whole(X: list[list[Any]], y: list[int]) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[*BOOK.names]).assign(y=y)


def test_noise_beyond_64_bits_is_refused_by_class_too() -> None:
    with pytest.raises(ConfigError, match="64 bits"):
        centred_knorms(Coins.seeded(bytes(32)), [2, 3], Fraction(1, 1 << 60), 1)


def test_a_study_over_columns_with_noise_counts_what_does_not_fit_without_a_word() -> None:
    """Rows stand beside others' rows and cannot be left out: what is not listed counts as the first class, value or cell."""
    book = Codebook("y", ("a", "b"), (Categorical("c", ("u", "v")), Numeric("x", 0, 9, 1.0, bins=3)), max_rows=100)
    study = ColumnStudy(book, privacy=Privacy(epsilon=1.0))
    hostile: dict[str, list[Any]] = {
        "c": ["u", "CANARY", None, 7] * 3,
        "x": [1, 1e9, np.nan, "CANARY"] * 3,
        "y": ["a", "zz", None, "b"] * 3,
    }
    table = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in hostile.items()})
    study.simulate({"p": table[["x"]], "q": table[["c", "y"]]}, coins=Coins.seeded(bytes(32)))
    held = replace(open_columns(table, book), lenient=True)
    block = next(held.blocks())
    assert block.known_labels.tolist() == [0, 0, 0, 1] * 3
    assert block.columns["x"].tolist() == [0, 2, 0, 0] * 3
