"""Options of an oblivious sum. See SPEC.md."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from blindbayes_papers.huai2015.oblivious_sum.membership import DEFAULT_WIDTH
from blindbayes_papers.huai2015.primitives.joye_libert import DEFAULT_BITS


class ObliviousSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of oblivious_sum."""

    scheme: Annotated[
        Literal["ristretto", "joye_libert"], "encryption; `joye_libert` takes any totals and has a dealer that could read all"
    ] = "ristretto"
    proofs: Annotated[bool, "with ristretto and no epsilon: contributors prove that a table can have their vectors"] = True
    keys: Annotated[
        Literal["pairwise", "standing", "dealer"], "`standing`: the keys of the sites' cards; `dealer`: a dealer makes all keys"
    ] = "pairwise"
    modulus_bits: Annotated[int, "bits of the modulus"] = DEFAULT_BITS
    modulus: Annotated[
        str | None, "modulus in hexadecimal, made beforehand, whose factors nobody has; then no dealer deals one"
    ] = None
    width: Annotated[int, "minimum number of parties in a segment of the key graph"] = DEFAULT_WIDTH
    views: Annotated[bool, "each party sets its noise by its own view of how many parties there are"] = False
    noise: Annotated[
        Literal["usual", "diluted"], "with epsilon: `diluted` is that of the paper (Definition 3), which takes a delta too"
    ] = "usual"
    toy_keys: Annotated[bool, "allow short moduli: tests and reproductions of papers only"] = False
