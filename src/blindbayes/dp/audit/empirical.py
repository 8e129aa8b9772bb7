"""The audit: an attempt to refute a privacy claim, in four parts.

1. **Samplers**: goodness of fit of every exact sampler (of our own, in tests/audits).
2. **Loss**: a lower bound on epsilon, at 99.9%, on worst-case neighbours.
3. **Low bits**: whether the lowest bit of a floating point output distinguishes two neighbours.
4. **Sensitivity**: records enumerated, each change of the integers before noise within its bound.

A claim is *refuted* by any failed check, and *not refuted* otherwise; an audit never proves privacy (PROOFS.md does).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric, Text
from blindbayes.dp.accounting.sensitivity import ADJACENCY, IntVector, Sensitivity
from blindbayes.dp.audit.lower_bounds import ALPHA, Bound, epsilon_lower, low_bits
from blindbayes.dp.noise.mechanisms import Mechanism
from blindbayes.dp.release.release_plan import ReleasePlan
from blindbayes.errors import ConfigError
from blindbayes.statistics import Bags, Statistics
from blindbayes.statistics.layout import Layout

Part = Literal["samplers", "loss", "low bits", "sensitivity"]
Adjacency = Literal["add or remove", "substitute"]
_TABLES = 20_000  # tables enumerated at most in part 4


@dataclass(frozen=True, slots=True)
class Check:
    """One check, its finding, and whether the claim survived it."""

    part: Part
    name: str
    passed: bool
    finding: str
    measured: float | None = None
    claimed: float | None = None
    control: bool = False  # a planted fault: passing means that the audit saw it


@dataclass
class Report:
    """All checks of one audit."""

    subject: str
    checks: list[Check] = field(default_factory=list)

    @property
    def failures(self) -> list[Check]:
        """The checks that refute the claim."""
        return [check for check in self.checks if not check.passed and not check.control]

    @property
    def blind_spots(self) -> list[Check]:
        """Planted faults that were not detected: there the audit shows nothing, and needs more draws."""
        return [check for check in self.checks if not check.passed and check.control]

    @property
    def verdict(self) -> Literal["refuted", "inconclusive", "not refuted"]:
        """Verdict of all checks."""
        return "refuted" if self.failures else "inconclusive" if self.blind_spots else "not refuted"

    def to_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "confidence": 1 - ALPHA,
            "checks": [asdict(check) for check in self.checks],
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """One (epsilon, delta) that a mechanism promises."""

    epsilon: float
    delta: float


def describe_bound(bound: Bound, claim: Claim) -> str:
    """Describe a bound against a claim."""
    delta = f", delta {claim.delta:.3g}" if claim.delta else ""
    shown = f"{bound.event}: {bound.often:.3g} against {bound.seldom:.3g}"
    return f"epsilon >= {bound.epsilon:.3f} against {claim.epsilon:g}{delta} claimed ({shown})"


# -- part 4 --------------------------------------------------------------------------------------------------------------


class ClaimedRelease(Protocol):
    """A release for part 4: the integers before noise, and the bounds claimed for them."""

    @property
    def codebook(self) -> Codebook: ...

    @property
    def sensitivity(self) -> Sensitivity: ...

    def apply(self, vector: IntVector) -> IntVector: ...


@dataclass(frozen=True)
class PlannedTables:
    """The exact integers of a plan, before its independent noise is added."""

    plan: ReleasePlan

    @property
    def codebook(self) -> Codebook:
        return self.plan.codebook

    @property
    def sensitivity(self) -> Sensitivity:
        if not isinstance(self.plan.noise, Mechanism):
            raise ConfigError(f"{self.plan.mechanism} has a norm of its own: audit a plan with discrete_laplace")
        return self.plan.noise.sensitivity

    def apply(self, vector: IntVector) -> IntVector:
        tables = self.plan.tables(Statistics(Layout(self.codebook), np.asarray(vector)))
        return np.concatenate([table.ravel() for table in tables])


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


def audit_sensitivity(released: ClaimedRelease) -> Iterator[Check]:
    """Run part 4 on tables of up to two records, each with one more: L1 within every block, L1, L2 and Linf overall."""
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
                worst = [max(pair) for pair in zip(worst, claim.block_changes(change), strict=True)]
                l1, l2, linf = max(l1, int(change.sum())), max(l2, int((change**2).sum())), max(linf, int(change.max()))
                tables += 1
    for block, largest in zip(claim.blocks, worst, strict=True):
        finding = f"largest change {largest} of {block.bound} allowed, {tables} pairs"
        yield Check("sensitivity", f"{block.kind} {block.name}", largest <= block.bound, finding, largest, block.bound)
    one = replace(claim, rows_per_unit=1)
    for norm, seen, allowed in (("L1", l1, one.l1), ("squared L2", l2, one.l2_squared), ("Linf", linf, one.linf)):
        yield Check("sensitivity", norm, seen <= allowed, f"largest change {seen} of {allowed} allowed", seen, allowed)


# -- estimators ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeighbouringTables:
    """Two tables and how many records were added or removed between them (a substitution counts as two)."""

    name: str
    first: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    second: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    distance: int


def worst_pairs(codebook: Codebook, rows: int = 12) -> list[NeighbouringTables]:
    """Return neighbouring tables: a class loses its last record, one of two, or the most distant; class and value swap."""
    labels = codebook.classes
    if len(labels) < 2:
        raise ConfigError("worst-case neighbours need two classes")
    low, high = ([_example(feature, end) for feature in codebook.features] for end in (0, -1))
    base = [(low, labels[0])] * rows
    tables = {
        "last record of a class": ([*base, (low, labels[1])], base, 1),
        "removal from a class of two": ([*base, (low, labels[1]), (low, labels[1])], [*base, (low, labels[1])], 1),
        "one record at the far end": ([*base, (low, labels[1]), (high, labels[0])], [*base, (low, labels[1])], 1),
        "class swap": ([*base, (low, labels[1]), (low, labels[0])], [*base, (low, labels[1]), (low, labels[1])], 2),
        "value from low to high": (
            [*base, (low, labels[1]), (low, labels[1])],
            [*base, (low, labels[1]), (high, labels[1])],
            2,
        ),
    }
    return [
        NeighbouringTables(name, _arrays(a, codebook), _arrays(b, codebook), distance)
        for name, (a, b, distance) in tables.items()
    ]


def _example(feature: Feature, end: int) -> Any:
    if isinstance(feature, Categorical):
        return feature.values[end]
    if isinstance(feature, Text):  # an empty mail would be a missing one
        return "---" if end == 0 else " ".join(feature.words * (3 * feature.reach))
    return feature.low if end == 0 else feature.high


def _arrays(table: Sequence[tuple[list[Any], str]], codebook: Codebook) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    numeric = all(isinstance(feature, Numeric) for feature in codebook.features)
    X = np.array([row for row, _ in table], dtype=np.float64 if numeric else object)
    return X, np.array([label for _, label in table])


def observed(estimator: Any) -> npt.NDArray[np.float64]:
    """Return what a fitted estimator shows: its noisy statistics, or else every number in its fitted attributes."""
    statistics = getattr(estimator, "statistics_", None)
    if statistics is not None:
        return np.asarray([float(value) for value in statistics.vector])
    parts: list[npt.NDArray[np.float64]] = []
    for name in sorted(vars(estimator)):
        if name.endswith("_") and not name.startswith("_"):
            value = getattr(estimator, name)
            for item in value.values() if isinstance(value, Mapping) else [value]:
                array = np.asarray(item)
                if array.dtype.kind in "fiu":
                    parts.append(array.astype(np.float64).ravel())
    if not parts:
        raise ConfigError("the estimator shows no numbers: pass a function that reads what it releases")
    return np.concatenate(parts)


def audit_estimator(
    factory: Callable[[], Any],
    pairs: Sequence[NeighbouringTables],
    *,
    epsilon: float,
    delta: float = 0.0,
    adjacency: Adjacency = "add or remove",
    draws: int = 2000,
    observe: Callable[[Any], npt.NDArray[Any]] = observed,
) -> Iterator[Check]:
    """Run parts 2 and 3 for anything with `fit(X, y)`, fitted `draws` times on each table of each pair.

    Under `substitute` only pairs that keep the number of records are neighbours. Outputs whose number depends on the data
    (an empty class that vanishes) distinguish the tables with certainty and are reported so.
    """
    if adjacency not in (ADJACENCY, "substitute"):
        raise ConfigError("adjacency is `add or remove` or `substitute`")
    chosen = [pair for pair in pairs if adjacency == ADJACENCY or pair.distance == 2]
    for pair in chosen:
        steps = pair.distance if adjacency == ADJACENCY else 1
        allowed = steps * epsilon
        slack = delta * sum(math.exp(epsilon * step) for step in range(steps))  # group privacy
        samples = [[np.ravel(observe(factory().fit(X, y))) for _ in range(draws)] for X, y in (pair.first, pair.second)]
        lengths = [{len(row) for row in side} for side in samples]
        if not lengths[0] & lengths[1]:
            yield Check(
                "loss", pair.name, False, "the number of outputs distinguishes the tables with certainty", math.inf, allowed
            )
            continue
        width = max(lengths[0] | lengths[1])
        first, second = (np.array([np.pad(r, (0, width - len(r)), constant_values=np.nan) for r in side]) for side in samples)
        looks: list[tuple[Part, Any, Any]] = [("loss", first, second)]
        if not all(np.array_equal(side, np.rint(side), equal_nan=True) for side in (first, second)):
            looks.append(("low bits", low_bits(first), low_bits(second)))
        for part, one, other in looks:
            bound = epsilon_lower(one, other, delta=slack, alpha=ALPHA / (2 * len(chosen)))
            finding = describe_bound(bound, Claim(allowed, slack))
            yield Check(part, pair.name, bound.epsilon <= allowed, finding, bound.epsilon, allowed)
