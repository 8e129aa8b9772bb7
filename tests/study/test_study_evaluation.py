"""Evaluation over several sites equals the evaluation of pooled held-out rows, and opens nothing but the sum."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from blindbayes import Categorical, Codebook, ColumnStudy, Estimation, Limits, NaiveBayes, Numeric, Privacy, RowStudy
from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.crypto.coins import Coins
from blindbayes.data.split import Split, split_rows
from blindbayes.disclosure.value import SumForm
from blindbayes.errors import ConfigError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import Total
from blindbayes.statistics.site_figures import SiteCells
from blindbayes.study.simulation.site import MemorySite
from blindbayes.study.tasks.evaluation import evaluation_task
from blindbayes.testing.loopback import open_policy
from blindbayes.wire.transcript import Cost, Keep, Transcript

BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (Categorical("smoker", ("no", "yes"), optional=True), Numeric("age", 0, 120, 1.0), Numeric("pulse", 30, 200, 1.0, bins=5)),
    max_rows=100_000,
    identifier=IdRecipe((IdPart("patient", "exact"),)),
)
STUDY = RowStudy(BOOK, estimation=Estimation(held_out=0.3))


def patients(rows: int, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    ill = generator.random(rows) < 0.3
    return pd.DataFrame(
        {
            "patient": [f"{seed}-{each}" for each in generator.integers(0, rows // 2, rows)],
            "smoker": np.where(generator.random(rows) < np.where(ill, 0.7, 0.3), "yes", "no"),
            "age": np.clip(generator.normal(np.where(ill, 65, 50), 15, rows), 0, 120).astype(int),
            "pulse": np.clip(generator.normal(np.where(ill, 95, 80), 15, rows), 30, 200).astype(int),
            "ill": np.where(ill, "yes", "no"),
        }
    )


TABLES = {name: patients(400 + 100 * at, at) for at, name in enumerate(["north", "south", "west"])}


def part(name: str, *, held_out: bool) -> pd.DataFrame:
    split = Split(0.3, held_out, MemorySite(name).split_key)
    return TABLES[name].iloc[split_rows(TABLES[name], BOOK, split)]


@cache
def parts() -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the sites train and evaluate with."""
    training, held_out = (pd.concat([part(name, held_out=each) for name in TABLES]) for each in (False, True))
    return training, held_out


def features(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[list(BOOK.names)]


@pytest.mark.parametrize(
    "protocol", ["masked_sum", "reference", "ring_sum", "chain_sum", pytest.param("oblivious_sum", marks=pytest.mark.slow)]
)
def test_training_and_evaluation_are_those_of_the_pooled_parts(protocol: str) -> None:
    study = STUDY.replace(protocol=protocol)
    training, held_out = parts()
    trained = study.simulate(TABLES)
    pooled = NaiveBayes(BOOK).fit(features(training), training["ill"])
    assert np.array_equal(
        trained.model.predict_joint_log_proba(features(held_out)), pooled.predict_joint_log_proba(features(held_out))
    )
    evaluated = study.evaluate(trained, TABLES)
    truth, predicted = held_out["ill"].to_numpy(), pooled.predict(features(held_out))
    scores = pooled.predict_proba(features(held_out))[:, 1]
    figures = evaluated.figures
    assert figures["rows"] == len(held_out)
    assert abs(figures["accuracy"] - metrics.accuracy_score(truth, predicted)) < 1e-12
    assert abs(figures["balanced_accuracy"] - metrics.balanced_accuracy_score(truth, predicted)) < 1e-12
    assert abs(figures["classes"]["yes"]["recall"] - metrics.recall_score(truth, predicted, pos_label="yes")) < 1e-12
    assert abs(figures["classes"]["yes"]["precision"] - metrics.precision_score(truth, predicted, pos_label="yes")) < 1e-12
    auc = figures["classes"]["yes"]["auc"]
    assert auc["low"] <= metrics.roc_auc_score(truth == "yes", scores) <= auc["high"]
    assert evaluated.included == tuple(TABLES)


def test_no_person_trains_and_evaluates() -> None:
    training, held_out = parts()
    assert set(training["patient"]).isdisjoint(held_out["patient"])
    assert len(training) + len(held_out) == sum(map(len, TABLES.values()))


def test_another_process_without_seeds_holds_out_the_same_rows() -> None:
    one = STUDY.evaluate(STUDY.simulate(TABLES), TABLES)
    two = STUDY.evaluate(STUDY.simulate(TABLES, coins=Coins.seeded(bytes(32))), TABLES, coins=Coins.seeded(bytes(32)))
    assert one.evaluation == two.evaluation


def test_rows_that_are_taken_back_are_those_that_trained() -> None:
    whole = STUDY.simulate(TABLES)
    less = STUDY.simulate(
        {name: frame.iloc[:0] for name, frame in TABLES.items()}, base=whole, removed={"north": TABLES["north"]}
    )
    others = {name: TABLES[name] for name in ("south", "west")}
    assert less.statistics == STUDY.simulate({**others, "north": TABLES["north"].iloc[:0]}).statistics


def test_only_the_sum_is_opened_and_the_leak_report_says_so() -> None:
    trained = STUDY.simulate(TABLES)
    evaluated = STUDY.evaluate(trained, TABLES)
    assert {label for leak in evaluated.leakage.values() for label in leak.opened} == {"sum"}
    assert any("confusion matrix" in sentence for sentence in evaluated.report.follows)
    assert "confusion matrix and of score bins" in evaluated.statement
    task = evaluation_task(STUDY.task_class.agree_locally(STUDY, {name: MemorySite(name) for name in TABLES}), _fitted(trained))
    disclosure = task.disclosure
    assert disclosure.row_sum is not None
    assert disclosure.row_sum.form is SumForm.EXACT
    assert disclosure.row_sum.quorum_size == len(TABLES)  # never over fewer sites than the training
    assert disclosure.opened == ("sum of the confusion matrix and score bins of held-out rows, by an evaluation",)
    assert STUDY.task_class(task.agreement).disclosure.opened == ("sum", *disclosure.opened)  # approved with the study


def _fitted(result: Any) -> Any:
    return result.model


def test_the_release_has_figures_plot_and_a_section_of_the_model_card(tmp_path: Path) -> None:
    evaluated = STUDY.evaluate(STUDY.simulate(TABLES), TABLES)
    folder = evaluated.save(tmp_path / "evaluation")
    stored = json.loads((folder / "evaluation.json").read_text())
    assert stored["figures"] == evaluated.figures
    assert stored["confusion"] == evaluated.evaluation.confusion.tolist()
    card = (folder / "model_card.md").read_text()
    assert "## How good it is" in card
    assert f"held-out rows: {len(parts()[1])}" in card.replace(",", "")
    assert (folder / "plots/evaluation.svg").read_text().startswith("<svg")
    assert "AUC" in evaluated.table


def test_models_of_any_kind_and_model_files_are_evaluated(tmp_path: Path) -> None:
    trained = STUDY.simulate(TABLES)
    trained.model.save(tmp_path / "model.json")
    first = STUDY.evaluate(tmp_path / "model.json", TABLES).evaluation
    assert first == STUDY.evaluate(trained.model, TABLES).evaluation
    private = STUDY.replace(privacy=Privacy(epsilon=5.0)).simulate(TABLES)
    assert STUDY.evaluate(private, TABLES).figures["rows"] == first.rows
    with pytest.raises(ConfigError, match="fitted model"):
        STUDY.evaluate(object(), TABLES)


def test_what_cannot_be_evaluated_is_refused() -> None:
    trained = STUDY.simulate(TABLES)
    with pytest.raises(ConfigError, match="holds out no rows"):
        RowStudy(BOOK).evaluate(trained, TABLES)
    with pytest.raises(PrivacyError, match="at least 3 parties"):
        STUDY.evaluate(trained, {name: TABLES[name] for name in ("north", "south")})
    other = Codebook("ill", ("no", "yes"), BOOK.features[:2], max_rows=10_000)
    training, _ = parts()
    with pytest.raises(ConfigError, match="other features"):
        STUDY.evaluate(NaiveBayes(other).fit(training[["smoker", "age"]], training["ill"]), TABLES)
    with pytest.raises(ConfigError, match="held_out does not apply"):
        ColumnStudy(BOOK, estimation=Estimation(held_out=0.2))
    with pytest.raises(ConfigError, match="held_out does not apply"):
        RowStudy(BOOK, protocol="private_ratio", estimation=Estimation(held_out=0.2))
    for wrong in (-0.1, 0.6, float("nan"), True):
        with pytest.raises(ConfigError, match="held_out is a fraction"):
            Estimation(held_out=wrong)
    with pytest.raises(ConfigError, match="score_bins"):
        Estimation(score_bins=1)


def test_limits_on_rows_hold_for_the_held_out_part() -> None:
    trained = STUDY.simulate(TABLES)
    few = min(len(part(name, held_out=True)) for name in TABLES) + 1
    with pytest.raises(PrivacyError, match="rows"):
        STUDY.replace(limits=Limits(min_rows=few)).evaluate(trained, TABLES)
    with pytest.raises(PrivacyError, match="rows"):
        STUDY.evaluate(trained, TABLES, policies={"north": open_policy(min_rows=few)})


def test_a_total_that_no_rows_give_names_the_contributors() -> None:
    agreement = STUDY.task_class.agree_locally(STUDY, {name: MemorySite(name) for name in TABLES})
    task = evaluation_task(agreement, _fitted(STUDY.simulate(TABLES))).at(MemorySite("north"), "ab" * 16)
    words = np.zeros(task.setting.length, dtype=np.uint64)
    words[0] = np.uint64(2**64 - 1)  # a count below 0
    totals = {name: Total(words, tuple(TABLES)) for name in task.learners}
    wrong = Outcome(totals, Transcript(Keep.HEADERS), Cost(), {}, None, None, {}, 0)
    with pytest.raises(PeerProtocolError, match="evaluation of no rows"):
        task.result(wrong)


def test_held_out_does_not_change_the_hash_of_agreed_studies() -> None:
    assert RowStudy(BOOK).sha256 == RowStudy(BOOK, estimation=Estimation(held_out=0, score_bins=40)).sha256
    assert RowStudy(BOOK).sha256 != STUDY.sha256


SIX = TABLES | {name: patients(300, 9 + at) for at, name in enumerate(["east", "lakes", "islands"])}


def by_site(detail: str) -> RowStudy:
    return STUDY.replace(estimation=Estimation(held_out=0.3, site_figures=detail))  # type: ignore[arg-type]


@pytest.mark.parametrize("detail", ["spread", "each"])
def test_figures_by_site_are_those_that_each_site_computes_alone(detail: str, tmp_path: Path) -> None:
    study = by_site(detail)
    result = study.evaluate(study.simulate(SIX), SIX)
    own = {}
    for name, frame in SIX.items():
        test = frame.iloc[split_rows(frame, BOOK, Split(0.3, True, MemorySite(name).split_key))]
        predicted = result.model.predict(test[list(BOOK.names)])
        own[name] = round(100 * metrics.accuracy_score(test["ill"], predicted)) / 100
    values = list(own.values())
    assert result.sites.spread["accuracy"] == pytest.approx((np.mean(values), np.std(values)), abs=1e-12)
    assert {name: each["accuracy"] for name, each in result.sites.each.items()} == (own if detail == "each" else {})
    plain = STUDY.evaluate(result.model, SIX)
    assert plain.sites is None
    assert plain.evaluation == result.evaluation
    result.save(tmp_path)
    stored = json.loads((tmp_path / "evaluation.json").read_text())
    assert ("each" in stored["sites"]) == (detail == "each")
    assert "standard deviation" in (tmp_path / "model_card.md").read_text()
    conclusion = "do not depend on which site" if detail == "spread" else "how well the model does at each site"
    assert any(conclusion in line for line in result.report.follows)
    assert conclusion in result.statement
    named = [name for name in SIX if f"{name}: accuracy" in (tmp_path / "evaluation.md").read_text()]
    assert named == (list(SIX) if detail == "each" else [])


def test_figures_by_site_are_refused_unless_study_and_policies_ask_for_them() -> None:
    with pytest.raises(PrivacyError, match="needs 6 sites"):
        by_site("spread").evaluate(STUDY.simulate(TABLES), TABLES)
    model = STUDY.simulate(SIX).model
    for detail, allowed in (("spread", "none"), ("each", "spread")):
        with pytest.raises(PrivacyError, match="figures of single sites"):
            by_site(detail).evaluate(model, SIX, policies={"west": open_policy(min_rows=0, site_figures=allowed)})
    for detail in ("none", "spread"):
        by_site(detail).evaluate(model, SIX, policies={"west": open_policy(min_rows=0, site_figures="spread")})
    with pytest.raises(ConfigError, match="noise would hide"):
        by_site("spread").replace(privacy=Privacy(epsilon=1.0))
    with pytest.raises(ConfigError, match="set held_out"):
        Estimation(site_figures="each")


def test_a_site_that_enters_figures_of_no_site_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    study = by_site("spread")
    model = study.simulate(SIX).model
    cells = SiteCells.cells

    def high(own: SiteCells, site: str, evaluation: Any) -> Any:
        return cells(own, site, evaluation) + (site == "west") * np.array([0, 0, 10_000, 0])

    monkeypatch.setattr(SiteCells, "cells", high)
    with pytest.raises(PeerProtocolError, match="no evaluation"):
        study.evaluate(model, SIX)
