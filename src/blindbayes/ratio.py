"""Probabilities from rows that several parties hold, in one process: private_ratio with every party's role here.

By default nothing is opened: two of the parties hold shares of every probability. `combine` joins them, for simulation alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data import count
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.model.parameters import Histogram, Parameters, Term
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.private_ratio import Ratios, contributor, first_party, second_party
from blindbayes.protocol.private_ratio.roles import SHARE_BITS, Opening
from blindbayes.runtime.memory import local_runs, run_in_memory
from blindbayes.runtime.transcript import Cost
from blindbayes.study import Leak


@dataclass(frozen=True)
class RatioResult:
    """How the run ended. `opened` are the opened probabilities in units of 2^-fraction, or None if all stayed in shares."""

    ratios: Ratios
    opened: tuple[int, ...] | None = field(repr=False)
    shares: Mapping[str, tuple[int, ...]] = field(repr=False)  # of the two computing parties, modulo 2^(fraction + 1)
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)

    def parameters(self) -> Parameters:
        """The model of the opened probabilities."""
        if self.opened is None:
            raise PrivacyError("nothing was opened: the probabilities are in shares; classify with shares, or combine them")
        return _parameters(self.ratios, self.opened)

    def combine(self) -> Parameters:
        """Simulation only: the model that the shares stand for."""
        if not self.shares:
            return self.parameters()
        modulus = 1 << (self.ratios.fraction + 1)
        first, second = self.shares.values()
        return _parameters(self.ratios, tuple((a + b) % modulus for a, b in zip(first, second, strict=True)))


def simulate(
    codebook: Codebook,
    sources: Mapping[str, Any],
    *,
    opening: Opening = "shares",
    fraction: int = SHARE_BITS,
    minimum: int = 0,
    alpha: float = 1.0,
    coins: Coins | None = None,
) -> RatioResult:
    """Run private_ratio over the parties' tables. The first and the last party compute; they must not collude.

    `opening` is "shares" (nothing is opened), "coarse" (as many bits as the public `minimum` class size allows) or "fine",
    which opens the counts and must be chosen. Noisy openings take vectors that carry noise: see the protocol's SPEC.
    """
    if opening == "noisy":
        raise ConfigError("a noisy opening takes vectors that carry noise; run the protocol's roles with them")
    if len(sources) < 2:
        raise ConfigError("private_ratio needs at least two parties")
    if opening != "shares" and len(sources) < 3:
        raise PrivacyError("opened probabilities of two parties tell each about the other's counts; take a third party")
    coins = Coins.system() if coins is None else coins
    ratios = Ratios(codebook, opening, fraction, minimum, alpha)
    names = tuple(sources)
    first, second = names[0], names[-1]
    runs = local_runs(names, study=codebook.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    parts: dict[str, Any] = {}
    for name, source in sources.items():
        vector = count(source, codebook).words
        own = coins.derive(f"ratio {runs[name].run_id} {name}")
        if name == first:
            parts[name] = first_party(runs[name], ratios, vector, second, own)
        elif name == second:
            parts[name] = second_party(runs[name], ratios, vector, first, own)
        else:
            parts[name] = contributor(runs[name], ratios, vector, first, second, own)
    outcome = run_in_memory(parts)
    leakage = {
        name: Leak({kind.__name__: (kind.trust.value, times) for kind, times in got.items()}, outcome.opened[name])
        for name, got in outcome.transcript.received.items()
    }
    opened = None if ratios.label is None else tuple(outcome.outputs[first])
    shares = {} if ratios.label is not None else {name: tuple(outcome.outputs[name]) for name in (first, second)}
    return RatioResult(ratios, opened, shares, leakage, outcome.cost, _statement(ratios, first, second))


def _parameters(ratios: Ratios, values: tuple[int, ...]) -> Parameters:
    """Log-probabilities; a cut probability stands for the middle of its interval, so that none is 0."""
    layout, classes = ratios.layout, len(ratios.codebook.classes)
    found: npt.NDArray[np.float64] = (np.array(values, dtype=np.float64) + 0.5) / 2.0**ratios.fraction
    terms: dict[str, Term] = {}
    prior = np.zeros(classes)
    for group in layout.groups:
        part = found[layout.slice(group)].reshape(classes, group.columns)
        if group.feature is None:
            prior = np.log(part[:, 0])
        else:
            terms[group.feature.name] = Histogram(np.log(part))
    return Parameters(ratios.codebook, prior, terms)


def _statement(ratios: Ratios, first: str, second: str) -> str:
    lines = [
        f"Codebook {ratios.codebook.sha256}",
        f"Protocol private_ratio; {first} and {second} compute, and must not collude: together they have the sums.",
    ]
    if ratios.label is None:
        lines.append("Nothing was opened: every probability is in shares of these two.")
    elif ratios.opening == "fine":
        lines.append(
            f"Opened: probabilities at {ratios.fraction} bits. **This opens the counts**: at this width a probability fixes "
            "the size of its class, and so every count."
        )
    else:
        lines.append(
            f"Opened: probabilities at {ratios.fraction} bits, two fewer than a class of {ratios.minimum} rows has. "
            "Many counts fit them; they are not differentially private."
        )
    return "\n\n".join(lines)
