"""What a study may choose about a chain. See SPEC.md."""

from __future__ import annotations

import msgspec

from blindbayes_papers.primitives.paillier import DEFAULT_BITS


class ChainSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of chain_sum."""

    key_bits: int = DEFAULT_BITS  # bits of the builder's modulus, exactly
    toy_keys: bool = False  # allow short moduli: tests and reproductions of papers only
    neighbours: int | None = None  # masks that each contributor shares; even, or at least n - 1
