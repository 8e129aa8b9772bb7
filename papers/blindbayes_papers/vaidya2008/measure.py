"""Measurements for Vaidya, Kantarcioglu and Clifton 2008: its own protocols at three key sizes, and ours on the same work.

All figures are CPU seconds of all parties together, in one process, messages encoded and decoded, keys and their tables
ready. Sizes that take too long are extended by a straight line through two measured ones, and say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from statistics import median
from typing import Any

import numpy as np
from gmpy2 import mpz

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.shared_training import columns as ours
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.statistics import CodedRows
from blindbayes_papers.primitives.paillier import DEFAULT_BITS, PrivateKey, generate_keypair
from blindbayes_papers.vaidya2008 import scalar_product as route
from blindbayes_papers.vaidya2008.opened_ratio import roles as opened_ratio
from blindbayes_papers.vaidya2008.primitives.scalar_product import draw_mask, product
from blindbayes_papers.vaidya2008.ring_sum.cycles import seating
from blindbayes_papers.vaidya2008.scalar_product import (
    Attribute,
    Channel,
    HeldShare,
    Measured,
    Nominal,
    ScalarProductSetup,
    ratio,
    training,
)
from blindbayes_papers.vaidya2008.scalar_product.logarithm import key_bits as least_key_bits
from blindbayes_papers.vaidya2008.scalar_product.training import Moments, mean_bits, variance_bits

KEY_SIZES = (512, 1024, DEFAULT_BITS)
PARTIES = ("class", "attributes")
SPAN = 1000
VALUES = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """Seconds, and how they were found."""

    seconds: float
    how: str  # "measured", or what the line went through
    count: int = 1  # runs behind it

    @property
    def measured(self) -> bool:
        """Return whether this very size was run."""
        return self.how == "measured"


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def line(points: Mapping[int, float], at: int) -> Figure:
    """The value at a size: measured, or on the straight line through the two largest measured sizes."""
    if at in points:
        return Figure(points[at], "measured")
    first, second = sorted(points)[-2:]
    slope = (points[second] - points[first]) / (second - first)
    if slope <= 0:  # a disturbed measurement: no growth between two sizes
        return Figure(points[second] * at / second, f"in proportion to {second:,}, since {first:,} took as long")
    return Figure(points[second] + slope * (at - second), f"extrapolated from {first:,} and {second:,}")


@cache
def ready_keys(bits: int) -> tuple[PrivateKey, PrivateKey]:
    """Two keys with their tables made. Below 2,048 bits these are toys, as the paper's sizes are today."""
    made = tuple(generate_keypair(bits, Coins.system(), toy_keys=bits < 2048) for _ in range(2))
    for key in made:
        key.encrypt(0, Coins.system())
    return made[0], made[1]


def _terms(bits: int, rows: int, classes: int, degree: int = 10) -> ScalarProductSetup:
    return ScalarProductSetup(rows, classes, degree=degree, key_bits=bits, toy_keys=bits < 2048, as_printed=True)


def _pair(terms: ScalarProductSetup, first: Callable[[Channel], Role[Any]], second: Callable[[Channel], Role[Any]]) -> float:
    coins = Coins.system()
    runs = local_runs(PARTIES, study="0" * 64, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    keys = ready_keys(terms.key_bits)

    def role(at: int, body: Callable[[Channel], Role[Any]]) -> Role[Any]:
        me, other = PARTIES[at], PARTIES[1 - at]
        channel = yield from route.connect(runs[me], other, terms, Coins.system(), keys[at])
        return (yield from body(channel))

    return cpu_seconds(lambda: run_in_memory({PARTIES[0]: role(0, first), PARTIES[1]: role(1, second)}))


# -- the paper's protocols ---------------------------------------------------------------------------------------------------


def ratio_seconds(tuples: int, degree: int, bits: int) -> float:
    """Table 1: one probability by Protocol 3 as printed, three parties on a ring."""
    parties = ("one", "two", "three")
    coins = Coins.system()
    runs = local_runs(parties, study="0" * 64, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    terms = _terms(bits, 1, 2, degree)
    plan = ratio.RatioSetup(((0, 1),), (1, 2), (tuples + 2).bit_length(), "printed")
    vector = np.array([tuples // 12, tuples // 6], dtype=np.uint64)
    keys = dict(zip(parties, (*ready_keys(bits), ready_keys(bits)[0]), strict=True))
    if _ends(runs[parties[0]]) == {"one", "three"}:  # the two that compute must have two keys
        keys["three"] = ready_keys(bits)[1]
    roles = {name: ratio.party(runs[name], plan, terms, vector, Coins.system(), keys[name]) for name in parties}
    return cpu_seconds(lambda: run_in_memory(roles))


def _ends(run: Run) -> set[str]:
    starter = run.parties[seating(run.study, run.run_id, len(run.parties))[-1]]
    return {starter, next(name for name in run.parties if name != starter)}


def degree_key_bits(bits: int, degree: int) -> int:
    """The key size that a row of Table 1 or 4 can be run at: the asked one, or the least that the polynomial fits."""
    return max(bits, least_key_bits(degree))


def nominal_seconds(rows: int, classes: int, bits: int) -> float:
    """Table 2: Protocol 4 for one attribute of five values."""
    labels, codes = [at % classes for at in range(rows)], [at % VALUES for at in range(rows)]
    return _pair(
        _terms(bits, rows, classes),
        lambda channel: training.nominal_class_holder(channel, labels, VALUES),
        lambda channel: training.nominal_attribute_holder(channel, codes, VALUES),
    )


def multiplication_seconds(bits: int, count: int = 2000) -> float:
    """One modular multiplication of ciphertexts: all that the paper counts in Table 2."""
    key = ready_keys(bits)[0].public
    some = [mpz(Coins.system().below(int(key.n_squared))) for _ in range(50)] * (count // 50)
    return cpu_seconds(lambda: product(key, some)) / len(some)


def numeric_seconds(rows: int, classes: int, bits: int) -> float:
    """Table 3: Protocol 5 for one attribute."""
    labels, values = [at % classes for at in range(rows)], [at * 37 % SPAN for at in range(rows)]
    return _pair(
        _terms(bits, rows, classes),
        lambda channel: training.numeric_class_holder(channel, labels, SPAN),
        lambda channel: training.numeric_attribute_holder(channel, values, SPAN),
    )


def classify_seconds(nominal: int, numeric: int, classes: int, degree: int, bits: int) -> float:
    """Table 4: the evaluation protocol for one instance; the shares of the model are made up, not trained."""
    terms = _terms(bits, 1000, classes, degree)
    attributes: list[Attribute] = [Nominal(f"n{at}", VALUES) for at in range(nominal)]
    attributes += [Measured(f"x{at}", SPAN, Fraction(1)) for at in range(numeric)]
    first, second = made_up_shares(terms, attributes, ready_keys(bits)[0])
    instance = {each.name: [1] for each in attributes}
    return _pair(
        terms,
        lambda channel: route.classify_class_holder(channel, attributes, first, [[0.0] * classes]),
        lambda channel: route.classify_attribute_holder(channel, attributes, second, instance, 1),
    )


def made_up_shares(terms: ScalarProductSetup, attributes: list[Attribute], key: PrivateKey) -> tuple[HeldShare, HeldShare]:
    """Shares as training would leave them, of uniform probabilities, means 500, 400, ... by class and variances 10^4."""
    coins = Coins.system()
    first, second = HeldShare(class_counts=[500] * terms.classes), HeldShare()

    def shares(value: int, bits: int) -> tuple[int, int]:
        mask = draw_mask(bits, coins)
        return value + mask, -mask

    for each in attributes:
        if isinstance(each, Nominal):
            value = terms.const // each.values
            table = [[shares(value, terms.const_bits) for _ in range(each.values)] for _ in range(terms.classes)]
            first.nominal[each.name] = [[pair[0] for pair in row] for row in table]
            second.nominal[each.name] = [[pair[1] for pair in row] for row in table]
            second.tables[each.name] = [key.encrypt_many(row, coins) for row in first.nominal[each.name]]
        else:
            means = [shares((500 - 100 * at) * terms.const, mean_bits(terms, each.span)) for at in range(terms.classes)]
            spread = [shares(10**4 * terms.const**3, variance_bits(terms, each.span)) for _ in range(terms.classes)]
            first.numeric[each.name] = Moments([pair[1] for pair in means], [pair[1] for pair in spread])
            second.numeric[each.name] = Moments([pair[0] for pair in means], [pair[0] for pair in spread])
    return first, second


# -- ours --------------------------------------------------------------------------------------------------------------------


def _codebook(nominal: int, numeric: int, classes: int) -> Codebook:
    names = tuple(f"c{at}" for at in range(classes))
    values = tuple(f"v{at}" for at in range(VALUES))
    features = [Categorical(f"n{at}", values) for at in range(nominal)]
    return Codebook("y", names, (*features, *(Numeric(f"x{at}", 0, SPAN) for at in range(numeric))), variance_floor=1.0)


def _block(book: Codebook, rows: int) -> CodedRows:
    columns = {}
    for feature in book.features:
        if not isinstance(feature, Numeric):
            columns[feature.name] = np.arange(rows, dtype=np.int64) % VALUES
        else:
            columns[feature.name] = np.arange(rows, dtype=np.int64) * 37 % SPAN + feature.code_low
    return CodedRows(np.arange(rows, dtype=np.int64) % len(book.classes), columns, rows)


def our_training_seconds(nominal: int, numeric: int, classes: int, rows: int) -> float:
    """All of training: transfers, class_sums, shared_model."""
    return _our_training(nominal, numeric, classes, rows)[0]


def _our_training(nominal: int, numeric: int, classes: int, rows: int) -> tuple[float, ColumnsSetup, dict[str, Any]]:
    book = _codebook(nominal, numeric, classes)
    first, second = PARTIES
    columns = ColumnsSetup(book, rows, {first: (), second: book.names}, (first,))
    block = _block(book, rows)
    cuts = [slice(low, min(rows, low + (1 << 16))) for low in range(0, rows, 1 << 16)]
    labels = block.labels
    if labels is None:
        raise ValueError("the made-up table has labels")
    counts = np.bincount(labels, minlength=classes).astype(np.int64)
    blocks = [
        CodedRows(None, {name: codes[cut] for name, codes in block.columns.items()}, cut.stop - cut.start) for cut in cuts
    ]
    coins = Coins.system()
    runs = local_runs(PARTIES, study="0" * 64, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    results: dict[str, Any] = {}

    def work() -> None:
        parts: dict[str, Role[Any]] = {
            first: ours.train_class_holder(runs[first], columns, counts, lambda: (labels[cut] for cut in cuts), Coins.system()),
            second: ours.train_attribute_holder(runs[second], columns, iter(blocks), Coins.system()),
        }
        results.update(run_in_memory(parts).outputs)

    return cpu_seconds(work), columns, results


def our_classify_seconds(nominal: int, numeric: int, classes: int, repeat: int) -> float:
    """One instance by shared_argmax, transfers ready; the median of some runs."""
    _, columns, trained = _our_training(nominal, numeric, classes, 300)
    first, second = PARTIES
    one = _block(columns.codebook, 1)
    query = columns.query(1)
    local = np.zeros((1, classes)) + ours.prior(np.full(classes, 100, dtype=np.int64), columns.plan)

    def work() -> None:
        coins = Coins.system()
        runs = local_runs(PARTIES, study="0" * 64, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
        mine, theirs = trained[first], trained[second]
        parts: dict[str, Role[Any]] = {
            first: ours.predict_class_holder(runs[first], query, local, mine.tables, mine.ot_senders, coins),
            second: ours.predict_attribute_holder(
                runs[second], query, theirs.tables[first], ours.Instances(one.columns), theirs.ot_receiver, Coins.system()
            ),
        }
        run_in_memory(parts)

    work()
    return median(cpu_seconds(work) for _ in range(repeat))


def our_ratio_seconds(tuples: int, values: int = 50) -> tuple[float, int]:
    """opened_ratio, three parties, one attribute: (seconds, number of probabilities)."""
    book = Codebook("y", ("a", "b"), (Categorical("x", tuple(f"v{at}" for at in range(values))),), max_rows=tuples)
    plan = opened_ratio.PrivateRatioSetup(book, "fine")
    parties = ("one", "two", "three")
    coins = Coins.system()
    runs = local_runs(parties, study="0" * 64, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    size = plan.cells
    each = np.full(size, tuples // (6 * values), dtype=np.uint64)
    each[:2] *= np.uint64(values)
    roles: dict[str, Role[Any]] = {
        "one": opened_ratio.first_party(runs["one"], plan, each, "two", Coins.system()),
        "two": opened_ratio.second_party(runs["two"], plan, each, "one", Coins.system()),
        "three": opened_ratio.contributor(runs["three"], plan, each, "one", "two", Coins.system()),
    }
    return cpu_seconds(lambda: run_in_memory(roles)), plan.lanes
