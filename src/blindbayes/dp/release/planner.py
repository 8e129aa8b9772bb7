"""Plan one joint release from public facts alone.

    plan = plan_release(codebook, epsilon=1.0, rows=50_000)      # price, mechanism, cells and reasons; reads no data
    noisy = plan.release(count(source, plan.codebook), coins)    # one release of everything; the caller has charged the price
    parameters = fit_parameters(noisy, alpha=1.0)                # postprocessing

The plan decides how each feature is encoded (cells, moments, words or not at all), which noise is drawn, and how the budget
is shared. It depends on the codebook, epsilon, delta, the unit of privacy and the *declared* number of rows, never on data.
`plan.codebook` is the codebook to count with: numeric features have fine cells there, which the plan joins into the wider
cells that are released. A private fit (`private_fit`) calls this planner once more for its last stage, with what earlier
stages released. A table much unlike the tuning tables (`constants`) may do better with bins declared in its codebook, which a
plan leaves as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import msgspec

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric, Text
from blindbayes.dp.noise.exact_events import Number, budget_floor
from blindbayes.dp.release.cells import FINE, CellShape, likely_shape, public_shape
from blindbayes.dp.release.constants import (
    CELLS_OF_SIGNAL,
    CUTS,
    DROWNED_SIGNAL,
    LARGE_FEATURE,
    LOOK_CELLS,
    MAX_CELLS,
    MAX_GRID_POINTS,
    SUBSET_SIGNAL,
    UNDECLARED_ROWS,
)
from blindbayes.dp.release.release_plan import (
    CENTRED,
    WITH_DELTA,
    FeatureEncoding,
    NoisyClassCounts,
    ReleasePlan,
)
from blindbayes.errors import ConfigError, PrivacyError

_ONE_BY_ONE = 32  # numbers of features that are tried one after the other

JOINT_MECHANISMS = ("knorm", "discrete_laplace", "discrete_gaussian", "centred_gaussian")
MAX_EQUAL_POINTS = 2**52 // FINE
"""Grid points beyond which engines cannot divide them into fine cells of equal width."""
Encodings = tuple[FeatureEncoding, ...]


@dataclass(frozen=True)
class StageOutputs:
    """Outputs of earlier stages of a fit: the size of the table, the shape of its numbers, the features to keep."""

    codebook: Codebook  # counted with; fixed before the first stage
    class_counts: NoisyClassCounts | None
    shapes: Mapping[str, CellShape]
    recount: bool = False  # release class counts once more
    keep: frozenset[str] | None = None  # features to release; None: as many as noise does not bury


def plan_release(
    codebook: Codebook,
    *,
    epsilon: Number,
    delta: float = 0.0,
    mechanism: str | None = None,
    rows: int | None = None,
    rows_per_unit: int = 1,
    earlier: StageOutputs | None = None,
    staged: bool = False,
) -> ReleasePlan:
    """Return the best joint release for this codebook and budget.

    `rows` is the declared size of the table (by default the codebook's `expected_rows`): a public figure or a guess, never
    `len(X)`. It decides how fine the cells are and steadies the estimates. `rows_per_unit` is how many rows one person may
    have; 1 protects a record. `mechanism` names one for sums and tests; by default there is one pure mechanism and, with a
    delta, a Gaussian one, which is taken where it has clearly less noise. `earlier` is what stages before this one released;
    `staged` says that there will be some, so that features may be left out.
    """
    draft = _Draft(
        codebook,
        budget_floor(epsilon),
        delta,
        codebook.expected_rows if rows is None else rows,
        rows_per_unit,
        earlier,
    )
    draft.require_plannable(mechanism)
    names = draft.mechanisms(mechanism)
    signals = {name: draft.signal(name) for name in names}
    # Mechanisms are compared on the same cells: those of the one that can afford the fewest.
    chosen, noises = draft.pick_mechanism(names, draft.encodings(min(signals.values())))
    if staged and delta and len(names) > 1:  # on the few features that a fit would keep, another may have less noise
        likely = draft.plan(chosen, _encodings(codebook, draft.shapes, signals[chosen], joins=True), signals[chosen])
        chosen, noises = draft.pick_mechanism(names, _audible(likely, draft.size))
    signal = signals[chosen]
    plan = draft.plan(chosen, draft.encodings(signal), signal)
    return draft.without_buried(plan, (_why_mechanism(chosen, noises), draft.why_signal(signal)))


@dataclass(frozen=True)
class _Draft:
    """Public facts that all candidates of one plan share."""

    codebook: Codebook
    epsilon: Fraction
    delta: float
    rows: int | None
    rows_per_unit: int
    earlier: StageOutputs | None

    def require_plannable(self, mechanism: str | None) -> None:
        if self.codebook.provenance == "inferred":
            raise PrivacyError("a codebook inferred from the training data leaks them: declare one (Codebook.from_toml)")
        if mechanism is not None and mechanism not in JOINT_MECHANISMS:
            raise ConfigError(f"unknown mechanism {mechanism!r}: one of {', '.join(JOINT_MECHANISMS)}")
        if self.rows is not None and self.rows < 1:
            raise ConfigError("rows, the declared size of the table, must be at least one")
        if self.rows_per_unit < 1:
            raise ConfigError("rows_per_unit must be at least one: declare how many rows one person may have")
        if mechanism in WITH_DELTA and not self.delta:
            raise ConfigError(f"{mechanism} needs delta above zero, well below one over the number of rows")

    def mechanisms(self, mechanism: str | None) -> list[str]:
        if mechanism is not None:
            return [mechanism]
        # Noise that is centred within a class has no form for words, of which a record moves several.
        pure, gaussian = ("discrete_laplace", "discrete_gaussian") if self.codebook.texts else ("knorm", "centred_gaussian")
        return [pure, gaussian] if self.delta else [pure]

    @cached_property
    def size(self) -> int:
        """Rows that the plan is made for."""
        if self.rows is not None:
            return self.rows
        counts = None if self.earlier is None else self.earlier.class_counts
        return min(UNDECLARED_ROWS if counts is None else counts.rows, self.codebook.max_rows)

    @cached_property
    def shapes(self) -> dict[str, CellShape]:
        shapes: dict[str, CellShape] = {}
        for each in self.codebook.features:
            if isinstance(each, Numeric) and each.bins is None and each.spacing == "log":
                shapes[each.name] = public_shape(each)
            elif isinstance(each, Numeric) and each.bins is None and each.width > MAX_EQUAL_POINTS:
                shapes[each.name] = likely_shape(each)
        return shapes if self.earlier is None else {**shapes, **self.earlier.shapes}

    def plan(self, mechanism: str, encodings: Encodings, signal: float = 0.0, reasons: tuple[str, ...] = ()) -> ReleasePlan:
        earlier = self.earlier
        if earlier is not None:
            counted = earlier.codebook
        else:
            pairs = zip(self.codebook.features, encodings, strict=True)
            counted = self.codebook.with_features(_counted(feature, encoding) for feature, encoding in pairs)
        return ReleasePlan(
            self.codebook,
            counted,
            encodings,
            mechanism,
            self.epsilon,
            self.delta,
            self.rows,
            self.rows_per_unit,
            signal,
            reasons,
            None if earlier is None else earlier.class_counts,
            earlier is not None and earlier.recount,
        )

    def signal(self, mechanism: str) -> float:
        """Rows per class over the noise of one of `LOOK_CELLS` cells."""
        encodings = tuple(_encode(feature, self.shapes, lambda _: (LOOK_CELLS, "")) for feature in self.codebook.features)
        return signal_of(self.plan(mechanism, encodings), self.size)

    def encodings(self, signal: float) -> Encodings:
        # The values of a category are joined in the last stage of a fit alone.
        return _encodings(self.codebook, self.shapes, signal, joins=self.earlier is not None)

    def pick_mechanism(self, names: Sequence[str], encodings: Encodings) -> tuple[str, dict[str, float]]:
        """Return the mechanism with the least noise on these encodings, and the noise of each."""
        noises = {name: 1 / signal_of(self.plan(name, encodings), self.size, average_cell=True) for name in names}
        return min(names, key=lambda name: (noises[name], name in WITH_DELTA)), noises

    def without_buried(self, plan: ReleasePlan, reasons: tuple[str, ...]) -> ReleasePlan:
        """Return the plan without the features that were not kept, or that noise would bury."""
        earlier, encodings = self.earlier, plan.encodings
        if earlier is not None and earlier.keep is not None:
            encodings = _without(encodings, {at for at, each in enumerate(encodings) if each.feature not in earlier.keep})
            if not earlier.keep:
                why = "class counts alone: the model is one rule"
                return self.plan(plan.mechanism, encodings, plan.signal, (reasons[0], why))
        elif earlier is not None:
            encodings = _audible(plan, self.size)
        released = sum(encoding.kind != "nothing" for encoding in encodings)
        if released < len(encodings):
            spread = "the first in the codebook's order" if self.codebook.order else "evenly over the codebook"
            reasons = (*reasons, f"{released} of {len(encodings)} features, {spread}: noise would bury all of them")
        plan = self.plan(plan.mechanism, encodings, plan.signal, reasons)
        if any(isinstance(feature, Numeric) for feature in self.codebook.features):
            cells = cell_count(plan.signal)
            why = f"numeric features in {cells} cells: more would cost more in noise than they tell"
            return replace(plan, reasons=(*reasons, why))
        return plan

    def why_signal(self, signal: float) -> str:
        declared = "declared rows" if self.rows is not None else f"rows not declared, planned for {self.size}"
        if self.rows is None and self.earlier is not None and self.earlier.class_counts is not None:
            declared = f"{self.size} rows by noisy class counts"
        return f"signal {signal:.3g}: rows per class over the noise of one of {LOOK_CELLS} cells ({declared})"


def _audible(plan: ReleasePlan, rows: int) -> Encodings:
    """Return the encodings of as many features as noise does not bury: the first in a public order, or spread evenly.

    Noise grows with the number of features: a few that can be heard say more than many that cannot. Those with far more
    cells than the median go first.
    """
    encodings, smallest = plan.encodings, SUBSET_SIGNAL * 2 / len(plan.declared.classes)

    def buried(encodings: Encodings) -> bool:
        return signal_of(replace(plan, encodings=encodings), rows, average_cell=True) < smallest

    if not buried(encodings):
        return encodings
    large = LARGE_FEATURE * sorted(each.cells for each in encodings)[len(encodings) // 2]
    for index in sorted((at for at, each in enumerate(encodings) if each.cells > large), key=lambda at: -encodings[at].cells):
        encodings = _without(encodings, {index})
        if not buried(encodings):
            return encodings
    present = [index for index, each in enumerate(encodings) if each.kind != "nothing"]
    full, rank = encodings, {name: at for at, name in enumerate(plan.declared.order)}
    ranked = sorted(present, key=lambda at: rank.get(full[at].feature, len(rank))) if rank else []

    def candidate(count: int) -> Encodings:
        chosen = set(ranked[:count]) or {present[(2 * index + 1) * len(present) // (2 * count)] for index in range(count)}
        return _without(full, set(present) - chosen)

    low, high = 1, len(present)  # each plan looks at all features: in a wide table, halve before going one by one
    while high - low > _ONE_BY_ONE:
        middle = (low + high) // 2
        low, high = (low, middle) if buried(candidate(middle)) else (middle, high)
    for count in range(high - 1, 1, -1):
        encodings = candidate(count)
        if not buried(encodings):
            break
    return encodings


def _without(encodings: Encodings, dropped: set[int]) -> Encodings:
    why = "left out, so that noise does not bury the others"
    return tuple(
        FeatureEncoding(each.feature, "nothing", reason=why) if index in dropped else each
        for index, each in enumerate(encodings)
    )


def cell_count(signal: float) -> int:
    """Return the number of cells of a number.

    With r cells the squared bias of a histogram falls as 1 / r^2, and its noise grows as r^3 over the square of signal: each of
    r cells, in a release whose noise grows with its cells. Their sum is least at a multiple of signal to the power of 2/5.
    """
    return max(2, min(MAX_CELLS, round(CELLS_OF_SIGNAL * math.pow(min(signal, 1e6), 2 / 5))))


def _encodings(codebook: Codebook, shapes: Mapping[str, CellShape], signal: float, *, joins: bool) -> Encodings:
    cells = cell_count(signal)

    def rule(feature: Numeric) -> tuple[int, str]:
        if feature.name not in shapes and feature.width > MAX_GRID_POINTS:
            return 0, f"moments: {feature.width} grid points span too many orders of magnitude for equal cells"
        return cells, f"{cells} cells for this signal"

    return tuple(_encode(feature, shapes, rule, cells if joins and cells <= CUTS else None) for feature in codebook.features)


def _why_mechanism(chosen: str, noises: Mapping[str, float]) -> str:
    smallest = noises[chosen]
    others = [f"{name} has {noises[name] / smallest:.2f} times as much" for name in noises if name != chosen and smallest > 0]
    why = "the least noise" if smallest == min(noises.values()) else "without a delta, and hardly more noise"
    return f"{chosen}: {why}" + (f" ({', '.join(others)})" if others else "")


def signal_of(plan: ReleasePlan, rows: int, *, average_cell: bool = False) -> float:
    """Return rows per class (or in the average cell of a class) over the noise of a cell: root mean square over features.

    A word is rare by nature: text counts only where there is nothing else, and by the noise of one word.
    """
    squares, words = [], []
    for item, deviation in zip(plan.items, plan.deviations, strict=True):
        if item.kind == "words":
            words.append((deviation * item.bound) ** 2)
        elif item.kind != "classes":
            centred = 1.0 if plan.mechanism in CENTRED or item.number else (item.cells - 1) / item.cells
            squares.append(deviation**2 * centred * (item.cells**2 if average_cell else 1))
    squares = squares or words
    noise = math.sqrt(sum(squares) / len(squares)) if squares else 0.0
    return rows / len(plan.declared.classes) / noise if noise > 0 else math.inf


def require_signal(plan: ReleasePlan, rows: int, epsilon: float) -> None:
    """Raise `PrivacyError` if noise would drown every column of a study: its answers would only mislead."""
    if signal_of(plan, rows, average_cell=True) < DROWNED_SIGNAL:
        raise PrivacyError(
            f"at epsilon = {epsilon:g} and {rows} rows noise would drown every column: raise epsilon, bring more rows or "
            "declare fewer columns"
        )


def _encode(
    feature: Feature, shapes: Mapping[str, CellShape], rule: Callable[[Numeric], tuple[int, str]], values: int | None = None
) -> FeatureEncoding:
    """Return how a feature is released; `rule` gives the cells of a number, `values` those of a category."""
    name = feature.name
    if isinstance(feature, Text):
        return FeatureEncoding(name, "words", (0, feature.size), reason="its words")
    if isinstance(feature, Categorical):
        count = feature.size if values is None else min(values, feature.size)
        even = tuple(round(feature.size * at / count) for at in range(count + 1))
        why = "its values" if count == feature.size else f"its values in {count} cells for this signal"
        return FeatureEncoding(name, "cells", even, missing=feature.optional, reason=why)
    if feature.bins is not None:
        edges = tuple(range(feature.bins + 1))
        return FeatureEncoding(name, "cells", edges, missing=feature.optional, reason="bins of the codebook")
    if feature.width == 1:
        return FeatureEncoding(name, "nothing", reason="its bounds are equal: nothing to learn")
    cells, reason = rule(feature)
    if name in shapes:
        return shapes[name].encode(feature, cells, reason)
    if cells == 0:
        return FeatureEncoding(name, "moments", missing=feature.optional, reason=reason)
    fine = min(FINE, feature.width)
    edges = tuple(sorted({round(fine * at / cells) for at in range(cells + 1)}))
    return FeatureEncoding(name, "cells", edges, feature.optional, reason)


def _counted(feature: Feature, encoding: FeatureEncoding) -> Feature:
    """Return the feature as it is counted: with fine cells where it is released in cells."""
    if not isinstance(feature, Numeric) or feature.bins is not None or encoding.kind == "moments":
        return feature
    if encoding.places:
        return public_shape(feature).counted(feature)
    return msgspec.structs.replace(feature, bins=encoding.fine if encoding.kind == "cells" else 1, spacing="linear")
