"""Fixed-point widths of a shared model, from public facts alone.

A score is a sum over *selectors*: tables whose entry 0 is 0. A categorical or binned feature is one selector with an entry per
value (entry 0: missing). A Gaussian score A z^2 + B z + C is a sum of selectors with two entries: one for "present" (C), one
per bit j of the code z (B 2^j, the top bit negative: two's complement), one per bit j of z^2 (A 2^j). So every entry has the
scale of the score, and its width follows from the score's range.

All entries are integers modulo 2^bits, `fraction` bits after the point. Only differences between classes are kept, and
`bits` is chosen so that no difference of two scores can reach 2^(bits - 1): overflow cannot happen. Out of the public facts
(codebook, number of rows, alpha) follow

- a histogram cell: ln P lies in [ln(alpha / (n + alpha r)), 0];
- a Gaussian: codes and means lie in the codebook's bounds (queries are clamped to them), variances in
  [variance_floor, (largest |code|)^2], so ln p lies in [-(range)^2 / (2 floor) - ln(largest variance)/2, -ln(floor)/2];
- the prior: [-ln n, 0], and a class without rows is put below everything else.

`tie_bound`: the class equals that of plain classification whenever the two best plain scores differ by more than this (and by
more than the plain classifier's own floating point is off).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Feature, Numeric
from blindbayes.crypto.limbs import MAX_LIMBS, limbs_for
from blindbayes.crypto.logarithm import ln_error
from blindbayes.errors import ConfigError
from blindbayes.statistics import MISSING
from blindbayes.wire import U64Array

Choices = npt.NDArray[np.uint8] | U64Array
FRACTION = 24
MIN_FRACTION = 20  # taken where it saves a second 64-bit limb
_ALPHA_BITS = 24
_FLOOR_BITS = 56  # significant bits of a variance floor: as many as a float has, and some for the grid


@dataclass(frozen=True, slots=True)
class HistogramLayout:
    """A categorical or binned feature."""

    feature: Feature
    size: int

    @property
    def entries(self) -> int:
        """Number of entries of its selector: missing, then the values."""
        return self.size + 1

    @property
    def selectors(self) -> int:
        return 1

    def choices(self, codes: npt.NDArray[np.int64]) -> Choices:
        chosen = (codes + 1)[:, None]
        return chosen.astype(np.uint8) if self.entries <= 256 else chosen.astype(np.uint64)


@dataclass(frozen=True, slots=True)
class GaussianLayout:
    """A Gaussian feature. The variance floor is floor / 2^floor_shift in squared grid steps."""

    feature: Numeric
    magnitude: int
    code_bits: int
    square_bits: int
    floor: int
    floor_shift: int
    floor_error: float  # relative, of rounding the floor

    @property
    def entries(self) -> int:
        return 2

    @property
    def selectors(self) -> int:
        """Number of selectors: present, bits of z, bits of z^2."""
        return 1 + self.code_bits + self.square_bits

    def choices(self, codes: npt.NDArray[np.int64]) -> Choices:
        """Return the selectors of each code as bits, shape (rows, selectors)."""
        missing = codes == MISSING
        present = np.where(missing, 0, codes)
        size = np.abs(present).astype(np.uint64)
        chosen = [(~missing).view(np.uint8)[:, None], _bits(present.astype(np.uint64), self.code_bits)]
        if self.square_bits <= 64:
            chosen.append(_bits(size * size, self.square_bits))
        else:
            high, low = _wide_square(size)
            chosen += [_bits(low, 64), _bits(high, self.square_bits - 64)]
        return np.concatenate(chosen, axis=1)


FeaturePlan = HistogramLayout | GaussianLayout


@dataclass(frozen=True, slots=True)
class Guard:
    """The guards between exact counters and the model: randomised labels, noise of both parties, suppressed cells. Public.

    With a guard every feature has a counter for each of its values, and denominators are the sums of what is left of them.
    """

    min_cell: int = 0  # counters below it are set to 0 inside the circuit, after noise
    noise_bits: int = 0  # the noise of both parties on a counter is less than 2 to this; 0: no noise
    floors: tuple[tuple[str, float], ...] = ()  # least variances of Gaussian features, in their own unit squared
    odds: tuple[int, int] = (1, 0)  # weights with which a label was kept, and turned into each other class, before counting

    def __post_init__(self) -> None:
        if len(self.odds) != 2 or not 0 <= self.odds[1] < self.odds[0] <= 1 << 20:
            raise ConfigError("a label is kept with a larger weight than it is turned into another, at most 2^20")
        if self.min_cell < 0 or not (self.noise_bits == 0 or 2 <= self.noise_bits <= 48):
            raise ConfigError("min_cell is not negative, and noise takes 2 to 48 bits")

    @property
    def acts(self) -> bool:
        return self.min_cell > 0 or self.estimates

    @property
    def randomised(self) -> bool:
        return self.odds[1] > 0

    @property
    def estimates(self) -> bool:
        """True if counters are estimates, which may be negative or add up to more than there are rows."""
        return self.noise_bits > 0 or self.randomised

    @property
    def units(self) -> int:
        """The weight of one row in the circuit: debiased counts are whole numbers of 1 / units."""
        return self.odds[0] - self.odds[1]

    def debiased(self, sums: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return unbiased estimates of sums over the true labels, times `units`, from those over randomised ones.

        Classes are along the first axis, in whole numbers: one linear map, as in the circuit.
        """
        true_odds, other = self.odds
        exact = np.asarray(sums).astype(object)
        return np.asarray((true_odds + (len(exact) - 1) * other) * exact - other * exact.sum(axis=0, keepdims=True))

    def count_bits(self, rows: int) -> int:
        """Return the bits of a counter of at most `rows` rows, raised where it has noise."""
        return (rows + (2 << self.noise_bits) - 1 if self.noise_bits else rows).bit_length()


NO_GUARD = Guard()


def _bits(values: U64Array, bits: int) -> Choices:
    octets = values.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    return np.unpackbits(octets, axis=1, count=bits, bitorder="little")


def _wide_square(size: U64Array) -> tuple[U64Array, U64Array]:
    """Return the high and low word of size^2, size < 2^46."""
    low, high = size & np.uint64(0xFFFFFFFF), size >> np.uint64(32)
    cross = low * high * np.uint64(2)
    bottom = low * low
    total = bottom + (cross << np.uint64(32))
    return high * high + (cross >> np.uint64(32)) + (total < bottom).astype(np.uint64), total


class ScoreLayout:
    """Widths and bounds for a codebook, a public number of rows and a smoothing."""

    def __init__(
        self, codebook: Codebook, rows: int, alpha: float = 1.0, guard: Guard = NO_GUARD, weights: tuple[float, ...] = ()
    ) -> None:
        if len(codebook.classes) < 2:
            raise ConfigError("a classifier needs at least two classes")
        if not (math.isfinite(alpha) and 2**-16 <= alpha <= 2**16):
            raise ConfigError("alpha must lie between 2^-16 and 2^16 for a model in shares")
        floors = dict(guard.floors)
        gaussian = [item for item in codebook.features if not item.counted and item.name not in floors]
        if gaussian and codebook.variance_floor is None:
            raise ConfigError(
                f"feature {gaussian[0].name!r} is Gaussian: a model in shares needs variance_floor in the codebook "
                "(in squared units, such as variance_floor = 0.01), or bins for the feature"
            )
        if guard.acts and not all(item.optional for item in codebook.features):
            raise ConfigError("with a guard every feature has a counter for each of its values")
        if weights and not (len(weights) == len(codebook.classes) and all(1e-6 <= weight <= 1e6 for weight in weights)):
            raise ConfigError("a weight for each class is needed, between a millionth and a million")
        self.codebook, self.rows, self.classes, self.guard = codebook, rows, len(codebook.classes), guard
        self.weights = weights
        self.alpha, self.alpha_shift, self.alpha_error = dyadic(Fraction(alpha), _ALPHA_BITS)
        self.features: dict[str, FeaturePlan] = {item.name: self._plan(item) for item in codebook.features}
        top = math.log2(2 * self.spread + 4)
        for fraction in (FRACTION, MIN_FRACTION):
            self.fraction = fraction
            self.bits = 2 + math.ceil(top + fraction)
            if self.bits <= 64:
                break
        if self.bits > 64:
            self.fraction = FRACTION
            self.bits = 2 + math.ceil(top + FRACTION)
        self.limbs = limbs_for(self.bits)
        if self.limbs > MAX_LIMBS:
            raise ConfigError(
                f"scores need {self.bits} bits, more than {64 * MAX_LIMBS}; raise variance_floor or coarsen the precision "
                "of the widest Gaussian feature"
            )

    def _plan(self, feature: Feature) -> FeaturePlan:
        if not isinstance(feature, Numeric) or feature.bins is not None:
            return HistogramLayout(feature, feature.size)
        variance_floor = max(self.codebook.variance_floor or 0.0, dict(self.guard.floors).get(feature.name, 0.0))
        low, high = feature.code_low, feature.code_high
        magnitude = max(abs(low), abs(high))
        code_bits = 1 + max(max(0, high).bit_length(), max(0, -low - 1).bit_length())
        scale = Fraction(round(feature.scale)) if feature.scale >= 1 else Fraction(1, round(feature.precision))
        floor, shift, error = dyadic(Fraction(variance_floor) * scale * scale, _FLOOR_BITS)
        square_bits = max(1, (magnitude * magnitude).bit_length())
        return GaussianLayout(feature, magnitude, code_bits, square_bits, floor, shift, error)

    # -- bounds --------------------------------------------------------------------------------------------------------

    def _spread(self, plan: FeaturePlan) -> float:
        """Return the largest difference of two classes' ln p of one value."""
        if isinstance(plan, HistogramLayout):
            alpha = float(Fraction(self.alpha, 2**self.alpha_shift))
            return math.log((self.rows + alpha * plan.size) / alpha)
        floor = float(Fraction(plan.floor, 2**plan.floor_shift))
        width = plan.feature.code_high - plan.feature.code_low
        largest = max(float(plan.magnitude) ** 2, floor)
        return width * width / (2 * floor) + math.log(largest / floor) / 2

    @cached_property
    def spread(self) -> float:
        """Largest difference of two scores of classes that have rows."""
        # Twice: a weight is added to a class without rows too, which stays below the others.
        weighing = 2 * math.log(max(self.weights) / min(self.weights)) if self.weights else 0.0
        return math.log(self.units + 1) + weighing + sum(self._spread(plan) for plan in self.features.values())

    @property
    def units(self) -> int:
        """All rows, in the units of the circuit."""
        return self.rows * self.guard.units

    @property
    def log_weights(self) -> npt.NDArray[np.float64]:
        """The logarithms of the public class weights, which are added to the scores."""
        return np.asarray(np.log(np.array(self.weights or (1.0,) * self.classes)))

    @property
    def below(self) -> float:
        """The prior of a class without rows: below every other score."""
        return -(self.spread + 2)

    def error(self, name: str) -> float:
        """Bound the error of one feature's fixed-point ln p, as far as it depends on the class."""
        plan, unit = self.features[name], 2.0**-self.fraction
        if isinstance(plan, HistogramLayout):
            return 2 * ln_error(self.fraction) + 2 * self.alpha_error
        # C: the quotient and the halving are cut, ln n and half of ln D are off; A and B: one cut per bit.
        logs = ln_error(self.fraction) * 1.5
        cuts = (2 + plan.code_bits + plan.square_bits) * unit
        return logs + cuts + self._spread(plan) * 2 * plan.floor_error

    @property
    def tie_bound(self) -> float:
        """Two scores that differ by more than this are never confused: twice the errors of all features and roundings."""
        rounding = 2.0**-self.fraction * (len(self.codebook.features) + 2)
        return 2 * (sum(self.error(name) for name in self.features) + rounding)

    def facts(self) -> bytes:
        """Return the bytes that both parties must agree on."""
        known = (self.codebook.sha256, self.rows, self.alpha, self.alpha_shift, self.fraction, self.bits, self.guard)
        return repr((*known, self.weights) if self.weights else known).encode()

    def choose(self, names: Sequence[str]) -> list[FeaturePlan]:
        return [self.features[name] for name in names]


def dyadic(value: Fraction, bits: int) -> tuple[int, int, float]:
    """Return (i, s, e) with value = i / 2^s up to the relative error e: exact if `bits` suffice, else rounded to them."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    shift = max(0, bits - exponent)
    whole = round(value * 2**shift)
    while shift > 0 and whole % 2 == 0:
        whole //= 2
        shift -= 1
    if whole <= 0:
        raise ConfigError("alpha and variance_floor must be positive")
    return whole, shift, float(abs(Fraction(whole, 2**shift) - value) / value)
