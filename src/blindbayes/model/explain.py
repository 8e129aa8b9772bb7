"""Why a row got its class: what each feature adds to the score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError
from blindbayes.model.parameters import Parameters
from blindbayes.statistics import Block


@dataclass(frozen=True, slots=True)
class Explanation:
    """`terms[row, part, class]` is what a part adds to ln P(class, row); the parts are the prior, then the features."""

    parts: tuple[str, ...]
    classes: tuple[str, ...]
    terms: npt.NDArray[np.float64]

    def log_odds(self, label: str, against: str | None = None) -> npt.NDArray[np.float64]:
        """What each part adds to the log-odds of `label` against another class (or, with two classes, the other), by row."""
        if against is None:
            if len(self.classes) != 2:
                raise ConfigError("with more than two classes, name the class to compare against")
            against = self.classes[1 - self._at(label)]
        odds: npt.NDArray[np.float64] = self.terms[:, :, self._at(label)] - self.terms[:, :, self._at(against)]
        return odds

    def _at(self, label: str) -> int:
        try:
            return self.classes.index(str(label))
        except ValueError:
            raise ConfigError("that class is not in the codebook") from None


def explain(parameters: Parameters, block: Block) -> Explanation:
    """The terms of every row of a block."""
    names = tuple(parameters.terms)
    terms = np.empty((block.rows, len(names) + 1, len(parameters.log_prior)))
    terms[:, 0, :] = parameters.log_prior
    for at, name in enumerate(names, start=1):
        terms[:, at, :] = parameters.score(name, parameters.terms[name], block.columns[name])
    return Explanation(("(prior)", *names), parameters.codebook.classes, terms)
