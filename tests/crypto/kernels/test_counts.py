"""Counting and scoring by kernel give numpy's integers and numpy's bits, and refuse arrays that do not fit."""

import math

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.crypto import kernels
from blindbayes.data.encode import encode, encode_column
from blindbayes.errors import DataError, LocalProtocolError
from blindbayes.statistics import MISSING, CodedRows, Layout, count_block

pytestmark = pytest.mark.skipif(not kernels.available(), reason="build the kernels: python -m blindbayes.crypto.kernels.build")
SIZES = [0, 1, 2, 255, 256, 257, 1000, 70_000]
HOSTILE = [
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    0.005,
    -0.005,
    0.015,
    1e308,
    -1e308,
    5e-324,
    20,
    -20,
    20.004,
    20.005,
    -20.006,
]


def both(work):
    """The results of numpy and of the kernels."""
    with kernels.using("off"):
        wanted = work()
    with kernels.using(kernels.available()[-1]):
        return wanted, work()


def numbers(rows):
    generator = np.random.default_rng(rows)
    values = generator.normal(0, 12, rows)
    values[::2] = values[::2].round(2)
    values[: len(HOSTILE)] = HOSTILE[:rows]
    return values


GRIDS = [
    Numeric("x", -20, 20, 0.01, optional=True),
    Numeric("x", -20, 20, 10, optional=True),
    Numeric("x", 1e6, 2e6, 0.5, optional=True),
    Numeric("x", -20, 20, 2.0**-40, optional=True),
    Numeric("x", 0, 2.0**51, 2.0**20, optional=True),
    Numeric("x", 2.0**51, 2.0**51 + 9, 1, optional=True),  # beyond the kernel: numpy must do it
    Numeric("x", -20, 20, 0.01, bins=7, optional=True),
    Numeric("x", -20, 20, 0.01, edges=(-3.0, 0.5, 4.0), optional=True),
    Numeric("x", -20, 20, 0.01, optional=True, missing=("-20",)),
]


@pytest.mark.parametrize("feature", GRIDS, ids=lambda each: f"{each.low:g} to {each.high:g} by {each.precision:g}")
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("lenient", [False, True])
def test_numbers_get_the_same_codes(feature, rows, lenient):
    wide = np.zeros((rows, 3))
    wide[:, 1] = numbers(rows)
    with np.errstate(over="ignore"):
        short = wide[:, 1].astype(np.float32)
    for column in (wide[:, 1], wide[::-1, 1], pa.array(wide[:, 1]), short):
        options = {"training": lenient, "lenient": lenient}
        wanted, found = both(lambda column=column, options=options: encode_column(column, feature, feature.missing, **options))
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)


def test_whole_numbers_are_numbers_too():
    for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        column = np.arange(-3, 25).astype(kind)
        wanted, found = both(lambda column=column: encode_column(column, GRIDS[0], (), training=False))
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("values", [[math.nan, 1.0], [21.0, 1.0], [math.inf], [-20.01, -20.006, 3.0]])
def test_strict_reading_refuses_alike(values):
    def refused():
        with pytest.raises(DataError) as error:
            encode_column(np.array(values), Numeric("x", -20, 20, 0.01), (), training=True)
        return str(error.value)

    wanted, found = both(refused)
    assert found == wanted


@pytest.mark.parametrize("listed", [("0", "1", "2"), ("-3", "7", "5"), ("0", "4000"), ("9223372036854", "9223372036860")])
def test_whole_categories_get_the_same_positions(listed):
    extreme = [np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 0, 1, 2, 3, 4, 5, 7, 4000, 9223372036854]
    column, feature = np.array(extreme * 50), Categorical("k", listed)
    wanted, found = both(lambda: encode_column(column[::3], feature, (), training=False))
    assert np.array_equal(found, wanted)
    assert {*np.unique(found)} - {-1} <= {*range(len(listed))}


def block(rows, reach, classes=3):
    generator = np.random.default_rng(rows + classes)
    codes = generator.integers(-reach, reach + 1, rows)
    codes[::7] = MISSING
    codes[1:5] = [reach, -reach, 0, reach][: max(rows - 1, 0)]
    cells = generator.integers(-1, 5, rows)
    return CodedRows(generator.integers(0, classes, rows), {"x": codes, "k": cells}, rows)


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("reach", [3, 2**31, 2**45 - 1])
def test_blocks_have_the_same_sums(rows, reach):
    features = (Numeric("x", -reach, reach, 1, optional=True), Categorical("k", tuple("abcde"), optional=True))
    book = Codebook("y", ("p", "q", "r"), features)
    wanted, found = both(lambda: count_block(Layout(book), block(rows, reach)))
    assert found == wanted
    part = block(rows, reach)
    squares = [sum(int(code) ** 2 for code in part.columns["x"][part.labels == at] if code != MISSING) for at in range(3)]
    assert [int(value) for value in found.squares["x"]] == squares


def test_scores_have_the_same_bits():
    generator = np.random.default_rng(5)
    book = Codebook(
        "y",
        ("p", "q", "r"),
        (
            Numeric("x", -20, 20, 0.01, optional=True),
            Numeric("fine", -20, 20, 2.0**-40, optional=True),
            Numeric("never", 0, 1, 0.5, optional=True),
            Numeric("binned", -20, 20, 0.01, bins=9, optional=True),
            Categorical("k", tuple("abcde"), optional=True),
        ),
    )
    rows = 1000
    columns = {name: numbers(rows) for name in ("x", "fine", "binned")}
    columns = {name: np.where(np.isinf(column), np.nan, column.clip(-20, 20)) for name, column in columns.items()}
    columns |= {"never": np.full(rows, np.nan), "k": generator.choice(list("abcde"), rows).astype(object)}
    labels = generator.choice(["p", "q"], rows)  # one class has no row

    def scores():
        coded = encode(columns, book, training=True, labels=labels)
        parameters = NaiveBayes.from_statistics(count_block(Layout(book), coded)).parameters_
        return parameters.joint_log_likelihood(coded)

    wanted, found = both(scores)
    assert np.array_equal(found, wanted)
    assert np.isneginf(found[:, 2]).all()


@pytest.mark.skipif(kernels.active() is None, reason="the kernels are off")
def test_what_does_not_fit_is_refused():
    engine = kernels.active()
    ones, labels = np.ones(4, dtype=np.int64), np.zeros(4, dtype=np.int64)
    for wrong in (
        lambda: engine.cells(labels + 1, ones, np.zeros((2, 1, 2), dtype=np.int64)),  # a class out of range
        lambda: engine.cells(labels, ones, np.zeros((2, 1, 1), dtype=np.int64)),  # a code out of range
        lambda: engine.cells(labels - 1, ones, np.zeros((2, 1, 2), dtype=np.int64)),
        lambda: engine.cells(labels[:3], ones, np.zeros((2, 1, 2), dtype=np.int64)),
        lambda: engine.moments(labels + 1, ones, MISSING, np.zeros((2, 1, 6), dtype=np.int64)),
        lambda: engine.moments(labels, ones, MISSING, np.zeros((2, 1, 5), dtype=np.int64)),
        lambda: engine.add_cells(np.zeros((1, 4)), ones, np.zeros((1, 2))),
        lambda: engine.add_cells(np.zeros((1, 4)), ones, np.zeros((2, 3))),
        lambda: engine.add_densities(np.zeros((1, 4)), ones, np.zeros((2, 1)), centre=0, scale=1, missing=MISSING),
        lambda: engine.grid_codes(np.zeros(4), scale=1, low=0, high=2**52, centre=0, missing=MISSING, finite=False),
        lambda: engine.grid_codes(np.zeros((2, 2)), scale=1, low=0, high=2, centre=0, missing=MISSING, finite=False),
        lambda: engine.whole_positions(ones.astype(np.int32), 0, ones),
    ):
        with pytest.raises(LocalProtocolError):
            wrong()
