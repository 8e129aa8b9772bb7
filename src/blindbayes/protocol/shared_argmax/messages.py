"""Messages of shared_argmax."""

from __future__ import annotations

from blindbayes.wire import ClearMessage, EncryptedMessage, KeyMessage, MaskedMessage, NoisyMessage, ShareMessage, U64Array


class EntriesChosen(MaskedMessage, frozen=True):
    """Corrections of the transfers by which an attribute holder chooses table entries, for some instances."""

    mark: int
    corrections: U64Array


class EntriesMasked(MaskedMessage, frozen=True):
    """The class holder's table entries under transfer pads."""

    mark: int
    entries: U64Array


class ScoresHanded(ShareMessage, frozen=True):
    """One attribute holder's shares of scores, for the first one to add to its own."""

    mark: int
    shares: U64Array


class ScoresBlinded(ShareMessage, frozen=True):
    """What an attribute holder that has nothing looked up added to the scores it hands on, for the class holder to take off."""

    mark: int
    blinds: U64Array


class ScoresChosen(MaskedMessage, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its shares' bits; or, where the comparison was
    garbled ahead, its shares less the random numbers that it was garbled for."""

    mark: int
    corrections: U64Array


class ArgmaxGarbled(EncryptedMessage, frozen=True):
    """Garbled comparisons (or the labels of the garbler's bits, if they were garbled ahead), and the tags of the outputs if the
    evaluator is to learn the class."""

    mark: int
    tables: U64Array
    tags: U64Array


class LabelsReturned(EncryptedMessage, frozen=True):
    """Output labels for the garbler, if it is to learn the class."""

    mark: int
    labels: U64Array


class ClassesTold(ClearMessage, frozen=True):
    """The classes, from the class holder to a further attribute holder that is to learn them."""

    mark: int
    classes: U64Array


class TriplesChosen(MaskedMessage, frozen=True):
    """Corrections of the transfers by which two parties multiply their parts of random bits."""

    mark: int
    corrections: U64Array


class TriplesMasked(MaskedMessage, frozen=True):
    """The sender's part of those products, under transfer pads."""

    mark: int
    bits: U64Array


class GatesMasked(MaskedMessage, frozen=True):
    """Shares of the inputs of one layer of AND gates, each under a share of a random bit."""

    mark: int
    bits: U64Array


class LevelCompared(MaskedMessage, frozen=True):
    """One level of a comparison by transfers: the next level's choices, and the last one's entries under pads."""

    mark: int
    corrections: U64Array
    masked: U64Array


class OutputsShared(ShareMessage, frozen=True):
    """A share of the class, for those who are to learn it."""

    mark: int
    bits: U64Array


class TablesCommitted(KeyMessage, frozen=True):
    """In training: the root over the sender's share of the tables, signed for this study, run and pair."""

    root: bytes
    signature: bytes


class DummiesCommitted(KeyMessage, frozen=True):
    """A hash of the attribute holder's part of the coins by which dummy instances are drawn."""

    mark: int
    digest: bytes


class DummiesSeeded(ClearMessage, frozen=True):
    """The class holder's part of those coins."""

    mark: int
    seed: bytes


class SharesCommitted(KeyMessage, frozen=True):
    """A commitment to the class holder's share of the sums of each instance that was looked up, dummies among them; signed,
    together with what was asked."""

    mark: int
    digests: U64Array
    signature: bytes


class DummiesRevealed(ClearMessage, frozen=True):
    """The attribute holder's part of the coins: from now on both know which instances were dummies, and their values."""

    mark: int
    seed: bytes


class DummiesPlaced(ClearMessage, frozen=True):
    """Which look-ups were of reference instances: from now on the class holder knows the places, never the values."""

    mark: int
    places: U64Array


class DummiesOpened(NoisyMessage, frozen=True):
    """The class holder's shares of the sums of the dummies, and the table entries that they touch, with what proves them and a
    hash of what it answered to the dummies; signed."""

    mark: int
    shares: U64Array
    salts: bytes
    entries: U64Array
    entry_salts: bytes
    paths: bytes
    answered: bytes
    signature: bytes


class DecoysTold(ClearMessage, frozen=True):
    """Which places held decoys, once everything is garbled, and a hash that only those choices give."""

    mark: int
    decoys: U64Array
    digest: bytes


class DecoysTagged(EncryptedMessage, frozen=True):
    """The tags of the decoys' outputs, for an evaluator that is not to learn the classes of instances."""

    mark: int
    tags: U64Array


class AheadChosen(MaskedMessage, frozen=True):
    """Ahead: corrections of transfers to random choices."""

    mark: int
    corrections: U64Array


class AheadGarbled(EncryptedMessage, frozen=True):
    """Ahead: a garbled comparison, without a label of the garbler's bits and without tags."""

    mark: int
    tables: U64Array


class AheadOffered(KeyMessage, frozen=True):
    """Names of material that this party has for a classification."""

    names: bytes  # 32 bytes each
