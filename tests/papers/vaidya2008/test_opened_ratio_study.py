"""Studies with protocol="opened_ratio": opened only as the rule of the minimum class size allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, Limits, NaiveBayes, Privacy, Result, RowStudy, load
from blindbayes.codebook import Categorical, Numeric
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.report.spec import read_spec
from blindbayes.study import Study
from blindbayes_papers.vaidya2008.opened import OpenedNoise, OpenedRatioTask
from blindbayes_papers.vaidya2008.opened_ratio.roles import PrivateRatioSetup, coarse_bits
from support.smokers import ALL, BOOK, POOLED, TABLES, X
from support.two_party import coins

SPEC = read_spec("opened_ratio").table
SMALLEST = int(ALL["ill"].value_counts().min())


def study(epsilon: float | None = None, delta: float = 0.0, **options: Any) -> Study:
    return RowStudy(BOOK, protocol="opened_ratio", options=options, privacy=Privacy(epsilon=epsilon, delta=delta))


def run(tables: Any = TABLES, epsilon: float | None = None, delta: float = 0.0, **options: Any) -> Result:
    result = study(epsilon, delta, **options).simulate(tables, coins=coins("study"))
    assert isinstance(result, Result)
    return result


def opened(result: Result) -> set[tuple[str, ...]]:
    return {leak.opened for leak in result.leakage.values()}


MIXED = Codebook(
    "ill",
    ("no", "yes"),
    (Categorical("smoker", ("no", "yes")), Numeric("age", 0, 99, optional=True)),
    6000,
    variance_floor=0.01,
)
POOLED_MIXED = NaiveBayes(MIXED).fit(X, ALL["ill"])


@pytest.mark.parametrize(
    ("options", "epsilon", "least"),
    [({"opening": "coarse", "minimum": 256}, None, 0.93), ({}, 4.0, 0.9)],
)
def test_gaussian_features_in_every_form(options: dict[str, Any], epsilon: float | None, least: float) -> None:
    result = RowStudy(MIXED, protocol="opened_ratio", options=options, privacy=Privacy(epsilon=epsilon)).simulate(
        TABLES, coins=coins("gauss")
    )
    model = result.model
    found = model.predict(X[:400])
    assert (found == POOLED_MIXED.predict(X[:400])).mean() >= least
    if "minimum" in options:
        term, exact = model.parameters_.terms["age"], POOLED_MIXED.parameters_.terms["age"]
        assert np.abs(term.mean - exact.mean).max() <= 99 / 2**6  # 6 bits of the range
        assert np.abs(np.sqrt(term.variance) - np.sqrt(exact.variance)).max() <= 99 / 2 / 2**6


def test_a_table_above_its_part_of_max_rows_is_refused() -> None:
    """Nobody sees the total, so nobody could see that it overflowed."""
    book = msgspec.structs.replace(BOOK, max_rows=1400)  # 466 rows each, and west has 500
    with pytest.raises(DataError, match="at most max_rows / 3 = 466 rows"):
        RowStudy(book, protocol="opened_ratio", options={"opening": "fine"}).simulate(TABLES)


def test_coarse_opening_takes_its_bits_from_the_public_minimum(tmp_path: Path) -> None:
    """SCIENCE: at most log2(minimum class size) - 2 bits."""
    assert SMALLEST >= 256
    result = run(opening="coarse", minimum=256)
    assert result.facts["bits"] == coarse_bits(256) == 6
    assert opened(result) == {tuple(SPEC["opened"])} == {("minimum_reached", "probabilities")}
    assert result.report.unforeseen == ()
    assert "probabilities at 6 bits" in result.statement
    assert "class of 256 rows" in result.statement
    assert "opens the counts" not in result.statement
    values = result.total
    assert values.max() <= 2**6
    exact = np.exp(POOLED.parameters_.terms["smoker"].log_prob).ravel()
    assert values[2:6].tolist() == np.floor(exact * 2**6).tolist()
    assert (result.model.predict(X) == POOLED.predict(X)).mean() > 0.95
    assert not hasattr(result.model, "statistics_")
    folder = Path(result.save(tmp_path / "release"))
    assert (load(folder / "model.json").predict(X) == result.model.predict(X)).all()
    assert "the probabilities of the model, without the counts behind them" in (folder / "leakage.json").read_text()


def test_finer_than_the_minimum_allows_is_refused_before_anything_is_sent() -> None:
    for options in ({"minimum": 256, "fraction": 7}, {"minimum": 7}, {}):
        with pytest.raises(PrivacyError, match="finer probabilities open the counts"):
            run(opening="coarse", **options)
    assert run(opening="coarse", minimum=8).facts["bits"] == 1
    # The circuit compares with the minimum modulo a power of two: one that wraps round to 0 must not get that far.
    with pytest.raises(ConfigError, match="max_rows"):
        run(opening="coarse", minimum=8192)


@pytest.mark.parametrize("feature", ["smoker", "age"])
def test_a_class_below_the_minimum_opens_nothing_but_that(feature: str) -> None:
    """Where a value may be missing, what has one counts: it is what the probabilities of its values are divided by."""
    least = int(ALL.dropna(subset=[feature])["ill"].value_counts().min())
    assert (least < SMALLEST) == (feature == "age")
    narrow = Codebook("ill", BOOK.classes, tuple(each for each in BOOK.features if each.name == feature), max_rows=5000)
    tables = {name: frame[[feature, "ill"]] for name, frame in TABLES.items()}

    def opened_at(minimum: int) -> Any:
        options = {"opening": "coarse", "minimum": minimum}
        return RowStudy(narrow, protocol="opened_ratio", options=options).simulate(tables, coins=coins("study"))

    assert opened_at(least).total is not None
    with pytest.raises(PrivacyError, match="fewer rows than the study's minimum; nothing was opened"):
        opened_at(least + 1)


def test_fine_opening_must_be_chosen_and_says_that_it_opens_the_counts() -> None:
    result = run(opening="fine", fraction=16)
    assert opened(result) == {tuple(SPEC["opened_fine"])}
    assert "opens the counts" in result.statement
    assert "opens the counts" in " ".join(result.report.follows)
    assert any("counts" in sentence for sentence in result.report.views[0].plain)
    assert result.report.unforeseen == ()


def test_noisy_opening_carries_noise_and_the_rule_of_the_minimum(tmp_path: Path) -> None:
    result = run(epsilon=2.0, opening="noisy", minimum=64)
    assert opened(result) == {tuple(SPEC["opened_noisy"])}
    assert "noisy_probabilities" in result.statement
    assert "epsilon" in result.statement
    assert "opens the counts" not in result.statement
    assert 1.999999 < result.spent[0] <= 2.0
    assert not np.array_equal(result.total, run(opening="fine").total)
    assert (result.model.predict(X) == POOLED.predict(X)).mean() > 0.9
    assert result.model.statement_.epsilon == result.spent[0]
    with pytest.raises(PrivacyError, match="nothing was opened"):
        run(epsilon=2.0, opening="noisy", minimum=4096)
    promise = PrivacyStatement.from_json((Path(result.save(tmp_path / "release")) / "statement.json").read_text())
    assert promise.epsilon == result.spent[0]


def test_every_count_has_the_noise_that_the_statement_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three counts per record (class, smoker, age), two honest shares: polya shares of rate epsilon / 3, 1/2 each. Spread of
    the sum of three shares over 14 cells x 60 runs within six standard errors (alpha = 2e-9); rate epsilon would fail."""
    ratios = PrivateRatioSetup(BOOK, "noisy")
    noise = OpenedNoise.make(study(1.0, opening="noisy"), ratios, 3)
    assert (noise.law.touched, noise.law.honest, noise.law.mechanism) == (3, 2, "polya")
    assert noise.price.unit == "one record"
    seen: list[np.ndarray] = []

    vectors: list[np.ndarray] = []
    genuine = OpenedRatioTask.contribution

    def watched(self: OpenedRatioTask, *given: Any) -> np.ndarray:
        vectors.append(genuine(self, *given))
        return vectors[-1]

    monkeypatch.setattr(OpenedRatioTask, "contribution", watched)
    monkeypatch.setattr("blindbayes.study.simulation.driver.run_in_memory", lambda *_, **__: None)
    for number in range(60):
        vectors.clear()
        with pytest.raises(AttributeError):  # the run itself is left out
            study(1.0, opening="noisy").simulate(TABLES, coins=coins(f"noise {number}"))
        seen.append((sum(vectors) - POOLED.statistics_.words).view(np.int64).astype(float))
    draws = np.concatenate(seen)
    error = np.sqrt((np.mean(draws**4) - draws.var() ** 2) / len(draws))
    assert abs(draws.var() - noise.law.deviation(3) ** 2) < 6 * error
    assert abs(draws.var() - noise.law.deviation(3) ** 2 / 9) > 6 * error


def test_counts_with_noise_above_max_rows_do_not_wrap_round() -> None:
    """All rows have one class and one value: with noise their count may pass max_rows, and must stay a large count."""
    book = Codebook("y", ("a", "b"), (Categorical("v", ("0", "1")),), max_rows=511)
    tables = {name: pd.DataFrame({"v": ["0"] * 170, "y": ["a"] * 170}) for name in "pqr"}
    for number in range(8):
        agreed = RowStudy(book, protocol="opened_ratio", options={"opening": "noisy"}, privacy=Privacy(epsilon=0.5))
        result = agreed.simulate(tables, coins=coins(f"wrap {number}"))
        assert np.exp(result.model.parameters_.log_prior[0]) > 0.8


def test_the_ledger_is_charged_before_anything_is_opened(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "north.ledger", epsilon=1.5)
    agreed = study(1.0, opening="noisy", minimum=4096)
    with pytest.raises(PrivacyError, match="fewer rows than the study's minimum"):
        agreed.simulate(TABLES, ledgers={"north": ledger.path}, coins=coins("l"))  # the bit was opened, and is paid for
    assert ledger.balance().spent_epsilon == 1
    with pytest.raises(PrivacyError, match="budget"):
        agreed.simulate(TABLES, ledgers={"north": ledger.path}, coins=coins("l"))


def test_what_is_refused() -> None:
    with pytest.raises(PrivacyError, match="go together"):
        run(epsilon=1.0, opening="coarse", minimum=64)
    with pytest.raises(ConfigError, match="unknown protocol option 'queries'"):
        run(opening="fine", queries=8)
    with pytest.raises(PrivacyError, match="go together"):
        run(opening="noisy")
    with pytest.raises(ConfigError, match="unknown protocol option 'bits'"):
        run(bits=3)
    with pytest.raises(ConfigError, match="opening is one of"):
        run(opening="open")
    with pytest.raises(ConfigError, match="whole number"):
        run(opening="coarse", minimum="256")
    two = {name: TABLES[name] for name in ("north", "south")}
    with pytest.raises(PrivacyError, match="at least 3 parties"):
        run(two, opening="coarse", minimum=64)
    with pytest.raises(PrivacyError, match="third party"):
        RowStudy(
            BOOK, protocol="opened_ratio", options={"opening": "coarse", "minimum": 64}, limits=Limits(min_parties=2)
        ).simulate(two)
    with pytest.raises(PrivacyError, match="at least 400 rows"):
        RowStudy(BOOK, protocol="opened_ratio", options={"opening": "fine"}, limits=Limits(min_rows=400)).simulate(TABLES)
    with pytest.raises(ConfigError, match="every party"):
        RowStudy(BOOK, protocol="opened_ratio", limits=Limits(quorum=2)).simulate(TABLES)
    with pytest.raises(ConfigError, match="no base"):
        study(opening="fine").simulate(TABLES, base=run(opening="fine"))
