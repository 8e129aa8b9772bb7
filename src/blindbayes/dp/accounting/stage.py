"""One stage of a release: which mechanism drew what, at which price, with which randomness and side channels.

A plan lists the stages that it expects, an outcome those that ran. Statement, ledger and privacy map are made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from blindbayes.dp.accounting.sensitivity import ADJACENCY
from blindbayes.dp.noise.exact_events import cost_ceiling
from blindbayes.errors import ConfigError

PERMUTE_AND_FLIP = "permute_and_flip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a release, in public facts."""

    name: str  # what it releases or selects, for example "class counts"
    mechanism: str
    epsilon: Fraction
    unit: str
    sampler: str
    delta: float = 0.0
    rho: float | None = None  # zero-concentrated price, if the mechanism has a form of its own
    adjacency: str = ADJACENCY
    floating_point: bool = False  # floating point takes part before noise is drawn
    timing: bool = False  # the time to draw depends on the data

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 <= self.delta < 1:
            raise ConfigError(f"stage {self.name!r}: epsilon is above zero, and delta from 0 to below 1")
        if not all(text.strip() for text in (self.name, self.mechanism, self.unit, self.sampler, self.adjacency)):
            raise ConfigError("a stage names itself, its mechanism, its sampler, its unit and its adjacency")

    def to_dict(self) -> dict[str, Any]:
        """Return the facts for the statement."""
        return {name: getattr(self, name) for name in self.__slots__} | {"epsilon": cost_ceiling(self.epsilon)}


def selection_stage(name: str, epsilon: Fraction, unit: str, *, floating_point: bool) -> Stage:
    """Return the stage of a private selection; `floating_point` says whether scores are compared likelihoods.  [choosing]"""
    return Stage(
        name=name,
        mechanism=PERMUTE_AND_FLIP,
        epsilon=epsilon,
        unit=unit,
        sampler="permute and flip: a uniform order, and exact coins of probability e^-(rate x rows behind the best)",
        floating_point=floating_point,
        timing=True,
    )
