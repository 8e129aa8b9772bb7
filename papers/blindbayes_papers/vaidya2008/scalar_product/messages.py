"""Messages of scalar_product."""

from __future__ import annotations

from blindbayes.wire import ClearMessage, EncryptedMessage, KeyMessage, MaskedMessage, ShareMessage, U64Array


class ModulusPublished(KeyMessage, frozen=True):
    """A party's Paillier modulus."""

    modulus: bytes


class CiphertextsSent(EncryptedMessage, frozen=True):
    """Ciphertexts under the sender's key (a vector), or under the receiver's (a masked result)."""

    mark: int
    ciphertexts: bytes


class CentreOffered(KeyMessage, frozen=True):
    """The point C of Naor-Pinkas transfers."""

    mark: int
    point: bytes


class ChoicesMade(MaskedMessage, frozen=True):
    """One point per transfer."""

    mark: int
    points: bytes


class CircuitGarbled(EncryptedMessage, frozen=True):
    """The boxes of the transfers, the garbled tables, and the tags of the outputs."""

    mark: int
    boxes: bytes
    tables: U64Array
    tags: U64Array


class LabelsGivenBack(ClearMessage, frozen=True):
    """The evaluator's output labels, by which the garbler reads the class."""

    mark: int
    labels: U64Array


class LogarithmShareSent(ShareMessage, frozen=True):
    """Protocol 3 as printed: one share of each ln ratio, modulo 2^64, to the party that holds the other."""

    mark: int
    shares: U64Array


class RatiosAnnounced(ClearMessage, frozen=True):
    """Protocol 3 as printed: the ratios, in fixed point."""

    ratios: U64Array
