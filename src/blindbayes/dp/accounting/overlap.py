"""Noise for an estimate of how many identifiers two parties have in common; each feeds its own into the counting circuit.

Either party could subtract its own noise again, so each alone adds as much as its own records need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise.exact_events import budget_floor, cost_ceiling
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.dp.noise.samplers import discrete_laplace
from blindbayes.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OverlapNoise:
    """Discrete Laplace noise on the number of joined identifiers, for one party's own.  [overlap]

    `epsilon` is the price of one estimate, `joins` how many estimates the same identifiers are in: one per attribute holder for
    the class holder, one for everybody else.
    """

    name: ClassVar[str] = "noisy_overlap"
    sampler: ClassVar[str] = "discrete Laplace, drawn exactly"
    epsilon: Fraction
    joins: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", budget_floor(self.epsilon, "overlap_epsilon"))
        if self.joins < 1:
            raise ConfigError("an estimate is of one join or more")

    @property
    def scale(self) -> Fraction:
        """Scale of the discrete Laplace law: one identifier, with all its rows, moves the number by at most one."""
        return 1 / self.epsilon

    @property
    def deviation(self) -> float:
        """Standard deviation of one party's noise."""
        return 1 / (math.sqrt(2) * math.sinh(1 / (2 * float(self.scale))))

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of all joins of the party, for one record and for all records of an identifier."""
        return PrivacyCost(cost_ceiling(self.joins * self.epsilon), 0.0, "one record")

    def draw(self, coins: Coins) -> int:
        return int(discrete_laplace(coins, self.scale, 1)[0])
