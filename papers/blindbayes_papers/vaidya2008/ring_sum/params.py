"""What a study may choose about masked rings. See SPEC.md."""

from __future__ import annotations

import msgspec


class RingSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of ring_sum."""

    rings: int | None = None  # disjoint rings, one share of each vector on each; by default two where they fit
    modulus_bits: int = 64  # fewer for exhaustive tests
