"""Messages of the plaintext protocol."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class VectorShown(Message, frozen=True):
    """A contributor's vector, in clear."""

    trust: ClassVar[Trust] = Trust.CLEAR
    vector: U64Array


class TotalShown(Message, frozen=True):
    """The sum, and whose vectors are in it."""

    trust: ClassVar[Trust] = Trust.CLEAR
    total: U64Array
    included: tuple[str, ...]
