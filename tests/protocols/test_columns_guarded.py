"""Studies over columns with noise in the shares, and with a least cell: aligned and joined, two and three parties."""

import numpy as np
import pandas as pd
import pytest

from blindbayes import ColumnStudy, JoinStudy, Limits, Privacy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import ConfigError, PrivacyError
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


def frame(rows=3000, seed=1):
    rng = np.random.default_rng(seed)
    risk = rng.random(rows) < 0.4
    age = np.clip(np.rint(rng.normal(np.where(risk, 65, 35), 12)), 0, 99)
    smoker = np.where(rng.random(rows) < np.where(risk, 0.7, 0.2), "1", "0").astype(object)
    smoker[rng.random(rows) < 0.1] = None
    plan = np.where(
        risk, rng.choice(["s", "m", "l"], rows, p=[0.6, 0.3, 0.1]), rng.choice(["s", "m", "l"], rows, p=[0.1, 0.3, 0.6])
    )
    job = np.where(
        risk, rng.choice(["a", "b", "c"], rows, p=[0.7, 0.2, 0.1]), rng.choice(["a", "b", "c"], rows, p=[0.2, 0.2, 0.6])
    )
    classes = np.where(risk, "yes", "no")
    return pd.DataFrame(
        {"id": [f"p{i}" for i in range(rows)], "plan": plan, "smoker": smoker, "age": age, "job": job, "risk": classes}
    )


SPLITS = {
    2: {"bank": ["plan", "risk"], "clinic": ["smoker", "age", "job"]},
    3: {"bank": ["risk"], "clinic": ["smoker", "age"], "shop": ["job", "plan"]},
}


def cut(table, parties, key=False):
    return {name: table[(["id"] if key else []) + columns] for name, columns in SPLITS[parties].items()}


def ask(model, table, parties):
    parts = {name: part.drop(columns="risk", errors="ignore") for name, part in cut(table, parties).items()}
    return model.predict(parts)


@pytest.mark.parametrize(
    ("parties", "ways"),
    [
        (2, {}),
        (3, {}),
        (2, {"key": "id", "kind": "join", "duplicates": "reject"}),
        (3, {"key": "id", "kind": "join", "duplicates": "first"}),
        (2, {"key": "id", "kind": "join", "duplicates": "first", "options": {"join": "left"}}),
    ],
    ids=["aligned", "aligned three", "inner", "left three", "left"],
)
@pytest.mark.parametrize("guard", [{"epsilon": 1.0}, {"min_cell": 20}, {"epsilon": 1.0, "min_cell": 20}], ids=str)
def test_a_guarded_model_classifies_almost_as_an_exact_one(parties, ways, guard):
    table, fresh = frame(1200), frame(200, seed=2)
    study = make_columns_study(BOOK, **ways, **guard)
    coins = Coins.seeded(bytes(32)).derive(f"{parties}{ways}{guard}")
    result = study.simulate(cut(table, parties, key=bool(ways)), coins=coins)
    assert all(not leak.opened for leak in result.leakage.values())
    right = (ask(result.model, fresh, parties) == fresh["risk"].to_numpy()).mean()
    assert right > 0.88
    for share in result.model.shares.values():
        assert share.sums == {}  # exact sums are kept by nobody
        assert share.public["guard"]["min_cell"] == guard.get("min_cell", 0)
    assert ("every answer that this model ever gives" in result.statement) == ("epsilon" in guard)
    assert ("It is no differential privacy" in result.statement) == ("min_cell" in guard)
    with pytest.raises(ConfigError, match="nothing to combine"):
        result.model.combine()


def test_the_class_holder_keeps_noisy_counts_only():
    table = frame(1500)
    result = ColumnStudy(BOOK, privacy=Privacy(epsilon=1.0)).simulate(cut(table, 2))
    counts = [each / result.model.columns.guard.units for each in result.model.shares["bank"].local["class_counts"]]
    exact = [int((table["risk"] == label).sum()) for label in BOOK.classes]
    assert counts != exact
    assert np.abs(np.array(counts) - exact).max() < 200
    plans = result.model.shares["bank"].local["statistics"]["counts"]["plan"]
    assert plans != [[int(((table["risk"] == c) & (table["plan"] == v)).sum()) for v in "sml"] for c in BOOK.classes]


def test_both_ledgers_pay_once_and_answers_cost_nothing_more(tmp_path):
    table = frame(1500)
    paths = {name: tmp_path / f"{name}.ledger" for name in SPLITS[2]}
    for path in paths.values():
        Ledger.create(path, epsilon=1.5)
    study = ColumnStudy(BOOK, privacy=Privacy(epsilon=1.0))
    result = study.simulate(cut(table, 2), ledgers=paths)
    for _ in range(3):
        ask(result.model, table[:20], 2)
    for path in paths.values():
        assert Ledger(path).balance().spent_epsilon == 1.0
    with pytest.raises(PrivacyError):
        study.simulate(cut(table, 2), ledgers=paths)
    with pytest.raises(ConfigError, match="no party"):
        study.simulate(cut(table, 2), ledgers={"eve": paths["bank"]})


def test_noise_and_an_estimate_of_the_overlap_are_paid_in_one_entry(tmp_path):
    path = tmp_path / "bank.ledger"
    Ledger.create(path, epsilon=3)
    options = {"overlap_epsilon": 0.5, "join": "left"}
    study = JoinStudy(BOOK, key="id", duplicates="first", options=options, privacy=Privacy(epsilon=1.0))
    study.simulate(cut(frame(600), 3, key=True), ledgers={"bank": path})
    assert Ledger(path).balance().spent_epsilon == 1.0 + 2 * 0.5
    assert sum(entry.kind == "charge" for entry in Ledger(path).entries()) == 1


def test_a_ledger_for_persons_charges_a_release_for_records_once_per_record(tmp_path):
    path = tmp_path / "bank.ledger"
    Ledger.create(path, epsilon=3, unit="one person with at most 9 records")
    with pytest.raises(PrivacyError, match=r"epsilon 9 .* asked, 3 of 3 left"):
        ColumnStudy(BOOK, privacy=Privacy(epsilon=1.0)).simulate(cut(frame(600), 2), ledgers={"bank": path})


def test_a_share_with_noise_survives_its_file(tmp_path):
    table, fresh = frame(800), frame(60, seed=3)
    result = ColumnStudy(BOOK, privacy=Privacy(epsilon=2.0)).simulate(cut(table, 2))
    result.save(tmp_path / "out")
    loaded = type(result.model).load({name: tmp_path / "out" / f"{name}.share" for name in SPLITS[2]})
    assert np.array_equal(ask(loaded, fresh, 2), ask(result.model, fresh, 2))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"unit": "party", "party_rows": 10}, "one record"),
    ],
)
def test_what_noise_in_shares_does_not_take(fields, match):
    with pytest.raises((ConfigError, PrivacyError), match=match):
        make_columns_study(BOOK, **fields, epsilon=1.0).simulate(cut(frame(300), 2))


# -- tables made up to single out one person, with unchanged software ----------------------------------------------------------


def single_out(person, nulls, **guard):
    """The gym's table says something of one person only; it asks one instance. (Attacks a5_nulls and a5b_rare.)"""
    features, rows = 20, 600
    rng = np.random.default_rng(3)
    book = Codebook("hiv", ("neg", "pos"), tuple(Categorical(f"x{i}", ("0", "1"), optional=nulls) for i in range(features)))
    labels = np.where(rng.random(rows) < 0.05, "pos", "neg")
    labels[7] = person
    column = np.full(rows, None if nulls else "0", dtype=object)
    column[7] = "1"
    gym = pd.DataFrame(dict.fromkeys(book.names, column))
    study = make_columns_study(book, **guard, min_rows=100)
    result = study.simulate({"clinic": pd.DataFrame({"hiv": labels}), "gym": gym})
    asked = 20 if nulls else 2
    instance = pd.DataFrame({name: ["1" if at < asked else "0"] for at, name in enumerate(book.names)})
    return result.model.predict({"clinic": pd.DataFrame(index=range(1)), "gym": instance})[0]


def test_exact_counts_tell_one_persons_class_and_a_least_cell_does_not():
    assert [single_out(person, nulls=True) for person in ("neg", "pos")] == ["neg", "pos"]  # the attack works without a guard
    answers = {single_out(person, nulls=True, min_cell=5) for person in ("neg", "pos")}
    assert len(answers) == 1


def test_nobody_passes_a_least_cell_by_writing_one_person_several_times():
    """Where rows of an identifier are joined, four rows of one person filled a counter of four: an answer told the class."""
    tables = {"clinic": pd.DataFrame({"id": ["p1"], "hiv": ["neg"]}), "gym": pd.DataFrame({"id": ["p1"] * 4, "x": ["1"] * 4})}
    book = Codebook("hiv", ("neg", "pos"), (Categorical("x", ("0", "1"), optional=True),))
    with pytest.raises(ConfigError, match="min_cell an identifier stands for one record"):
        JoinStudy(book, key="id", duplicates="join", limits=Limits(min_cell=4)).simulate(tables)


def test_a_least_cell_falls_to_whoever_brings_the_others_as_the_page_says():
    """Four people whose class is known stand beside the one: whether the counter is there tells."""
    rows, least = 400, 5
    book = Codebook("hiv", ("neg", "pos"), tuple(Categorical(f"x{i}", ("0", "1"), optional=True) for i in range(12)))
    answers = []
    for person in ("neg", "pos"):
        labels = np.array(["neg"] * 300 + ["pos"] * 100)
        labels[299] = person
        column = np.full(rows, None, dtype=object)
        column[[299, 396, 397, 398, 399]] = "1"  # four known to be positive, and the target
        gym = pd.DataFrame(dict.fromkeys(book.names, column))
        result = ColumnStudy(book, limits=Limits(min_cell=least)).simulate(
            {"clinic": pd.DataFrame({"hiv": labels}), "gym": gym}
        )
        instance = pd.DataFrame({name: ["1"] for name in book.names})
        answers.append(result.model.predict({"clinic": pd.DataFrame(index=range(1)), "gym": instance})[0])
    assert answers == ["neg", "pos"]
