"""Studies by the paper's own route on the papers' data: within its stated truncation of pooled training; share files."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from blindbayes import Codebook, ColumnStudy, NaiveBayes
from blindbayes.codebook import Categorical, Numeric
from blindbayes.data.columns import open_columns
from blindbayes.errors import BlindbayesError, ConfigError, DataError, PeerProtocolError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.statistics.parameters import Gaussian, estimate
from blindbayes.study.tasks.columns import whole_block
from blindbayes_papers.primitives.paillier import generate_keypair
from blindbayes_papers.vaidya2008 import scalar_product as route
from blindbayes_papers.vaidya2008.columns import PrintedModel, PrintedScoring
from blindbayes_papers.vaidya2008.scalar_product import Measured, Nominal
from blindbayes_papers.vaidya2008.share import PrintedShare
from support.two_party import coins

TOY = {"key_bits": 512, "toy_keys": True, "degree": 10}
FULL = {"key_bits": 3072, "degree": 20}


def codebook_of(frame, target):
    book = Codebook.from_frame(frame, target=target)
    numbers = frame.drop(columns=target).select_dtypes("number")
    floor = float(1e-9 * numbers.var(ddof=0).max()) if len(numbers.columns) else None
    return msgspec.structs.replace(book, variance_floor=floor)


def trained(frame, target, own, options=None):
    """(result, pooled parameters, frames without the class): the first `own` features stay with the class holder."""
    book = codebook_of(frame, target)
    names = [name for name in frame.columns if name != target]
    parts = {"hospital": frame[[*names[:own], target]], "insurer": frame[names[own:]]}
    options = options or TOY
    study = ColumnStudy(book, protocol="scalar_product", options=options)
    result = study.simulate(parts, coins=coins("printed"))
    pooled = NaiveBayes(book).fit(frame[names], frame[target].astype(str))
    parameters = estimate(pooled.statistics_, divisor=options.get("divisor", "n"))
    assert all(not leak.opened for leak in result.leakage.values())
    return result, parameters, {party: part.drop(columns=target, errors="ignore") for party, part in parts.items()}


def require_shares(result, parameters):
    """Probabilities, means and variances that the shares stand for, within the truncation of SPEC.md."""
    model, terms = result.model, result.model.terms
    const = terms.const
    counts = model.shares[model.columns.class_holder].parameters.class_counts
    probabilities, moments = model.probabilities(), model.moments()
    assert {each.name for each in model.attributes} == set(probabilities) | set(moments)
    for name, table in probabilities.items():
        exact = np.exp(parameters.terms[name].log_prob)
        for at, row in enumerate(table):
            for value, found in enumerate(row):
                slack = (counts[at] + terms.alpha + 1) / const + 1e-12
                assert exact[at, value] - slack <= float(found) <= exact[at, value] + 1e-12
    for name, (means, variances) in moments.items():
        feature, term = model.columns.codebook.feature(name), parameters.terms[name]
        span = feature.code_high - feature.code_low
        for at, count in enumerate(counts):
            mean = term.mean[at] * feature.scale - feature.centre - feature.code_low
            drop = count * span / const
            assert mean - drop - 1e-6 <= float(means[at]) <= mean + 1e-6
            exact = term.variance[at] * feature.scale**2
            floor = model.columns.codebook.variance_floor * feature.scale**2
            if exact > floor * (1 + 1e-9):  # the floor is applied at classification
                assert float(variances[at]) == pytest.approx(exact, rel=count / const + 1e-9, abs=2 * drop**2)


def bounds(model, parameters, block):
    """(rows, classes): how far the route's score, 2 ln P, may lie from the plain one."""
    nominal = [each for each in model.attributes if isinstance(each, Nominal)]
    found = np.zeros((block.rows, len(model.classes_)))
    for row in range(block.rows):
        for at in range(found.shape[1]):
            numeric = []
            for each in model.attributes:
                if isinstance(each, Measured):
                    feature, term = model.columns.codebook.feature(each.name), parameters.terms[each.name]
                    assert isinstance(term, Gaussian)
                    value = (int(block.columns[each.name][row]) + feature.centre) / feature.scale
                    numeric.append((each, (value - term.mean[at]) ** 2 / term.variance[at]))
            found[row, at] = route.score_error(model.terms, nominal, numeric)
    return found


def require_classes(result, parameters, frames, some):
    """Every class is that of plain classification unless the bounds allow another; returns (asked, near)."""
    queries = {party: frame[some] for party, frame in frames.items()}
    found = result.model.classify(queries, coins=coins("asked"))
    assert {leak.opened for leak in found.leakage.values()} == {("class",)}
    block = whole_block(open_columns(pd.concat(queries.values(), axis=1), result.model.columns.codebook))
    scores = 2 * parameters.joint_log_likelihood(block)
    errors = bounds(result.model, parameters, block) + np.abs(scores).max() * 2.0**-44
    assert np.isfinite(errors).all()
    best, got = scores.argmax(axis=1), [list(result.model.classes_).index(label) for label in found.labels]
    rows = np.arange(len(best))
    gap = scores[rows, best] - scores[rows, got]
    assert (gap <= np.where(best == got, 0, errors[rows, best] + errors[rows, got])).all()
    return len(best), int((best != got).sum())


def wdbc():
    data = load_breast_cancer(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" ", "_"))
    return frame.assign(diagnosis=np.where(data.target == 1, "benign", "malignant"))


def read(path):
    return pd.read_csv(path, keep_default_na=False)


CASES = {  # rows of training, instances classified, own features, columns left out: what a default test can afford
    "car": (190, slice(None, None, 25), 3, 0),
    "wdbc": (57, slice(None, None, 10), 14, 13),
    "mushroom": (100, slice(None, None, 20), 11, 5),
}


def table(name, dataset):
    if name == "wdbc":
        return wdbc(), "diagnosis"
    return read(dataset(name)), "class"


@pytest.mark.parametrize("name", CASES)
def test_the_papers_route_classifies_as_pooled_training_does(name, dataset):
    frame, target = table(name, dataset)
    train, asked, own, less = CASES[name]
    names = [column for column in frame.columns if column != target]
    frame = frame[[*names[: len(names) - less], target]].sample(train, random_state=8).reset_index(drop=True)
    result, parameters, frames = trained(frame, target, own)
    require_shares(result, parameters)
    count, near = require_classes(result, parameters, frames, asked)
    assert (count >= 5, near) == (True, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_papers_route_on_every_row(name, dataset):
    """All rows and columns of Car and wdbc, a quarter of Mushroom's rows; keys are toys (1,024 bits), the numbers are not."""
    frame, target = table(name, dataset)
    frame = frame[:: 4 if name == "mushroom" else 1].reset_index(drop=True)
    own = 27 if name == "wdbc" else CASES[name][2]
    result, parameters, frames = trained(frame, target, own, {"key_bits": 1024, "toy_keys": True, "degree": 20})
    require_shares(result, parameters)
    _, near = require_classes(result, parameters, frames, slice(None, None, len(frame) // 30))
    assert near == 0


@pytest.mark.slow
def test_the_papers_route_at_its_default_keys(dataset):
    frame = read(dataset("car")).sample(30, random_state=8).reset_index(drop=True)
    result, parameters, frames = trained(frame, "class", 4, FULL)
    assert result.model.terms.key_bits == 3072
    assert "TOY" not in result.statement
    require_shares(result, parameters)
    _, near = require_classes(result, parameters, frames, slice(None, None, 15))
    assert near == 0


# -- small tables ------------------------------------------------------------------------------------------------------

BOOK = Codebook(
    "y",
    ("a", "b"),
    (Categorical("v", ("p", "q", "r")), Numeric("x", 0, 50), Numeric("own", -10, 10, 0.5)),
    variance_floor=0.25,
)


def small(rows=24):
    rng = np.random.default_rng(11)
    label = np.where(np.arange(rows) % 3 == 0, "a", "b")
    shift = np.where(label == "a", 0, 12)
    return pd.DataFrame(
        {
            "v": np.where(rng.random(rows) < 0.6, np.where(label == "a", "p", "q"), "r"),
            "x": rng.integers(5, 20, rows) + shift,
            "own": np.round(rng.normal(0, 2, rows)) / 2,
            "y": label,
        }
    )


def study(**options):
    return ColumnStudy(BOOK, protocol="scalar_product", options={**TOY, **options})


def parts(frame):
    return {"hospital": frame[["own", "y"]], "insurer": frame[["v", "x"]]}


def asked(frame):
    return {"hospital": frame[["own"]], "insurer": frame[["v", "x"]]}


@pytest.mark.parametrize("divisor", ["n", "n-1"])
def test_the_divisor_of_the_variance_is_a_choice_for_both_parties_columns(divisor):
    frame = small()
    result = study(divisor=divisor).simulate(parts(frame), coins=coins("divisor"))
    for at, label in enumerate(BOOK.classes):
        exact = frame["x"][frame["y"] == label].var(ddof=0 if divisor == "n" else 1)
        assert float(result.model.moments()["x"][1][at]) == pytest.approx(exact, rel=1e-12)
    own = open_columns(frame[["own"]], BOOK)
    local = PrintedScoring(result.model.shares["hospital"], own)._local(whole_block(own))
    groups = frame.groupby("y")["own"]
    means, variances = groups.mean(), groups.var(ddof=0 if divisor == "n" else 1)
    for at, label in enumerate(BOOK.classes):
        expected = -0.5 * np.log(2 * np.pi * variances[label]) - (frame["own"] - means[label]) ** 2 / (2 * variances[label])
        assert local[:, at] == pytest.approx(expected.to_numpy(), rel=1e-9)
    assert f"divided by {divisor}." in result.statement


def test_a_class_of_one_row_has_variance_zero_by_either_divisor():
    frame = small(6)
    frame.loc[frame["y"] == "a", "y"] = ["a", "b"]
    for divisor in ("n", "n-1"):
        result = study(divisor=divisor).simulate(parts(frame), coins=coins("one row"))
        assert float(result.model.moments()["x"][1][0]) == pytest.approx(0, abs=1e-15)


def test_own_columns_at_their_bounds_do_not_overflow_the_scores():
    """The class holder's own column, with a tiny variance floor, adds more than a score has room for: capped, not wrapped."""
    book = Codebook("y", ("a", "b"), (Categorical("v", ("p", "q")), Numeric("own", -1e6, 1e6)), variance_floor=1e-6)
    frame = pd.DataFrame({"own": [-1e6, -1e6, 1e6, 1e6] * 2, "v": ["p", "q"] * 4, "y": ["a", "a", "b", "b"] * 2})
    result = ColumnStudy(book, protocol="scalar_product", options=TOY).simulate(
        {"hospital": frame[["own", "y"]], "insurer": frame[["v"]]}, coins=coins("bounds")
    )
    own = open_columns(frame[["own"]], book)
    assert np.abs(PrintedScoring(result.model.shares["hospital"], own)._local(whole_block(own))).max() > 2.0**60
    queries = pd.DataFrame({"own": [-1e6, 1e6, -999_999.0, 5.0], "v": ["q", "p", "p", "q"]})
    found = result.model.predict({"hospital": queries[["own"]], "insurer": queries[["v"]]}, coins=coins("asked"))
    assert found.tolist() == ["a", "b", "a", "b"]


def test_a_class_holder_without_columns_of_its_own(tmp_path):
    frame = small().drop(columns="own")
    book = BOOK.with_features(BOOK.features[:2])
    study = ColumnStudy(book, protocol="scalar_product", options=TOY)
    result = study.simulate({"registry": frame[["y"]], "clinic": frame[["v", "x"]]}, coins=coins("registry"))
    pooled = NaiveBayes(book).fit(frame[["v", "x"]], frame["y"])
    where = result.save(tmp_path / "kept")
    model = PrintedModel.load({name: where / f"{name}.share" for name in ("registry", "clinic")})
    asked = frame[["v", "x"]][:3]
    assert model.predict({"registry": asked[[]], "clinic": asked}).tolist() == pooled.predict(asked).tolist()


# -- share files -------------------------------------------------------------------------------------------------------


def test_the_model_lives_in_its_files_and_dies_with_one_of_them(tmp_path):
    frame = small()
    result = study(queries=9).simulate(parts(frame), coins=coins("files"))
    expected = result.model.predict(asked(frame[:3]))
    where = result.save(tmp_path / "release")
    names = {path.name for path in where.iterdir()}
    assert {"hospital.share", "insurer.share"} <= names
    assert all(view["opened"] == [] for view in json.loads((where / "leakage.json").read_text("utf-8"))["parties"].values())
    files = {party: where / f"{party}.share" for party in ("hospital", "insurer")}
    model = PrintedModel.load(files)
    assert model.probabilities() == result.model.probabilities()
    assert model.moments() == result.model.moments()
    assert model.predict(asked(frame[:3])).tolist() == expected.tolist()
    assert {share.spent for share in model.shares.values()} == {6}  # the first three were charged before the file was written
    with pytest.raises(PrivacyError, match="budget"):
        model.predict(asked(frame[:4]))
    again = PrintedModel.load(files)  # the count outlives the process
    with pytest.raises(PrivacyError, match="budget"):
        again.predict(asked(frame[:4]))
    model.destroy("insurer")
    assert not files["insurer"].exists()
    assert model.shares["insurer"].parameters.nominal == {}
    for each in (model, again):
        with pytest.raises(ConfigError, match="destroyed"):
            each.predict(asked(frame[:1]))
    with pytest.raises(ConfigError, match="missing"):
        PrintedModel.load(files)


def test_share_files_are_private_whole_and_of_their_kind(tmp_path):
    result = study().simulate(parts(small()), coins=coins("kinds"))
    share = result.model.shares["insurer"]
    assert str(share.parameters.nominal["v"][0][0]) not in repr(share)
    assert "held" not in repr(share)
    path = tmp_path / "insurer.share"
    share.save(path)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(DataError, match="another protocol"):
        ModelShare.load(path)
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DataError):
            PrintedShare.load(path)
    path.write_bytes(whole)
    assert PrintedShare.load(path).parameters.nominal == share.parameters.nominal
    other = study().simulate(parts(small()), coins=coins("another")).model.shares["hospital"]
    other.save(tmp_path / "hospital.share")
    with pytest.raises(ConfigError, match="two trainings"):
        PrintedModel.load({"hospital": tmp_path / "hospital.share", "insurer": path})
    mixed = PrintedModel({"hospital": other, "insurer": share})
    with pytest.raises(PeerProtocolError, match="training"):  # of one study, from two trainings: the keys tell
        mixed.predict(asked(small()[:1]))
    swapped = {"hospital": path, "insurer": tmp_path / "hospital.share"}
    with pytest.raises(ConfigError, match="another party"):
        PrintedModel.load(swapped)


def test_either_share_alone_does_not_depend_on_the_data():
    """Every number of a share lies like its mask: its position within the mask's range is uniform, whatever the data are."""
    from blindbayes_papers.vaidya2008.scalar_product.training import mean_bits

    places = {"hospital": [], "insurer": []}
    for at in range(6):
        result = study().simulate(parts(small()), coins=coins(f"uniform {at}"))
        terms = result.model.terms
        for party, share in result.model.shares.items():
            width = terms.const_bits + 64
            places[party] += [abs(value) / 2.0**width for row in share.parameters.nominal["v"] for value in row]
            places[party] += [abs(value) / 2.0 ** (mean_bits(terms, 50) + 64) for value in share.parameters.numeric["x"].means]
    for found in places.values():  # Kolmogorov-Smirnov, alpha 1e-6
        ordered = sorted(found)
        distance = max(max((at + 1) / len(ordered) - value, value - at / len(ordered)) for at, value in enumerate(ordered))
        assert distance < 2.7 / math.sqrt(len(ordered))
    values = [value for row in result.model.shares["hospital"].parameters.nominal["v"] for value in row]
    assert max(values) > 2 ** (terms.const_bits + 40)  # a bare probability would lie far below


def test_a_failed_classification_leaves_the_shares_and_the_next_one_works(monkeypatch, tmp_path):
    frame = small()
    result = study().simulate(parts(frame), coins=coins("failed"))
    where = result.save(tmp_path / "release")
    before = {path.name: path.read_bytes() for path in where.glob("*.share")}
    model = PrintedModel.load({party: where / f"{party}.share" for party in ("hospital", "insurer")})
    expected = model.predict(asked(frame[:3])).tolist()
    original = route.classify_attribute_holder

    def broken(*arguments):
        role = original(*arguments)
        effect = next(role)
        for _ in range(6):
            value = yield effect
            effect = role.send(value)
        raise PeerProtocolError("the line went dead", party="hospital")

    monkeypatch.setattr(route, "classify_attribute_holder", broken)
    with pytest.raises(BlindbayesError):
        model.predict(asked(frame[:3]))
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in where.glob("*.share")} == before
    assert model.predict(asked(frame[:3])).tolist() == expected
    assert {share.spent for share in model.shares.values()} == {9}  # a batch that failed was charged too


def test_incomplete_instances_are_refused_before_anything_is_charged():
    frame = small()
    model = study(queries=5).simulate(parts(frame), coins=coins("incomplete")).model
    gap = frame[:2].assign(v=["p", "never seen"])
    with pytest.raises(DataError, match="missing"):
        model.predict(asked(gap))
    with pytest.raises(DataError, match="lacks column"):
        model.predict({"hospital": frame[["own"]][:2], "insurer": frame[["v"]][:2]})
    with pytest.raises(DataError, match="same instances"):
        model.predict({"hospital": frame[["own"]][:2], "insurer": frame[["v", "x"]][:3]})
    assert {share.spent for share in model.shares.values()} == {0}


def test_training_data_outside_the_codebook_is_an_error_not_clamped():
    frame = small().assign(x=lambda own: np.where(own.index == 3, 999, own["x"]))
    with pytest.raises(DataError, match="x"):
        study().simulate(parts(frame), coins=coins("outside"))


def test_another_key_than_that_of_the_training_is_refused():
    frame = small()
    model = study().simulate(parts(frame), coins=coins("keys")).model
    model.shares["hospital"].key = generate_keypair(512, coins("new key"), toy_keys=True)
    with pytest.raises(PeerProtocolError, match="training"):
        model.predict(asked(frame[:1]))


def test_what_a_study_by_this_route_refuses():
    frame = small()
    for options, word in (({"queries": 0}, "queries"), ({"queries": True}, "queries"), ({"divisor": "n+1"}, "divisor")):
        with pytest.raises(ConfigError, match=word):
            study(**options).simulate(parts(frame), coins=coins("refused"))
    with pytest.raises(ConfigError, match="two parties"):
        study().simulate({"a": frame[["own", "y"]], "b": frame[["v"]], "c": frame[["x"]]}, coins=coins("three"))


def test_terms_stand_in_the_share_whole():
    terms = route.ScalarProductSetup(10, 2, alpha=0.5, divisor="n-1", key_bits=512, toy_keys=True)
    assert route.ScalarProductSetup(**terms.to_dict()) == terms
    assert terms.facts() != replace(terms, divisor="n").facts()
    assert Fraction(terms.alpha) == Fraction(1, 2)
