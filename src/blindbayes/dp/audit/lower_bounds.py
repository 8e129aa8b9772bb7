"""Lower bounds on epsilon from samples, which can refute a privacy claim.

Given outputs on a table and on its neighbour, an event is looked for in the first third of the samples, anywhere and by any
means, and its probabilities are bounded in the other two alone (Clopper and Pearson). So the bound holds with the stated
confidence whatever was tried in the search; a bound above the claim refutes the claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy

special = lazy("scipy.special")

ALPHA = 1e-3
"""One minus the confidence of every bound: 99.9%."""
Floats = npt.NDArray[np.float64]
_THRESHOLDS = 64
_ATOMS = 8
_LEARN_FROM = 20_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on epsilon and the event that shows it, in words."""

    epsilon: float
    event: str
    often: float = 0.0  # share of certifying samples in the event, on the side where it is frequent
    seldom: float = 0.0


def low_bits(values: Floats) -> Floats:
    """Return the exponent of the lowest set bit of each number (0 for zero, 2000 if not finite): what adding floats leaks."""
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64), out=np.zeros(values.shape), where=whole != 0)
    return np.where(finite, np.where(whole != 0, exponent - 53 + lowest, 0.0), 2000.0)


@dataclass(frozen=True)
class _Scores:
    names: list[str]
    first: Floats
    second: Floats


def epsilon_lower(
    first: npt.NDArray[Any],
    second: npt.NDArray[Any],
    *,
    delta: float = 0.0,
    alpha: float = ALPHA,
    names: Sequence[str] | None = None,
    learn: bool = True,
) -> Bound:
    """Return a lower bound on epsilon, at confidence 1 - alpha, from outputs (rows) of a mechanism on two inputs.

    `learn` also trains classifiers to distinguish the two; without it only the given outputs are used.
    """
    one, other = _table(first), _table(second)
    search_one, search_other = len(one) // 3, len(other) // 3
    labels = list(names) if names is not None else [f"output {index}" for index in range(one.shape[1])]
    scores = _scores(one, other, search_one, search_other, labels) if learn else _Scores(labels, one, other)
    best = (-math.inf, "", 0, 0.0, "", False)
    for column, name in enumerate(scores.names):
        a, b = scores.first[:search_one, column], scores.second[:search_other, column]
        for threshold, kind, swapped, value in _candidates(a, b, delta, alpha):
            if value > best[0]:
                best = (value, name, column, threshold, kind, swapped)
    if not math.isfinite(best[0]):
        return Bound(0.0, "no event was found")
    _, name, column, threshold, kind, swapped = best
    a, b = scores.first[search_one:, column], scores.second[search_other:, column]
    if swapped:
        a, b = b, a
    hits_a, hits_b = int(_inside(a, threshold, kind).sum()), int(_inside(b, threshold, kind).sum())
    low = float(_lower(hits_a, len(a), alpha / 2)) - delta
    high = float(_upper(hits_b, len(b), alpha / 2))
    epsilon = math.log(low / high) if low > 0 else 0.0
    return Bound(max(0.0, epsilon), f"{name} {kind} {threshold:.6g}", hits_a / len(a), hits_b / len(b))


def _table(outputs: npt.NDArray[Any]) -> Floats:
    table = np.asarray(outputs, dtype=np.float64)
    table = table.reshape(len(table), -1)
    return np.nan_to_num(table, nan=1e300, posinf=1e301, neginf=-1e301)


def _scores(one: Floats, other: Floats, search_one: int, search_other: int, labels: list[str]) -> _Scores:
    """Return single outputs, their distance from the middle, and scores of two classifiers trained on the search part."""
    middle = np.median(one[:search_one], axis=0)
    parts_one, parts_other, names = [one], [other], list(labels)
    parts_one.append(-np.abs(one - middle))
    parts_other.append(-np.abs(other - middle))
    names += [f"closeness of {label}" for label in labels]
    a, b = np.hstack(parts_one), np.hstack(parts_other)
    learned_a, learned_b = _learned(a, b, search_one, search_other)
    return _Scores([*names, "linear score", "tree score"], np.hstack([a, learned_a]), np.hstack([b, learned_b]))


def _learned(a: Floats, b: Floats, search_a: int, search_b: int) -> tuple[Floats, Floats]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    search_a, search_b = min(search_a, _LEARN_FROM), min(search_b, _LEARN_FROM)
    train = np.vstack([a[:search_a], b[:search_b]])
    side = np.r_[np.zeros(search_a), np.ones(search_b)]
    middle = np.median(train, axis=0)
    spread = np.subtract(*np.percentile(train, [75, 25], axis=0))
    spread = np.where(spread > 0, spread, 1.0)

    def scaled(x: Floats) -> Floats:
        return np.clip((x - middle) / spread, -20, 20)

    linear = LogisticRegression(max_iter=300).fit(scaled(train), side)
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=max(5, len(train) // 100), random_state=0).fit(train, side)
    return tuple(  # type: ignore[return-value]
        np.column_stack([linear.decision_function(scaled(x)), tree.predict_proba(x)[:, 1]]) for x in (a, b)
    )


def _inside(scores: Floats, threshold: float, kind: str) -> npt.NDArray[np.bool_]:
    return np.asarray({">": scores > threshold, "<=": scores <= threshold, "=": scores == threshold}[kind])


def _candidates(a: Floats, b: Floats, delta: float, alpha: float) -> list[tuple[float, str, bool, float]]:
    """Return events on one score with their bounds on these samples: tails at quantiles, and single values."""
    pooled = np.sort(np.concatenate([a, b]))
    cuts = np.unique(pooled[np.rint(np.linspace(0, len(pooled) - 1, _THRESHOLDS)).astype(np.int64)])
    starts = np.flatnonzero(np.concatenate([[True], pooled[1:] != pooled[:-1]]))
    values, counts = pooled[starts], np.diff(np.append(starts, len(pooled)))
    atoms = values[np.argsort(counts)[::-1][:_ATOMS]]
    sorted_a, sorted_b = np.sort(a), np.sort(b)
    under_a, under_b = np.searchsorted(sorted_a, cuts, "right"), np.searchsorted(sorted_b, cuts, "right")
    at_a = np.searchsorted(sorted_a, atoms, "right") - np.searchsorted(sorted_a, atoms, "left")
    at_b = np.searchsorted(sorted_b, atoms, "right") - np.searchsorted(sorted_b, atoms, "left")
    out: list[tuple[float, str, bool, float]] = []
    for kind, where, hits_a, hits_b in (
        ("<=", cuts, under_a, under_b),
        (">", cuts, len(a) - under_a, len(b) - under_b),
        ("=", atoms, at_a, at_b),
    ):
        for swapped, (k, n), (j, m) in (
            (False, (hits_a, len(a)), (hits_b, len(b))),
            (True, (hits_b, len(b)), (hits_a, len(a))),
        ):
            low, high = _lower(k, n, alpha / 2) - delta, _upper(j, m, alpha / 2)
            with np.errstate(divide="ignore", invalid="ignore"):
                bound = np.where(low > 0, np.log(np.maximum(low, 1e-300) / high), -np.inf)
            at = int(np.argmax(bound))
            out.append((float(where[at]), kind, swapped, float(bound[at])))
    return out


def _lower(hits: Any, n: int, alpha: float) -> Any:
    """Clopper and Pearson's lower limit."""
    hits = np.asarray(hits, dtype=np.float64)
    return np.where(hits == 0, 0.0, special.betaincinv(np.maximum(hits, 1), n - hits + 1, alpha))


def _upper(hits: Any, n: int, alpha: float) -> Any:
    """Clopper and Pearson's upper limit."""
    hits = np.asarray(hits, dtype=np.float64)
    return np.where(hits == n, 1.0, special.betaincinv(hits + 1, np.maximum(n - hits, 1), 1 - alpha))
