"""Bit planes and rows."""

import numpy as np

from blindbayes.crypto.bit_planes import to_planes, to_rows
from support.two_party import coins


def test_planes_and_rows_are_inverse():
    rows = coins("rows").words(8 * 128).reshape(128, 8)
    planes = to_planes(rows)
    assert np.array_equal(to_rows(planes), rows)
    bits = np.unpackbits(rows.view(np.uint8).reshape(128, 64), axis=1, bitorder="little")
    assert np.array_equal(np.unpackbits(planes, axis=1, bitorder="little"), bits.T)
