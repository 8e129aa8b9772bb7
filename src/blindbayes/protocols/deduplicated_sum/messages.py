"""Messages of the deduplicated sum; those of transfers, of class_sums and of the masked sum are theirs."""

from __future__ import annotations

from blindbayes.wire import EncryptedMessage, KeyMessage


class PseudonymKeyShared(KeyMessage, frozen=True):
    """Step 1: the key of the pseudonyms, which every contributor has and the server never."""

    key: bytes


class PseudonymsSent(EncryptedMessage, frozen=True):
    """Step 2: the pseudonyms of a contributor's persons, 16 bytes each, in ascending order."""

    pseudonyms: bytes
