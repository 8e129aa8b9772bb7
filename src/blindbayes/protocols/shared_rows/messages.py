"""Messages of private_ratio."""

from __future__ import annotations

from blindbayes.wire import MaskedMessage, ShareMessage, U64Array


class MaskSent(ShareMessage, frozen=True):
    """The key of the mask on a contributor's vector, for one of the computing parties."""

    key: bytes


class VectorMasked(MaskedMessage, frozen=True):
    """A contributor's vector minus its masks, for the last computing party."""

    vector: U64Array
