"""Noise of which every party adds enough by itself: the K-norm noise of a central release, on its own counts.  [whole]

    noise = WholeNoise.plan(tables, unit)
    vector = noise.words(tables.tables(statistics)) + noise.share(coins)        # each party; int64

The words of a party are those that a central release publishes, on its grid: per class the class count, and of each histogram
the differences to its first cell. So one party's vector is a private release by itself, and a sum of such vectors is
private whatever any other party does. Of n parties the sum has n times the noise variance of a central release. Shares of
independent noise (`noise_shares`) cost only as much as their honest parties lack, but the noise they add up to is larger, by
far where histograms have two or three cells. So few parties and coarse cells take this one, and many parties shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import PrivacyUnit, Unit
from blindbayes.dp.noise.knorm_histograms import Classwise
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.dp.release.release_plan import ReleasePlan
from blindbayes.errors import ConfigError

IntTable = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class WordBlock:
    """The words of one table of the release: `columns` per class, on a grid of `step` points per count."""

    columns: int
    number: bool
    step: int
    dimension: int  # of the group of tables that share a radius
    rate: Fraction  # decay of the noise per grid point of the norm


@dataclass(frozen=True)
class WholeNoise:
    """One plan, public and the same for all parties. Make it with `plan`."""

    law_of_one: Classwise
    classes: int
    unit: Unit
    releases: int = 1  # tables in one vector, one after the other: folds, of which a row is in one

    honest = 1
    """Honest parties that the promise counts on: the one that brings the record."""
    mechanism = Classwise.name
    delta = 0.0

    @classmethod
    def plan(cls, tables: ReleasePlan, unit: PrivacyUnit) -> WholeNoise:
        """Return the noise of a planned release of tables by its own mechanism, for this unit."""
        law = tables.noise
        if not isinstance(law, Classwise) or law.rows_per_unit != unit.rows or any(part.moment for part in law.parts):
            raise ConfigError("whole noise is that of a release by knorm, of class counts and histograms, for the same unit")
        return cls(law, len(tables.declared.classes), unit.kind)

    def at(self, honest: int) -> WholeNoise:
        """Return the noise for another number of honest parties: the same, since each adds enough."""
        return self

    def repeated(self, releases: int) -> WholeNoise:
        """Return the noise of several concatenated tables; each unit is in one of them.  [folds]"""
        return replace(self, releases=releases)

    # -- words -----------------------------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> tuple[WordBlock, ...]:
        """The words of each table of the release, in order."""
        group_of = {index: group for group in self.law_of_one.groups for index in group.parts}
        return tuple(
            WordBlock(1 if part.number else part.size - 1, part.number, group.step, group.dimension, group.rate)
            for part, group in ((part, group_of[at]) for at, part in enumerate(self.law_of_one.parts))
        )

    @cached_property
    def length(self) -> int:
        """Number of words."""
        return self.releases * self.classes * sum(block.columns for block in self.blocks)

    def words(self, tables: Sequence[IntTable]) -> npt.NDArray[np.int64]:
        """Return exact tables, (classes, cells), as words; of tables of several units, (units, classes, cells), row by row."""
        out = []
        for block, table in zip(self.blocks, tables, strict=True):
            exact = table * block.step
            words = exact if block.number else exact[..., 1:] - exact[..., :1]
            out.append(words.reshape(*table.shape[:-2], -1))
        return np.concatenate(out, axis=-1).astype(np.int64)

    def tables(self, words: npt.NDArray[Any]) -> list[npt.NDArray[np.float64]]:
        """Return the tables of a sum of words, in counts; of a histogram the mean of the cells is subtracted."""
        at, out = 0, []
        for block in self.blocks:
            part = words[at : at + self.classes * block.columns].reshape(self.classes, block.columns)
            at += part.size
            points = part.astype(np.float64) / block.step
            if not block.number:
                points = np.column_stack([np.zeros(self.classes), points])
                points = points - points.mean(axis=1, keepdims=True)
            out.append(points)
        return out

    def share(self, coins: Coins) -> npt.NDArray[np.int64]:
        """Draw one party's noise for every word. Add it once, to one release."""
        parts: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)] * len(self.blocks)
        for index, points, _ in self.law_of_one.noise(coins, self.classes * self.releases):
            words = points if self.blocks[index].number else points[:, 1:] - points[:, :1]
            parts[index] = words.reshape(self.releases, -1)
        return np.concatenate(parts, axis=1).ravel()

    # -- what it means ---------------------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> Fraction:
        """Privacy loss of one release, for every party."""
        return self.law_of_one.epsilon

    @property
    def reach(self) -> int:
        """Rows of one unit."""
        return self.law_of_one.rows_per_unit

    @property
    def protects(self) -> str:
        """The unit as ledgers name it."""
        return str(PrivacyUnit(self.unit, self.reach))

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of one release."""
        return replace(self.law_of_one.price, unit=self.protects)

    @property
    def law(self) -> str:
        """The law of one party's noise, in one line."""
        return "K-norm by class on centred histograms, P(x) ~ exp(-rate |x|), whole at every party"

    @property
    def sampler(self) -> str:
        """Sampler of the noise."""
        return f"{self.law_of_one.sampler}; each party adds as much as a release of its own counts needs"

    def deviations(self, parties: int) -> list[float]:
        """Return the noise deviation of a cell (or number) of each table in the sum of that many parties, in counts."""
        return [math.sqrt(parties * value) for value in self.law_of_one.variances()]

    def tail(self, probability: float, parties: int, table: int) -> int:
        """Return B such that some noise word of a class of a table exceeds +-B with at most this probability.

        `parties` counts independent draws that are added up. A word is at most the norm N of its group of dimension D, and
        E e^(t N) <= (e^t (1 - q) / (1 - q e^t))^D with q = e^-rate, for t below the rate.  [whole]
        """
        block = self.blocks[table]
        rate, draws = float(block.rate), parties * block.dimension

        def bound(part: float) -> float:  # Chernoff at t = part * rate
            factor = math.log(-math.expm1(-rate)) - math.log(-math.expm1(-rate * (1 - part)))
            return draws + (math.log(1 / probability) + draws * factor) / (part * rate)

        return math.ceil(min(bound(at / 20) for at in range(1, 20)) * (1 + 1e-9)) + 1

    def bound(self, rows: int, parties: int, chance: float) -> int:
        """Return the largest absolute value of a word in the sum over `rows` rows, up to this chance."""
        each = chance / (self.releases * self.classes * len(self.blocks))
        return max(block.step * rows + self.tail(each, parties, at) for at, block in enumerate(self.blocks))
