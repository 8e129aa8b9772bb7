"""Messages of shared_argmax."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, Words


class EntriesChosen(Message, frozen=True):
    """Corrections of the transfers by which an attribute holder chooses table entries, for some instances."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: Words


class EntriesMasked(Message, frozen=True):
    """The class holder's table entries under transfer pads."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    entries: Words


class ScoresHanded(Message, frozen=True):
    """One attribute holder's shares of scores, for the first one to add to its own."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    shares: Words


class ScoresBlinded(Message, frozen=True):
    """What an attribute holder that has nothing looked up added to the scores it hands on, for the class holder to take off."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    blinds: Words


class ScoresChosen(Message, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its shares' bits."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: Words


class ArgmaxGarbled(Message, frozen=True):
    """Garbled comparisons, and the tags of the outputs if the evaluator is to learn the class."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    tables: Words
    tags: Words


class LabelsReturned(Message, frozen=True):
    """Output labels for the garbler, if it is to learn the class."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    labels: Words


class ClassesTold(Message, frozen=True):
    """The classes, from the class holder to a further attribute holder that is to learn them."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    classes: Words


class TriplesChosen(Message, frozen=True):
    """Corrections of the transfers by which two parties multiply their parts of random bits."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: Words


class TriplesMasked(Message, frozen=True):
    """The sender's part of those products, under transfer pads."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    bits: Words


class GatesMasked(Message, frozen=True):
    """Shares of the inputs of one layer of AND gates, each under a share of a random bit."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    bits: Words


class OutputsShared(Message, frozen=True):
    """A share of the class, for those who are to learn it."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    bits: Words
