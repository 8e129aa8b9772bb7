"""The paper's noise: a share is a two-sided geometric variable with probability beta, else 0 (Definition 3; Shi et al. 2011).

Here epsilon and delta are split over the cells that a unit can move, which the paper leaves out. Every moved cell needs one
honest geometric variable. Honest party k sets beta_k >= ln(moved / delta) / h_k, with h_k = `honest` or its own view of it, and
the 1 / h_k of the honest add up to at least 1: a cell has no such variable with at most prod (1 - beta_k) <= delta / moved.
Where every moved cell has one, the sum is private at epsilon: at the rate of its bound, as in `noise_shares`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import fft

from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit
from blindbayes.dp.noise import samplers
from blindbayes.errors import ConfigError

_GRAIN = 1 << 24  # beta comes from floating point and is rounded up to this grain


@dataclass(frozen=True, slots=True)
class DilutedNoise(DistributedNoise):
    """A plan of the paper's noise. Make it with `plan`."""

    @classmethod
    def plan(
        cls,
        *,
        touched: int,
        epsilon: float | Fraction,
        honest: int,
        bounds: Sequence[int],
        delta: float = 0.0,
        unit: PrivacyUnit = PrivacyUnit(),  # noqa: B008 - frozen
    ) -> DilutedNoise:
        """Plan the noise; see `DistributedNoise`."""
        pure = DistributedNoise.plan(touched=touched, epsilon=epsilon, honest=honest, bounds=bounds, unit=unit)
        if not 0 < delta < 1:
            raise ConfigError("diluted noise needs delta above 0: a moved cell may have no share of it")
        return cls("diluted", pure.epsilon, delta, honest, touched, pure.reach, pure.bounds, pure.unit, Fraction(0))

    @property
    def moved(self) -> int:
        """The most cells that one unit can change: each of its rows may touch cells of its own, a text many cells at once."""
        return len(self.bounds) if max(self.bounds) > 1 else min(self.touched * self.reach, len(self.bounds))

    @property
    def beta(self) -> Fraction:
        """The chance that a share is not 0."""
        chance = math.log(self.moved / self.delta) / self.honest
        return min(Fraction(math.ceil(chance * _GRAIN), _GRAIN), Fraction(1))

    def share(self, coins: Coins) -> npt.NDArray[np.int64]:
        """Draw one party's noise for every cell."""
        limits = np.asarray(self.bounds, dtype=object)
        nonzero = samplers.bernoulli(coins, self.beta, len(limits))
        out = np.zeros(len(limits), np.int64)
        for bound in sorted(set(limits.tolist())):
            places = np.flatnonzero(nonzero & (limits == bound))
            out[places] = samplers.discrete_laplace(coins, 1 / self.rate(bound), len(places))
        return out

    def deviation(self, parties: int | None = None, bound: int = 1) -> float:
        """Return the noise deviation of a cell's sum, when `parties` (default: the honest minimum) add theirs."""
        rate = float(self.rate(bound))
        return math.sqrt(2 * math.exp(-rate) / math.expm1(-rate) ** 2 * (parties or self.honest) * float(self.beta))

    def table(self, parties: int) -> npt.NDArray[np.float64]:
        """Return P(k), k = -K..K, of the sum of `parties` shares in a cell of bound 1."""
        decay, chance = float(self.rate()), float(self.beta)
        ratio, reach = math.exp(-decay), math.ceil(2 / decay * (parties * chance / 2 + math.log(1e15)))
        size = fft.next_fast_len(4 * reach + 3)
        k = np.minimum(np.arange(size), size - np.arange(size))
        one = (1 - ratio) / (1 + ratio) * ratio ** k.astype(np.float64) * chance
        one[0] += 1 - chance
        whole = fft.irfft(fft.rfft(one) ** parties, size)
        table = np.concatenate([whole[-reach:], whole[: reach + 1]])
        table[table < 1e-13] = 0.0
        return np.asarray((table + table[::-1]) / 2)

    def tail(self, probability: float, parties: int, bound: int = 1) -> int:
        """Return B such that the noise in a cell's sum exceeds +-B with at most this probability: Chernoff at rate / 2."""
        rate = float(self.rate(bound))
        moment = math.expm1(-rate) ** 2 / (-math.expm1(-rate / 2) * -math.expm1(-3 * rate / 2))  # E e^(rate X / 2), X geometric
        copies = parties * math.log1p(float(self.beta) * (moment - 1))
        return math.ceil(2 / rate * (copies + math.log(2 / probability)))

    @property
    def law(self) -> str:
        """The law of the sum of the shares of `honest` parties, cell by cell, in one line."""
        geometric = f"two-sided geometric, P(k) ~ exp(-|k| {float(self.rate()):.6g} / bound)"
        if self.beta == 1:
            return f"{self.honest} variables, each {geometric}"
        return (
            f"{self.honest} variables, each with probability {float(self.beta):.6g} {geometric}, and otherwise 0; the chance "
            f"that a changed cell has no noise at all is below {self.delta:g}"
        )
