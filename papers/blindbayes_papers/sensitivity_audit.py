"""The audit of a sensitivity: records enumerated, each change of the integers before noise within its bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Text
from blindbayes.dp.accounting.sensitivity import IntVector, Sensitivity
from blindbayes.dp.audit.empirical import Check
from blindbayes.errors import ConfigError
from blindbayes.statistics import Bags
from blindbayes.statistics.layout import Layout

_TABLES = 20_000  # tables enumerated at most


class ClaimedRelease(Protocol):
    """The integers before noise, and the bounds claimed for them."""

    @property
    def codebook(self) -> Codebook: ...

    @property
    def sensitivity(self) -> Sensitivity: ...

    def apply(self, vector: IntVector) -> IntVector: ...


Value = int | tuple[int, ...] | None  # a value index, a code, the words of a document, or missing
Record = tuple[int, tuple[Value, ...]]  # a class, and a value for each feature


def _values(feature: Feature) -> list[Value]:
    """Return all values of a small domain, and corner cases of a large one.

    For numbers: both ends, their neighbours and the middle. For text: no words, one word often, each word once, and documents
    longer than the bound.
    """
    values: list[Value]
    if isinstance(feature, Text):
        long, every = 3 * feature.reach, tuple(range(feature.size))
        values = [
            (),
            (0,),
            (0,) * feature.reach,
            (feature.size - 1,) * long,
            every,
            tuple(at % feature.size for at in range(long)),
        ]
    elif isinstance(feature, Categorical):
        values = list(range(feature.size))
    elif feature.width <= 16:
        values = list(range(feature.code_low, feature.code_high + 1))
    else:
        low, high = feature.code_low, feature.code_high
        values = [low, low + 1, -1, 0, 1, high - 1, high]
    return [*values, None] if feature.optional else values


def records(codebook: Codebook) -> list[Record]:
    """Return every record if there are few; otherwise, per class, every value of each feature with the others at both ends."""
    domains = [_values(feature) for feature in codebook.features]
    labels = range(len(codebook.classes))
    if math.prod(len(domain) for domain in domains) * len(labels) <= 200:
        return [(label, values) for label in labels for values in itertools.product(*domains)]
    out: list[Record] = []
    for label in labels:
        for base in (tuple(domain[0] for domain in domains), tuple(domain[-1] for domain in domains)):
            for index, domain in enumerate(domains):
                out += [(label, (*base[:index], value, *base[index + 1 :])) for value in domain]
    return list(dict.fromkeys(out))


def statistics_of(codebook: Codebook, table: Sequence[Record]) -> IntVector:
    """Return the statistics vector of a table of such records, counted one by one."""
    layout = Layout(codebook)
    place = {name: index for index, name in enumerate(codebook.names)}
    vector = np.zeros(layout.size, dtype=object)
    for label, values in table:
        for group in layout.groups:
            at = group.start + label * group.columns
            if group.feature is None:
                vector[at] += 1
                continue
            value = values[place[group.feature.name]]
            if value is None:
                continue
            if isinstance(group.feature, Text) and isinstance(value, tuple):
                vector[at : at + group.columns] += 1 if group.kind == "n" else _counted_words(value, group.feature)
            elif isinstance(group.feature, Text) or isinstance(value, tuple):
                raise ConfigError("a document belongs to a feature that is text")
            elif group.kind == "count":
                vector[at + (value if isinstance(group.feature, Categorical) else group.feature.bin_of(value))] += 1
            else:
                vector[at] += {"n": 1, "sum": value, "square": value * value}[group.kind]
    return vector


def _counted_words(document: tuple[int, ...], feature: Text) -> npt.NDArray[np.int64]:
    """Count the words of a document with the code that reads tables."""
    words, one = np.array(document, dtype=np.int64), np.ones(1, dtype=bool)
    bags = Bags.from_tokens(np.zeros(len(words), dtype=np.int64), words, one, feature.size).counting(feature)
    return np.bincount(bags.words, bags.times, minlength=feature.size).astype(np.int64)


def block_changes(sensitivity: Sensitivity, difference: IntVector) -> list[int]:
    """Return the L1 change in each block, of the difference of two vectors."""
    parts = np.split(np.abs(difference), np.cumsum([block.size for block in sensitivity.blocks])[:-1])
    return [int(part.sum()) for part in parts]


def audit_sensitivity(released: ClaimedRelease) -> Iterator[Check]:
    """Check tables of up to two records, each with one more: L1 within every block, L1, L2 and Linf overall."""
    codebook, claim = released.codebook, released.sensitivity
    space = records(codebook)
    sizes = [size for size in (0, 1, 2) if math.comb(len(space) + size - 1, size) * len(space) <= _TABLES or size == 0]
    worst, tables = [0] * len(claim.blocks), 0
    l1 = l2 = linf = 0
    for size in sizes:
        for table in itertools.combinations_with_replacement(space, size):
            before = released.apply(statistics_of(codebook, table))
            for record in space:
                change = np.abs(released.apply(statistics_of(codebook, [*table, record])).astype(object) - before)
                worst = [max(pair) for pair in zip(worst, block_changes(claim, change), strict=True)]
                l1, l2, linf = max(l1, int(change.sum())), max(l2, int((change**2).sum())), max(linf, int(change.max()))
                tables += 1
    for block, largest in zip(claim.blocks, worst, strict=True):
        finding = f"largest change {largest} of {block.bound} allowed, {tables} pairs"
        yield Check("sensitivity", f"{block.kind} {block.name}", largest <= block.bound, finding, largest, block.bound)
    one = replace(claim, rows_per_unit=1)
    for norm, seen, allowed in (("L1", l1, one.l1), ("squared L2", l2, one.l2_squared), ("Linf", linf, one.linf)):
        yield Check("sensitivity", norm, seen <= allowed, f"largest change {seen} of {allowed} allowed", seen, allowed)
