"""Noise and minimum cells of studies over columns, in their public facts, tables and ledgers.

With `epsilon` each party's noise goes into its shares (`dp.distributed.column_noise`); with `min_cell` small counters are set
to 0 inside the circuit of shared_model. A study with either counts every value of every feature (`ColumnsSetup.guard`), and
with epsilon numbers are read in the cells that the plan chose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from blindbayes.codebook import Numeric
from blindbayes.data.columns import ColumnSource
from blindbayes.dp.accounting.statement import tuning_words
from blindbayes.dp.distributed.column_noise import ColumnNoise, PartyNoise
from blindbayes.dp.distributed.column_noise import Join as Way
from blindbayes.errors import ConfigError
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.shared_training.shared_model import Guard
from blindbayes.study.study import Study
from blindbayes.study.tasks.labels import describe_labels, law_of

S = TypeVar("S", ColumnsSetup, JoinSetup)


def noise_of(study: Study, agreed: ColumnsSetup | JoinSetup) -> ColumnNoise | None:
    """Return the noise of a study with epsilon, from public facts; None without."""
    if study.privacy.epsilon is None:
        return None
    if isinstance(agreed, ColumnsSetup):
        _require_one_holder(agreed)
        return _plan(study, agreed.owners, agreed.class_holder, agreed.rows, "aligned")
    return _plan(study, agreed.owners, agreed.class_holder, agreed.joined, "inner" if agreed.inner else "left")


def _require_one_holder(agreed: ColumnsSetup) -> None:
    if len(agreed.labelled) > 1:
        raise ConfigError(
            "with epsilon or label_epsilon one party alone counts the class: the others leave the class column out, and their "
            "columns are counted in shares"
        )


def _plan(study: Study, owners: Mapping[str, Iterable[str]], holder: str, rows: int, way: Way) -> ColumnNoise:
    features = {party: tuple(names) for party, names in owners.items()}
    expected = min(study.privacy.expected_rows or study.codebook.expected_rows or rows, rows)
    facts = (
        study.codebook.sha256,
        tuple(features.items()),
        holder,
        study.privacy.epsilon,
        study.privacy.delta,
        expected,
        way,
        rows,
    )
    plan = _plans.get(facts)
    if plan is None:
        book, epsilon = study.codebook, study.privacy.epsilon or 0.0
        plan = ColumnNoise.make(
            book, features, holder, epsilon=epsilon, delta=study.privacy.delta, rows=expected, join=way, max_rows=rows
        )
        if len(_plans) > 15:
            _plans.clear()
        _plans[facts] = plan
    return plan


_plans: dict[Any, ColumnNoise] = {}  # made from public facts, and asked for several times in a run


def guarded(study: Study, agreed: S) -> S:
    """Return the public facts of a study with its guard; unchanged without one."""
    law = law_of(study)
    if study.privacy.epsilon is None and not study.limits.min_cell and law is None:
        return agreed
    if isinstance(agreed, JoinSetup) and agreed.max_multiplicity != 1:  # who writes a person several times fills a cell alone
        raise ConfigError(
            "with epsilon, label_epsilon or min_cell an identifier stands for one record at each party: set duplicates = "
            "'first' or 'reject', or multiplicity = 1"
        )
    if law is not None and isinstance(agreed, ColumnsSetup):
        _require_one_holder(agreed)
    noise = noise_of(study, agreed)
    book = agreed.codebook if noise is None else noise.counted
    if isinstance(agreed, ColumnsSetup):
        book = book.with_features(msgspec.structs.replace(feature, optional=True) for feature in book.features)
    bits, floors = (0, ()) if noise is None else (noise.noise_bits, noise.floors)
    if law is not None:  # debiasing widens noise
        floors = tuple((name, floor * law.whole / law.units) for name, floor in floors)
    return replace(agreed, codebook=book, guard=Guard(study.limits.min_cell, bits, floors, (1, 0) if law is None else law.odds))


def counted(study: Study, agreed: ColumnsSetup | JoinSetup, source: ColumnSource) -> ColumnSource:
    """Return the table as it is counted: in the planned cells, and lenient, so that no row is an error."""
    noise = noise_of(study, agreed)
    if noise is None:
        return source if law_of(study) is None else replace(source, lenient=True)
    names = {feature.name for feature in source.features}
    features = tuple(feature for feature in noise.counted.features if feature.name in names)
    return replace(source, codebook=noise.counted, features=features, lenient=True)


ROWS_PER_CELL = 10
"""Rows per value and class, on average, below which a column without noise is named to those who approve a study."""


def single_readings(study: Study, agreed: ColumnsSetup | JoinSetup) -> list[str]:
    """Return what lets one answer reveal one person's class in a study without noise; empty with epsilon."""
    if study.privacy.epsilon is not None:
        return []
    rows, classes = agreed.rows if isinstance(agreed, ColumnsSetup) else agreed.joined, len(study.codebook.classes)
    fine = [item.name for item in study.codebook.features if item.counted and rows < ROWS_PER_CELL * item.size * classes]
    risks = []
    if fine:
        risks.append(
            f"{', '.join(fine)}: fewer than {ROWS_PER_CELL} rows per value and class. A value that one person alone has turns "
            "an answer into that person's class, unless min_cell hides it: join values, or set epsilon"
        )
    if study.weights:
        risks.append(
            "class_weight was set by the study's author. Weights that offset the class counts make one answer decide between "
            "classes of one person: ask why they are needed, or set epsilon"
        )
    return risks


def guard_local(
    local: Mapping[str, Any], columns: ColumnsSetup, own_noise: PartyNoise | None, max_rows: int | None = None
) -> dict[str, Any]:
    """Return a party's statistics of its own columns as the circuit would: with its noise, and small counters at 0.

    `max_rows` is the limit on its rows, if that is not the study's number.
    """
    guard, rows = columns.guard, columns.rows if max_rows is None else max_rows

    def enough(counts: Any) -> Any:
        return np.asarray(counts, dtype=object) >= guard.min_cell

    def guarded_counts(counts: Any, noise: Any) -> Any:
        raw = np.asarray(counts, dtype=object) + noise
        if guard.min_cell:
            raw = np.where(enough(raw), np.minimum(raw, rows), 0)
        return np.clip(guard.debiased(raw), 0, rows * guard.units)

    def plain(table: Any) -> Any:
        return [plain(row) if isinstance(row, np.ndarray) else int(row) for row in table]

    totals = guarded_counts(local["class_counts"], 0 if own_noise is None else np.array(own_noise.class_counts, dtype=object))
    result: dict[str, Any] = {"class_counts": plain(totals), "statistics": local["statistics"]}
    named = dict(local["statistics"])
    if not named:
        return result
    # The sub-statistics' own class counts serve nothing but that a table is not empty.
    made: dict[str, Any] = {"class_counts": [1] * len(totals), "counts": {}, "n": {}, "sums": {}, "squares": {}}
    for name, table in named["counts"].items():
        made["counts"][name] = plain(guarded_counts(table, 0 if own_noise is None else own_noise.tables[name]))
    for name, total in named["sums"].items():
        noise = np.zeros((len(total), 3), dtype=object) if own_noise is None else own_noise.tables[name]
        n = guarded_counts(named["n"][name], noise[:, 0])
        there = enough(named["n"][name] + noise[:, 0]) if guard.min_cell else True
        first, second = (
            guard.debiased(np.where(there, np.array(each, dtype=object) + noise[:, at], 0))
            for at, each in ((1, total), (2, named["squares"][name]))
        )
        made["n"][name] = plain(n)
        pairs = [_moments(columns, name, *each) for each in zip(n, first, second, strict=True)]
        made["sums"][name], made["squares"][name] = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {**result, "statistics": made}


def _moments(columns: ColumnsSetup, name: str, n: int, total: int, square: int) -> tuple[int, int]:
    """Clip sums to the range that n values within the bounds allow, and to the minimum variance."""
    feature = columns.codebook.feature(name)
    if not isinstance(feature, Numeric) or n == 0:
        return 0, 0
    if not columns.guard.estimates:
        return int(total), int(square)
    size = max(abs(feature.code_low), abs(feature.code_high))
    floor = dict(columns.guard.floors).get(name, 0.0) * feature.scale**2
    total = max(-n * size, min(int(total), n * size))
    minimum = math.ceil(total * total / n + n * floor)
    return total, max(minimum, min(int(square), n * size * size))


def describe_guard(study: Study, agreed: ColumnsSetup | JoinSetup) -> list[str]:
    """Describe the promise of noise and of a minimum cell, and its limits."""
    noise, min_cell = noise_of(study, agreed), agreed.guard.min_cell
    words = [] if noise is None else [noise.words(), f"Tuning. {tuning_words(study.privacy.tuning_note)}"]
    words += describe_labels(study, agreed.class_holder)
    if not min_cell:
        return words
    return [
        *words,
        f"Counters below {min_cell} (of a class, or of a value in a class) are set to 0 inside the circuit, after noise if "
        "there is any; nobody learns which. So a counter of fewer people says nothing. It is no differential privacy: "
        f"anyone who knows the class of {min_cell - 1} people can put them beside one more, and learns that one's class "
        "from whether the counter is there. Against tables made up to single out a person set epsilon.",
    ]
