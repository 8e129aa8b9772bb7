"""Messages of private_ratio."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.protocol.garbled import BitsChosen, TablesGarbled
from blindbayes.wire import Message, Trust, U64Array


class MaskSent(Message, frozen=True):
    """The key of the mask on a contributor's vector, for the first computing party."""

    trust: ClassVar[Trust] = Trust.SHARE
    key: bytes


class VectorMasked(Message, frozen=True):
    """A contributor's vector minus its mask, for the second computing party."""

    trust: ClassVar[Trust] = Trust.MASKED
    vector: U64Array


class TotalsChosen(BitsChosen, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its share's bits."""


class RatiosGarbled(TablesGarbled, frozen=True):
    """Garbled tables of one step, in pieces; the last piece has the tags of the step's outputs."""


class LabelsReturned(Message, frozen=True):
    """Output labels, for the garbler to read what is opened."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    labels: U64Array


class RatiosTold(Message, frozen=True):
    """The opened probabilities, for parties that did not compute; empty if the smallest class was too small."""

    trust: ClassVar[Trust] = Trust.CLEAR
    ratios: U64Array
