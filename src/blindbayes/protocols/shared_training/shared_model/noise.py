"""Each party's noise on the sums of a layout, added to its share of their words.

Per feature an array of whole numbers: (K, values) for a histogram, (K, 3) for a Gaussian feature: on the number of present
values, on the sum of codes, on the sum of squares. A word is linear in its fields, so a share plus the word of the noise is a
share of the noisy sums, before anything is cut: whatever the other enters, the circuit sees sums with this party's noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.shared_training.class_sums.layout import HistogramFields, RowLayout
from blindbayes.wire import U64Array

Noise: TypeAlias = Mapping[str, npt.NDArray[Any]]  # int64, or Python integers


def with_noise(share: U64Array, noise: Noise | None, layout: RowLayout) -> U64Array:
    """Return the share (classes, words) with a party's noise in every field. Layout and noise must fit each other."""
    if not layout.noise_bits:
        if noise:
            raise LocalProtocolError("this model takes no noise")
        return share
    if noise is None:
        raise LocalProtocolError("a model with noise needs each party's own")
    share = share.copy()
    for fields in layout.fields:
        table = np.asarray(noise[fields.feature.name])
        placed = fields.counts if isinstance(fields, HistogramFields) else (fields.present, fields.total, *fields.squares)
        if table.shape != (len(share), len(placed)):
            raise LocalProtocolError("the noise does not fit the layout")
        for field, column in zip(placed, table.T, strict=True):
            if field is None:
                raise LocalProtocolError("with noise every value has a counter")
            share[:, field.word] += np.array([(int(value) << field.shift) % (1 << 64) for value in column], dtype=np.uint64)
    return share
