"""Messages of shared_argmax."""

from __future__ import annotations

from blindbayes.wire import (
    ClearMessage,
    EncryptedMessage,
    Marked,
    MaskedMessage,
    ShareMessage,
    U64Array,
)


class EntriesChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which an attribute holder chooses table entries, for some instances."""

    corrections: U64Array


class EntriesMasked(Marked, MaskedMessage, frozen=True):
    """The class holder's table entries under transfer pads."""

    entries: U64Array


class ScoresHanded(Marked, ShareMessage, frozen=True):
    """One attribute holder's shares of scores, for the first one to add to its own."""

    shares: U64Array


class ScoresBlinded(Marked, ShareMessage, frozen=True):
    """The blinding that an attribute holder without look-ups added to its scores, for the class holder to take off."""

    blinds: U64Array


class ScoresChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its shares' bits."""

    corrections: U64Array


class ArgmaxGarbled(Marked, EncryptedMessage, frozen=True):
    """Garbled comparisons, and the tags of the outputs if the evaluator is to learn the class."""

    tables: U64Array
    tags: U64Array


class LabelsReturned(Marked, EncryptedMessage, frozen=True):
    """Output labels for the garbler, if it is to learn the class."""

    labels: U64Array


class ClassesTold(Marked, ClearMessage, frozen=True):
    """The classes, from the class holder to a further attribute holder that is to learn them."""

    classes: U64Array


class TotalsShared(Marked, ShareMessage, frozen=True):
    """The sender's shares of the totals by true and predicted class, for a party that is to learn them."""

    shares: U64Array


class DummiesPlaced(Marked, ClearMessage, frozen=True):
    """The places of reference instances among the look-ups: now the class holder knows the places, never the values."""

    places: U64Array


class DecoysTold(Marked, ClearMessage, frozen=True):
    """The places of decoys, once everything is garbled, and a hash that only those choices give."""

    decoys: U64Array
    digest: bytes


class DecoysTagged(Marked, EncryptedMessage, frozen=True):
    """The tags of the decoys' outputs, for an evaluator that is not to learn the classes of instances."""

    tags: U64Array
