"""Studies over rows: exact models, policy, deltas, noise, the release folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from blindbayes import Codebook, ColumnStudy, Limits, NaiveBayes, Privacy, RowStudy, load
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count, count_table
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import ConfigError, DataError, PeerLost, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Drop, Replace, Vanish
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.feasible import require_feasible
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes.wire.transcript import Keep
from support.reference.messages import VectorShown
from support.studies import make_study
from support.sums import SEED

CODEBOOK = Codebook(
    target="ill",
    classes=("no", "yes"),
    features=(
        Categorical("colour", ("red", "green", "blue")),
        Categorical("smoker", ("no", "yes"), optional=True),
        Numeric("age", 0, 120, 1.0, optional=True),
        Numeric("weight", 40.0, 200.0, 0.5),
        Numeric("pulse", 30, 200, 1.0, bins=5),
    ),
    max_rows=10_000,
)


def people(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 121, rows).astype(object)
    age[rng.random(rows) < 0.1] = None
    smoker = rng.choice(["no", "yes", ""], rows)
    return pd.DataFrame(
        {
            "colour": rng.choice(["red", "green", "blue"], rows),
            "smoker": smoker,
            "age": age,
            "weight": rng.integers(80, 401, rows) / 2,
            "pulse": rng.integers(30, 201, rows),
            "ill": rng.choice(["no", "yes"], rows),
        }
    )


def split(frame: pd.DataFrame, parties: int) -> dict[str, pd.DataFrame]:
    return {f"site{at}": frame.iloc[at::parties] for at in range(parties)}


WHOLE = people(120)
PARTS = split(WHOLE, 4)
TRUTH = count(WHOLE, CODEBOOK)
ROWS_PROTOCOLS = ["reference", "masked_sum", "ring_sum", "chain_sum", "oblivious_sum"]


@pytest.mark.parametrize("protocol", ROWS_PROTOCOLS)
def test_every_protocol_gives_the_pooled_model(protocol: str) -> None:
    result = RowStudy(CODEBOOK, protocol=protocol).simulate(PARTS)
    assert result.statistics == TRUTH
    pooled = NaiveBayes.from_statistics(TRUTH)
    probe = WHOLE.drop(columns="ill")
    assert np.array_equal(result.model.predict_joint_log_proba(probe), pooled.predict_joint_log_proba(probe))
    assert result.included == tuple(PARTS)
    assert result.spent == (0.0, 0.0)
    assert {label for leak in result.leakage.values() for label in leak.opened} <= {"sum", "vectors"}


def test_it_equals_scikit_learn_on_iris(dataset: Callable[[str], Path]) -> None:
    frame = pd.read_csv(dataset("iris"))
    features, target = frame.columns[:-1], frame.columns[-1]
    codebook = Codebook.from_frame(frame, target=target)
    result = RowStudy(codebook).simulate(split(frame, 5))
    oracle = GaussianNB().fit(frame[features].to_numpy(), frame[target])
    assert np.allclose(
        result.model.predict_log_proba(frame[features]),
        oracle.predict_log_proba(frame[features].to_numpy()),
        rtol=1e-10,
        atol=1e-12,
    )


def test_empty_and_one_row_parties_take_part() -> None:
    parts = {"none": WHOLE.iloc[:0], "one": WHOLE.iloc[:1], "rest": WHOLE.iloc[1:]}
    assert RowStudy(CODEBOOK).simulate(parts).statistics == TRUTH


def test_wide_cells_come_out_exact() -> None:
    """Sums of squares beyond 64 bits."""
    codebook = Codebook(target="c", classes=("a", "b"), features=(Numeric("x", -(2.0**45), 2.0**45, 1.0),), max_rows=10**6)
    assert Layout(codebook).is_wide
    values = np.array([2.0**45, -(2.0**45), 2.0**45 - 1, 12345.0, -7.0, 2.0**44])
    frame = pd.DataFrame({"x": values, "c": ["a", "b", "a", "a", "b", "b"]})
    for protocol in ROWS_PROTOCOLS:
        options = {"scheme": "joye_libert"} if protocol == "oblivious_sum" else {}  # its default is for counts
        result = RowStudy(codebook, protocol=protocol, options=options).simulate(split(frame, 3))
        assert result.statistics == count(frame, codebook)
        assert int(result.statistics.squares["x"][0]) == sum(int(value) ** 2 for value in values[[0, 2, 3]])


def test_the_leak_report_lists_what_each_party_got() -> None:
    result = RowStudy(CODEBOOK).simulate(PARTS)
    site = result.leakage["site0"]
    assert site.opened == ("sum",)
    assert {trust for trust, _ in site.received.values()} == {"key", "encrypted", "clear"}
    assert site.received["TotalPublished"] == ("clear", 1)
    server = result.leakage["server"]
    assert server.received["MaskedVectorSent"] == ("masked", 4)
    assert server.received["SharesGiven"] == ("share", 4)
    assert result.cost.rounds == 10
    assert result.cost.parties["site0"].seconds > 0


def test_the_release_folder_holds_the_answers(tmp_path: Path) -> None:
    result = RowStudy(CODEBOOK).simulate(PARTS)
    folder = result.save(tmp_path / "release")
    assert {path.name for path in folder.iterdir()} >= {"cost.json", "leakage.json", "model.json", "statement.md"}
    probe = WHOLE.drop(columns="ill")
    assert np.array_equal(load(folder / "model.json").predict(probe), result.model.predict(probe))
    assert json.loads((folder / "leakage.json").read_text())["parties"]["site1"]["opened"] == ["sum"]
    assert json.loads((folder / "cost.json").read_text())["rounds"] == 10
    statement = (folder / "statement.md").read_text()
    assert CODEBOOK.sha256 in statement
    assert "not differentially private" in statement
    with pytest.raises(ConfigError):
        result.save(folder)


# -- policy ------------------------------------------------------------------------------------------------------------


def test_exact_sums_of_two_parties_are_refused() -> None:
    two = split(WHOLE, 2)
    for protocol in ROWS_PROTOCOLS:
        with pytest.raises(PrivacyError):
            RowStudy(CODEBOOK, protocol=protocol).simulate(two)
        with pytest.raises(PrivacyError, match="reveals to each the other"):
            RowStudy(CODEBOOK, protocol=protocol, limits=Limits(min_parties=2)).simulate(two)
    with pytest.raises(PrivacyError, match="reveals to each the other"):
        RowStudy(CODEBOOK, limits=Limits(quorum=2)).simulate(split(WHOLE, 3))


def test_too_few_parties_or_rows_are_refused() -> None:
    with pytest.raises(PrivacyError, match="at least 5 parties"):
        RowStudy(CODEBOOK, limits=Limits(min_parties=5)).simulate(PARTS)
    with pytest.raises(PrivacyError, match="at least 31 rows"):
        RowStudy(CODEBOOK, limits=Limits(min_rows=31)).simulate(PARTS)
    assert RowStudy(CODEBOOK, limits=Limits(min_rows=30)).simulate(PARTS).included == tuple(PARTS)


@pytest.mark.parametrize(
    "how",
    [
        {"protocol": "class_sums"},
        {"protocol": "none"},
        {"min_parties": 1},
        {"min_rows": -1},
        {"options": {"no_such": 1}},
        {"quorum": 9},
        {"quorum": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make_study(CODEBOOK, **how).simulate(PARTS)


@pytest.mark.parametrize(
    "how", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": float("nan")}, {"epsilon": 1.0, "delta": 1.0}]
)
def test_budgets_that_make_no_sense_are_refused(how: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError):
        make_study(CODEBOOK, **how)


def test_an_inferred_codebook_is_refused_with_epsilon() -> None:
    inferred = Codebook("c", ("a",), (Categorical("x", ("u",)),), provenance="inferred")
    with pytest.raises(PrivacyError, match="inferred"):
        RowStudy(inferred, privacy=Privacy(epsilon=1.0))


def test_a_party_may_not_take_a_role_s_name() -> None:
    with pytest.raises(ConfigError, match="keeps for itself"):
        RowStudy(CODEBOOK).simulate({"server": PARTS["site0"], "b": PARTS["site1"], "c": PARTS["site2"]})


def test_bad_rows_stop_before_anything_is_sent() -> None:
    bad = {**PARTS, "site2": PARTS["site2"].assign(colour="purple")}
    with pytest.raises(DataError, match="colour"):
        RowStudy(CODEBOOK).simulate(bad)


def test_the_hash_depends_on_everything_agreed() -> None:
    studies = [
        RowStudy(CODEBOOK),
        RowStudy(CODEBOOK, protocol="ring_sum"),
        RowStudy(CODEBOOK, privacy=Privacy(epsilon=1.0)),
        RowStudy(CODEBOOK, limits=Limits(quorum=3)),
        RowStudy(CODEBOOK, options={"publish": False}),
        RowStudy(CODEBOOK, limits=Limits(min_rows=1)),
        RowStudy(CODEBOOK.with_features(CODEBOOK.features[:2])),
    ]
    assert len({study.sha256 for study in studies}) == len(studies)
    assert RowStudy(CODEBOOK).sha256 == RowStudy(CODEBOOK).sha256


# -- losses and lies ---------------------------------------------------------------------------------------------------


def test_a_lost_party_is_left_out_down_to_the_quorum() -> None:
    result = RowStudy(CODEBOOK, limits=Limits(quorum=3)).simulate(PARTS, faults=[Vanish("site1", 0)])
    assert result.included == ("site0", "site2", "site3")
    assert result.statistics == count(pd.concat([PARTS[name] for name in result.included]), CODEBOOK)
    with pytest.raises(PeerLost) as caught:
        RowStudy(CODEBOOK, limits=Limits(quorum=3)).simulate(PARTS, faults=[Vanish("site1", 0), Vanish("site2", 3)])
    assert caught.value.party in ("site1", "site2")


def test_a_lost_total_does_not_make_two_truths() -> None:
    dropped = Drop(lambda entry: entry.kind.__name__ == "TotalPublished" and entry.to == "site0")
    with pytest.raises(PeerLost):
        RowStudy(CODEBOOK, limits=Limits(quorum=3)).simulate(PARTS, faults=[dropped])


@pytest.mark.parametrize("place", [0, 3, 9, 14, 17])
def test_a_total_of_no_table_is_refused(place: int) -> None:
    """A polluted vector that fits no table: counts that do not add up, sums out of reach."""

    def pollute(message: Any) -> Any:
        words = message.vector.copy()
        words[place] += np.uint64(2**40)
        return VectorShown(words)

    lie = Replace(lambda entry: entry.sender == "site1", pollute)
    with pytest.raises(PeerProtocolError, match="not that of any table"):
        RowStudy(CODEBOOK, protocol="reference").simulate(PARTS, faults=[lie])


def test_the_rules_of_plausible_statistics() -> None:
    good = TRUTH
    assert require_feasible(good) is good
    require_feasible(Statistics.zero(CODEBOOK))
    layout = good.layout
    for cell, name in enumerate(layout.cells):
        for change in (-(10**9), 10**9):
            vector = good.vector.copy()
            vector[cell] += change
            if name.kind == "class_count" and change > 0:
                continue  # seen at the features that may not be missing: below
            with pytest.raises(DataError):
                require_feasible(Statistics(layout, vector))
    more_rows = good.vector.copy()
    more_rows[0] += 1
    with pytest.raises(DataError, match="colour"):
        require_feasible(Statistics(layout, more_rows))


# -- deltas ------------------------------------------------------------------------------------------------------------


def test_deltas_update_the_model_exactly() -> None:
    first = RowStudy(CODEBOOK).simulate(PARTS)
    more = people(40, seed=1)
    second = RowStudy(CODEBOOK).simulate(split(more, 4), base=first)
    assert second.statistics == count(pd.concat([WHOLE, more]), CODEBOOK)
    assert second.runs == 2
    gone = {"site2": PARTS["site2"].iloc[:5]}
    third = RowStudy(CODEBOOK).simulate({name: frame.iloc[:0] for name, frame in PARTS.items()}, base=second, removed=gone)
    assert third.statistics == second.statistics - count(gone["site2"], CODEBOOK)
    fresh = NaiveBayes.from_statistics(third.statistics)
    probe = WHOLE.drop(columns="ill")
    assert np.array_equal(third.model.predict_joint_log_proba(probe), fresh.predict_joint_log_proba(probe))


def test_deltas_that_do_not_fit_are_refused() -> None:
    first = RowStudy(CODEBOOK).simulate(PARTS)
    other = CODEBOOK.with_features(CODEBOOK.features[:2])
    with pytest.raises(ConfigError, match="another codebook"):
        RowStudy(other).simulate({name: frame[["colour", "smoker", "ill"]] for name, frame in PARTS.items()}, base=first)
    with pytest.raises(ConfigError, match="epsilon"):
        RowStudy(CODEBOOK, privacy=Privacy(epsilon=1.0)).simulate(PARTS, base=first)
    with pytest.raises(ConfigError, match="no party"):
        RowStudy(CODEBOOK).simulate(PARTS, removed={"stranger": WHOLE})
    with pytest.raises(PeerProtocolError):  # more taken back than was ever there
        RowStudy(CODEBOOK).simulate({name: frame.iloc[:0] for name, frame in PARTS.items()}, removed={"site0": WHOLE})


def test_budgets_of_deltas_add_up_and_are_charged_first(tmp_path: Path) -> None:
    study = RowStudy(CODEBOOK, privacy=Privacy(epsilon=0.5))
    ledgers = {name: Ledger.create(tmp_path / name, epsilon=1).path for name in PARTS}
    first = study.simulate(PARTS, ledgers=ledgers)
    second = study.simulate(PARTS, base=first, ledgers=ledgers)
    assert second.spent == (1.0, 0.0)
    assert "epsilon = 1, delta = 0" in second.statement
    for path in ledgers.values():
        assert Ledger(path).balance().left == 0
    with pytest.raises(PrivacyError, match="budget"):
        study.simulate(PARTS, base=second, ledgers=ledgers)


# -- noise -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ROWS_PROTOCOLS)
def test_noise_changes_label_and_result(protocol: str) -> None:
    result = RowStudy(CODEBOOK, protocol=protocol, privacy=Privacy(epsilon=1.0)).simulate(PARTS)
    labels = {label for leak in result.leakage.values() for label in leak.opened}
    assert "noisy_sum" in labels
    assert "sum" not in labels
    assert result.statistics != TRUTH
    assert result.spent == (1.0, 0.0)
    assert np.isfinite(result.model.predict_proba(WHOLE.drop(columns="ill"))).all()


def test_two_parties_may_open_a_noisy_sum() -> None:
    study = RowStudy(CODEBOOK, privacy=Privacy(epsilon=1.0), limits=Limits(min_parties=2))
    planned = Sum.make(study, ("a", "b"))
    noise = planned.noise
    assert noise is not None
    assert noise.honest == 1  # each party's noise alone protects its rows from the other
    assert study.simulate({"a": WHOLE.iloc[:60], "b": WHOLE.iloc[60:]}).included == ("a", "b")


@pytest.mark.parametrize(
    ("parties", "quorum", "gamma", "honest"),
    [(3, 3, 1.0, 2), (6, 5, 2 / 3, 3), (9, 7, 2 / 3, 4), (20, 20, 1.0, 19), (10, 8, 0.9, 7)],
)
def test_noise_counts_on_the_fewest_honest_survivors(parties: int, quorum: int, gamma: float, honest: int) -> None:
    study = RowStudy(CODEBOOK, privacy=Privacy(epsilon=1.0, honest_fraction=gamma), limits=Limits(quorum=quorum))
    planned = Sum.make(study, [f"p{at}" for at in range(parties)])
    assert planned.noise is not None
    assert planned.honest == honest
    assert planned.noise.honest == (1 if isinstance(planned.noise, WholeNoise) else honest)


@pytest.mark.parametrize("rows", [None, 100, 10**6])
def test_the_noise_covers_what_one_row_can_change(rows: int | None) -> None:
    """Every row moves the vector by at most `touched`, cell by cell measured in its bound; and some row by just that."""
    study = RowStudy(CODEBOOK, privacy=Privacy(epsilon=1.0, expected_rows=rows), limits=Limits(min_cell=1))  # noise in shares
    plan = Sum.make(study, tuple(PARTS)).plan
    assert plan is not None
    zero = plan.vector(Statistics.zero(plan.codebook))
    full = people(1).assign(smoker="no", pulse=30)
    reached = []
    for age, weight in [(0, 40.0), (120, 200.0), (60, 120.0), (0, 200.0), (None, 120.0)]:
        moved = plan.vector(count_table(full.assign(age=age, weight=weight), plan.codebook)) - zero
        assert all(abs(int(cell)) <= bound for cell, bound in zip(moved, plan.noise.bounds, strict=True))
        reached.append(sum(Fraction(abs(int(cell)), bound) for cell, bound in zip(moved, plan.noise.bounds, strict=True)))
    assert max(reached) == plan.noise.touched


def test_numbers_on_a_wide_grid_are_released_within_64_bits() -> None:
    codebook = Codebook("c", ("a", "b"), (Numeric("x", 0, 2.0**40, 1.0), Numeric("y", 0, 30_000, 1.0)), max_rows=10**6)
    study = RowStudy(codebook, privacy=Privacy(epsilon=1.0, expected_rows=10**6))
    plan = Sum.make(study, ("a", "b", "c")).plan
    assert plan is not None
    assert plan.bound(3) < 2**63
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {"x": rng.integers(0, 2**40, 3000), "y": rng.integers(0, 30_001, 3000), "c": rng.choice(["a", "b"], 3000)}
    )
    result = study.simulate(split(frame, 3))
    assert np.isfinite(result.model.predict_proba(frame[["x", "y"]])).all()


def test_a_private_study_predicts_almost_as_well_as_an_exact_one(dataset: Callable[[str], Path]) -> None:
    """Car at epsilon 3, 5 parties, 70% of them honest: within 4 points of the exact model, on the mean of 5 runs."""
    frame = pd.read_csv(dataset("car"))
    target = frame.columns[-1]
    codebook = Codebook.from_frame(frame, target=target)
    train, test = frame.iloc[::2], frame.iloc[1::2]
    probe, truth = test.drop(columns=target), test[target]
    exact = RowStudy(codebook).simulate(split(train, 5)).model.score(probe, truth)
    study = RowStudy(codebook, privacy=Privacy(epsilon=3.0, expected_rows=900))
    scores = [
        study.simulate(split(train, 5), coins=Coins.seeded(bytes([at]) * 32)).model.score(probe, truth) for at in range(5)
    ]
    assert np.mean(scores) > exact - 0.04


def test_the_model_of_a_private_study_is_saved_with_its_statement(tmp_path: Path) -> None:
    result = RowStudy(CODEBOOK, privacy=Privacy(epsilon=1.0)).simulate(PARTS)
    folder = result.save(tmp_path / "release")
    again = load(folder / "model.json")
    probe = WHOLE.drop(columns="ill")
    assert np.array_equal(again.predict_joint_log_proba(probe), result.model.predict_joint_log_proba(probe))
    assert again.statement_.epsilon == 1.0
    assert again.statement_.model == "Federated"
    assert "on their own site alone" in (folder / "statement.md").read_text()


def test_the_noise_of_all_parties_is_in_the_sum() -> None:
    """With quorum and honesty at their best, the variance of an opened count is that of the plan (chi-square, alpha 1e-6)."""
    codebook = Codebook("c", ("a",), (Categorical("x", tuple(f"v{at}" for at in range(400))),), max_rows=10**6)
    frame = pd.DataFrame({"x": ["v0"], "c": ["a"]})
    study = RowStudy(codebook, privacy=Privacy(epsilon=1.0, honest_fraction=1.0), limits=Limits(quorum=3))
    result = study.simulate({"a": frame, "b": frame, "c": frame}, coins=Coins.seeded(SEED), keep=Keep.COUNTS)
    noise = Sum.make(study, ("a", "b", "c")).noise
    assert noise is not None
    assert result.total is not None
    drawn = result.total[1:].astype(float)
    deviation = noise.deviation(3)
    assert abs(drawn.mean()) < 4.9 * deviation / np.sqrt(len(drawn))
    assert 0.55 < drawn.var() / deviation**2 < 1.7  # heavy tails: kurtosis of the law included, checked by simulation


def test_rows_only_arguments_are_refused_for_columns() -> None:
    for how in ({"base": object()}, {"removed": {}}, {"faults": [Vanish("a", 0)]}):
        with pytest.raises(ConfigError, match="columns"):
            ColumnStudy(CODEBOOK).simulate(PARTS, **how)


def test_two_runs_on_the_same_coins_share_no_noise() -> None:
    coins = Coins.seeded(SEED)
    study = RowStudy(CODEBOOK, privacy=Privacy(epsilon=1.0))
    one, other = (study.simulate(PARTS, coins=coins) for _ in range(2))
    assert one.total is not None
    assert other.total is not None
    assert not np.array_equal(one.total, other.total)
    again = study.simulate(PARTS, coins=Coins.seeded(SEED))
    assert np.array_equal(one.total, again.total)


@pytest.mark.slow
def test_hundreds_of_parties_with_one_record_each() -> None:
    records = {f"person{at}": count_table(WHOLE.iloc[[at % len(WHOLE)]], CODEBOOK) for at in range(300)}
    lost = [Vanish(f"person{at}", at % 11) for at in range(0, 300, 30)]
    result = RowStudy(CODEBOOK, limits=Limits(quorum=285)).simulate(records, faults=lost, keep=Keep.COUNTS)
    expected = sum((records[name] for name in result.included), Statistics.zero(CODEBOOK))
    assert result.statistics == expected
    assert len(result.included) >= 290
