"""Messages of opened_ratio."""

from __future__ import annotations

from blindbayes.protocols.two_party.garbled import BitsChosen, TablesGarbled
from blindbayes.wire import ClearMessage, EncryptedMessage, Marked, U64Array


class TotalsChosen(BitsChosen, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its share's bits."""


class RatiosGarbled(TablesGarbled, frozen=True):
    """Garbled tables of one step, in pieces; the last piece has the tags of the step's outputs."""


class LabelsReturned(Marked, EncryptedMessage, frozen=True):
    """Output labels, for the garbler to read what is opened."""

    labels: U64Array


class RatiosTold(ClearMessage, frozen=True):
    """The opened probabilities, for parties that did not compute; empty if the smallest class was too small."""

    ratios: U64Array
