"""Studies over columns, end to end in memory: equal to pooled training on the papers' data, whoever knows the class."""

import json

import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from blindbayes import Codebook, ColumnStudy, Estimation, NaiveBayes, Privacy
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.data.columns import open_columns
from blindbayes.errors import ConfigError, DataError, PeerProtocolError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.report.spec import read_spec
from blindbayes.study.simulation.models import JointModel
from blindbayes.study.tasks.classify import scoring
from support.oracles import layer_count, near_tie
from support.studies import make_columns_study
from support.two_party import coins


def read(path):
    return pd.read_csv(path, keep_default_na=False)


def floor_of(frame, target):
    """scikit-learn's own smoothing as an absolute floor: 1e-9 of the largest variance."""
    numbers = frame.drop(columns=target).select_dtypes("number")
    return float(1e-9 * numbers.var(ddof=0).max()) if len(numbers.columns) else None


def codebook_of(frame, target, missing=()):
    book = Codebook.from_frame(frame, target=target, missing=missing)
    return msgspec.structs.replace(book, variance_floor=floor_of(frame, target))


def split(frame, target, at):
    """The first `at` features and the class; the others."""
    names = [name for name in frame.columns if name != target]
    return {"hospital": frame[[*names[:at], target]], "insurer": frame[names[at:]]}


def compare(frame, target, parts, *, missing=(), test=None, **options):
    """Train jointly and pooled; every class must be equal outside near ties. Returns (result, disagreements)."""
    book = codebook_of(frame, target, missing)
    joint = make_columns_study(book, **options).simulate(parts, coins=coins("study"))
    names = [name for name in frame.columns if name != target]
    pooled = NaiveBayes(book).fit(frame[names], frame[target].astype(str))
    assert joint.model.combine().statistics_ == pooled.statistics_
    asked = frame if test is None else test
    queries = {party: asked[[name for name in part.columns if name != target]] for party, part in parts.items()}
    got = joint.model.predict(queries)
    expected = pooled.predict(asked[names])
    scores = pooled.predict_joint_log_proba(asked[names])
    wrong = got != expected
    assert not (wrong & ~near_tie(joint.model.columns.plan, scores)).any()
    assert all(leak.opened == () for leak in joint.leakage.values())
    return joint, int(wrong.sum())


def wdbc():
    data = load_breast_cancer(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" ", "_"))
    return frame.assign(diagnosis=np.where(data.target == 1, "benign", "malignant"))


@pytest.mark.parametrize("at", [1, 2, 3])
def test_iris_equals_pooled_training(dataset, at):
    frame = read(dataset("iris"))
    joint, wrong = compare(frame, "class", split(frame, "class", at))
    assert wrong == 0
    assert joint.model.tie_bound < 1e-4


def test_raw_breast_cancer_data_equals_pooled_training():
    frame = wdbc()
    _, wrong = compare(frame, "diagnosis", split(frame, "diagnosis", 15))
    assert wrong == 0


def test_car_equals_pooled_training(dataset):
    frame = read(dataset("car"))
    _, wrong = compare(frame, "class", split(frame, "class", 3))
    assert wrong == 0


def test_mushroom_equals_pooled_training_with_missing_values(dataset):
    frame = read(dataset("mushroom"))
    _, wrong = compare(frame, "class", split(frame, "class", 11), missing=("?",))
    assert wrong == 0


def test_adult_equals_pooled_training(dataset):
    frame = read(dataset("adult"))
    _, wrong = compare(frame, "income", split(frame, "income", 7), missing=("?",), test=frame[::40])
    assert wrong == 0


@pytest.mark.slow
def test_adult_equals_pooled_training_on_every_row(dataset):
    frame = read(dataset("adult"))
    for at in (2, 7, 12):
        _, wrong = compare(frame, "income", split(frame, "income", at), missing=("?",))
        assert wrong == 0


# -- who knows the class -----------------------------------------------------------------------------------------------


def small():
    rng = np.random.default_rng(5)
    label = rng.choice(["a", "b", "c"], 200)
    shift = pd.Series(label).map({"a": 0, "b": 1, "c": 2}).to_numpy()
    return pd.DataFrame(
        {
            "x": np.round(rng.normal(shift, 1), 1),
            "v": np.where(rng.random(200) < 0.6, label, "other"),
            "w": rng.choice(["p", "q"], 200),
            "u": np.round(rng.normal(-shift, 2), 1),
            "y": label,
        }
    )


def test_class_known_to_all_needs_no_shared_statistics():
    frame = small()
    parts = {"one": frame[["x", "v", "y"]], "two": frame[["w", "u", "y"]]}
    joint, wrong = compare(frame, "y", parts)
    assert wrong == 0
    assert all(not share.tables and not share.sums for share in joint.model.shares.values())


def test_class_held_by_one_who_has_no_attribute():
    frame = small()
    _, wrong = compare(frame, "y", {"registry": frame[["y"]], "clinic": frame[["x", "v", "w", "u"]]})
    assert wrong == 0


def test_class_held_by_some():
    frame = small()
    parts = {"one": frame[["x"]], "two": frame[["v", "y"]], "three": frame[["w", "u", "y"]]}
    joint, wrong = compare(frame, "y", parts)
    assert wrong == 0
    assert joint.model.columns.class_holder == "two"
    assert set(joint.model.shares["two"].tables) == {"one"}
    assert "together can see" in joint.statement


def test_three_attribute_holders():
    frame = small()
    parts = {"c": frame[["y"]], "d": frame[["x", "v"]], "e": frame[["w"]], "f": frame[["u"]]}
    _, wrong = compare(frame, "y", parts)
    assert wrong == 0


def setup_of(joint, asked, **options):
    """The cost of the transfers that a classification sets up first."""
    parts = {
        name: scoring(share, open_columns(asked[name], joint.model.columns.codebook), **options)
        for name, share in joint.model.shares.items()
    }
    runs = local_runs(tuple(parts), study="s", run_id="00" * 16, coins=coins("runs"))
    return run_in_memory({name: part._connect(runs[name], coins(name)) for name, part in parts.items()}).cost


@pytest.mark.parametrize("holders", [1, 2, 3])
def test_what_comparing_together_costs_is_as_the_spec_says(holders):
    frame = small()
    names, table = ["x", "v", "w", "u"], read_spec("shared_argmax").table["compare_all"]
    owned = {f"p{at}": names[at:] if at == holders else names[at : at + 1] for at in range(holders + 1)}
    parts = {party: frame[[*own, *(["y"] if party == "p0" else [])]] for party, own in owned.items()}
    joint = ColumnStudy(codebook_of(frame, "y"), options={"compare_all": True}).simulate(parts, coins=coins("s"))
    asked = {party: frame[own][:6] for party, own in owned.items()}
    cost, setup = joint.model.classify(asked).cost, setup_of(joint, asked, compare_all=True)
    layers = layer_count(holders + 1, joint.model.columns.plan.bits, 3)
    facts = {"holders": holders, "chunks": 1, "layers": layers}
    rounds = cost.rounds - setup.rounds  # the setup's last message goes to the last holder, who then speaks first
    assert (rounds, cost.messages - setup.messages) == tuple(eval(table[name], {}, facts) for name in ("rounds", "messages"))


@pytest.mark.parametrize("reveal_to", ["all", "e"])
def test_all_parties_compare_together(reveal_to):
    frame = small()[["v", "w", "u", "y"]]
    parts = {"c": frame[["y"]], "d": frame[["v"]], "e": frame[["w"]], "f": frame[["u"]]}
    joint, wrong = compare(frame, "y", parts, options={"compare_all": True}, reveal_to=reveal_to)
    assert wrong == 0
    assert "no coalition" in joint.statement
    queries = {"c": None, "d": frame[["v"]][:2], "e": frame[["w"]][:2], "f": frame[["u"]][:2]}
    leakage = joint.model.classify(queries).leakage
    learned = set(parts) if reveal_to == "all" else {reveal_to}
    assert {party for party, leak in leakage.items() if leak.opened == ("class",)} == learned
    assert not any("ScoresHanded" in leak.received for leak in leakage.values())


@pytest.mark.parametrize("learner", ["hospital", "insurer"])
def test_the_class_goes_to_the_named_party_alone(learner):
    frame = small()
    parts = split(frame, "y", 2)
    joint, wrong = compare(frame, "y", parts, reveal_to=learner)
    assert wrong == 0
    queries = {party: part.drop(columns="y", errors="ignore")[:3] for party, part in parts.items()}
    leakage = joint.model.classify(queries).leakage
    assert {party: leak.opened for party, leak in leakage.items()} == {
        party: ("class",) if party == learner else () for party in parts
    }


def test_a_named_holder_that_is_not_the_first():
    frame = small()
    parts = {"c": frame[["y"]], "d": frame[["x", "v"]], "e": frame[["w", "u"]]}
    joint, wrong = compare(frame, "y", parts, reveal_to="e")
    assert wrong == 0
    queries = {"c": None, "d": frame[["x", "v"]][:2], "e": frame[["w", "u"]][:2]}
    leakage = joint.model.classify(queries).leakage
    assert {party: leak.opened for party, leak in leakage.items()} == {"c": (), "d": (), "e": ("class",)}


def test_a_class_without_rows_is_never_predicted():
    frame = small()
    book = codebook_of(frame, "y")
    fewer = frame[frame["y"] != "a"]
    joint = ColumnStudy(book).simulate(split(fewer, "y", 2), coins=coins("s"))
    names = ["x", "v", "w", "u"]
    got = joint.model.predict({"hospital": frame[names[:2]], "insurer": frame[names[2:]]})
    assert "a" not in got
    pooled = NaiveBayes(book).fit(fewer[names], fewer["y"])
    assert np.array_equal(got, pooled.predict(frame[names]))


def test_queries_out_of_bounds_unknown_or_missing_are_as_in_pooled_prediction():
    frame = small()
    book = codebook_of(frame, "y")
    joint = ColumnStudy(book).simulate(split(frame, "y", 2), coins=coins("s"))
    pooled = NaiveBayes(book).fit(frame[["x", "v", "w", "u"]], frame["y"])
    odd = pd.DataFrame({"x": [99.0, None, 0.0], "v": ["a", "new", None], "w": ["p", "zzz", "q"], "u": [None, -99.0, None]})
    got = joint.model.predict({"hospital": odd[["x", "v"]], "insurer": odd[["w", "u"]]})
    assert np.array_equal(got, pooled.predict(odd))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
def test_other_smoothing(alpha):
    frame = small()
    book = codebook_of(frame, "y")
    joint = ColumnStudy(book, estimation=Estimation(alpha=alpha)).simulate(split(frame, "y", 2), coins=coins("s"))
    names = ["x", "v", "w", "u"]
    pooled = NaiveBayes(book, alpha=alpha).fit(frame[names], frame["y"])
    got = joint.model.predict({"hospital": frame[names[:2]], "insurer": frame[names[2:]]})
    near = near_tie(joint.model.columns.plan, pooled.predict_joint_log_proba(frame[names]))
    assert not ((got != pooled.predict(frame[names])) & ~near).any()


# -- shares, budget, rules -----------------------------------------------------------------------------------------------


def trained(**options):
    frame = small()[["v", "w", "y"]]
    joint = make_columns_study(codebook_of(frame, "y"), **options).simulate(split(frame, "y", 1), coins=coins("s"))
    return joint, {"hospital": frame[["v"]], "insurer": frame[["w"]]}


def first(queries, count):
    return {party: part[:count] for party, part in queries.items()}


def test_the_model_lives_in_its_files_and_dies_with_one_of_them(tmp_path):
    joint, queries = trained()
    expected = joint.model.predict(queries)
    joint.save(tmp_path / "release")
    files = {party: tmp_path / "release" / f"{party}.share" for party in queries}
    model = JointModel.load(files)
    assert np.array_equal(model.predict(first(queries, 5)), expected[:5])
    assert model.combine().statistics_ == joint.model.combine().statistics_
    leakage = json.loads((tmp_path / "release" / "leakage.json").read_text())
    assert all(entry["opened"] == [] for entry in leakage["parties"].values())
    assert "semi-honest" in (tmp_path / "release" / "statement.md").read_text()
    model.destroy("insurer")
    with pytest.raises(ConfigError, match="insurer"):
        model.predict(first(queries, 1))
    with pytest.raises(ConfigError):
        model.combine()
    assert files["hospital"].exists()
    assert not files["insurer"].exists()


def test_a_share_file_alone_is_uniform_and_its_size_does_not_depend_on_the_data(tmp_path):
    """Two tables as different as the codebook allows, both files of each: what stands in them are bits with mean 1/2 (alpha =
    2e-9), and no word of the data's sums; only the class holder's file holds numbers of its own columns."""
    book = Codebook("y", ("a", "b"), (Categorical("v", ("p", "q", "r")), Numeric("x", 0, 1000)), variance_floor=1.0)
    sizes = {"one": set(), "two": set()}
    for name, value, number in (("low", "p", 0), ("high", "r", 1000)):
        frame = pd.DataFrame({"v": [value] * 40, "x": [number] * 40, "y": ["a", "b"] * 20})
        study = ColumnStudy(book)
        where = study.simulate({"one": frame[["y"]], "two": frame[["v", "x"]]}, coins=coins(name)).save(tmp_path / name)
        shares = {party: ModelShare.load(where / f"{party}.share") for party in ("one", "two")}
        plan = JointModel.load({party: where / f"{party}.share" for party in shares}).columns.plan
        for party, share in shares.items():
            sizes[party].add((where / f"{party}.share").stat().st_size)
            words = [table[:, 1:].reshape(-1) for table in next(iter(share.tables.values())).values()]  # entry 0 is public: 0
            bits = [lm.to_bits(part.reshape(-1, plan.limbs), plan.bits).reshape(-1) for part in words]
            found = np.concatenate(bits)
            assert abs(found.mean() - 0.5) * 2 * np.sqrt(found.size) < 6
            sums = next(iter(share.sums.values())).reshape(-1)
            assert min(int(word).bit_length() for word in sums) > 40  # the sums themselves lie below 2^26
        assert shares["two"].local is None
    assert {len(found) for found in sizes.values()} == {1}


def test_a_failed_prediction_leaves_the_shares_as_they_were(tmp_path):
    joint, queries = trained()
    joint.save(tmp_path / "r")
    files = {party: tmp_path / "r" / f"{party}.share" for party in queries}
    before = {party: path.read_bytes() for party, path in files.items()}
    with pytest.raises(DataError):
        joint.model.predict({"hospital": queries["hospital"][:2], "insurer": queries["insurer"][:3]})
    assert {party: path.read_bytes() for party, path in files.items()} == before
    assert len(joint.model.predict(first(queries, 2))) == 2


def test_shares_of_two_trainings_of_one_study_do_not_mix(tmp_path):
    """Such shares do not add up to anything: they would give random classes, so they are refused; by a site too, which sees its
    own share alone."""
    frame = small()
    parts = {"one": frame[["x", "y"]], "two": frame[["v", "w", "u"]]}
    study = ColumnStudy(codebook_of(frame, "y"))
    first, second = (study.simulate(parts, coins=coins(f"training {at}")) for at in range(2))
    files = {"one": first.save(tmp_path / "a") / "one.share", "two": second.save(tmp_path / "b") / "two.share"}
    with pytest.raises(ConfigError, match="not of one study"):
        JointModel.load(files)
    asked = {
        "one": open_columns(frame[["x"]][:3], study.codebook),
        "two": open_columns(frame[["v", "w", "u"]][:3], study.codebook),
    }
    made = {name: scoring(ModelShare.load(path), asked[name]) for name, path in files.items()}
    runs = local_runs(("one", "two"), coins=coins("mixed"), signed=False)
    outcome = run_in_memory({name: part.role(runs[name], coins(name)) for name, part in made.items()}, check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert not any(outcome.opened.values())


def test_shares_of_two_studies_do_not_mix(tmp_path):
    one, queries = trained()
    other, _ = trained(alpha=2.0)
    one.save(tmp_path / "one")
    other.save(tmp_path / "other")
    with pytest.raises(ConfigError):
        JointModel.load({"hospital": tmp_path / "one" / "hospital.share", "insurer": tmp_path / "other" / "insurer.share"})
    with pytest.raises(ConfigError):
        JointModel.load({"insurer": tmp_path / "one" / "hospital.share", "hospital": tmp_path / "one" / "insurer.share"})
    assert len(queries) == 2


def test_a_large_batch_is_cut_and_gives_the_same_classes(monkeypatch):
    joint, queries = trained()
    whole = joint.model.classify(queries)
    monkeypatch.setattr("blindbayes.study.tasks.classify.BATCH", 30)
    cut = joint.model.classify(queries)
    assert np.array_equal(whole.labels, cut.labels)
    setup = setup_of(joint, queries).rounds
    assert cut.cost.rounds - setup == (whole.cost.rounds - setup) * 7
    assert {name: leak.opened for name, leak in cut.leakage.items()} == dict.fromkeys(queries, ("class",) * 7)


def test_one_stream_of_coins_for_two_runs_repeats_no_message():
    """Seeded coins serve several runs of a simulation; every run derives its own."""
    frame = small()[["v", "w", "y"]]
    study, source = ColumnStudy(codebook_of(frame, "y")), coins("shared")
    one, two = (study.simulate(split(frame, "y", 1), coins=source) for _ in range(2))
    first, second = (joint.model.shares["insurer"].tables["hospital"]["w"][:, 1:] for joint in (one, two))
    assert not (first == second).all(axis=-1).any()


def test_the_query_budget_is_enforced_by_each_side(tmp_path):
    joint, queries = trained(options={"queries": 10})
    joint.model.predict(first(queries, 7))
    with pytest.raises(PrivacyError, match="budget"):
        joint.model.predict(first(queries, 4))
    joint.model.predict(first(queries, 3))
    with pytest.raises(PrivacyError):
        joint.model.predict(first(queries, 1))
    # One side lifts its own limit: the other still refuses.
    joint, queries = trained(options={"queries": 1})
    joint.model.shares["hospital"].queries = None
    joint.model.predict(first(queries, 1))
    with pytest.raises(PrivacyError, match="insurer"):
        joint.model.predict(first(queries, 1))


def test_what_is_refused():
    frame = small()
    book = codebook_of(frame, "y")
    study = ColumnStudy(book)
    with pytest.raises(ConfigError, match="class column"):
        study.simulate({"a": frame[["x", "v"]], "b": frame[["w", "u"]]})
    with pytest.raises(ConfigError, match="held by a and by b"):
        study.simulate({"a": frame[["x", "v", "y"]], "b": frame[["v", "w", "u"]]})
    with pytest.raises(ConfigError, match="held by no party"):
        study.simulate({"a": frame[["x", "y"]], "b": frame[["w", "u"]]})
    with pytest.raises(DataError, match="different numbers of rows"):
        study.simulate({"a": frame[["x", "v", "y"]][:10], "b": frame[["w", "u"]]})
    with pytest.raises(ConfigError, match="two parties"):
        study.simulate({"a": frame})
    with pytest.raises(ConfigError, match="one party alone counts the class"):
        ColumnStudy(book, privacy=Privacy(epsilon=1.0)).simulate({"a": frame[["x", "v", "y"]], "b": frame[["w", "u", "y"]]})
    with pytest.raises(ConfigError, match="unknown protocol option"):
        ColumnStudy(book, options={"query": 3}).simulate(split(frame, "y", 2))
    with pytest.raises(ConfigError, match="reveal_to"):
        ColumnStudy(book, reveal_to="nobody").simulate(split(frame, "y", 2))
    no_floor = msgspec.structs.replace(book, variance_floor=None)
    with pytest.raises(ConfigError, match="variance_floor"):
        ColumnStudy(no_floor).simulate(split(frame, "y", 2))


def test_training_from_files_streams_them_in_order(tmp_path):
    frame = small()
    parts = split(frame, "y", 2)
    paths = {}
    for party, part in parts.items():
        paths[party] = str(tmp_path / f"{party}.csv")
        part.to_csv(paths[party], index=False)
    book = codebook_of(frame, "y")
    joint = ColumnStudy(book).simulate(paths, coins=coins("s"))
    pooled = NaiveBayes(book).fit(frame[["x", "v", "w", "u"]], frame["y"])
    assert joint.model.combine().statistics_ == pooled.statistics_


def test_canary_values_stand_in_no_share_and_no_error(tmp_path):
    book = Codebook("y", ("0", "1"), (Numeric("x", 0, 10**6), Categorical("v", ("a", "b"))), variance_floor=1.0)
    frame = pd.DataFrame({"x": [314159] * 20, "v": ["a", "b"] * 10, "y": ["0", "1"] * 10})
    parts = {"c": frame[["v", "y"]], "d": frame[["x"]]}
    joint = ColumnStudy(book).simulate(parts, coins=coins("s"))
    joint.save(tmp_path / "r")
    code = 314159 - book.feature("x").centre
    for value in (code, 10 * code, 10 * code * code, 20 * code):
        for path in (tmp_path / "r").iterdir():
            assert (value % 2**64).to_bytes(8, "little") not in path.read_bytes()
            assert str(abs(value)).encode() not in path.read_bytes()
    assert isinstance(ModelShare.load(tmp_path / "r" / "d.share"), ModelShare)
