"""The paper's noise: a share is a two-sided geometric variable with probability beta, else 0 (Shi 2011, Huai 2015).

Here epsilon and delta are split over the cells that a unit can move, which the paper leaves out. Every moved cell needs one
honest geometric variable; it has none with at most (1 - beta)^honest <= exp(-beta honest) = delta / moved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import fft

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import samplers
from blindbayes.errors import ConfigError

_GRAIN = 1 << 24  # beta comes from floating point and is rounded up to this grain


@dataclass(frozen=True, slots=True)
class DilutedNoise:
    """A plan for counts: a row moves `touched` of the `cells` by 1, and a unit has `reach` rows."""

    epsilon: Fraction
    delta: float
    honest: int  # fewest honest parties whose shares reach the sum
    touched: int
    cells: int
    reach: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise ConfigError("diluted noise needs delta above 0")

    @property
    def rate(self) -> Fraction:
        """Decay of the two-sided geometric law: P(k) ~ e^-(rate |k|)."""
        return Fraction(self.epsilon) / (self.touched * self.reach)

    @property
    def moved(self) -> int:
        """The most cells that one unit can change: each of its rows may touch cells of its own."""
        return min(self.touched * self.reach, self.cells)

    @property
    def beta(self) -> Fraction:
        """The chance that a share is not 0."""
        chance = math.log(self.moved / self.delta) / self.honest
        return min(Fraction(math.ceil(chance * _GRAIN), _GRAIN), Fraction(1))

    def share(self, coins: Coins, size: int) -> npt.NDArray[np.int64]:
        """Draw one party's noise for `size` cells."""
        out = np.zeros(size, np.int64)
        places = np.flatnonzero(samplers.bernoulli(coins, self.beta, size))
        out[places] = samplers.discrete_laplace(coins, 1 / self.rate, len(places))
        return out

    def deviation(self) -> float:
        """Standard deviation of the noise in the sum of `honest` shares."""
        rate = float(self.rate)
        return math.sqrt(2 * math.exp(-rate) / math.expm1(-rate) ** 2 * self.honest * float(self.beta))

    def table(self, parties: int) -> npt.NDArray[np.float64]:
        """P(k), k = -K..K, of the sum of `parties` shares."""
        decay, chance = float(self.rate), float(self.beta)
        ratio, reach = math.exp(-decay), math.ceil(2 / decay * (parties * chance / 2 + math.log(1e15)))
        size = fft.next_fast_len(4 * reach + 3)
        k = np.minimum(np.arange(size), size - np.arange(size))
        one = (1 - ratio) / (1 + ratio) * ratio ** k.astype(np.float64) * chance
        one[0] += 1 - chance
        whole = fft.irfft(fft.rfft(one) ** parties, size)
        table = np.concatenate([whole[-reach:], whole[: reach + 1]])
        table[table < 1e-13] = 0.0
        return np.asarray((table + table[::-1]) / 2)
