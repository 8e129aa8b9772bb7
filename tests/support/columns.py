"""Tables for the tests over columns: coded blocks, plain oracles, shares."""

import dataclasses

import numpy as np

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.dp.distributed import column_noise
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join import joined
from blindbayes.protocols.shared_training import shared_model
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.shared_model import NO_GUARD, ScoreLayout
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import MISSING, CodedRows, Layout, count_block
from blindbayes.statistics.parameters import estimate
from blindbayes.study.tasks import guards
from support.plain_model import plain_tables, to_integers
from support.two_party import coins


def book(features, classes=("a", "b", "c"), floor=0.01):
    return Codebook("y", classes, tuple(features), variance_floor=floor)


MIXED = book(
    [
        Categorical("colour", ("red", "green", "blue")),
        Categorical("size", ("s", "m"), optional=True),
        Numeric("age", 0, 100),
        Numeric("weight", -1000, 1000, 0.01, optional=True),
        Numeric("height", 0, 2, 0.01, bins=5, optional=True),
    ]
)


def draw_block(codebook, rows, name="block", labels=None):
    """Random codes; optional features miss a fifth of their values."""
    rng = np.random.default_rng(int.from_bytes(coins(name).bytes(8), "little"))
    if labels is None:
        labels = rng.integers(0, len(codebook.classes), rows)
    columns = {}
    for feature in codebook.features:
        if isinstance(feature, Categorical) or feature.bins is not None:
            values = (rng.integers(0, feature.size, rows) + labels) % feature.size
            gap = -1
        else:
            middle, spread = (feature.code_low + feature.code_high) / 2, feature.width / 12
            values = np.clip(np.rint(rng.normal(middle, spread, rows) + labels * spread), feature.code_low, feature.code_high)
            gap = MISSING
        values = values.astype(np.int64)
        columns[feature.name] = np.where(rng.random(rows) < 0.2, gap, values) if feature.optional else values
    return CodedRows(labels.astype(np.int64), columns, rows)


class Case:
    """A block with its plan, layout, sums and plain model."""

    def __init__(self, codebook, block, alpha=1.0, stretch=None, guard=NO_GUARD):
        self.codebook, self.block = codebook, block
        self.plan = ScoreLayout(codebook, block.rows, alpha, guard)
        self.layout = RowLayout(codebook.features, block.rows, stretch, guard.noise_bits)
        self.statistics = count_block(Layout(codebook), block)
        self.parameters = estimate(self.statistics, alpha=alpha)
        self.counts = self.statistics.class_counts.astype(np.int64)
        rows = self.layout.encode(block)
        parts = [slice(low, low + self.layout.stretch) for low in range(0, block.rows, self.layout.stretch)]
        own = [np.where((block.labels == label)[:, None], rows, np.uint64(0)) for label in range(len(codebook.classes))]
        self.words = np.stack([np.concatenate([found[part].sum(axis=0, dtype=np.uint64) for part in parts]) for found in own])

    def plain(self):
        return plain_tables(self.words, self.counts, self.layout, self.plan)[0]

    def gates(self):
        return plain_tables(self.words, self.counts, self.layout, self.plan)[1]

    def shares(self):
        mine = coins("share").words(self.words.size).reshape(self.words.shape)
        return mine, self.words - mine

    def model_roles(self, *, other=None, mine=None):
        """Roles of shared_model, transfers included; `other` is the attribute holder's idea of the case."""
        runs = local_runs(["class", "attributes"], coins=coins("run"))
        own, theirs = self.shares()
        seen = other or self

        def garbler():
            both = yield from connect(runs["class"], "attributes", coins("keeper"))
            return (
                yield from shared_model.class_holder(
                    runs["class"], "attributes", own, self.counts, (self.layout, self.plan), both, mine or coins("g")
                )
            )

        def evaluator():
            both = yield from connect(runs["attributes"], "class", coins("planter"))
            return (
                yield from shared_model.attribute_holder(
                    runs["attributes"], "class", theirs, (seen.layout, seen.plan), both, coins("e")
                )
            )

        return {"class": garbler(), "attributes": evaluator()}


def connect(run, other, source):
    """(keeper, planter) of one party with another; who stands first in the roster sends first."""
    links = yield from joined.connect(run, other, source)
    return links.ot_sender, links.ot_receiver


def to_scores(limbs, plan):
    """(rows, K - 1, limbs) to exact integers (rows, K - 1) as Python objects."""
    flat = to_integers(limbs.reshape(-1, plan.limbs), plan.bits)
    return np.array(flat, dtype=object).reshape(limbs.shape[:-1])


def linked(first="class", second="attributes", parties=None):
    """(keeper of `first`, planter of `second`)."""
    runs = local_runs(parties or [first, second], coins=coins("run"))
    outcome = run_in_memory(
        {
            first: transfer.ot_sender(runs[first], second, coins(f"keeper {second}")),
            second: transfer.ot_receiver(runs[second], first, coins(f"planter {second}")),
        }
    )
    return outcome.outputs[first], outcome.outputs[second]


def without_missing_cells(monkeypatch):
    """Plant a fault: the noise has no cell for missing values of a required column, except of others' in a left join."""
    planned = column_noise.counted_plan

    def faulty(plan, epsilon, join, local):
        made = planned(plan, epsilon, join, local)
        pairs = zip(made.declared.features, made.encodings, strict=True)
        gaps = [(cut, item.optional or (join == "left" and item.name not in local)) for item, cut in pairs]
        return dataclasses.replace(made, encodings=tuple(dataclasses.replace(cut, missing=gap) for cut, gap in gaps))

    monkeypatch.setattr(column_noise, "counted_plan", faulty)
    monkeypatch.setattr(guards, "_plans", {})
