"""The plan of one joint release, made from public facts alone, and the release itself.

    plan = plan_release(codebook, epsilon=1.0, rows=50_000)      # price, mechanism, cells and the reasons: no data is read
    noisy = plan.release(count(source, plan.codebook), coins)    # one release of everything; the caller has charged the price
    parameters = fit_parameters(noisy, alpha=1.0)                # post-processing

The plan decides how each numeric feature is represented (cells, moments, or not at all), which noise is drawn, and how the
budget is shared. It looks at the codebook, epsilon, delta, the unit of privacy and the *declared* number of rows, never at
data. `plan.codebook` is the codebook to count with: numeric features get fine cells there, which the plan joins into the
wider cells that are released.

The thresholds are constants, chosen on the papers' public datasets and on those that `benchmarks/private_accuracy.py` lists
as tuning; a table much unlike them may do better with bins declared in its codebook, which a plan leaves as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric, Text
from blindbayes.dp.noise.exact_events import Number, budget_floor
from blindbayes.dp.release.cells import FINE, CellShape, likely_shape, public_shape
from blindbayes.dp.release.noisy_parameters import MANY_GRID_POINTS, fit_parameters
from blindbayes.dp.release.release_plan import CENTRED, UNDECLARED_ROWS, WITH_DELTA, Cut, NoisyStatistics, ReleasePlan, Sized
from blindbayes.errors import ConfigError, PrivacyError

__all__ = ["JOINT_MECHANISMS", "NoisyStatistics", "ReleasePlan", "fit_parameters", "plan_release"]
JOINT_MECHANISMS = ("knorm", "discrete_laplace", "discrete_gaussian", "centred_gaussian")
REFERENCE_CELLS = 8
LEAST_SIGNAL = 0.2
"""Rows in an average cell over its noise below which features are not released: they would only mislead."""
SUBSET_SIGNAL = 4.0
"""Rows of a table of two classes in an average cell over its noise below which only some of the features are released; with
more classes less, since there is less to lose: the largest of many classes is seldom right."""
MANY_CLASSES = 10
CLASS_ROWS = 4
"""Rows of a class times epsilon below which a table of more than `MANY_CLASSES` is released by its class counts alone: which of
so many is the largest is then all that can be told."""
FEWEST = 2
MANY_CELLS = 4
"""A feature with this many times as many cells as most is the first to be left out where noise would bury all."""
WORTH_DELTA = 1.1
"""How many times as much noise a pure mechanism may have and is still taken: a delta is spent where it buys a tenth."""
MOST_EQUAL_POINTS = 2**52 // FINE
"""Grid points beyond which engines cannot divide them into fine cells of equal width."""
_CELLS = ((2.0, 2), (5.0, 3), (12.0, 4), (40.0, 6), (100.0, 12), (300.0, 16), (600.0, 24), (math.inf, 48))  # by signal
_VALUES = ((2.0, 2), (4.0, 3), (8.0, 4))
"""By signal, into how many cells the values of a category are joined, in the codebook's order; above, each has its own."""
_MOMENT_SIGNAL = 300.0


@dataclass(frozen=True)
class Seen:
    """What earlier stages of a release found, with noise: the size of the table, and the shape of its numbers."""

    codebook: Codebook  # what is counted with: fixed before the first stage
    sized: Sized | None
    shapes: Mapping[str, CellShape]
    recounted: bool = False  # class counts are to be released again
    kept: frozenset[str] | None = None  # features that are released; None: as many as noise does not bury
    chosen: bool = False  # they were chosen by the rows, and cells are planned for them alone


def plan_release(
    codebook: Codebook,
    *,
    epsilon: Number,
    delta: float = 0.0,
    mechanism: str | None = None,
    rows: int | None = None,
    rows_per_unit: int = 1,
    seen: Seen | None = None,
    staged: bool = False,
) -> ReleasePlan:
    """The best joint release for this codebook and budget, from public facts.

    `rows` is the declared size of the table (by default the codebook's `expected_rows`): a public figure or a guess, never
    `len(X)`; it decides how fine the cells are and steadies the estimates. `rows_per_unit` is how many rows one person may
    have (1: the unit of privacy is a record). `mechanism` names one for sums and tests: by default there is one pure mechanism
    and, with a delta, one with Gaussian noise, which is taken where it has clearly less. `seen` is what earlier stages of the
    same release found, with noise; `staged` says that there will be some, so that features may be left out.
    """
    exact = budget_floor(epsilon)
    if codebook.provenance == "inferred":
        raise PrivacyError("a codebook inferred from the training data leaks them: declare one (Codebook.from_toml)")
    if mechanism is not None and mechanism not in JOINT_MECHANISMS:
        raise ConfigError(f"unknown mechanism {mechanism!r}: one of {', '.join(JOINT_MECHANISMS)}")
    rows = codebook.expected_rows if rows is None else rows
    if rows is not None and rows < 1:
        raise ConfigError("rows, the declared size of the table, must be at least one")
    if rows_per_unit < 1:
        raise ConfigError("rows_per_unit must be at least one: declare how many rows one person may have")
    # Noise that is centred within a class has no form for words, of which a record moves several.
    pure, gaussian = ("discrete_laplace", "discrete_gaussian") if codebook.texts else ("knorm", "centred_gaussian")
    names = [mechanism] if mechanism is not None else [pure, gaussian] if delta else [pure]
    if mechanism in WITH_DELTA and not delta:
        raise ConfigError(f"{mechanism} needs delta above zero, well below one over the number of rows")

    sized = None if seen is None else seen.sized

    def draft(name: str, cuts: tuple[Cut, ...], signal: float, reasons: tuple[str, ...]) -> ReleasePlan:
        if seen is not None:
            counted = seen.codebook
        else:
            pairs = zip(codebook.features, cuts, strict=True)
            counted = codebook.with_features(_counted(feature, cut) for feature, cut in pairs)
        again = seen is not None and seen.recounted
        return ReleasePlan(codebook, counted, cuts, name, exact, delta, rows, rows_per_unit, signal, reasons, sized, again)

    shapes: dict[str, CellShape] = {}
    for each in codebook.features:
        if isinstance(each, Numeric) and each.bins is None and each.spacing == "log":
            shapes[each.name] = public_shape(each)
        elif isinstance(each, Numeric) and each.bins is None and each.width > MOST_EQUAL_POINTS:
            shapes[each.name] = likely_shape(each)
    if seen is not None:
        shapes |= seen.shapes

    size = rows if rows is not None else min(UNDECLARED_ROWS if sized is None else sized.rows, codebook.max_rows)
    kept = None if seen is None else seen.kept
    reference = tuple(_cut(feature, shapes, lambda _: (REFERENCE_CELLS, "")) for feature in codebook.features)
    if kept is not None and seen is not None and seen.chosen:
        reference = _without(reference, {at for at, each in enumerate(reference) if each.feature not in kept})
    signals = {name: _signal(draft(name, reference, 0.0, ()), size) for name in names}
    joins = seen is not None  # values of a category are joined in a staged release alone

    def cut(signal: float) -> tuple[Cut, ...]:
        return _cuts(codebook, shapes, signal, joins)

    plans = {name: draft(name, cut(signal), signal, ()) for name, signal in signals.items()}
    # Mechanisms are compared on the same cells: those of the one that can afford the fewest.
    fewest = min(plans.values(), key=lambda plan: plan.signal).cuts

    def compare(cuts: tuple[Cut, ...]) -> tuple[str, dict[str, float]]:
        noises = {name: 1 / _signal(draft(name, cuts, 0.0, ()), size, average_cell=True) for name in names}
        return min(names, key=lambda name: noises[name] * (WORTH_DELTA if name in WITH_DELTA else 1)), noises

    chosen, noises = compare(fewest)
    if staged and delta and len(names) > 1:  # on the few features that it would leave in another may have less noise
        signal = signals[chosen]
        chosen, noises = compare(_fewer(draft(chosen, _cuts(codebook, shapes, signal, True), signal, ()), size))
    plan = plans[chosen]
    reasons = [_why_mechanism(chosen, noises)]
    declared = "declared rows" if rows is not None else f"rows not declared, planned for {size}"
    if rows is None and sized is not None:
        declared = f"{size} rows by noisy class counts"
    reasons.append(f"signal {plan.signal:.3g}: rows per class over the noise of one of {REFERENCE_CELLS} cells ({declared})")
    if kept is not None:
        few = _without(plan.cuts, {at for at, each in enumerate(plan.cuts) if each.feature not in kept})
    else:
        few = _fewer(plan, size) if joins else plan.cuts
    some = sum(cut.kind != "nothing" for cut in few)
    if kept is not None and not kept:
        return draft(chosen, few, plan.signal, (reasons[0], "class counts alone: the model is made of rules"))
    if some < len(few):
        which = "those chosen" if seen is not None and seen.chosen else "evenly over the codebook"
        reasons.append(f"{some} of {len(few)} features, {which}: noise would bury all of them")
    plan = draft(chosen, few, plan.signal, ())
    classes = len(codebook.classes)
    lost = classes > MANY_CLASSES and size * exact < CLASS_ROWS * classes * rows_per_unit
    if lost or _signal(plan, size, average_cell=True) < LEAST_SIGNAL:
        reasons.append("noise would drown every feature: only the class counts are released, and the model predicts by them")
        cuts = tuple(Cut(feature.name, "nothing", reason="noise would drown it") for feature in codebook.features)
        return draft(chosen, cuts, plan.signal, tuple(reasons))
    if any(isinstance(feature, Numeric) for feature in codebook.features):
        reasons.append(f"numeric features in {_cell_count(plan.signal)} cells: more would cost more in noise than they tell")
    return draft(chosen, plan.cuts, plan.signal, tuple(reasons))


def _fewer(plan: ReleasePlan, rows: int) -> tuple[Cut, ...]:
    """Those features, evenly over the codebook, that noise leaves a signal: all of them where it does not bury them.

    Noise grows with the number of features: a few that can be heard tell more than many that cannot. Those with far more
    cells than most go first.
    """
    cuts, least = plan.cuts, SUBSET_SIGNAL * 2 / len(plan.declared.classes)

    def buried(cuts: tuple[Cut, ...]) -> bool:
        return _signal(replace(plan, cuts=cuts), rows, average_cell=True) < least

    if not buried(cuts):
        return cuts
    usual = MANY_CELLS * sorted(cut.cells for cut in cuts)[len(cuts) // 2]
    for large in sorted((at for at, cut in enumerate(cuts) if cut.cells > usual), key=lambda at: -cuts[at].cells):
        cuts = _without(cuts, {large})
        if not buried(cuts):
            return cuts
    there = [at for at, cut in enumerate(cuts) if cut.kind != "nothing"]
    full = cuts
    for kept in range(len(there) - 1, FEWEST - 1, -1):
        chosen = {there[(2 * at + 1) * len(there) // (2 * kept)] for at in range(kept)}
        cuts = _without(full, set(there) - chosen)
        if not buried(cuts):
            break
    return cuts


def _without(cuts: tuple[Cut, ...], gone: set[int]) -> tuple[Cut, ...]:
    why = "left out, so that noise does not bury the others"
    return tuple(Cut(cut.feature, "nothing", reason=why) if at in gone else cut for at, cut in enumerate(cuts))


def _cell_count(signal: float) -> int:
    return next(count for limit, count in _CELLS if signal < limit or math.isinf(limit))


def _cuts(codebook: Codebook, shapes: Mapping[str, CellShape], signal: float, joins: bool) -> tuple[Cut, ...]:
    """How each feature is released, by the signal."""
    cells = _cell_count(signal)
    values = next((count for limit, count in _VALUES if signal < limit), None) if joins else None

    def rule(feature: Numeric) -> tuple[int, str]:
        if feature.name not in shapes and signal >= _MOMENT_SIGNAL and feature.width > MANY_GRID_POINTS:
            return 0, f"moments: {feature.width} grid points span too many orders of magnitude for equal cells"
        return cells, f"{cells} cells for this signal"

    return tuple(_cut(feature, shapes, rule, values) for feature in codebook.features)


def _why_mechanism(chosen: str, noises: Mapping[str, float]) -> str:
    least = noises[chosen]
    others = [f"{name} has {noises[name] / least:.2f} times as much" for name in noises if name != chosen and least > 0]
    why = "the least noise" if least == min(noises.values()) else "without a delta, and hardly more noise"
    return f"{chosen}: {why}" + (f" ({', '.join(others)})" if others else "")


def _signal(plan: ReleasePlan, rows: int, *, average_cell: bool = False) -> float:
    """Rows per class (or in the average cell of a class) over the noise of a cell: root mean square over features.

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


def _cut(
    feature: Feature, shapes: Mapping[str, CellShape], rule: Callable[[Numeric], tuple[int, str]], values: int | None = None
) -> Cut:
    if isinstance(feature, Text):
        return Cut(feature.name, "words", (0, feature.size), reason="its words")
    if isinstance(feature, Categorical):
        count = feature.size if values is None else min(values, feature.size)
        even = tuple(round(feature.size * at / count) for at in range(count + 1))
        why = "its values" if count == feature.size else f"its values in {count} cells for this signal"
        return Cut(feature.name, "cells", even, missing=feature.optional, reason=why)
    if feature.bins is not None:
        return Cut(
            feature.name, "cells", tuple(range(feature.bins + 1)), missing=feature.optional, reason="bins of the codebook"
        )
    if feature.width == 1:
        return Cut(feature.name, "nothing", reason="its bounds are equal: nothing to learn")
    cells, reason = rule(feature)
    if feature.name in shapes:
        return shapes[feature.name].cut(feature, cells, reason)
    if cells == 0:
        return Cut(feature.name, "moments", missing=feature.optional, reason=reason)
    fine = min(FINE, feature.width)
    edges = sorted({round(fine * at / cells) for at in range(cells + 1)})
    return Cut(feature.name, "cells", tuple(edges), feature.optional, reason)


def _counted(feature: Feature, cut: Cut) -> Feature:
    """The feature as it is counted: with fine cells where it is released in cells."""
    if not isinstance(feature, Numeric) or feature.bins is not None or cut.kind == "moments":
        return feature
    if cut.places:
        return public_shape(feature).counted(feature)
    return msgspec.structs.replace(feature, bins=cut.fine if cut.kind == "cells" else 1, spacing="linear")
