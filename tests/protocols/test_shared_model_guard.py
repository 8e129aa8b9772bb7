"""Guards of shared_model: noise of both parties and least cells, inside the circuit, against plain arithmetic."""

import math

import msgspec
import numpy as np
import pytest

from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.shared_training import shared_model
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.shared_model import Guard, ScoreLayout
from blindbayes.protocols.shared_training.shared_model.field_sums import with_noise
from blindbayes.statistics import Layout, count_block
from support.columns import book, connect, draw_block
from support.plain_model import plain_tables, to_floats
from support.two_party import coins

ALL = book(
    [
        Categorical("colour", ("red", "green", "blue"), optional=True),
        Numeric("age", 0, 100, optional=True),
        Numeric("weight", -1000, 1000, 0.01, optional=True),
        Numeric("height", 0, 2, 0.01, bins=5, optional=True),
    ]
)


class Guarded:
    """A block whose sums go through a guard."""

    def __init__(self, guard, rows=300, codebook=ALL, labels=None):
        self.codebook, self.block = codebook, draw_block(codebook, rows, labels=labels)
        self.plan = ScoreLayout(codebook, rows, 1.0, guard)
        self.layout = RowLayout(codebook.features, rows, noise_bits=guard.noise_bits)
        self.statistics = count_block(Layout(codebook), self.block)
        encoded = self.layout.encode(self.block)
        self.words = np.stack([encoded[self.block.labels == k].sum(axis=0, dtype=np.uint64) for k in range(3)])
        self.any = np.array([rows, 0, 0])

    def noise(self, name, scale):
        """Whole numbers as a mechanism would draw them, in the units that the circuit takes."""
        if not self.plan.guard.noise_bits:
            return None
        rng = np.random.default_rng(int.from_bytes(coins(name).bytes(8), "little"))
        found = {}
        for feature in self.codebook.features:
            if isinstance(feature, Categorical) or feature.bins is not None:
                found[feature.name] = rng.integers(-scale, scale + 1, (3, feature.size))
                continue
            size = max(abs(feature.code_low), abs(feature.code_high))
            sizes = np.array([1, size, size * size])
            found[feature.name] = rng.integers(-scale, scale + 1, (3, 3)) * sizes[None]
        return found

    def expected(self, noise):
        """ln p of class k minus ln p of class 0, in floats, from the guarded statistics."""
        rows, least, tables = self.block.rows, self.plan.guard.min_cell, {}

        def held(count):
            count = np.clip(count, 0, rows)
            return np.where(count < least, 0, count)

        for feature in self.codebook.features:
            name = feature.name
            extra = sum(part[name] for part in noise)
            if name in self.statistics.counts:
                cells = held(self.statistics.counts[name] + extra).astype(float)
                total = np.minimum(cells.sum(axis=1), rows)
                logs = np.log(cells + 1) - np.log(total + cells.shape[1])[:, None]
                tables[name] = logs
                continue
            drawn = extra if noise else np.zeros((3, 3), dtype=np.int64)
            size = max(abs(feature.code_low), abs(feature.code_high))
            n = held(self.statistics.n[name] + drawn[:, 0])
            total = [int(v) for v in self.statistics.sums[name] + drawn[:, 1]]
            square = [int(v) for v in self.statistics.squares[name] + drawn[:, 2]]
            total = [
                max(-int(m) * size, min(v, int(m) * size)) if noise else v * (m > 0) for v, m in zip(total, n, strict=True)
            ]
            square = [max(0, min(v, int(m) * size * size)) if noise else v * (m > 0) for v, m in zip(square, n, strict=True)]
            if not noise:
                for at in np.flatnonzero(n == 0):
                    n, total, square = n.copy(), list(total), list(square)
                    n[at], total[at], square[at] = n.sum(), sum(total), sum(square)
            floor = max(self.codebook.variance_floor, dict(self.plan.guard.floors).get(name, 0)) * feature.scale**2
            tables[name] = [
                (t / max(1, m), max(floor, s / max(1, m) - (t / max(1, m)) ** 2))
                for m, t, s in zip(n, total, square, strict=True)
            ]
        return tables

    def check(self, noise):
        got = to_floats(plain_tables(self.words, self.any, self.layout, self.plan, noise)[0], self.plan)
        for name, want in self.expected(noise).items():
            if isinstance(want, list):
                points = np.array([self.codebook.feature(name).code_low, 0, self.codebook.feature(name).code_high])
                chosen = self.plan.features[name].choices(points).astype(int)
                table = got[name]
                found = sum(table[s][chosen[:, s]] for s in range(table.shape[0]))
                plain = np.array([[-((x - m) ** 2) / (2 * v) - math.log(v) / 2 for m, v in want] for x in points])
                assert np.allclose(found, plain[:, 1:] - plain[:, :1], atol=2 * self.plan.error(name) + 1e-6, rtol=1e-9), name
            else:
                assert np.allclose(got[name][0, 1:], (want[1:] - want[:1]).T, atol=2 * self.plan.error(name)), name


@pytest.mark.parametrize("scale", [3, 60, 5000], ids=["little", "much", "drowning"])
def test_noise_of_both_parties_enters_and_counters_are_held_to_what_tables_can_have(scale):
    case = Guarded(Guard(noise_bits=24, floors=(("age", 4.0), ("weight", 100.0))))
    case.check([case.noise("a", scale), case.noise("b", scale)])


@pytest.mark.parametrize("least", [1, 25, 40, 1000])
def test_cells_below_the_least_are_set_to_zero_and_nothing_else_is(least):
    case = Guarded(Guard(min_cell=least), rows=200)
    case.check([])


def test_noise_and_a_least_cell_go_together():
    case = Guarded(Guard(min_cell=30, noise_bits=20), rows=200)
    case.check([case.noise("a", 9), case.noise("b", 9)])


def test_noise_is_added_to_words_before_anything_is_cut_and_no_draw_is_cut_off():
    """A word is linear in counters and noise: modulo 2^64 it is a function of the noisy counters, however large a draw is."""
    case = Guarded(Guard(noise_bits=16), rows=60)
    rng = np.random.default_rng(3)
    draws = [
        {
            name: np.array([[int(v) << int(s) for v, s in zip(*pair, strict=True)] for pair in zip(*table, strict=True)])
            for name, table in {
                f.name: (rng.integers(-99, 99, (3, n)), rng.integers(0, 80, (3, n)))
                for f, n in zip(case.codebook.features, (3, 3, 3, 5), strict=True)
            }.items()
        }
        for _ in range(2)
    ]
    both = {name: draws[0][name] + draws[1][name] for name in draws[0]}
    first = with_noise(case.words, draws[0], case.layout)
    assert np.array_equal(with_noise(first, draws[1], case.layout), with_noise(case.words, both, case.layout))
    other = with_noise(np.zeros_like(case.words), draws[0], case.layout)
    assert np.array_equal(first, case.words + other)  # of whatever share it is added to
    with pytest.raises(LocalProtocolError, match="does not fit"):
        with_noise(case.words, {**draws[0], "colour": np.zeros((3, 2), dtype=int)}, case.layout)
    little = RowLayout(case.codebook.features, 60)
    with pytest.raises(LocalProtocolError, match="must provide for the same noise"):
        plain_tables(np.zeros((3, little.sums), dtype=np.uint64), case.any, little, case.plan)


@pytest.mark.parametrize("guard", [Guard(noise_bits=20), Guard(min_cell=20)], ids=["noise", "least cell"])
def test_the_two_shares_add_up_to_the_guarded_model(guard):
    case = Guarded(guard, rows=100)
    mine = coins("share").words(case.words.size).reshape(case.words.shape)
    noises = [case.noise("a", 20), case.noise("b", 20)] if guard.noise_bits else [None, None]
    runs = local_runs(["class", "attributes"], coins=coins("run"))

    def garbler():
        both = yield from connect(runs["class"], "attributes", coins("keeper"))
        return (
            yield from shared_model.class_holder(
                runs["class"], "attributes", mine, case.any, (case.layout, case.plan), both, coins("g"), noises[0]
            )
        )

    def evaluator():
        both = yield from connect(runs["attributes"], "class", coins("planter"))
        return (
            yield from shared_model.attribute_holder(
                runs["attributes"], "class", case.words - mine, (case.layout, case.plan), both, coins("e"), noises[1]
            )
        )

    outcome = run_in_memory({"class": garbler(), "attributes": evaluator()})
    assert outcome.opened == {"class": (), "attributes": ()}
    both = [noise for noise in noises if noise is not None]
    for name, table in plain_tables(case.words, case.any, case.layout, case.plan, both)[0].items():
        shares = (outcome.outputs[party][name] for party in ("class", "attributes"))
        assert np.array_equal(lm.cut(lm.add(*shares), case.plan.bits), table)


def test_a_circuit_with_noise_is_never_fed_without_it():
    noisy, plain = Guarded(Guard(noise_bits=20), rows=30), Guarded(Guard(min_cell=2), rows=30)
    with pytest.raises(LocalProtocolError, match="needs each party's own"):
        plain_tables(noisy.words, noisy.any, noisy.layout, noisy.plan, [None])
    with pytest.raises(LocalProtocolError, match="takes no noise"):
        plain_tables(plain.words, plain.any, plain.layout, plain.plan, [noisy.noise("a", 1)])


def test_a_guard_needs_a_counter_for_every_value():
    left_out = ALL.with_features(msgspec.structs.replace(feature, optional=False) for feature in ALL.features)
    with pytest.raises(ConfigError, match="counter for each"):
        ScoreLayout(left_out, 10, 1.0, Guard(min_cell=3))


def test_a_guard_costs_a_small_part_of_the_circuit():
    plain = Guarded(Guard(), rows=2000)
    without = plain_tables(plain.words, plain.any, plain.layout, plain.plan)[1]
    least = Guarded(Guard(min_cell=5), rows=2000)
    assert plain_tables(least.words, least.any, least.layout, least.plan)[1] < 1.05 * without
    noisy = Guarded(Guard(noise_bits=16), rows=2000)
    both = [noisy.noise("a", 5), noisy.noise("b", 5)]
    assert plain_tables(noisy.words, noisy.any, noisy.layout, noisy.plan, both)[1] < 1.15 * without
