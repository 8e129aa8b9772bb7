"""Messages of scalar_product."""

from __future__ import annotations

from blindbayes.wire import ClearMessage, EncryptedMessage, KeyMessage, Marked, MaskedMessage, ShareMessage, U64Array


class ModulusPublished(KeyMessage, frozen=True):
    """A party's Paillier modulus."""

    modulus: bytes


class CiphertextsSent(Marked, EncryptedMessage, frozen=True):
    """Ciphertexts under the sender's key (a vector), or under the receiver's (a masked result)."""

    ciphertexts: bytes


class CentreOffered(Marked, KeyMessage, frozen=True):
    """The point C of Naor-Pinkas transfers."""

    point: bytes


class ChoicesMade(Marked, MaskedMessage, frozen=True):
    """One point per transfer."""

    points: bytes


class CircuitGarbled(Marked, EncryptedMessage, frozen=True):
    """The boxes of the transfers, the garbled tables, and the tags of the outputs."""

    boxes: bytes
    tables: U64Array
    tags: U64Array


class LabelsGivenBack(Marked, ClearMessage, frozen=True):
    """The evaluator's output labels, by which the garbler reads the class."""

    labels: U64Array


class LogarithmShareSent(Marked, ShareMessage, frozen=True):
    """Protocol 3 as printed: one share of each ln ratio, modulo 2^64, to the party that holds the other."""

    shares: U64Array


class RatiosAnnounced(ClearMessage, frozen=True):
    """Protocol 3 as printed: the ratios, in fixed point."""

    ratios: U64Array
