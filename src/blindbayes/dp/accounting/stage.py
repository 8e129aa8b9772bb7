"""One stage of a release: which mechanism drew what, at which price, with which randomness and side channels.

A plan lists the stages that it expects, an outcome those that ran. Statement, ledger and privacy map are made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from blindbayes.dp.accounting.sensitivity import ADJACENCY
from blindbayes.dp.noise.exact_events import as_decimal, cost_ceiling
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import well_formed


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a release, in public facts."""

    name: str  # what it releases or selects, for example "class counts"
    mechanism: str
    epsilon: Fraction
    unit: str
    sensitivity: str  # what one row moves, in one sentence
    sampler: str
    delta: float = 0.0
    rho: float | None = None  # zero-concentrated price, if the mechanism has a form of its own
    adjacency: str = ADJACENCY
    floating_point: bool = False  # floating point takes part before noise is drawn
    timing: bool = False  # the time to draw depends on the data

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 <= self.delta < 1:
            raise ConfigError(f"stage {self.name!r}: epsilon is above zero, and delta from 0 to below 1")
        if not all(text.strip() for text in (self.name, self.mechanism, self.unit, self.sensitivity, self.sampler)):
            raise ConfigError("a stage names itself, its mechanism, its unit, its sensitivity and its sampler")

    @classmethod
    def for_release(cls, name: str, mechanism: str, price: PrivacyCost, sampler: str, **flags: bool) -> Stage:
        """Return a stage with the price of one mechanism. `flags` are `floating_point` and `timing`."""
        return cls(
            name=name,
            mechanism=mechanism,
            epsilon=as_decimal(price.epsilon),
            unit=price.unit,
            sensitivity="all of it: see the section on sensitivity",
            sampler=sampler,
            delta=price.delta,
            rho=price.rho,
            adjacency=price.adjacency,
            **flags,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the facts for the statement."""
        return {name: getattr(self, name) for name in self.__slots__} | {"epsilon": cost_ceiling(self.epsilon)}

    @classmethod
    def from_dict(cls, record: Any) -> Stage:
        """Parse `to_dict`, which may come from an untrusted file. Raises `ConfigError`."""
        if not isinstance(record, dict) or set(record) != set(cls.__slots__):
            raise ConfigError("privacy statement: fields of a stage are missing or unknown")
        with well_formed("a stage of the privacy statement", error=ConfigError):
            flags = [record[name] for name in ("floating_point", "timing")]
            numbers = [record[name] for name in ("epsilon", "delta")] + ([] if record["rho"] is None else [record["rho"]])
            if not all(isinstance(flag, bool) for flag in flags) or not all(type(each) in (int, float) for each in numbers):
                raise ConfigError("privacy statement: a stage has an epsilon, a delta, a rho, and two flags")
            return cls(**{**record, "epsilon": as_decimal(record["epsilon"])})
