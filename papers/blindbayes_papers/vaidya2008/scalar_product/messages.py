"""Messages of scalar_product."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class ModulusPublished(Message, frozen=True):
    """A party's Paillier modulus."""

    trust: ClassVar[Trust] = Trust.KEY
    modulus: bytes


class CiphertextsSent(Message, frozen=True):
    """Ciphertexts under the sender's key (a vector), or under the receiver's (a masked result)."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    ciphertexts: bytes


class CentreOffered(Message, frozen=True):
    """The point C of Naor-Pinkas transfers."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    point: bytes


class ChoicesMade(Message, frozen=True):
    """One point per transfer."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    points: bytes


class CircuitGarbled(Message, frozen=True):
    """The boxes of the transfers, the garbled tables, and the tags of the outputs."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    boxes: bytes
    tables: U64Array
    tags: U64Array


class LabelsGivenBack(Message, frozen=True):
    """The evaluator's output labels, by which the garbler reads the class."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    labels: U64Array


class LogarithmShareSent(Message, frozen=True):
    """Protocol 3 as printed: one share of each ln ratio, modulo 2^64, to the party that holds the other."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    shares: U64Array


class RatiosAnnounced(Message, frozen=True):
    """Protocol 3 as printed: the ratios, in fixed point."""

    trust: ClassVar[Trust] = Trust.CLEAR
    ratios: U64Array
