"""Messages of the floored sum. Step numbers as in SPEC.md."""

from __future__ import annotations

from blindbayes.wire import ClearMessage, EncryptedMessage, ShareMessage, U64Array


class TagKeyShared(ShareMessage, frozen=True):
    """Step 2: the key of the tags, which the masker and the server share and the referee never has."""

    key: bytes


class TagsSent(EncryptedMessage, frozen=True):
    """Step 3: pseudo-random tags, of the server's own words or of those that the masker's words would need, for the referee."""

    tags: U64Array


class BitsFound(ClearMessage, frozen=True):
    """Step 4: which of the server's tags are among the masker's: one bit per question."""

    bits: bytes


class MasksGiven(ShareMessage, frozen=True):
    """Step 5: the masks on those combinations of cells that the rule opens."""

    masks: U64Array


class ValuesOpened(ClearMessage, frozen=True):
    """Step 5: the values of these combinations."""

    values: U64Array


class TablePublished(ClearMessage, frozen=True):
    """Step 6: all bits and values, from which every site derives the table."""

    bits: bytes
    values: U64Array
