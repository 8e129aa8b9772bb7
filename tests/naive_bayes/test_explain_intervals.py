"""Intervals of a private model: the exact number lies in them as often as they say."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from fractions import Fraction

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from blindbayes import ColumnStudy, Limits, NaiveBayes, Privacy, PrivateNaiveBayes, RowStudy, load
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count
from blindbayes.datasets import hospitals
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.release.intervals import Released, noise_interval
from blindbayes.errors import ConfigError
from blindbayes.naive_bayes.explain import Explanation
from blindbayes.report.dpia import describe_feature
from blindbayes.report.page import model_page
from blindbayes.report.weight_of_evidence import value_names, weights
from blindbayes.statistics import Statistics
from blindbayes.statistics.intervals import NoiseInterval
from blindbayes.statistics.parameters import Histogram, Parameters
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes_papers.zafarani2020.estimator import SmoothNaiveBayes
from support.mechanisms import fit_by

DATA = hospitals(6000)
TABLE = pa.concat_tables(DATA.tables.values())
QUERIES = TABLE.slice(0, 400).drop_columns(["readmitted"])
RELEASES = 40
# An interval of 90% holds the exact number in 90 of 100 releases. Cells of one release are dependent: the share of 40
# releases has a standard error of at most sqrt(.9 * .1 / 40) = 0.047 and, with some 30 weakly dependent cells each, of about
# 0.01. The coins are seeded. Intervals of 68% or of 99% (noise said half or twice as large as it is) lie beyond both ends.
LEAST, MOST = 0.82, 0.96


@pytest.fixture(autouse=True)
def the_same_noise_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = itertools.count(2026)
    monkeypatch.setattr(Coins, "system", lambda: Coins.seeded(next(seeds).to_bytes(32, "big")))


def in_cells(exact: Statistics, parameters: Parameters, edges: dict[str, tuple[int, ...]], alpha: float = 1.0) -> Parameters:
    """The exact model in the cells that were released; within a cell in the private model's proportions, as documented."""
    terms = {}
    for name, own in parameters.terms.items():
        assert isinstance(own, Histogram)
        starts, widths = list(edges[name][:-1]), np.diff(edges[name])
        counts = np.add.reduceat(exact.counts[name].astype(np.float64), starts, axis=1) + alpha
        within = own.log_prob - np.repeat(np.logaddexp.reduceat(own.log_prob, starts, axis=1), widths, axis=1)
        terms[name] = Histogram(np.repeat(np.log(counts / counts.sum(axis=1, keepdims=True)), widths, axis=1) + within)
    rows = exact.class_counts.astype(np.float64)
    return Parameters(parameters.codebook, np.log(rows / rows.sum()), terms)


@functools.cache
def counted(book: str) -> Statistics:
    return count(TABLE, Codebook.from_dict(json.loads(book)))


def truth_of(model: NaiveBayes, interval: NoiseInterval, table: pa.Table | None = None) -> NaiveBayes:
    """The model that the same table gives without noise."""
    statistics = counted(model.codebook_.canonical().decode()) if table is None else count(table, model.codebook_)
    exact = in_cells(statistics, model.parameters_, dict(interval.edges))
    return NaiveBayes(model.codebook_)._restore(model._record())._publish(exact, None)


def held(model: NaiveBayes) -> dict[str, float]:
    """The share of rows, by part, whose exact log-odds lie in the interval; and of the heat map's cells."""
    interval = model._noise_interval()
    assert interval is not None
    explained, truth = model.explain(QUERIES), truth_of(model, interval)
    explained = dataclasses.replace(explained, noise=lambda: interval)  # drawn once
    low, high = ends_of(explained, "yes")
    odds = truth.explain(QUERIES).log_odds("yes")
    odds = np.column_stack([odds, odds.sum(axis=1)])
    inside = ((low <= odds) & (odds <= high)).mean(axis=0)
    shown = weights(model.parameters_, noise_interval=interval)
    exact = {(w.feature, w.value): w.values for w in weights(truth.parameters_, noise_interval=interval)}
    cells = []
    for weight in shown:
        assert weight.low is not None
        assert weight.high is not None
        value = exact[weight.feature, weight.value]
        cells.append(((weight.low <= value) & (value <= weight.high)).mean())
    parts = (each for each in explained.parts if each != "(offset)")
    return {**dict(zip((*parts, "sum"), inside, strict=True)), "heat map": float(np.mean(cells))}


def ends_of(explained: Explanation, label: str, against: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of all parts but the offset, which the exact model does not have: it is exactly 0 there."""
    low, high = explained.interval(label, against)
    assert explained.parts[1] == "(offset)"
    assert not low[:, 1].any()
    assert not high[:, 1].any()
    return np.delete(low, 1, axis=1), np.delete(high, 1, axis=1)


def require_about_ninety(found: list[dict[str, float]]) -> None:
    shares = {part: float(np.mean([each[part] for each in found])) for part in found[0]}
    assert LEAST < np.mean([shares[part] for part in shares]) < MOST, shares
    for part in ("heat map", "sum"):
        assert LEAST - 0.06 < shares[part] <= 1.0, shares
    numeric = float(np.mean([shares[name] for name in ("age", "length_of_stay", "hba1c")]))
    assert LEAST < numeric < MOST, shares


@pytest.mark.parametrize(
    ("mechanism", "delta"),
    [("knorm", 0.0), ("discrete_laplace", 0.0), ("discrete_gaussian", 1e-6), ("centred_gaussian", 1e-6)],
)
def test_ninety_of_a_hundred_exact_numbers_lie_in_the_intervals(mechanism: str, delta: float) -> None:
    found = []
    for _ in range(RELEASES // 2 if mechanism == "knorm" else RELEASES):  # its exact sampler is slow
        found.append(held(fit_by(mechanism, PrivateNaiveBayes(DATA.codebook, epsilon=0.5, delta=delta), TABLE)))
    require_about_ninety(found)


def test_noise_that_parties_add_together_is_told_as_large_as_it_is() -> None:
    study = RowStudy(DATA.codebook, privacy=Privacy(epsilon=1.0, expected_rows=6000))
    require_about_ninety([held(study.simulate(DATA.tables).model) for _ in range(RELEASES)])


def test_histograms_that_parties_release_each_on_its_own_have_intervals_too() -> None:
    """Binned and optional columns at two parties that both know the class: the exact weights, in 60 releases."""
    features = tuple(
        feature if isinstance(feature, Categorical) else msgspec.structs.replace(feature, bins=5)
        for feature in DATA.codebook.features
    )
    book = DATA.codebook.with_features(features)
    study = ColumnStudy(book, protocol="noisy_histograms", privacy=Privacy(epsilon=1.0))
    sides = {
        "ward": TABLE.select(["admission", "age", "readmitted"]),
        "laboratory": TABLE.select(["diagnosis", "discharge", "length_of_stay", "hba1c", "readmitted"]),
    }
    exact = {(w.feature, w.value): w.values for w in weights(NaiveBayes(book).fit(TABLE).parameters_)}
    labels = TABLE["readmitted"].to_pylist()
    odds = np.log(labels.count("yes") / labels.count("no"))
    inside, priors = [], []
    for _ in range(60):
        model = study.simulate(sides).model
        interval = model._noise_interval()
        assert interval is not None
        for weight in weights(model.parameters_, noise_interval=interval):
            value = exact[weight.feature, weight.value]
            inside.append(((weight.low <= value) & (value <= weight.high)).mean())
        low, high = model.explain(QUERIES.slice(0, 1)).interval("yes")
        priors.append(low[0, 0] <= odds <= high[0, 0])
    assert LEAST < np.mean(inside) < MOST
    assert np.mean(priors) > 0.75


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_noise_told_too_small_or_too_large_is_caught_by_the_same_count(factor: float) -> None:
    found = []
    for _ in range(12):
        model = fit_by("discrete_laplace", PrivateNaiveBayes(DATA.codebook, epsilon=0.5), TABLE)
        released = model.privacy_["released"]
        released["epsilon"] = str(Fraction(released["epsilon"]) / Fraction(factor))  # that of the last stage
        found.append(held(model)["heat map"])
    assert not LEAST < np.mean(found) < MOST


def test_intervals_of_weights_are_not_stretched_to_contain_the_weight() -> None:
    """They contain the number without noise. A rule or smoothing may move the number that is shown out of them: at 0.03 a rule
    is the whole model, at 1 one may correct it, at 5 features are weighed."""
    outside = rows_outside = 0
    for epsilon in (0.03, 0.1, 0.3, 1.0, 5.0):
        model = PrivateNaiveBayes(DATA.codebook, epsilon=epsilon, expected_rows=6000).fit(TABLE)
        interval = model._noise_interval()
        assert interval is not None
        for weight in weights(model.parameters_, noise_interval=interval):
            assert weight.low is not None
            assert weight.high is not None
            assert (weight.low <= weight.high).all()
            outside += int(((weight.values < weight.low) | (weight.values > weight.high)).any())
        explanation = model.explain(QUERIES)
        low, high = explanation.interval("yes")
        odds = explanation.log_odds("yes")
        assert (low <= high).all()
        rows_outside += int(((odds < low[:, :-1]) | (odds > high[:, :-1])).sum())
    assert outside > 0
    assert rows_outside > 0


def test_a_number_that_parties_release_together_of_three_classes() -> None:
    generator = np.random.default_rng(5)
    labels = generator.choice(3, 15_000, p=[0.5, 0.3, 0.2])
    number = np.clip(generator.normal(np.array([6000, 9000, 14000])[labels], 3000), 0, 25_000).round()
    kind = np.where(generator.random(15_000) < np.array([0.2, 0.5, 0.7])[labels], "a", "b")
    table = pa.table({"number": number, "kind": kind, "class": np.array(["p", "q", "r"])[labels]})
    features = (Numeric("number", 0, 25_000, 1), Categorical("kind", ("a", "b")))
    book = Codebook("class", ("p", "q", "r"), features, max_rows=10**6)
    query = pa.table({"number": [4000.0, 8000.0, 15000.0], "kind": ["a", "b", None]})
    study = RowStudy(book, privacy=Privacy(epsilon=3.0, expected_rows=15_000))
    inside = []
    for _ in range(30):
        model = study.simulate({name: table.slice(5000 * at, 5000) for at, name in enumerate("abc")}).model
        assert model.privacy_["features"]["number"]["released_as"] == "cells"
        interval = model._noise_interval()
        assert interval is not None
        odds = truth_of(model, interval, table).explain(query).log_odds("r", "p")
        low, high = ends_of(model.explain(query), "r", "p")
        inside.append(((low[:, :-1] <= odds) & (odds <= high[:, :-1])).mean())
    assert LEAST < np.mean(inside) < MOST + 0.02


def test_a_saved_model_gives_the_same_intervals(tmp_path) -> None:
    model = RowStudy(DATA.codebook, privacy=Privacy(epsilon=1.0, expected_rows=6000)).simulate(DATA.tables).model
    model.save(tmp_path / "model.json")
    one, other = (each.explain(QUERIES).interval("yes") for each in (model, load(tmp_path / "model.json")))
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1])
    wide = model.explain(QUERIES).interval("yes", coverage=0.98)
    assert (wide[0] <= one[0]).all()
    assert (wide[1] >= one[1]).all()
    assert (wide[1] > one[1]).any()
    with pytest.raises(ConfigError, match="coverage"):
        model.explain(QUERIES).interval("yes", coverage=90)


def test_an_exact_model_has_no_width_and_an_unknown_noise_no_interval() -> None:
    plain = NaiveBayes(DATA.codebook).fit(TABLE)
    low, high = plain.explain(QUERIES).interval("no", "yes")
    assert np.array_equal(low, high)
    assert plain._noise_interval() is None
    assert weights(plain.parameters_)[0].interval(0) is None
    model = SmoothNaiveBayes(DATA.codebook, epsilon=1.0, mechanism="global").fit(TABLE)
    with pytest.raises(ConfigError, match="does not say how its noise was drawn"):
        model.explain(QUERIES).interval("yes")


def test_features_that_were_not_released_and_counts_that_were_hidden_have_no_end() -> None:
    drowned = fit_by("knorm", PrivateNaiveBayes(DATA.codebook, epsilon=1e-5, expected_rows=6000), TABLE)
    low, high = ends_of(drowned.explain(QUERIES), "yes")
    assert np.isneginf(low[:, 1]).all()
    assert np.isposinf(high[:, 1]).all()
    assert np.isfinite(low[:, 0]).all()
    page = model_page(drowned.parameters_, noise_interval=drowned._noise_interval(), statistics=drowned._record().statistics)
    assert page.count("idden by the noise") == len(DATA.codebook.features)
    hidden = (
        RowStudy(DATA.codebook, privacy=Privacy(epsilon=1.0, expected_rows=6000), limits=Limits(min_cell=300))
        .simulate(DATA.tables)
        .model
    )
    tables = hidden.privacy_["released"]["tables"]
    assert any(value is None for table in tables for row in table for value in row)
    assert all(value is None or value >= 300 for table in tables for row in table for value in row)
    ends = hidden._noise_interval()
    assert ends is not None
    found = [weight for weight in weights(hidden.parameters_, noise_interval=ends) if weight.low is not None]
    assert any(np.isinf(weight.low).any() for weight in found)
    assert any(np.isfinite(weight.low).all() for weight in found)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"cuts": []},
        {"tables": [[[1.0]]]},
        {"epsilon": "0"},
        {"epsilon": "many"},
        {"mechanism": "none"},
        {"sum": {"shares": 0}},
        {"tables": None},
    ],
)
def test_a_record_that_does_not_fit_is_refused(change: dict) -> None:
    model = fit_by("discrete_laplace", PrivateNaiveBayes(DATA.codebook, epsilon=1.0), TABLE)
    record = json.loads(json.dumps({**model.privacy_["released"], **change}))
    with pytest.raises(ConfigError):
        noise_interval({"released": record}, model.parameters_, 1.0)


def test_the_draws_have_the_deviation_that_the_plan_states() -> None:
    """4,000 draws of every cell: a relative error of a standard deviation of Laplace noise of 0.018; four of them allowed."""
    study = RowStudy(DATA.codebook, privacy=Privacy(epsilon=1.0, expected_rows=6000), limits=Limits(min_cell=1))
    result = study.simulate(DATA.tables)
    released = Released.parse(result.model.privacy_["released"], result.model.codebook_)
    assert released.shared_noise is not None  # in shares, since small counts are hidden
    drawn = np.concatenate([part.reshape(-1) for part in released.noise(200)])
    assert len(drawn) > 4000
    assert drawn.std() == pytest.approx(released.shared_noise.deviation(released.shares), rel=0.072)


def test_draws_of_noise_that_every_site_brought_whole_are_as_wide_as_theirs_together() -> None:
    study = RowStudy(DATA.codebook, privacy=Privacy(epsilon=1.0, expected_rows=6000))
    noise = Sum.make(study, tuple(DATA.tables)).noise
    assert isinstance(noise, WholeNoise)
    result = study.simulate(DATA.tables)
    released = Released.parse(result.model.privacy_["released"], result.model.codebook_)
    assert released.shares == len(DATA.tables)
    for drawn, deviation in zip(released.noise(400), noise.deviations(released.shares), strict=True):
        assert drawn.std() == pytest.approx(deviation, rel=0.2)


def test_a_model_by_rule_shows_its_rule_and_says_that_no_counts_stand_behind_it() -> None:
    rng = np.random.default_rng(2)
    number, other = rng.integers(0, 101, 600), rng.integers(0, 101, 600)
    table = pa.table({"number": number, "other": other, "class": np.where(number > 50, "q", "p")})
    book = Codebook("class", ("p", "q"), (Numeric("number", 0, 100), Numeric("other", 0, 100)), max_rows=10**6)
    model = PrivateNaiveBayes(book, epsilon=0.2, expected_rows=600).fit(table)
    interval = model._noise_interval()
    held = model._record().statistics
    shown = {name: weights(model.parameters_, name, interval, held) for name in book.names}
    assert [each.seen for each in shown["number"]] == [True, True]  # one cut
    assert [each.seen for each in shown["other"]] == [False]
    assert shown["number"][0].values[0] > 0 > shown["number"][1].values[0]
    page = model_page(model.parameters_, noise_interval=interval, statistics=held)
    assert page.count("A rule was selected") == 1
    assert page.count('<p class="muted">Hidden by the noise.') == 1


def test_values_are_named_with_the_labels_of_the_dictionary() -> None:
    plaque = Categorical("plaque", ("0", "2", "9"), labels={"0": "none", "2": "heavy"})
    assert value_names(plaque) == ["0 (none)", "2 (heavy)", "9"]
    assert "(0 = none, 2 = heavy, 9)" in describe_feature(msgspec.to_builtins(plaque))
