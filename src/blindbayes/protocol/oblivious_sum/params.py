"""What a study may choose about an oblivious sum. See SPEC.md."""

from __future__ import annotations

from typing import Literal

import msgspec

from blindbayes.primitives.joye_libert import DEFAULT_BITS
from blindbayes.protocol.oblivious_sum.membership import DEFAULT_WIDTH


class ObliviousSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of oblivious_sum."""

    scheme: Literal["joye_libert", "ristretto"] = "joye_libert"  # ristretto: no dealer, no trapdoor; small totals only
    keys: Literal["pairwise", "standing", "dealer"] = "pairwise"  # standing: those of the sites' cards; dealer: it makes all
    modulus_bits: int = DEFAULT_BITS
    modulus: str | None = None  # hexadecimal: made beforehand, and nobody has its factors; then no dealer deals one
    width: int = DEFAULT_WIDTH  # least number of parties in a segment of the key graph
    toy_keys: bool = False  # allow short moduli: tests and reproductions of papers only
