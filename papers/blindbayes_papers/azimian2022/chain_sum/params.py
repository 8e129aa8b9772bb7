"""Options of a chain. See SPEC.md."""

from __future__ import annotations

from typing import Annotated

import msgspec

from blindbayes_papers.primitives.paillier import DEFAULT_BITS


class ChainSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of chain_sum."""

    key_bits: Annotated[int, "bits of the builder's modulus"] = DEFAULT_BITS
    toy_keys: Annotated[bool, "allow short moduli: tests and reproductions of papers only"] = False
    neighbours: Annotated[int | None, "masks that each contributor shares; even, or at least n - 1"] = None
