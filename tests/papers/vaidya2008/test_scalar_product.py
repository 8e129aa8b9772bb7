"""The paper's route for columns: Protocols 4 and 5, ln, exp, and the evaluation protocol."""

import math
import tomllib
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from gmpy2 import invert

import blindbayes_papers.vaidya2008.scalar_product as route
from blindbayes import Codebook, ColumnStudy, NaiveBayes
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Plain
from blindbayes.errors import ConfigError, DataError, IntegrityError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Duplicate, Replace, Swap, local_runs, run_in_memory
from blindbayes.wire import Trust, decode
from blindbayes.wire.transcript import Keep
from blindbayes_papers.primitives.paillier import PublicKey, generate_keypair
from blindbayes_papers.vaidya2008.primitives import polynomial as poly
from blindbayes_papers.vaidya2008.primitives.scalar_product import STATISTICAL
from blindbayes_papers.vaidya2008.scalar_product import Channel, Measured, Nominal, ScalarProductSetup, connect, ratio, training
from blindbayes_papers.vaidya2008.scalar_product.exponential import EXP_ERROR, IN_BITS, OUT_BITS, exp
from blindbayes_papers.vaidya2008.scalar_product.logarithm import (
    FRACTION,
    key_bits,
    ln_error,
    ln_evaluator,
    ln_garbler,
    phase_one,
)
from blindbayes_papers.vaidya2008.scalar_product.messages import CentreOffered, ChoicesMade, CiphertextsSent, CircuitGarbled
from blindbayes_papers.vaidya2008.scalar_product.roles import score_bits
from support.studies import make_columns_study
from support.two_party import coins

SPEC = tomllib.loads((Path(route.__file__).parent / "SPEC.md").read_text("utf-8").split("```toml\n", 1)[1].split("```", 1)[0])


@lru_cache
def keys(bits):
    return {name: generate_keypair(bits, coins(f"{name} {bits}"), toy_keys=True) for name in ("c", "d")}


def both(terms, class_holder, attribute_holder, name="run", **options):
    """Run a pair of roles, each given a channel."""
    runs = local_runs(("c", "d"), study="0" * 64, run_id="1", coins=coins(name), signed=False)
    ready = keys(terms.key_bits)

    def role(party, other, body):
        channel = yield from connect(runs[party], other, terms, coins(f"{name} {party}"), ready[party])
        return (yield from body(channel))

    return run_in_memory({"c": role("c", "d", class_holder), "d": role("d", "c", attribute_holder)}, **options)


def toy(rows, classes, **more):
    return ScalarProductSetup(rows, classes, **{"key_bits": 512, "toy_keys": True, "degree": 10, **more})


RNG = np.random.default_rng(8)
LABELS = [int(x) for x in RNG.integers(0, 2, 24)] + [2] * 3  # class 3 of four has no rows
CODES = [int(x) for x in RNG.integers(0, 3, 27)]
VALUES = [int(x) for x in RNG.integers(0, 1000, 27)]


# -- Protocol 4 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_protocol_4_gives_shares_of_scaled_probabilities(alpha):
    terms = toy(27, 4, alpha=alpha)
    outcome = both(
        terms,
        lambda ch: training.nominal_class_holder(ch, LABELS, 3),
        lambda ch: training.nominal_attribute_holder(ch, CODES, 3),
    )
    ours, theirs = outcome.outputs["c"], outcome.outputs["d"]
    for at in range(4):
        n = LABELS.count(at)
        for value in range(3):
            found = ours[at][value] + theirs[at][value]
            count = sum(1 for label, code in zip(LABELS, CODES, strict=True) if (label, code) == (at, value))
            if not n:
                assert found == 0
                continue
            exact = terms.const * (count + Fraction(alpha)) / (n + 3 * Fraction(alpha))
            assert 0 <= exact - found < count + alpha + 1  # the stated truncation
    assert outcome.opened == {"c": (), "d": ()}


def test_a_share_alone_does_not_depend_on_the_other_partys_data():
    """The attribute holder's shares are its own masks; the class holder's are the value under a mask 64 bits wider."""
    terms = toy(27, 3)
    runs = {}
    for name, codes in {"one": CODES, "other": [0] * 27}.items():
        runs[name] = both(
            terms,
            lambda ch: training.nominal_class_holder(ch, LABELS, 3),
            lambda ch, codes=codes: training.nominal_attribute_holder(ch, codes, 3),
            "same coins",
        ).outputs
    assert runs["one"]["d"] == runs["other"]["d"]
    masks = [-share for row in runs["one"]["d"] for share in row]
    assert all(0 <= mask < 1 << (terms.const_bits + STATISTICAL) for mask in masks)
    assert len(set(masks)) == 9
    assert max(masks) >> (terms.const_bits + STATISTICAL - 8)  # nine masks below 2^-8 of the range: chance 2^-72


# -- Protocol 5 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_printed", [False, True])
@pytest.mark.parametrize("divisor", ["n", "n-1"])
def test_protocol_5_gives_shares_of_scaled_means_and_variances(divisor, as_printed):
    terms = toy(27, 4, divisor=divisor, as_printed=as_printed)
    span = 1000
    outcome = both(
        terms,
        lambda ch: training.numeric_class_holder(ch, LABELS, span),
        lambda ch: training.numeric_attribute_holder(ch, VALUES, span),
    )
    ours, theirs = outcome.outputs["c"], outcome.outputs["d"]
    for at in range(4):
        mine = [value for label, value in zip(LABELS, VALUES, strict=True) if label == at]
        mean = ours.means[at] + theirs.means[at]
        variance = ours.variances[at] + theirs.variances[at]
        if not mine:
            assert mean == variance == 0
            continue
        n = len(mine)
        assert 0 <= terms.const * Fraction(sum(mine), n) - mean <= n * span
        exact = sum((value - Fraction(sum(mine), n)) ** 2 for value in mine) / (n if divisor == "n" else n - 1)
        scaled = Fraction(variance, terms.const**3)
        assert exact * (1 - Fraction(n, terms.const)) <= scaled <= exact + 2 * Fraction(n * span, terms.const) ** 2
    assert outcome.opened == {"c": (), "d": ()}


def read_classes():
    """The attribute holder's attack on step 9: it made E(d) and E(mean), so it divides them out, class by class, and looks
    for a quotient without randomness. Returns the classes it finds, None where it finds none."""
    outcome = both(toy(27, 3), *numeric(LABELS, VALUES), keep=Keep.FRAMES)
    key = keys(512)["d"].public
    sent = [decode(entry.frame, CiphertextsSent) for entry in outcome.transcript.entries if entry.kind is CiphertextsSent]
    values, means, distances = (key.unpack_ciphertexts(sent[at].ciphertexts, count) for at, count in ((0, 27), (2, 3), (3, 27)))
    found = []
    for value, distance in zip(values, distances, strict=True):
        bare = pow(value, 1 << 64, key.n_squared)
        quotients = [distance * mean * invert(bare, key.n_squared) % key.n_squared for mean in means]
        found.append(next((at for at, quotient in enumerate(quotients) if quotient % key.n == 1), None))
    return found


def test_without_fresh_randomness_the_attribute_holder_reads_every_class_and_with_it_none(monkeypatch):
    assert read_classes() == [None] * 27
    monkeypatch.setattr(PublicKey, "rerandomise", lambda self, ciphertext, coins: ciphertext)
    assert read_classes() == LABELS


def test_small_keys_missing_values_and_unequal_terms_are_refused():
    with pytest.raises(PeerProtocolError, match="2048"):
        both(ScalarProductSetup(10, 2, key_bits=512), None, None)
    with pytest.raises(ConfigError, match="too short"):
        both(toy(27, 3, const_bits=128), *numeric(LABELS, VALUES, 1 << 40))
    for codes in ([-1, *CODES[1:]], [3, *CODES[1:]]):
        with pytest.raises(DataError):
            both(
                toy(27, 3),
                lambda ch: training.nominal_class_holder(ch, LABELS, 3),
                lambda ch, codes=codes: training.nominal_attribute_holder(ch, codes, 3),
            )
    runs = local_runs(("c", "d"), study="0" * 64, run_id="1", coins=coins("unequal"), signed=False)
    parts = {
        "c": connect(runs["c"], "d", toy(27, 3), coins("a"), keys(512)["c"]),
        "d": connect(runs["d"], "c", toy(27, 3, degree=12), coins("b"), keys(512)["d"]),
    }
    with pytest.raises(PeerProtocolError, match="do not agree"):
        run_in_memory(parts)


def numeric(labels, values, span=1000):
    return (
        lambda ch: training.numeric_class_holder(ch, labels, span),
        lambda ch: training.numeric_attribute_holder(ch, values, span),
    )


def test_what_comes_twice_out_of_order_or_malformed_is_refused():
    colour = (Nominal("colour", 3),)
    roles = (
        lambda ch: route.train_class_holder(ch, colour, LABELS),
        lambda ch: route.train_attribute_holder(ch, colour, {"colour": CODES}),
    )
    shorter = Replace(5, lambda message: CiphertextsSent(message.mark, message.ciphertexts[1:]))
    outside = Replace(4, lambda message: CiphertextsSent(message.mark, bytes(len(message.ciphertexts))))
    for fault in (Duplicate(4), Duplicate(5), Swap(10), shorter, outside):
        with pytest.raises(PeerProtocolError) as caught:
            both(toy(27, 3), *roles, faults=[fault])
        assert caught.value.party in ("c", "d")


# -- ln and exp --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("degree", "bits"), [(2, 8), (10, 8), (10, 66), (20, 40)])
def test_the_first_phase_and_the_polynomial_keep_their_bound(degree, bits):
    own = coins(f"ln {degree} {bits}")
    xs = [1, 2, 3, 5, 6, 7, (1 << bits) - 1, 3 << (bits - 2), *(1 + own.below((1 << own.below(bits)) or 1) for _ in range(300))]
    e, power = (c.from_bits(part) for part in phase_one(Plain(), c.to_bits(xs, bits), 1, degree))
    from blindbayes_papers.vaidya2008.scalar_product.logarithm import epsilon_bits, ln2_bits

    width, coefficients = epsilon_bits(degree), poly.taylor(degree, epsilon_bits(degree))
    for x, a, b in zip(xs, e, power, strict=True):
        a -= 1 << width
        assert -(1 << width) <= 4 * a < 2 << width
        taylor = Fraction(sum(k * a**i for i, k in enumerate(coefficients)), poly.scale(degree, width))
        assert abs(float(taylor + Fraction(b, 1 << ln2_bits(degree))) - math.log(x)) <= ln_error(degree)


def test_ln_of_shares():
    bits = 40
    own = coins("shares of ln")
    xs = [0, 1, 2, 6, 999, (1 << bits) - 1, *(own.bits(bits) for _ in range(6))]
    masks = [own.bits(bits + 64) for _ in xs]
    terms = toy(1, 2)
    outcome = both(
        terms,
        lambda ch: ln_garbler(ch, [-mask for mask in masks], bits, 2),
        lambda ch: ln_evaluator(ch, [x + mask for x, mask in zip(xs, masks, strict=True)], bits, 2),
    )
    for x, a, b in zip(xs, outcome.outputs["c"], outcome.outputs["d"], strict=True):
        assert abs((a + b) / 2**FRACTION - math.log(max(2, x))) <= ln_error(terms.degree)
    assert all(abs(share) > 1 << FRACTION + 40 for party in "cd" for share in outcome.outputs[party])  # far wider than ln x
    assert outcome.opened == {"c": (), "d": ()}


def test_a_polynomial_that_does_not_fit_the_key_is_refused():
    assert key_bits(10) <= 512 < key_bits(20) <= 1024  # Table 1 has 512 bits with degree 20
    with pytest.raises(ConfigError, match="too short"):
        both(toy(1, 2, degree=20), lambda ch: ln_garbler(ch, [1], 8), lambda ch: ln_evaluator(ch, [1], 8))


def test_exp_keeps_its_bound():
    own = coins("exp")
    edge = [
        -(1 << IN_BITS - 1),
        (1 << IN_BITS - 1) - 1,
        0,
        -1,
        1,
        *(s * (32 * 2977044472 + d) for s in (-1, 1) for d in (-9, 0, 9)),
    ]
    ys = [*edge, *(own.below(2 * 23 << FRACTION) - (23 << FRACTION) for _ in range(500))]
    for y, found in zip(ys, c.from_bits(exp(Plain(), c.to_bits(ys, IN_BITS))), strict=True):
        true = math.exp(y / 2**FRACTION) * 2.0**FRACTION if y / 2**FRACTION < 100 else math.inf
        true = min(true, 2.0**OUT_BITS - 1)
        assert abs(found - true) <= EXP_ERROR * true + 1, y / 2**FRACTION


# -- evaluation --------------------------------------------------------------------------------------------------------------

ATTRIBUTES = (Nominal("colour", 3), Measured("size", 1000, Fraction(1, 4)))


def trained_and_classified(terms, columns, queries, local=None, attributes=ATTRIBUTES, **options):
    count = len(next(iter(queries.values())))
    local = local or [[0.0] * terms.classes] * count

    def class_holder(channel):
        held = yield from route.train_class_holder(channel, attributes, LABELS)
        found = yield from route.classify_class_holder(channel, attributes, held, local)
        return held, found

    def attribute_holder(channel):
        held = yield from route.train_attribute_holder(channel, attributes, columns)
        found = yield from route.classify_attribute_holder(channel, attributes, held, queries, count)
        return held, found

    return both(terms, class_holder, attribute_holder, **options)


def plain_scores(terms, columns, queries):
    """2 ln P per class, and the quotients on which the error bound depends."""
    scores, quotients = [], []
    for at in range(terms.classes):
        mine = [row for row, label in enumerate(LABELS) if label == at]
        if not mine:
            scores.append([-math.inf] * len(queries["size"]))
            quotients.append([0.0] * len(queries["size"]))
            continue
        sizes = [columns["size"][row] for row in mine]
        mean = sum(sizes) / len(mine)
        variance = max(0.25, sum((x - mean) ** 2 for x in sizes) / len(mine))
        count = [sum(columns["colour"][row] == value for row in mine) for value in range(3)]
        row, quotient = [], []
        for colour, size in zip(queries["colour"], queries["size"], strict=True):
            q = (size - mean) ** 2 / variance
            p = (count[colour] + 1) / (len(mine) + 3)
            row.append(2 * math.log(len(mine) / len(LABELS)) + 2 * math.log(p) - math.log(variance) - q)
            quotient.append(q)
        scores.append(row)
        quotients.append(quotient)
    return scores, quotients


def seen_scores(monkeypatch):
    """Both parties' shares of the scores, as they enter the last circuit."""
    seen = {}
    for name in ("garble_open", "evaluate_open"):
        original = getattr(Channel, name)

        def spy(self, circuit, own, width, original=original):
            seen[self.run.me] = own
            return (yield from original(self, circuit, own, width))

        monkeypatch.setattr(Channel, name, spy)
    return seen


def test_the_evaluation_protocol_gives_the_class_and_nothing_else(monkeypatch):
    seen = seen_scores(monkeypatch)
    terms = toy(27, 4)
    columns = {
        "colour": CODES,
        "size": [
            value + 300 * label if label < 2 else 77
            for value, label in zip(RNG.integers(0, 300, 27).tolist(), LABELS, strict=True)
        ],
    }
    queries = {"colour": [0, 1, 2, 0, 1, 2, 0], "size": [10, 500, 77, 1000, 0, 310, 77]}
    outcome = trained_and_classified(terms, columns, queries)
    scores, quotients = plain_scores(terms, columns, queries)
    assert outcome.outputs["c"][1] == outcome.outputs["d"][1]
    near = 0
    bits = score_bits(2)
    for at, (a, b) in enumerate(zip(seen["c"], seen["d"], strict=True)):  # the scores themselves, within the stated bound
        joined = [((a >> bits * k) + (b >> bits * k)) % (1 << bits) for k in range(3)]
        joined = [(value - ((value >> bits - 1) << bits)) / 2**FRACTION for value in joined]
        errors = [route.score_error(terms, ATTRIBUTES[:1], [(ATTRIBUTES[1], quotients[k][at])]) for k in range(3)]
        for k in (1, 2):
            plain = scores[k][at] - scores[0][at]
            assert abs(joined[k] - joined[0] - plain) <= errors[k] + errors[0]
    assert all(route.score_error(terms, ATTRIBUTES[:1], [(ATTRIBUTES[1], q)]) < 3e-4 + 2e-4 * q for q in (0.0, 1.0, 1e6))
    for at, found in enumerate(outcome.outputs["c"][1]):
        ranked = sorted(range(4), key=lambda k: -scores[k][at])
        if found != ranked[0]:
            bound = sum(
                route.score_error(terms, ATTRIBUTES[:1], [(ATTRIBUTES[1], quotients[k][at])]) for k in (found, ranked[0])
            )
            assert scores[ranked[0]][at] - scores[found][at] <= bound
            near += 1
    assert near == 0
    assert len(set(outcome.outputs["c"][1])) == 3  # the test tells classes apart, the constant attribute's among them
    assert {name: list(labels) for name, labels in outcome.opened.items()} == {"c": SPEC["opened"], "d": SPEC["opened"]}
    assert outcome.cost.messages == eval(SPEC["messages"], {}, {"nominal": 1, "numeric": 1, "K": 4})
    assert outcome.cost.rounds == eval(SPEC["rounds"], {}, {"nominal": 1, "numeric": 1, "K": 4})
    for kinds in outcome.transcript.received.values():
        clear = {kind.__name__ for kind in kinds if kind.trust is Trust.CLEAR}
        assert clear <= {"LabelsGivenBack"}


def test_what_the_class_holder_knows_alone_is_added():
    terms = toy(27, 4)
    queries = {"colour": [0, 0], "size": [500, 500]}
    local = [[0.0, 5e3, 0.0, 0.0], [5e3, 0.0, 0.0, 0.0]]
    outcome = trained_and_classified(terms, {"colour": CODES, "size": VALUES}, queries, local)
    assert outcome.outputs["d"][1] == [1, 0]


def test_the_cost_of_two_nominal_attributes_is_as_the_spec_says():
    terms = toy(27, 3, degree=2)
    attributes = (Nominal("colour", 3), Nominal("again", 4))
    columns = {"colour": CODES, "again": CODES}
    outcome = trained_and_classified(terms, columns, {"colour": [1], "again": [2]}, attributes=attributes)
    names = {"nominal": 2, "numeric": 0, "K": 3}
    assert (outcome.cost.messages, outcome.cost.rounds) == (eval(SPEC["messages"], {}, names), eval(SPEC["rounds"], {}, names))


# -- as a study --------------------------------------------------------------------------------------------------------------


def iris_frames():
    from sklearn.datasets import load_iris

    frame = load_iris(as_frame=True).frame.rename(columns=lambda name: name.replace(" (cm)", "").replace(" ", "_"))
    frame["petal_size"] = np.where(frame["petal_length"] < 2, "small", np.where(frame["petal_length"] < 4.8, "middle", "large"))
    frame["species"] = frame.pop("target").map(["setosa", "versicolor", "virginica"].__getitem__)
    return frame[["sepal_length", "petal_width", "petal_size"]], frame[["sepal_width", "species"]]


def test_a_study_on_iris_classifies_as_pooled_training_does():
    attributes, labelled = iris_frames()
    book = Codebook(
        "species",
        ("setosa", "versicolor", "virginica"),
        (
            Categorical("petal_size", ("small", "middle", "large")),
            Numeric("sepal_length", 4, 8, 0.1),
            Numeric("petal_width", 0, 3, 0.1),
            Numeric("sepal_width", 2, 5, 0.1),
        ),
        variance_floor=1e-3,
    )
    options = {"key_bits": 512, "toy_keys": True, "degree": 10, "queries": 6}
    study = ColumnStudy(book, protocol="scalar_product", options=options)
    result = study.simulate({"hospital": labelled, "insurer": attributes})
    assert all(not leak.opened for leak in result.leakage.values())
    assert "TOY KEYS" in result.statement
    pooled = NaiveBayes(book).fit(pd.concat([attributes, labelled.drop(columns="species")], axis=1), labelled["species"])
    some = slice(0, 150, 25)
    queries = {"hospital": labelled.drop(columns="species")[some], "insurer": attributes[some]}
    found = result.model.classify(queries)
    assert found.labels.tolist() == pooled.predict(pd.concat([attributes, labelled], axis=1)[some][list(book.names)]).tolist()
    assert {leak.opened for leak in found.leakage.values()} == {("class",)}
    groups = (attributes["petal_width"] * 10).round().groupby(labelled["species"])
    means, variances = result.model.moments()["petal_width"]
    assert [float(mean) for mean in means] == pytest.approx(groups.mean().tolist(), rel=1e-12)
    assert [float(variance) for variance in variances] == pytest.approx(groups.var(ddof=0).tolist(), rel=1e-12)
    with pytest.raises(PrivacyError, match="budget"):
        result.model.predict(queries)


def test_a_study_refuses_what_the_route_does_not_have():
    attributes, labelled = iris_frames()
    book = Codebook(
        "species", ("setosa", "versicolor", "virginica"), (Categorical("petal_size", ("small", "middle", "large")),)
    )
    one = {"a": labelled[["species"]], "b": attributes[["petal_size"]]}
    for change in ({"epsilon": 1.0}, {"reveal_to": "a"}, {"options": {"rings": 2}}):
        with pytest.raises((ConfigError, PrivacyError)):
            make_columns_study(book, protocol="scalar_product", **change).simulate(one)


# -- Protocol 3 --------------------------------------------------------------------------------------------------------------


def protocol_3(plan, vectors, degree=10):
    parties = tuple(f"p{at}" for at in range(len(vectors)))
    runs = local_runs(parties, study="0" * 64, run_id="3", coins=coins("ratio"), signed=False)
    terms = toy(1, 2, degree=degree)
    ready = {name: keys(512)["cd"[at % 2]] for at, name in enumerate(parties)}
    ready[parties[0]] = generate_keypair(512, coins("p0"), toy_keys=True)
    made = {
        name: ratio.party(runs[name], plan, terms, np.array(vector, dtype=np.uint64), coins(name), ready[name])
        for name, vector in zip(parties, vectors, strict=True)
    }
    return run_in_memory(made)


@pytest.mark.parametrize(("parties", "rings"), [(3, 1), (5, 2)])
def test_protocol_3_keeps_smoothed_probabilities_in_shares(parties, rings):
    alpha = Fraction(1, 2)
    counts = [[at, 3 * at + 1, 0] for at in range(parties)]
    vectors = [[*row, sum(row)] for row in counts]
    plan, factor = ratio.nominal_ratios(3, alpha, 1000)
    plan = replace(plan, rings=rings)
    outcome = protocol_3(plan, [[factor * value for value in vector] for vector in vectors])
    shares = [found for found in outcome.outputs.values() if found is not None]
    assert len(shares) == 2
    totals = [sum(column) for column in zip(*vectors, strict=True)]
    for at, (a, b) in enumerate(zip(*shares, strict=True)):
        exact = float((totals[at] + alpha) / (totals[3] + 3 * alpha))
        found = (a + b) % (1 << ratio.SHARE_BITS) / 2**FRACTION
        assert abs(found - exact) <= exact * ratio.relative_error(10) + 2.0**-FRACTION
    assert not any(outcome.opened.values())


def test_protocol_3_as_printed_opens_the_probabilities_and_says_what_that_opens():
    plan = replace(ratio.nominal_ratios(2, Fraction(1), 100)[0], opening="printed")
    outcome = protocol_3(plan, [[3, 4, 7], [10, 0, 10], [1, 2, 3]])
    assert set(outcome.opened.values()) == {("probabilities_and_counts",)}
    for found in outcome.outputs.values():
        assert [value / 2**FRACTION for value in found] == pytest.approx([15 / 22, 7 / 22], rel=ratio.relative_error(10))


def numeric_vector(values, divisor):
    """A party's numbers of one class, as `ratio.numeric_ratios` says."""
    n, squares = len(values), sum(value * value for value in values)
    return [n, sum(values) + n, squares + n, *([n] if divisor == "n-1" else [])]


@pytest.mark.parametrize("divisor", ["n", "n-1"])
@pytest.mark.parametrize("values", [[[4, 9, 2], [7], [0, 0, 12]], [[], [11], []]])
def test_protocol_3_gives_means_and_variances(values, divisor):
    plan = ratio.numeric_ratios(100, 12, divisor)
    outcome = protocol_3(plan, [numeric_vector(each, divisor) for each in values])
    first, second = (found for found in outcome.outputs.values() if found is not None)
    opened = [(a + b) % (1 << ratio.SHARE_BITS) / 2**FRACTION for a, b in zip(first, second, strict=True)]
    mean, variance = ratio.mean_and_variance(opened)
    everyone = [value for each in values for value in each]
    assert mean == pytest.approx(np.mean(everyone), rel=2 * ratio.relative_error(10))
    bound = (np.mean(np.square(everyone)) + 1 + 2 * mean * (mean + 1)) * 3 * ratio.relative_error(10) + 1e-8
    exact = np.var(everyone) * len(everyone) / max(1, len(everyone) - (divisor == "n-1"))
    assert abs(variance - exact) <= bound


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (ChoicesMade, lambda message: ChoicesMade(message.mark, bytes(len(message.points)))),
        (ChoicesMade, lambda message: ChoicesMade(message.mark, message.points[:-32])),
        (CentreOffered, lambda message: CentreOffered(message.mark, b"\xff" * 32)),
        (CircuitGarbled, lambda m: CircuitGarbled(m.mark, m.boxes[:-1], m.tables, m.tags)),
        (CircuitGarbled, lambda m: CircuitGarbled(m.mark, m.boxes, m.tables[:-4], m.tags)),
        (CircuitGarbled, lambda m: CircuitGarbled(m.mark, m.boxes, m.tables ^ np.uint64(1), m.tags)),
        (CircuitGarbled, lambda m: CircuitGarbled(m.mark + 1, m.boxes, m.tables, m.tags)),
    ],
)
def test_bad_points_boxes_and_tables_are_typed_errors_and_open_nothing(kind, change):
    fault = Replace(lambda entry: entry.kind is kind, change)
    roles = (lambda ch: ln_garbler(ch, [5], 8), lambda ch: ln_evaluator(ch, [9], 8))
    outcome = both(toy(1, 2), *roles, faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError | IntegrityError)
    assert outcome.error.party in ("c", "d")
    assert not any(outcome.opened.values())


@pytest.mark.slow
def test_the_whole_route_at_128_bit_security():
    terms = ScalarProductSetup(27, 4)
    assert terms.key_bits == 3072
    columns = {"colour": CODES, "size": VALUES}
    queries = {"colour": [0, 2], "size": [10, 900]}
    outcome = trained_and_classified(terms, columns, queries)
    scores, _ = plain_scores(terms, columns, queries)
    assert outcome.outputs["d"][1] == [max(range(4), key=lambda k, at=at: scores[k][at]) for at in range(2)]
