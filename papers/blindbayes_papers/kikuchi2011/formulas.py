"""Figures, fits and formulas as Kikuchi et al. 2011 print them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from blindbayes_papers.kikuchi2011.measure import Operations

DENSITY = 0.03  # EachMovie
ATTRIBUTES, VALUES, CLASSES = 10, 100, 2  # what one run of joined_sums counts: 10 attributes of 10 values
PAPER = Operations(1.1, 1.6, 0.15)  # Section 4.1 gives no unit
PAPER_MILLISECONDS = Operations(0.0011, 0.0016, 0.00015)
PAPER_SFE1, PAPER_SFE2 = 2.03, 23.76  # seconds, Table 4 at 10 bits
TABLES, PRINTED = "tables", "printed"
"""Encryption with the tables of a fixed base, and as the paper has it."""


def crossover(used: Operations, sfe1: float, sfe2: float, density: float = DENSITY) -> float:
    """N*, from which the distorted intersection is cheaper than the scalar product; infinite if it never is."""
    per_row = used.encrypt - 2 * used.power * density
    return (sfe2 - sfe1 - used.decrypt) / per_row if per_row > 0 else math.inf


def paper_sfe(kind: str, bits: float) -> float:
    """The fits of Table 4."""
    return 0.97 + 0.106 * bits if kind == "sums" else 1.77 + 0.003 * math.exp(0.89 * bits)


def paper_times(used: Operations, whole: float) -> tuple[float, float]:
    """T_1 (scalar product) and T_2 (distorted intersection) of Section 4.1 at N, comparisons of 10 bits included."""
    scalar = whole * used.encrypt + used.decrypt + PAPER_SFE1
    return scalar, 2 * used.power * DENSITY * whole + PAPER_SFE2


def all_counts(one_run: float) -> float:
    """Seconds of the distorted intersections of every (value, class), from those of one run of two sets of n.

    An identifier of Alice's stands in one set per attribute, each of which meets every class; one of Bob's in the set of its
    class, which meets every value. Either costs two powers per run.
    """
    return one_run / 2 * (ATTRIBUTES * CLASSES + VALUES)


def at_bits(compared: Sequence[Mapping[str, Any]], kind: str, bits: int) -> Mapping[str, Any]:
    """One row of the comparisons."""
    return next(row for row in compared if row["kind"] == kind and row["bits"] == bits)
