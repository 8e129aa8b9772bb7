"""Random codebooks and hostile data: every fixed-point score keeps its bound. Seeds are the test's parameter."""

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.protocol.shared_model import score
from blindbayes.statistics import MISSING, Block
from support.columns import Case, to_scores


def random_case(seed):
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 6))
    features = []
    for at in range(int(rng.integers(1, 4))):
        optional = bool(rng.integers(0, 2))
        if rng.random() < 0.4:
            values = tuple(str(value) for value in range(int(rng.integers(1, 6))))
            features.append(Categorical(f"c{at}", values, optional=optional))
        else:
            width = 0.0 if rng.random() < 0.1 else float(10.0 ** rng.uniform(0, 5))
            low = float(np.round(rng.normal(0, 1000), 3))
            precision = float(10.0 ** -int(rng.integers(0, 4)))
            features.append(Numeric(f"n{at}", low, low + width, precision, optional=optional))
    floor = float(10.0 ** rng.uniform(-8, 3))
    book = Codebook("y", tuple("abcdef"[:classes]), tuple(features), variance_floor=floor)
    rows = int(rng.choice([1, 2, 3, 10, 100, 1000]))
    labels = rng.integers(0, classes, rows)
    if rng.random() < 0.3:
        labels = np.minimum(labels, 1)  # classes without rows
    columns, queries = {}, {}
    for feature in book.features:
        if isinstance(feature, Categorical):
            codes, gap = rng.integers(0, feature.size, rows), -1
            queries[feature.name] = rng.integers(-1, feature.size, 50)
        else:
            codes, gap = _numbers(rng, feature, labels), MISSING
            asked = rng.integers(feature.code_low, feature.code_high + 1, 50)
            asked[:3] = (feature.code_low, feature.code_high, MISSING)
            queries[feature.name] = asked
        missing = rng.random(rows) < rng.choice([0.1, 0.9])
        columns[feature.name] = np.where(missing, gap, codes) if feature.optional else codes
    alpha = float(rng.choice([1.0, 0.5, 0.1, 3.0, 1e-3]))
    return Case(book, Block(labels, columns, rows), alpha), queries


def _numbers(rng, feature, labels):
    rows, low, high = len(labels), feature.code_low, feature.code_high
    kind = rng.integers(0, 4)
    if kind == 0:
        return rng.integers(low, high + 1, rows)
    if kind == 1:
        return np.full(rows, rng.choice([low, high]))  # constant, at a bound
    if kind == 2:
        return np.where(labels % 2 == 0, low, high)  # constant per class: variance at the floor
    middle = low + (high - low) * rng.random()
    return np.clip(np.rint(rng.normal(middle, 1 + feature.width / 50, rows)), low, high).astype(np.int64)


def check(seed):
    case, queries = random_case(seed)
    tables, full = case.plain(), case.counts > 0
    for name, term in case.parameters.terms.items():
        got = to_scores(score({name: tables[name]}, queries, case.plan, 50), case.plan) / 2**case.plan.fraction
        got = np.concatenate([np.zeros((50, 1)), got.astype(np.float64)], axis=1)[:, full]
        plain = case.parameters.score(name, term, queries[name])[:, full]
        error = np.abs((got - got[:, :1]) - (plain - plain[:, :1])).max()
        assert error <= 2 * case.plan.error(name) + np.abs(plain).max() * 2.0**-44, (seed, name)


@pytest.mark.parametrize("seed", range(15))
def test_scores_keep_their_bound(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_scores_keep_their_bound_for_many_codebooks(block):
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        check(seed)
