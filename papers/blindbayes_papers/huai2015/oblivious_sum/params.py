"""What a study may choose about an oblivious sum. See SPEC.md."""

from __future__ import annotations

from typing import Literal

import msgspec

from blindbayes_papers.huai2015.oblivious_sum.membership import DEFAULT_WIDTH
from blindbayes_papers.huai2015.primitives.joye_libert import DEFAULT_BITS


class ObliviousSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of oblivious_sum."""

    scheme: Literal["joye_libert", "ristretto"] = "joye_libert"  # ristretto: no dealer, no trapdoor; small totals only
    keys: Literal["pairwise", "standing", "dealer"] = "pairwise"  # standing: those of the sites' cards; dealer: it makes all
    modulus_bits: int = DEFAULT_BITS
    modulus: str | None = None  # hexadecimal: made beforehand, and nobody has its factors; then no dealer deals one
    width: int = DEFAULT_WIDTH  # least number of parties in a segment of the key graph
    views: bool = False  # each party sets its noise by its own view of how many there are: enough, at most about twice
    toy_keys: bool = False  # allow short moduli: tests and reproductions of papers only
