"""Figures of an evaluation by site: cells beside the counts, in the same secure sum.

Each site rounds its own figures to whole percent, so that a figure does not show the number of rows behind it. `spread`: it
adds each and its square, of which the sum over the sites gives mean and standard deviation. `each`: it adds them in cells of
its own, and 0 in those of other sites.

Mean and standard deviation depend on the sites' figures without their order. Taken together with its own figures, a site has
two equations in whole numbers about those of the others, and the list of the others' figures, without names, may be their only
solution: always if there are two others, for 61 of 100 lists of three, 9 of four and 4 of five. Hence `spread` needs six sites.
Figures that are close together follow more often (all equal: always). See docs/how-to/evaluation.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.errors import DataError, PrivacyError
from blindbayes.statistics.evaluation import Evaluation, IntArray

SiteDetail: TypeAlias = Literal["none", "spread", "each"]
DETAILS: tuple[SiteDetail, ...] = ("none", "spread", "each")
"""Levels of detail about single sites, from nothing to everything."""
FIGURES = ("accuracy", "balanced_accuracy")
MIN_SITES = 6
_PERCENT = 100


@dataclass(frozen=True, slots=True)
class SiteFigures:
    """Figures by site as they were opened, as fractions rounded to whole percent."""

    sites: tuple[str, ...]
    spread: Mapping[str, tuple[float, float]]  # by figure: mean and standard deviation over the sites
    each: Mapping[str, Mapping[str, float]]  # by site, then by figure; empty if only the spread was opened

    @property
    def lines(self) -> list[str]:
        """The figures in words, one line each."""
        shown = [
            f"{name.replace('_', ' ')} of a site: {mean:.3f} on average, standard deviation {deviation:.3f}"
            for name, (mean, deviation) in self.spread.items()
        ]
        for site, figures in self.each.items():
            shown.append(f"{site}: " + ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in figures.items()))
        return shown

    def to_dict(self) -> dict[str, Any]:
        spread = {name: {"mean": mean, "standard_deviation": deviation} for name, (mean, deviation) in self.spread.items()}
        return {"sites": len(self.sites), "spread": spread, **({"each": dict(self.each)} if self.each else {})}


@dataclass(frozen=True, slots=True)
class SiteCells:
    """The cells that a study adds to an evaluation for figures by site."""

    detail: SiteDetail
    sites: tuple[str, ...]

    @property
    def size(self) -> int:
        return {"none": 0, "spread": 2, "each": len(self.sites)}[self.detail] * len(FIGURES)

    @property
    def bound(self) -> int:
        """The maximum total of a cell."""
        return len(self.sites) * _PERCENT**2

    @property
    def unsafe(self) -> str:
        """The reason why these cells would reveal more than they claim; empty if they do not."""
        if self.detail == "spread" and len(self.sites) < MIN_SITES:
            return (
                f"site_figures = 'spread' needs {MIN_SITES} sites: of fewer, each can often compute the list of the others' "
                "figures from mean and standard deviation. Leave it out, or agree on 'each'"
            )
        return ""

    @property
    def opened(self) -> str:
        """The outputs that these cells open, for people who approve them."""
        names = " and ".join(name.replace("_", " ") for name in FIGURES)
        if self.detail == "spread":
            return f"mean and standard deviation over the sites of each site's {names} on held-out rows, in whole percent"
        return f"each site's {names} on held-out rows, in whole percent, by its name"

    @property
    def conclusion(self) -> str:
        """A sentence on what the opened totals reveal about single sites."""
        if self.detail == "spread":
            return (
                "Mean and standard deviation over the sites do not depend on which site has which figure. Sites that pool "
                "their own figures learn mean and standard deviation of the others'. If few others are left, or their figures "
                "are close together, the list of their figures follows, in whole percent and without names."
            )
        return "Everyone who learns the result knows how well the model does at each site."

    def cells(self, site: str, evaluation: Evaluation) -> IntArray:
        """Return the cells of one site. Raises `PrivacyError` if it has no rows to evaluate."""
        if self.detail == "none":
            return np.zeros(0, np.int64)
        if not evaluation.rows:
            raise PrivacyError("this site holds out no rows, so that its figures are not defined: leave site_figures out")
        own = np.array([round(_PERCENT * getattr(evaluation, name)) for name in FIGURES], dtype=np.int64)
        if self.detail == "spread":
            return np.concatenate([own, own**2])
        cells = np.zeros((len(self.sites), len(FIGURES)), dtype=np.int64)
        cells[self.sites.index(site)] = own
        return cells.reshape(-1)

    def open(self, total: npt.NDArray[Any]) -> SiteFigures | None:
        """Return the figures that a total holds. Raises `DataError` if those of no sites give it."""
        if self.detail == "none":
            return None
        values, count = [int(each) for each in total], len(self.sites)
        if self.detail == "each":
            if min(values) < 0 or max(values) > _PERCENT:
                raise DataError("a figure of a site lies outside 0 to 1")
            table = [values[at : at + len(FIGURES)] for at in range(0, len(values), len(FIGURES))]
            sums = [sum(column) for column in zip(*table, strict=True)]
            squares = [sum(each**2 for each in column) for column in zip(*table, strict=True)]
            by_site = {
                site: {name: value / _PERCENT for name, value in zip(FIGURES, own, strict=True)}
                for site, own in zip(self.sites, table, strict=True)
            }
        else:
            sums, squares, by_site = values[: len(FIGURES)], values[len(FIGURES) :], {}
        return SiteFigures(self.sites, _spread(sums, squares, count), by_site)


def _spread(sums: Sequence[int], squares: Sequence[int], count: int) -> dict[str, tuple[float, float]]:
    spread = {}
    for name, first, second in zip(FIGURES, sums, squares, strict=True):
        variance = count * second - first**2  # times count^2
        if not 0 <= first <= count * _PERCENT or variance < 0 or second > first * _PERCENT:
            raise DataError("sums of the sites' figures are those of no figures")
        spread[name] = (first / count / _PERCENT, math.sqrt(variance) / count / _PERCENT)
    return spread
