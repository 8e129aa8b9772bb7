"""Options of masked rings. See SPEC.md."""

from __future__ import annotations

from typing import Annotated

import msgspec


class RingSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of ring_sum."""

    rings: Annotated[
        int | None, "number of disjoint rings, one share of each vector on each; by default two where they fit"
    ] = None
    modulus_bits: Annotated[int, "bits of the modulus; fewer than 64 for exhaustive tests"] = 64
