"""A class holder that edits its own share turns "class" into "value of the other's column" (review of columns, A6); one that
garbles another comparison reads other bits of the scores.

With dummies among the look-ups, and decoys among the comparisons, it is caught before a class comes out, with the probability
that the statement gives, whatever it then opens; whoever follows the protocol is never accused.
"""

import copy
import itertools
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from blindbayes import ColumnStudy, Privacy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling.garbling import Garbler
from blindbayes.errors import ConfigError, DataError, IntegrityError, LocalProtocolError
from blindbayes.protocols.shared_inference import comparing, decoys, references
from blindbayes.protocols.shared_inference import roles as shared_argmax
from blindbayes.study.tasks.audits import caught
from support.plain_model import to_integers
from support.studies import make_columns_study

BOOK = Codebook(
    "risk",
    ("a", "b", "c"),
    (
        Categorical("hiv", ("neg", "pos", "unknown")),
        Categorical("plan", ("s", "m")),
        Categorical("mine", ("0", "1")),
        Numeric("age", 0, 99),
        Categorical("pet", ("cat", "dog", "none")),
    ),
    variance_floor=1.0,
)
TWO = {"bank": ["mine", "risk"], "clinic": ["hiv", "plan", "age", "pet"]}
THREE = {"bank": ["risk"], "clinic": ["hiv", "plan"], "shop": ["age", "pet", "mine"]}


def coins(name):
    return Coins.seeded(bytes(32)).derive(name)


def frame(rows=400, seed=9):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(rows)],
            "hiv": rng.choice(["neg", "pos", "unknown"], rows, p=[0.8, 0.1, 0.1]),
            "plan": rng.choice(["s", "m"], rows),
            "mine": rng.choice(["0", "1"], rows),
            "age": rng.integers(0, 100, rows),
            "pet": rng.choice(["cat", "dog", "none"], rows),
            "risk": rng.choice(["a", "b", "c"], rows),
        }
    )


_TRAINED = {}


def train(split=TWO, rate=0.2, seed="train", epsilon=6.0, **fields):
    """A study's result, afresh; each is trained once."""
    given = repr((split, rate, seed, epsilon, fields))
    if given not in _TRAINED:
        _TRAINED[given] = _train(split, rate, seed, epsilon, **fields)
    return copy.deepcopy(_TRAINED[given])


def _train(split, rate, seed, epsilon, **fields):
    table = frame()
    options = {"audit_rate": rate} if rate else {}
    key = ["id"] if fields.get("kind") == "join" else []
    study = make_columns_study(BOOK, options=options | fields.pop("options", {}), **fields, epsilon=epsilon)
    return study.simulate({name: table[key + held] for name, held in split.items()}, coins=coins(seed))


_asked = itertools.count()


@pytest.fixture(autouse=True)
def same_coins_whichever_test_runs_first(monkeypatch):
    """A deviation is caught with a probability below 1: what passes once must pass in any order."""
    monkeypatch.setitem(globals(), "_asked", itertools.count())


def ask(model, split=TWO, rows=60):
    table = frame(rows, seed=3)
    parts = {name: table[[column for column in held if column != "risk"]] for name, held in split.items()}
    return model.classify(parts, coins=coins(f"ask {next(_asked)}")), table


def edit(model, feature="hiv", victim="clinic", values=None, liar="bank"):
    """The edit of a6_tables.py: the answer becomes the value. `values`: only at these."""
    plan = model.columns.plan
    table = model.shares[liar].tables[victim][feature]
    table.setflags(write=True)
    big = 1 << (plan.bits - 4)
    for value in range(table.shape[1] - 1) if values is None else values:
        for k in (1, 2):
            off = big if value == k else (-big if value == 0 else 0)
            entry = lm.add(table[0, value + 1, k - 1], lm.from_integers([off], plan.limbs)[0])
            table[0, value + 1, k - 1] = lm.cut(entry, plan.bits)


def test_without_audits_the_edit_reads_the_others_column():
    result = train(rate=0)
    edit(result.model)
    found, table = ask(result.model)
    said = pd.Series(found.labels).map({"a": "neg", "b": "pos", "c": "unknown"})
    assert (said.to_numpy() == table["hiv"].to_numpy()).mean() > 0.98


JOINED = {"key": "id", "kind": "join", "duplicates": "first"}
FORMS = {
    "two": (TWO, "clinic", "hiv", {}),
    "other feature": (TWO, "clinic", "pet", {}),
    "three": (THREE, "clinic", "hiv", {}),
    "further holder": (THREE, "shop", "pet", {}),
    "compare_all": (THREE, "shop", "pet", {"options": {"compare_all": True}}),
    "left join": (TWO, "clinic", "hiv", JOINED | {"options": {"join": "left"}}),
    "inner join": (TWO, "clinic", "hiv", JOINED),
    "inner join, the attribute holder edits": (TWO, "bank", "mine", JOINED),
}


OFTEN = [("two", 6.0), ("left join", 6.0), ("two", None), ("further holder", None), ("inner join", None)]
SELDOM = [(form, epsilon) for form in FORMS for epsilon in (6.0, None) if (form, epsilon) not in OFTEN]


@pytest.mark.parametrize(("form", "epsilon"), [*OFTEN, *(pytest.param(*each, marks=pytest.mark.slow) for each in SELDOM)])
def test_the_edit_is_caught_and_honest_parties_are_not_accused(form, epsilon):
    split, victim, feature, fields = FORMS[form]
    liar = "clinic" if victim == "bank" else "bank"
    result = train(split, epsilon=epsilon, **fields)
    assert set(result.leakage[victim].opened) - {"enough_overlap"} == {"audited_classes"}
    honest, _ = ask(result.model, split)
    assert len(honest.labels) == 60
    edit(result.model, feature, victim, liar=liar)
    with pytest.raises(IntegrityError) as found:
        ask(result.model, split)
    assert found.value.party == liar


@pytest.mark.parametrize("reveal_to", ["all", "bank", "clinic"])
def test_without_noise_classes_are_those_of_a_study_without_audits(reveal_to):
    """Decoys and dummies are taken out again, each from its place, whoever learns."""
    audited, plain = (train(rate=rate, epsilon=None, reveal_to=reveal_to) for rate in (0.3, 0))
    assert np.array_equal(ask(audited.model)[0].labels, ask(plain.model)[0].labels)


# -- another comparison ------------------------------------------------------------------------------------------------------


CIRCUITS = {
    "of the evaluator's share alone": lambda g, mine, theirs: (np.zeros_like(mine), theirs),
    "with a bit turned": lambda g, mine, theirs: (mine, np.concatenate([theirs[:-1], g.not_(theirs[-1:])])),
    "of a few bits": lambda g, mine, theirs: (np.concatenate([mine[:8], np.zeros_like(mine[8:])]), theirs),
}


@pytest.mark.parametrize(
    ("how", "split", "reveal_to"),
    [
        ("of the evaluator's share alone", TWO, "all"),
        ("with a bit turned", TWO, "bank"),
        ("of a few bits", TWO, "bank"),
        pytest.param("of a few bits", TWO, "clinic", marks=pytest.mark.slow),
        ("with a bit turned", THREE, "all"),
        pytest.param("with a bit turned", THREE, "bank", marks=pytest.mark.slow),
    ],
    ids=["alone", "a bit", "few bits", "few bits, the other learns", "three", "three, one learns"],
)
def test_a_class_holder_that_garbles_another_comparison_is_caught(how, split, reveal_to, monkeypatch):
    """Only that of the instances: where it knows that dummies alone are compared, it is honest."""
    result, real = train(split, epsilon=None, reveal_to=reveal_to), comparing.circuit

    def garbled(g, mine, theirs, query):
        lies = isinstance(g, Garbler) and query.shared
        return real(g, *(CIRCUITS[how](g, mine, theirs) if lies else (mine, theirs)), query)

    def by_circuit(g, shares, labels, query):
        none = np.zeros(labels.shape, dtype=np.uint64)
        own = none if shares is None else g.own(lm.to_bits(shares, query.plan.bits))
        return garbled(g, own, labels, query)

    monkeypatch.setattr(comparing, "positions", by_circuit)  # kernels take the honest circuit in one call
    with pytest.raises(IntegrityError) as found:
        ask(result.model, split)
    assert found.value.party == "bank"


@pytest.mark.parametrize("reveal_to", ["all", "bank"])
def test_a_class_holder_that_enters_other_shares_than_it_was_left_with_is_caught(reveal_to, monkeypatch):
    """It shifts the comparison's threshold, behind the transfers by which places are chosen."""
    result = train(epsilon=None, reveal_to=reveal_to)
    offered = shared_argmax.offer_places

    def shifted(query, shares, *rest):
        places, kept = yield from offered(query, shares, *rest)
        big = lm.from_integers([1 << (query.plan.bits - 4)], query.plan.limbs)
        return lm.add(places, np.broadcast_to(big, places.shape)), kept

    monkeypatch.setattr(shared_argmax, "offer_places", shifted)
    with pytest.raises(IntegrityError) as found:
        ask(result.model)
    assert found.value.party == "bank"


def test_an_evaluator_that_takes_an_instance_twice_in_place_of_a_decoy_is_caught(monkeypatch):
    result = train(epsilon=None)
    chosen = decoys._choices
    calls = []

    def twice(number, at):
        calls.append(1)
        found = chosen(number, at)
        return np.ones_like(found) if len(calls) == 1 else found

    monkeypatch.setattr(decoys, "_choices", twice)
    monkeypatch.setattr(decoys.Placed, "require", lambda *given: None)
    with pytest.raises(IntegrityError) as found:
        ask(result.model)
    assert found.value.party == "clinic"


@pytest.mark.slow
def test_another_comparison_is_caught_as_often_as_the_statement_says(monkeypatch):
    """One of the eight places of a group is changed, so its class is a coin: the decoy is there with probability 1/9."""
    rate, tries, hits = 0.1, 300, 0
    result = train(rate=rate, epsilon=None)
    offered = shared_argmax.offer_places

    def shifted(query, shares, *rest):
        places, kept = yield from offered(query, shares, *rest)
        places[3] = coins(f"place {next(_asked)}").words(places[3].size).reshape(places[3].shape)
        return places, kept

    monkeypatch.setattr(shared_argmax, "offer_places", shifted)
    for _ in range(tries):
        try:
            ask(result.model, rows=8)
        except IntegrityError:
            hits += 1
    expected = (1 / 9) * (2 / 3)  # a uniform score has each of three classes alike
    assert abs(hits / tries - expected) < 4 * np.sqrt(expected * (1 - expected) / tries)


@pytest.mark.parametrize("bits", [40, 64, 65, 128])
@pytest.mark.parametrize("classes", [2, 4])
def test_made_up_scores_are_what_their_coins_say(bits, classes):
    """References are drawn again from a seed that training left, so the same coins must give the same scores for ever."""
    plan, count = SimpleNamespace(bits=bits, classes=classes, limbs=lm.limbs_for(bits)), 50
    shares, found = decoys.made_up(plan, count, Coins.seeded(bytes(32)))
    raw, values = Coins.seeded(bytes(32)).bytes(18 * count * (classes - 1)), []
    for at in range(0, len(raw), 18):
        size, value = int.from_bytes(raw[at : at + 2], "big") % (bits - 2), int.from_bytes(raw[at + 2 : at + 18], "big")
        values.append((1 << size | (value >> 1) & ((1 << size) - 1)) * (1 if value & 1 else -1))
    assert to_integers(shares.reshape(-1, plan.limbs), bits) == values
    rows = [[0, *values[at : at + classes - 1]] for at in range(0, len(values), classes - 1)]
    assert found.tolist() == [row.index(max(row)) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("values", [None, [1]], ids=["at every value", "at one value"])
@pytest.mark.parametrize("epsilon", [6.0, None])
def test_an_edit_is_caught_as_often_as_the_statement_says(values, epsilon):
    """Batches of 8 instances at a rate of 10%: one decoy, any of the references, among 9 places."""
    rate, tries, hits = 0.1, 150, 0
    result = train(rate=rate, epsilon=epsilon)
    share = result.model.shares["clinic"]
    kept = references.restore(share.references["bank"], result.model.columns.plan, share.tables["bank"], TWO["clinic"])
    edit(result.model, values=values)
    for _ in range(tries):
        try:
            ask(result.model, rows=8)
        except IntegrityError:
            hits += 1
    value = kept.columns["hiv"]
    touched = value >= 0 if values is None else np.isin(value, values)
    expected = (touched & (kept.classes != value)).mean()  # every instance is answered falsely: the class becomes the value
    assert abs(hits / tries - expected) < 4 * np.sqrt(expected * (1 - expected) / tries) + 2 / 64  # a few scores are larger
    assert expected >= caught(rate, 8, expected)  # the statement promises no more


def test_dummies_are_their_share_and_say_nothing_of_instances():
    """They stand at random places, whatever the instances are."""
    query = train(rate=0.25).model.columns.query(90)
    assert query.dummies == 30
    places, others = decoys.draw_places(query.count, query.dummies, coins("places"))
    assert not np.array_equal(places, decoys.draw_places(query.count, query.dummies, coins("others"))[0])
    assert sorted([*places, *others]) == list(range(120))
    mixed = decoys.among({"hiv": np.full(30, 7)}, places, {"hiv": np.arange(90)}, others)["hiv"]
    assert np.array_equal(mixed[others], np.arange(90))
    assert (mixed[places] == 7).all()


def test_a_share_carries_references_through_its_file(tmp_path):
    result = train()
    result.save(tmp_path / "out")
    loaded = type(result.model).load({name: tmp_path / "out" / f"{name}.share" for name in TWO})
    assert loaded.shares["clinic"].references == result.model.shares["clinic"].references
    assert np.array_equal(ask(loaded)[0].labels, ask(result.model)[0].labels)
    loaded.shares["clinic"].references = {}
    with pytest.raises(LocalProtocolError, match="references that training left"):
        ask(loaded)


def test_audits_need_a_sensible_rate():
    table = frame(60)
    parts = {name: table[held] for name, held in TWO.items()}
    for rate in (0.9, -0.1, "often", True):
        with pytest.raises(ConfigError, match="audit_rate"):
            ColumnStudy(BOOK, options={"audit_rate": rate}, privacy=Privacy(epsilon=6.0)).simulate(parts)


def test_the_statement_says_how_often_a_deviation_is_caught_and_what_is_not():
    for epsilon in (6.0, None):
        words = train(epsilon=epsilon).statement
        assert "no cell of a table is opened" in words
        assert "1 - (1 - 0.2 q)^m" in words
        assert "decoys" in words
        assert "Not audited" in words
        assert "Training opened audited_classes" in words


def test_an_audited_classification_has_as_many_messages_more_as_its_page_says():
    page = (Path(shared_argmax.__file__).parent / "SPEC.md").read_text().split("```toml\n")[2]
    formula = tomllib.loads(page.split("```", 1)[0])["messages"]
    for epsilon in (6.0, None):
        audited, plain = (ask(train(rate=rate, epsilon=epsilon).model)[0].cost.messages for rate in (0.2, 0))
        assert audited - plain == eval(formula)


def test_references_that_are_not_whole_are_refused():
    result = train(epsilon=None)
    result.model.shares["clinic"].references = {"bank": bytes(40)}
    with pytest.raises(DataError, match="reference instances"):
        ask(result.model)


def test_scoring_over_the_hidden_join_is_refused_where_audits_are_asked_for():
    result = train(**JOINED)
    table = frame(30, seed=3)
    parts = {name: table[["id", *(column for column in held if column != "risk")]] for name, held in TWO.items()}
    with pytest.raises(ConfigError, match="asks for audits"):
        result.model.score(parts, to="bank")
