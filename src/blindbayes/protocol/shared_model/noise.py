"""Each party's noise on the sums of a layout, as inputs of the circuit.

Per feature an array of whole numbers: (K, values) for a histogram, (K, 3) for a Gaussian feature: on the number of present
values, on the sum of codes, on the sum of squares. They enter as two's complement numbers and are added modulo a power of two,
which is a function of the sum of counter and noise: however large a draw is, nothing is cut off before noise is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError
from blindbayes.primitives import circuits as c
from blindbayes.protocol.class_sums.layout import GaussianFields, RowLayout
from blindbayes.protocol.shared_model.score_layout import ScoreLayout

Noise: TypeAlias = Mapping[str, npt.NDArray[Any]]  # int64, or Python integers
Key: TypeAlias = tuple[str, int]  # feature, and which of its arrays: 0 for counters, 1 the sum, 2 the sum of squares
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class NoiseField:
    """Lanes of one width: values in order, classes fastest."""

    key: Key
    bits: int
    lanes: int


def noise_fields(layout: RowLayout, plan: ScoreLayout) -> list[NoiseField]:
    """What each party feeds in, in order; nothing without noise."""
    if not plan.guard.noise_bits:
        return []
    found: list[NoiseField] = []
    for fields in layout.fields:
        name = fields.feature.name
        if isinstance(fields, GaussianFields):
            widths = gaussian_bits(fields, plan)
            found += [NoiseField((name, part), bits, plan.classes) for part, bits in enumerate(widths)]
        else:
            found.append(NoiseField((name, 0), plan.guard.noise_bits, len(fields.counts) * plan.classes))
    return found


def gaussian_bits(fields: GaussianFields, plan: ScoreLayout) -> tuple[int, int, int]:
    """Widths of noise on n, sum and sum of squares: with w bits for a count, a sum of codes of size m takes noise of at most
    2^(w+1) m, a sum of squares at most 2^(w+2) m^2."""
    count, size = plan.guard.noise_bits, fields.magnitude.bit_length()
    return count, count + size + 3, count + 2 * size + 4


def noise_bits(noise: Noise | None, layout: RowLayout, plan: ScoreLayout) -> dict[Key, Bits]:
    """A party's noise as bits. A circuit with noise is never fed without it, nor one without noise with it."""
    fields = noise_fields(layout, plan)
    if not fields:
        if noise:
            raise LocalProtocolError("this model takes no noise")
        return {}
    if noise is None:
        raise LocalProtocolError("a model with noise needs each party's own")
    found: dict[Key, Bits] = {}
    for field in fields:
        name, part = field.key
        table = np.asarray(noise[name])
        values = table[:, part : part + 1] if layout_is_gaussian(layout, name) else table
        flat = [int(value) for value in values.T.reshape(-1)]
        if len(flat) != field.lanes:
            raise LocalProtocolError("the noise does not fit the layout")
        found[field.key] = c.to_bits(flat, field.bits)
    return found


def layout_is_gaussian(layout: RowLayout, name: str) -> bool:
    """Whether a feature has sums rather than counters."""
    return any(isinstance(fields, GaussianFields) and fields.feature.name == name for fields in layout.fields)
