"""Messages of shared_argmax."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class EntriesChosen(Message, frozen=True):
    """Corrections of the transfers by which an attribute holder chooses table entries, for some instances."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: U64Array


class EntriesMasked(Message, frozen=True):
    """The class holder's table entries under transfer pads."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    entries: U64Array


class ScoresHanded(Message, frozen=True):
    """One attribute holder's shares of scores, for the first one to add to its own."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    shares: U64Array


class ScoresBlinded(Message, frozen=True):
    """What an attribute holder that has nothing looked up added to the scores it hands on, for the class holder to take off."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    blinds: U64Array


class ScoresChosen(Message, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its shares' bits; or, where the comparison was
    garbled ahead, its shares less the random numbers that it was garbled for."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: U64Array


class ArgmaxGarbled(Message, frozen=True):
    """Garbled comparisons (or the labels of the garbler's bits, if they were garbled ahead), and the tags of the outputs if the
    evaluator is to learn the class."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    tables: U64Array
    tags: U64Array


class LabelsReturned(Message, frozen=True):
    """Output labels for the garbler, if it is to learn the class."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    labels: U64Array


class ClassesTold(Message, frozen=True):
    """The classes, from the class holder to a further attribute holder that is to learn them."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    classes: U64Array


class TriplesChosen(Message, frozen=True):
    """Corrections of the transfers by which two parties multiply their parts of random bits."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: U64Array


class TriplesMasked(Message, frozen=True):
    """The sender's part of those products, under transfer pads."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    bits: U64Array


class GatesMasked(Message, frozen=True):
    """Shares of the inputs of one layer of AND gates, each under a share of a random bit."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    bits: U64Array


class LevelCompared(Message, frozen=True):
    """One level of a comparison by transfers: the next level's choices, and the last one's entries under pads."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: U64Array
    masked: U64Array


class OutputsShared(Message, frozen=True):
    """A share of the class, for those who are to learn it."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    bits: U64Array


class TablesCommitted(Message, frozen=True):
    """In training: the root over the sender's share of the tables, signed for this study, run and pair."""

    trust: ClassVar[Trust] = Trust.KEY
    root: bytes
    signature: bytes


class DummiesCommitted(Message, frozen=True):
    """A hash of the attribute holder's part of the coins by which dummy instances are drawn."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    digest: bytes


class DummiesSeeded(Message, frozen=True):
    """The class holder's part of those coins."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    seed: bytes


class SharesCommitted(Message, frozen=True):
    """A commitment to the class holder's share of the sums of each instance that was looked up, dummies among them; signed,
    together with what was asked."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    digests: U64Array
    signature: bytes


class DummiesRevealed(Message, frozen=True):
    """The attribute holder's part of the coins: from now on both know which instances were dummies, and their values."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    seed: bytes


class DummiesPlaced(Message, frozen=True):
    """Which look-ups were of reference instances: from now on the class holder knows the places, never the values."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    places: U64Array


class DummiesOpened(Message, frozen=True):
    """The class holder's shares of the sums of the dummies, and the table entries that they touch, with what proves them and a
    hash of what it answered to the dummies; signed."""

    trust: ClassVar[Trust] = Trust.NOISY
    mark: int
    shares: U64Array
    salts: bytes
    entries: U64Array
    entry_salts: bytes
    paths: bytes
    answered: bytes
    signature: bytes


class DecoysTold(Message, frozen=True):
    """Which places held decoys, once everything is garbled, and a hash that only those choices give."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    decoys: U64Array
    digest: bytes


class DecoysTagged(Message, frozen=True):
    """The tags of the decoys' outputs, for an evaluator that is not to learn the classes of instances."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    tags: U64Array


class AheadChosen(Message, frozen=True):
    """Ahead: corrections of transfers to random choices."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: U64Array


class AheadGarbled(Message, frozen=True):
    """Ahead: a garbled comparison, without a label of the garbler's bits and without tags."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    tables: U64Array


class AheadOffered(Message, frozen=True):
    """Names of material that this party has for a classification."""

    trust: ClassVar[Trust] = Trust.KEY
    names: bytes  # 32 bytes each
