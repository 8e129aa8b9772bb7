"""Messages of the plaintext protocol."""

from __future__ import annotations

from blindbayes.wire import ClearMessage, U64Array


class VectorShown(ClearMessage, frozen=True):
    """A contributor's vector, in clear."""

    vector: U64Array


class TotalShown(ClearMessage, frozen=True):
    """The sum, and whose vectors are in it."""

    total: U64Array
    included: tuple[str, ...]
