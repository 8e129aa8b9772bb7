"""Messages of the plaintext protocol."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, Words


class VectorShown(Message, frozen=True):
    """A contributor's vector, in clear."""

    trust: ClassVar[Trust] = Trust.CLEAR
    vector: Words


class TotalShown(Message, frozen=True):
    """The sum, and whose vectors are in it."""

    trust: ClassVar[Trust] = Trust.CLEAR
    total: Words
    included: tuple[str, ...]
