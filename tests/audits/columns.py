"""Audit the noise in shares: what an attacker who knows everything but one party's noise sees of one of its records.

Part 2 draws the noise of a party many times and looks at counters with and without a record, before they are clipped to
bounds, which is more than any answer shows. The record has a value in every column, or none in columns of the other party:
that party fills them as it likes. The control draws half of the noise and must be refuted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from audits.releases import DRAWS, exponent
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Check, Claim
from blindbayes.dp.audit.lower_bounds import Bound, epsilon_lower
from blindbayes.dp.distributed.column_noise import ColumnNoise, draws
from blindbayes.dp.distributed.column_noise import Join as Way
from blindbayes.dp.noise.exact_events import Number
from blindbayes.dp.noise.knorm_histograms import Centred
from blindbayes.dp.release.release_plan import ReleasePlan
from blindbayes.errors import ConfigError
from blindbayes_papers.mechanism_audit import control_check, loss_check

Counters = tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]
"""Class counts (count, K) and tables (count, K, values), of as many draws."""
LESS_NOISE = Fraction(2)
HARD = Codebook(
    "y", ("a",), (Categorical("u", ("p", "q")), Numeric("x", 0, 8, bins=3), Categorical("v", ("r", "s"), optional=True))
)
"""One class and few cells: the loss of a single record shows best."""
OWNERS = {"class holder": ("u",), "other": ("x", "v")}


def plan_columns(epsilon: Number, delta: float = 0.0, way: Way = "aligned") -> ColumnNoise:
    """The noise of a small study whose loss is easy to see."""
    return ColumnNoise.make(HARD, OWNERS, "class holder", epsilon=epsilon, delta=delta, rows=10**6, join=way)


def record_of(plan: ReleasePlan, missing: Collection[str] = ()) -> Counters:
    """What one record adds: one to its class, and to the first value of each feature of the plan that is not missing."""
    counts = np.zeros((1, len(plan.codebook.classes)), dtype=np.int64)
    counts[0, 0] = 1
    tables = {}
    for feature in plan.codebook.features:
        tables[feature.name] = np.zeros((1, len(plan.codebook.classes), feature.size), dtype=np.int64)
        tables[feature.name][0, 0, 0] = feature.name not in missing
    return counts, tables


def attack_columns(
    plan: ReleasePlan,
    claim: Claim,
    coins: Coins,
    count: int,
    drawing: Callable[[ReleasePlan, Coins, int], Counters] = draws,
    missing: Collection[str] = (),
) -> Bound:
    """A lower bound on epsilon of all counters that one party's noise is in, with one of its records and without.

    The record has no value in the columns that are `missing`. Noise is drawn without data, so one set of draws serves both
    sides: each side's bound holds by itself.
    """
    record = record_of(plan, missing)
    flat = _flat(record)[0]
    exact = [_parts(plan, part) for part in (record, (0 * record[0], {name: 0 * table for name, table in record[1].items()}))]
    outputs = []
    drawn = drawing(plan, coins, count)
    for there in (1, 0):
        counts, tables = (
            drawn[0] + there * record[0],
            {name: table + there * record[1][name] for name, table in drawn[1].items()},
        )
        noisy = _flat((counts, tables)).astype(np.float64)
        parts = _parts(plan, (counts, tables))
        gain = exponent(plan, parts, [part[0] for part in exact[1]]) - exponent(plan, parts, [part[0] for part in exact[0]])
        touched, against = noisy[:, flat > 0], noisy[:, flat == 0]
        sums = [touched.sum(axis=1), touched.min(axis=1), touched[:, 1:].sum(axis=1) - against.sum(axis=1)]
        outputs.append(np.column_stack([noisy, *sums, _level(counts, tables, missing), np.round(gain, 9)]))
    names = [f"counter {at}" for at in range(len(flat))]
    names += ["sum of the record's", "least of them", "difference", "level", "planned likelihood ratio"]
    return epsilon_lower(*outputs, delta=claim.delta, names=names, learn=False)


def _level(counts: npt.NDArray[Any], tables: dict[str, npt.NDArray[Any]], missing: Collection[str]) -> npt.NDArray[np.float64]:
    """Rows of the first class by the class counts and the tables that have the record, less those by the tables without it."""
    rows = {name: table[:, 0].sum(axis=1).astype(np.float64) for name, table in tables.items()}
    lacking = [rows.pop(name) for name in missing if name in rows]
    level = np.mean([counts[:, 0].astype(np.float64), *rows.values()], axis=0)
    return np.asarray(level - np.mean(lacking, axis=0) if lacking else level)


def _parts(plan: ReleasePlan, counters: Counters) -> list[npt.NDArray[np.float64]]:
    """Counters as the plan's items: (count, K, cells), in units of bounds, with the cell of missing values, and centred."""
    counts, tables = counters
    out = []
    for item in plan.items:
        if item.kind == "classes":
            out.append(counts[..., None].astype(np.float64))
            continue
        if item.cut is None or item.kind != "cells":
            raise ConfigError("columns are audited with tables of cells")
        table = tables[item.name][..., : len(item.cut.edges) - 1].astype(np.float64)
        if item.cut.missing:
            table = np.concatenate([table, (counts - table.sum(axis=2))[..., None]], axis=2)
        out.append(table - table.mean(axis=2, keepdims=True) if isinstance(plan.noise, Centred) else table)
    return out


def missing_columns(noise: ColumnNoise, party: str) -> list[tuple[str, ...]]:
    """The columns of which a record of `party` may have no value: none, each that is optional or another's, all of these."""
    features = noise.plan_of(party).codebook.features
    gaps = [feature.name for feature in features if feature.optional or feature.name not in noise.owners[party]]
    return sorted({(), *((name,) for name in gaps), tuple(gaps)}, key=lambda names: (len(names), names))


def audit_columns(
    coins: Coins, *, epsilon: Number = 1, delta: float = 0.0, way: Way = "aligned", count: int = DRAWS
) -> Iterator[Check]:
    """Part 2 for both parties' noise."""
    noise = plan_columns(epsilon, delta, way)
    claim = Claim(float(noise.tables.epsilon), noise.price.delta)
    for party in OWNERS:
        plan, label = noise.plan_of(party), f"noise in shares ({noise.tables.mechanism}, {way}): {party}'s record"
        for missing in missing_columns(noise, party):
            where = f" without {', '.join(missing)}" if missing else ""
            yield loss_check(label + where, claim, partial(attack_columns, plan, claim, coins, count, missing=missing))
        weak = partial(attack_columns, replace(plan, epsilon=plan.epsilon * LESS_NOISE), claim, coins, count)
        yield control_check(f"{label}, control with half of the noise is refuted", claim, weak)


def _flat(counters: Counters) -> npt.NDArray[np.int64]:
    counts, tables = counters
    return np.column_stack([counts, *(table.reshape(len(counts), -1) for table in tables.values())]).astype(np.int64)
