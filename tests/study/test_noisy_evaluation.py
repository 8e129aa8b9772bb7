"""Evaluation with epsilon: the noise has the planned law, is charged, and the figures come with intervals that hold."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from blindbayes import Codebook, Estimation, Privacy, RowStudy
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.plain import plain_words
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.distributed.noise_shares import PrivacyUnit
from blindbayes.dp.distributed.noisy_evaluation import NoisyEvaluation
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import DataError, PrivacyError
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.study.simulation.site import MemorySite
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes.study.tasks.sums import SumTask
from study.test_study_evaluation import BOOK, STUDY, TABLES

PRIVATE = STUDY.replace(privacy=Privacy(epsilon=2.0))
COARSE = BOOK.with_features((BOOK.features[0], Numeric("age", 0, 120, 1.0, bins=2), Numeric("pulse", 30, 200, 1.0, bins=2)))
THREE = Codebook("y", ("a", "b", "c"), (Categorical("x", ("u", "v")),), max_rows=100_000)


def plan_of(book: Codebook, epsilon: int, models: int = 1, touched: int | None = None) -> NoisyEvaluation:
    made = NoisyEvaluation.make(book, 10, models, epsilon=Fraction(epsilon), delta=0.0, honest=2, unit=PrivacyUnit())
    if touched is None:
        return made
    import dataclasses

    return dataclasses.replace(made, noise=dataclasses.replace(made.noise, touched=touched))


def test_the_run_is_charged_epsilon_and_the_figures_have_intervals(tmp_path: Path) -> None:
    ledgers = {name: tmp_path / f"{name}.jsonl" for name in TABLES}
    for path in ledgers.values():
        Ledger.create(path, epsilon=5)
    trained = PRIVATE.simulate(TABLES, ledgers=ledgers, coins=Coins.seeded(bytes(32)))
    result = PRIVATE.evaluate(trained, TABLES, ledgers=ledgers, coins=Coins.seeded(bytes([1] * 32)))
    assert all(Ledger(path).balance().spent_epsilon == pytest.approx(4.0) for path in ledgers.values())
    exact = STUDY.evaluate(trained, TABLES).evaluation
    low, high = result.figures["noise_intervals"]["accuracy"]
    assert low <= exact.accuracy <= high
    assert low < result.figures["accuracy"] < high
    assert result.evaluation.confusion.tolist() != exact.confusion.tolist()
    assert "One record moves at most 1 cell" in result.statement
    assert "noise" in result.table
    with pytest.raises(PrivacyError):
        PRIVATE.evaluate(trained, TABLES, ledgers=ledgers)


def test_a_malformed_row_is_no_error_where_noise_hides_each_row() -> None:
    frame = TABLES["north"].copy()
    frame["ill"] = frame["ill"].astype(object)
    frame.loc[frame.index[:40], "ill"] = "unheard of"
    trained = PRIVATE.simulate(TABLES)
    assert PRIVATE.evaluate(trained, {**TABLES, "north": frame}).evaluation.rows > 0
    with pytest.raises(DataError):
        STUDY.evaluate(trained, {**TABLES, "north": frame})


@pytest.mark.parametrize("models", [1, 3])
@pytest.mark.parametrize("book", [BOOK, THREE], ids=["two classes", "three"])
def test_the_plan_knows_how_many_cells_a_row_moves(book: Codebook, models: int) -> None:
    planned = plan_of(book, 1, models)
    classes = len(book.classes)
    assert planned.noise.touched == models * (1 if classes == 2 else classes + 1)
    assert len(planned.noise.bounds) == models * Evaluation.size(classes, 10)


def log_ratio(planned: NoisyEvaluation, moved: int) -> float:
    """Return the largest log-ratio of the law of the sum where `moved` cells differ by one, exactly from its table."""
    law = planned.noise.table(planned.noise.honest)
    inner = law[len(law) // 2 - 12 : len(law) // 2 + 13]
    return moved * float(np.abs(np.diff(np.log(inner))).max())


def test_the_noise_of_an_evaluation_loses_no_more_than_epsilon_and_half_of_it_does() -> None:
    """The law of polya shares is known: the audit is exact, and a plan for one touched cell too few is refuted."""
    for book, moved in ((BOOK, 1), (THREE, 4)):
        assert log_ratio(plan_of(book, 1), moved) <= 1.0 + 1e-9
    assert log_ratio(plan_of(THREE, 1, touched=3), 4) > 1.0 + 1e-3  # a row of three classes moves four cells


def test_one_row_moves_as_many_cells_as_the_plan_says() -> None:
    trained = STUDY.simulate(TABLES)
    model = trained.model.parameters_
    from blindbayes.data.split import Reading
    from blindbayes.data.table import evaluate_table

    frame = TABLES["north"]
    whole = evaluate_table(frame, Reading(BOOK), [model], 10)[0].vector
    for row in range(20):
        change = whole - evaluate_table(frame.drop(frame.index[row]), Reading(BOOK), [model], 10)[0].vector
        assert np.abs(change).sum() <= plan_of(BOOK, 1).noise.touched


def covers(planned: NoisyEvaluation, claimed: NoisyEvaluation, least: int = 45, releases: int = 60) -> bool:
    """Whether the claimed noise's interval contains the accuracy in so many releases, with noise of the planned one."""
    generator = np.random.default_rng(5)
    cells = [generator.multinomial(900, generator.dirichlet(np.linspace(k, 3 - k, 10) + 0.3)) for k in (0, 3)]
    truth = Evaluation.from_vector(BOOK.classes, 10, np.concatenate(cells))
    inside = outside = 0
    while inside < least and outside <= releases - least:  # the releases after that change nothing
        release = inside + outside
        coins = Coins.seeded(release.to_bytes(32, "big"))
        noise = sum(planned.noise.share(coins.derive(f"party {party}")) for party in range(2))
        low, high = claimed.open(truth.vector + noise, 2)[0].intervals["accuracy"]  # type: ignore[index]
        is_inside = low <= truth.accuracy <= high
        inside, outside = inside + is_inside, outside + (not is_inside)
    return inside >= least


def test_intervals_contain_the_exact_figure_in_nine_of_ten_releases_and_those_of_less_noise_do_not() -> None:
    """At a true coverage of 0.9, fewer than 45 of 60 has chance 7e-4 (binomial)."""
    half = NoisyEvaluation.make(BOOK, 10, 1, epsilon=Fraction(1, 10), delta=0.0, honest=2, unit=PrivacyUnit())
    narrow = NoisyEvaluation.make(BOOK, 10, 1, epsilon=Fraction(4, 10), delta=0.0, honest=2, unit=PrivacyUnit())
    assert covers(half, half)
    assert not covers(half, narrow)


def test_a_total_far_outside_what_noise_explains_is_refused() -> None:
    planned = plan_of(BOOK, 1)
    total = np.zeros(20, np.int64)
    total[3] = -(10**6)
    with pytest.raises(DataError, match="noise explains"):
        planned.open(total, 2)


def asked_of(study: RowStudy) -> tuple[Sum, list[str]]:
    """What staff read before they approve: the plan of training, and the study's assumptions and plain words."""
    task = study.task_class(study.task_class.agree_locally(study, {name: MemorySite(name) for name in TABLES}))
    assert isinstance(task, SumTask)
    return task.sum, [*task.disclosure.assumptions, *plain_words(task.disclosure).cheating]


@pytest.mark.parametrize("folds", [0, 3])
def test_an_evaluation_after_whole_noise_says_that_it_relies_on_shares_of_others(folds: int) -> None:
    """Training may count on nobody else; the sum of evaluations always has noise in shares, which others have to bring."""
    estimation = Estimation(folds=folds) if folds else STUDY.estimation
    study = PRIVATE.replace(estimation=estimation, privacy=Privacy(epsilon=1.0), codebook=COARSE)
    training, asked = asked_of(study)
    assert isinstance(training.noise, WholeNoise)
    if folds:
        statement = study.cross_validate(TABLES, coins=Coins.seeded(bytes(32))).statement
    else:
        trained = study.simulate(TABLES, coins=Coins.seeded(bytes(32)))
        assert "their own site alone" in trained.statement
        statement = study.evaluate(trained, TABLES, coins=Coins.seeded(bytes(32))).statement
    assert "their own site alone" not in statement
    assert "At least 67% of the parties follow the protocol, add their noise" in statement
    assert any("At least 67% of the parties" in each for each in asked)  # what staff approve holds for every sum
    assert any("at least 67% of the sites" in each for each in asked)
    assert "in evaluations 0.666667 of the sites are relied on" in training.relied_on
    _, asked = asked_of(study.replace(estimation=Estimation()))
    assert not any("67%" in each for each in asked)
