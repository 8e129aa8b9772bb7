"""Studies whose class holder randomises its labels: the circuit against plain integers, joins, seats, trainings again."""

import math

import numpy as np
import pandas as pd
import pytest

from blindbayes import ColumnStudy, Estimation, JoinStudy, Limits, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Plain
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.noise.randomised_response import RandomisedLabels
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.protocols.private_join.sums import counts as on_counts
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.shared_model import Guard, ScoreLayout
from blindbayes.protocols.shared_training.shared_model.circuit import guarded
from blindbayes.statistics import CodedRows, Layout, count_block
from blindbayes.study.agreement import Agreement, Holdings
from blindbayes.study.tasks.aligned import AlignedTask
from support.plain_model import plain_tables, to_floats
from support.studies import make_columns_study

BOOK = Codebook(
    "risk",
    ("no", "yes"),
    (
        Categorical("plan", ("s", "m", "l")),
        Categorical("smoker", ("0", "1"), optional=True),
        Numeric("age", 0, 99),
        Categorical("job", ("a", "b", "c")),
    ),
    variance_floor=1.0,
)
KEYED = {"key": "id", "kind": "join", "duplicates": "first"}
WAYS = {
    "aligned": (2, {}),
    "aligned three": (3, {}),
    "inner": (2, KEYED),
    "left": (2, {**KEYED, "options": {"join": "left"}}),
    "left three": (3, KEYED),
    "matched": (2, {**KEYED, "options": {"reveal": "matching"}}),
}
SPLITS = {
    (2, "first"): {"bank": ["plan", "risk"], "clinic": ["smoker", "age", "job"]},
    (2, "last"): {"clinic": ["smoker", "age", "job"], "bank": ["plan", "risk"]},
    (3, "first"): {"bank": ["risk"], "clinic": ["smoker", "age"], "shop": ["job", "plan"]},
    (3, "last"): {"shop": ["job"], "clinic": ["smoker", "age"], "bank": ["plan", "risk"]},
}


def frame(rows, seed=1):
    rng = np.random.default_rng(seed)
    risk = rng.random(rows) < 0.4

    def choose(values, yes, no):
        return np.where(risk, rng.choice(values, rows, p=yes), rng.choice(values, rows, p=no))

    return pd.DataFrame(
        {
            "id": [f"p{at}" for at in range(rows)],
            "plan": choose(["s", "m", "l"], [0.6, 0.3, 0.1], [0.1, 0.3, 0.6]),
            "smoker": choose(["0", "1"], [0.3, 0.7], [0.8, 0.2]),
            "age": np.clip(np.rint(rng.normal(np.where(risk, 65, 35), 12)), 0, 99),
            "job": choose(["a", "b", "c"], [0.7, 0.2, 0.1], [0.2, 0.2, 0.6]),
            "risk": np.where(risk, "yes", "no"),
        }
    )


def cut(table, parties, seat="first", key=False):
    return {name: table[(["id"] if key else []) + columns] for name, columns in SPLITS[parties, seat].items()}


# -- the circuit -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize(
    "guard",
    [{}, {"noise_bits": 8}, {"min_cell": 12}, {"noise_bits": 8, "min_cell": 12}],
    ids=["exact", "noise", "least cell", "noise and least cell"],
)
def test_the_circuit_debiases_as_plain_integers_do(classes, guard):
    rng, rows = np.random.default_rng(classes), 100
    law = RandomisedLabels.make(1.5, classes)
    made = Guard(**guard, odds=law.odds)
    sums = rng.integers(-60 if made.noise_bits else 0, rows + 1, (classes, 40))
    raised = [int(value) + (1 << made.noise_bits if made.noise_bits else 0) for value in sums.T.reshape(-1)]
    found = c.from_bits(guarded(Plain(), c.to_bits(raised, made.count_bits(rows)), made, rows, classes))
    kept = np.where(np.minimum(sums, rows) >= made.min_cell, sums, 0) if made.min_cell else sums
    plain = np.clip(made.debiased(kept), 0, rows * made.units)
    assert found == [int(value) for value in plain.T.reshape(-1)]
    assert 0 in found  # some are clamped,
    assert len(set(found)) > 20  # and most are not


@pytest.mark.parametrize("min_cell", [0, 30])
def test_tables_with_randomised_labels_are_those_of_debiased_sums(min_cell):
    """Cells and Gaussian coefficients of the circuit, against plain arithmetic on debiased sums."""
    rows, classes = 400, 3
    features = [Categorical("colour", ("red", "green", "blue"), optional=True), Numeric("age", 0, 100, optional=True)]
    book = Codebook("y", ("a", "b", "c"), tuple(features), variance_floor=1.0)
    law = RandomisedLabels.make(2.0, classes)
    guard = Guard(min_cell=min_cell, odds=law.odds)
    rng = np.random.default_rng(3)
    labels = rng.integers(0, classes, rows)
    coded = {"colour": (labels + rng.integers(0, 2, rows)) % 3, "age": rng.integers(-20, 20, rows) + 5 * labels}
    block = CodedRows(law.draw(labels, Coins.seeded(bytes(32))), coded, rows)
    plan, layout = ScoreLayout(book, rows, 1.0, guard), RowLayout(book.features, rows)
    statistics, encoded = count_block(Layout(book), block), layout.encode(block)
    words = np.stack([encoded[block.labels == k].sum(axis=0, dtype=np.uint64) for k in range(classes)])
    got = to_floats(plain_tables(words, np.array([rows, 0, 0]), layout, plan)[0], plan)
    cells = statistics.counts["colour"]
    cells = np.clip(guard.debiased(np.where(cells >= min_cell, cells, 0)), 0, rows * guard.units).astype(float) / guard.units
    logs = np.log(cells + 1) - np.log(np.minimum(cells.sum(axis=1), rows) + 3)[:, None]
    assert np.allclose(got["colour"][0, 1:], (logs[1:] - logs[:1]).T, atol=2 * plan.error("colour"))
    n, first, second = (guard.debiased(part["age"]) for part in (statistics.n, statistics.sums, statistics.squares))
    mean = [s / m for s, m in zip(first, n, strict=True)]
    variance = [max(1.0, q / m - u * u) for q, m, u in zip(second, n, mean, strict=True)]
    points = np.array([-50, 0, 37])
    chosen = plan.features["age"].choices(points).astype(int)
    found = sum(got["age"][at][chosen[:, at]] for at in range(len(got["age"])))
    scores = np.array(
        [[-((x - u) ** 2) / (2 * v) - math.log(v) / 2 for u, v in zip(mean, variance, strict=True)] for x in points]
    )
    assert np.allclose(found, scores[:, 1:] - scores[:, :1], atol=2 * plan.error("age") + 1e-6)


def test_priors_in_shares_are_those_of_debiased_counts():
    guard, counts = Guard(odds=RandomisedLabels.make(1.0, 2).odds), [700, 300]
    plan = ScoreLayout(BOOK.with_features([Categorical("job", ("a", "b"), optional=True)]), 1000, 1.0, guard)
    bits = plan.guard.count_bits(plan.rows)
    logs = c.from_bits(on_counts.log_counts(Plain(), (c.to_bits(counts, bits), c.to_bits([0, 0], bits)), plan))
    expected = np.log(plan.guard.debiased(np.array(counts)).astype(float))
    assert np.allclose(np.array(logs) / 2**plan.fraction, expected, atol=1e-6)


# -- studies -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seat", ["first", "last"])
@pytest.mark.parametrize("guard", [{"label_epsilon": 2.0}, {"epsilon": 1.0}], ids=["labels alone", "with noise"])
def test_a_model_of_randomised_labels_classifies_almost_as_an_exact_one(way, seat, guard):
    parties, facts = WAYS[way]
    table, fresh = frame(1500), frame(200, seed=2)
    study = make_columns_study(BOOK, **facts, **guard)
    result = study.simulate(cut(table, parties, seat, bool(facts)), coins=Coins.seeded(bytes(32)).derive(way + seat))
    asked = {name: part.drop(columns="risk", errors="ignore") for name, part in cut(fresh, parties, seat).items()}
    assert (result.model.predict(asked) == fresh["risk"].to_numpy()).mean() > 0.88
    assert "label_epsilon = 2" in result.statement
    assert not any(leak.opened for leak in result.leakage.values() if way != "matched")
    assert all(share.sums == {} for share in result.model.shares.values())


@pytest.fixture
def entered(monkeypatch):
    """The labels that class holders entered into class_sums."""
    found, genuine = [], roles.class_sums.class_holder

    def watched(run, other, shape, labels, *rest):
        blocks = list(labels)
        found.append(np.concatenate(blocks))
        return (yield from genuine(run, other, shape, blocks, *rest))

    monkeypatch.setattr(roles.class_sums, "class_holder", watched)
    return found


def test_another_training_enters_the_same_labels_and_so_does_another_study(entered):
    table = frame(800)
    true = (table["risk"] == "yes").to_numpy().astype(int)
    for study in (
        ColumnStudy(BOOK, privacy=Privacy(label_epsilon=1.0)),
        ColumnStudy(BOOK, privacy=Privacy(label_epsilon=1.0), limits=Limits(min_cell=10), estimation=Estimation(alpha=2.0)),
        ColumnStudy(BOOK, privacy=Privacy(epsilon=0.5)),  # twice that, by default
    ):
        study.simulate(cut(table, 3))
    assert len(entered) == 6
    assert all(np.array_equal(each, entered[0]) for each in entered)
    assert 0.2 < (entered[0] != true).mean() < 0.34  # 7 of 26 are turned


def test_a_table_with_another_label_gets_new_coins(entered):
    table, study = frame(800), ColumnStudy(BOOK, privacy=Privacy(label_epsilon=1.0))
    study.simulate(cut(table, 2))
    table.loc[0, "risk"] = {"no": "yes", "yes": "no"}[table.loc[0, "risk"]]
    study.simulate(cut(table, 2))
    assert 0.2 < (entered[0] != entered[1]).mean() < 0.6


def test_what_the_class_holder_keeps_is_counted_from_the_same_labels(entered):
    table = frame(800)
    result = ColumnStudy(BOOK, privacy=Privacy(label_epsilon=1.0)).simulate(cut(table, 2))
    local, guard = result.model.shares["bank"].local, result.model.columns.guard
    assert local["class_counts"] == [int(each) for each in guard.debiased(np.bincount(entered[0], minlength=2))]
    plans = table["plan"].map({"s": 0, "m": 1, "l": 2}).to_numpy()
    raw = np.array([np.bincount(plans[entered[0] == label], minlength=3) for label in range(2)])
    expected = np.clip(guard.debiased(raw), 0, len(table) * guard.units)
    assert local["statistics"]["counts"]["plan"] == [[int(cell) for cell in row] for row in expected]


def test_labels_are_never_counted_before_they_are_randomised():
    from blindbayes.data.columns import open_columns

    study = ColumnStudy(BOOK, privacy=Privacy(label_epsilon=1.0))
    table = cut(frame(100), 2)
    held = Holdings({"bank": ("plan",), "clinic": ("smoker", "age", "job")}, ("bank",), 100)
    task = AlignedTask(Agreement(study, study.sha256, ("bank", "clinic"), ("bank", "clinic"), columns=held))
    with pytest.raises(LocalProtocolError, match="randomised"):
        task.bring("bank", open_columns(table["bank"], BOOK))


def test_by_default_labels_cost_twice_epsilon_and_beyond_what_they_can_protect_nothing():
    assert ColumnStudy(BOOK, privacy=Privacy(epsilon=0.5)).label_budget == 1.0
    assert ColumnStudy(BOOK, privacy=Privacy(epsilon=6.0)).label_budget == 12.0
    assert ColumnStudy(BOOK, privacy=Privacy(epsilon=7.0)).label_budget is None
    assert ColumnStudy(BOOK).label_budget is None
    assert ColumnStudy(BOOK, privacy=Privacy(epsilon=1.0, label_epsilon=False)).label_budget is None
    assert RowStudy(BOOK, privacy=Privacy(epsilon=1.0)).label_budget is None
    hashes = {ColumnStudy(BOOK, privacy=Privacy(epsilon=1.0, label_epsilon=each)).sha256 for each in (None, False, 2.0, 3.0)}
    assert len(hashes) == 4


@pytest.mark.parametrize("wrong", [0, -1.0, 13, True, "2", float("nan")])
def test_a_label_epsilon_that_is_no_budget_is_refused(wrong):
    with pytest.raises((PrivacyError, ConfigError)):
        ColumnStudy(BOOK, privacy=Privacy(label_epsilon=wrong))


def test_label_epsilon_does_not_apply_over_rows_and_asks_for_one_class_holder():
    with pytest.raises(ConfigError, match="label_epsilon"):
        RowStudy(BOOK, privacy=Privacy(label_epsilon=1.0))
    table = frame(200)
    both = {"bank": table[["plan", "risk"]], "clinic": table[["smoker", "age", "job", "risk"]]}
    with pytest.raises(ConfigError, match="one party alone"):
        ColumnStudy(BOOK, privacy=Privacy(label_epsilon=1.0)).simulate(both)
    with pytest.raises(ConfigError, match="one record"):
        JoinStudy(BOOK, key="id", privacy=Privacy(label_epsilon=1.0)).simulate(cut(table, 2, key=True))


# -- the ledger --------------------------------------------------------------------------------------------------------------


def test_a_draw_of_labels_is_charged_once(tmp_path):
    table, paths = frame(500), {name: tmp_path / name for name in SPLITS[2, "first"]}
    for path in paths.values():
        Ledger.create(path, epsilon=1.1)
    study = ColumnStudy(BOOK, privacy=Privacy(label_epsilon=1.0))
    for _ in range(3):
        study.simulate(cut(table, 2), ledgers=paths)
    assert Ledger(paths["bank"]).balance().spent_epsilon == 0.5
    assert Ledger(paths["clinic"]).balance().spent_epsilon == 0
    kinds = [entry.kind for entry in Ledger(paths["bank"]).entries()]
    assert kinds == ["budget", "charge", "repeated", "repeated"]
    table.loc[0, "risk"] = {"no": "yes", "yes": "no"}[table.loc[0, "risk"]]
    study.simulate(cut(table, 2), ledgers=paths)
    assert Ledger(paths["bank"]).balance().spent_epsilon == 1.0
    table.loc[1, "risk"] = {"no": "yes", "yes": "no"}[table.loc[1, "risk"]]
    with pytest.raises(PrivacyError, match="budget exceeded"):
        study.simulate(cut(table, 2), ledgers=paths)


@pytest.mark.parametrize(("labels", "costs"), [(None, [1.0, 2.0]), (False, [1.0, 2.0]), (3.0, [1.5, 2.5])])
def test_noise_is_charged_in_every_training_and_covers_labels_of_twice_as_much(labels, costs, tmp_path):
    path = tmp_path / "bank"
    Ledger.create(path, epsilon=5)
    table, study = frame(500), ColumnStudy(BOOK, privacy=Privacy(epsilon=1.0, label_epsilon=labels))
    for cost in costs:
        study.simulate(cut(table, 2), ledgers={"bank": path})
        assert Ledger(path).balance().spent_epsilon == cost
