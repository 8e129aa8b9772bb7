"""Messages of the masked sum.

Lists of equal-sized items travel as one byte string, in the order of the receiver's (or sender's) neighbours in roster order,
so that a message is a few objects however many neighbours there are.
"""

from __future__ import annotations

from blindbayes.wire import ClearMessage, EncryptedMessage, KeyMessage, MaskedMessage, ShareMessage, U64Array


class KeysAdvertised(KeyMessage, frozen=True):
    """Step 1: a contributor's commitments to its run key and to its own mask's seed, and a fresh public key, signed.

    With them, signed too, for half of its neighbours a secret encapsulated to the key of the neighbour's card.
    """

    commitments: bytes
    public: bytes
    signature: bytes
    encapsulated: bytes = b""

    @property
    def signed(self) -> bytes:
        """The part that the roster's hash covers."""
        return self.commitments + self.public + self.signature


class KeysListed(KeyMessage, frozen=True):
    """Step 2: the advertisements of the receiver's neighbours that are still present, and what they encapsulated to it."""

    neighbours: tuple[int, ...]
    advertised: tuple[KeysAdvertised, ...]
    encapsulated: bytes = b""


class SharesDealt(EncryptedMessage, frozen=True):
    """Step 3: for each neighbour, sealed to it, its shares of the sender's two secrets.

    With them the secret of the mask with that neighbour, sealed under the run key, and a check of that secret.
    """

    boxes: bytes
    secrets: bytes
    checks: bytes


class SharesPassedOn(EncryptedMessage, frozen=True):
    """Step 4: the boxes that the receiver's neighbours sealed to it."""

    neighbours: tuple[int, ...]
    boxes: bytes


class MaskedVectorSent(MaskedMessage, frozen=True):
    """Step 5: the vector under all masks; on a sparse graph, for each neighbour, a tag: its mask is among them."""

    vector_masked: U64Array
    tags: bytes = b""


class SurvivorsNamed(ClearMessage, frozen=True):
    """Step 6: one bit per contributor in roster order, set if its masked vector was accepted.

    With it the hash of all keys of the first set. Both are signed by the server.
    """

    survivors: bytes
    roster: bytes
    signature: bytes


class SurvivorsEchoed(KeyMessage, frozen=True):
    """Step 7: for each surviving neighbour, a tag over the named survivors and the roster under the key of the pair."""

    tags: bytes


class EchoesPassedOn(KeyMessage, frozen=True):
    """Step 8: the tags that the receiver's neighbours made for it; on a sparse graph those of step 5 of all included too."""

    neighbours: tuple[int, ...]
    tags: bytes
    masked: bytes = b""


class SharesGiven(ShareMessage, frozen=True):
    """Step 9: per neighbour one share: of its own mask's seed if it survived, of its run key if it did not."""

    shares: bytes


class TotalPublished(ClearMessage, frozen=True):
    """Step 10: the sum over the survivors."""

    total: U64Array
