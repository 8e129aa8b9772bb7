"""The audit: an attempt to refute the privacy claim of an estimator.

1. **Loss**: a lower bound on epsilon, at 99.9%, on worst-case neighbours.
2. **Low bits**: whether the lowest bit of a floating point output distinguishes two neighbours.

`make audit` adds goodness of fit of the exact samplers and the sensitivity of our own releases (tests/audits).

A claim is *refuted* by any failed check, and *not refuted* otherwise; an audit never proves privacy (PROOFS.md does).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric, Text
from blindbayes.dp.accounting.sensitivity import ADJACENCY
from blindbayes.dp.audit.lower_bounds import ALPHA, Bound, epsilon_lower, low_bits
from blindbayes.errors import ConfigError

Part = Literal["samplers", "loss", "low bits", "sensitivity"]
Adjacency = Literal["add or remove", "substitute"]


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
    delta = f", delta {claim.delta:.3g}" if claim.delta else ""
    shown = f"{bound.event}: {bound.often:.3g} against {bound.seldom:.3g}"
    return f"epsilon >= {bound.epsilon:.3f} against {claim.epsilon:g}{delta} claimed ({shown})"


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
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> Iterator[Check]:
    """Run both parts for anything with `fit(X, y)`, fitted `draws` times on each table of each pair.

    `progress` is called after each fit with the number of fits so far, that of all fits, and the name of the pair.

    Under `substitute` only pairs that keep the number of records are neighbours. Outputs whose number depends on the data
    (an empty class that vanishes) distinguish the tables with certainty and are reported so.
    """
    if adjacency not in (ADJACENCY, "substitute"):
        raise ConfigError("adjacency is `add or remove` or `substitute`")
    chosen = [pair for pair in pairs if adjacency == ADJACENCY or pair.distance == 2]
    fits = itertools.count(1)

    def output(X: npt.NDArray[Any], y: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
        row = np.ravel(observe(factory().fit(X, y)))
        progress(next(fits), 2 * draws * len(chosen), name)
        return row

    for pair in chosen:
        steps = pair.distance if adjacency == ADJACENCY else 1
        allowed = steps * epsilon
        slack = delta * sum(math.exp(epsilon * step) for step in range(steps))  # group privacy
        samples = [[output(*table, pair.name) for _ in range(draws)] for table in (pair.first, pair.second)]
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
