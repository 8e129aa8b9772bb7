"""Messages of joined_sums."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.protocols.two_party.garbled import BitsChosen, TablesGarbled
from blindbayes.wire import Marked, MaskedMessage, Trust, U64Array


class SeedsChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the oblivious transfers through which the owner of the oblivious function receives its seeds (step 3)."""

    corrections: U64Array


class ItemsMasked(Marked, MaskedMessage, frozen=True):
    """The items in a block of bins, masked: the questions of the oblivious function."""

    planes: U64Array


class StoreFilled(Marked, MaskedMessage, frozen=True):
    """A piece of the store that holds tags and labels under the function's values."""

    cells: U64Array


class TagsChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which the label holder compares digits of its tags, or shares of what came of it."""

    corrections: U64Array


class DigitsMasked(Marked, MaskedMessage, frozen=True):
    """Bits, per digit and value, that say whether it is the row holder's, under transfer pads."""

    bits: U64Array


class MatchesChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which the label holder enters its shares of the matches and its masks, for some bins."""

    corrections: U64Array


class BinsCompared(Marked, MaskedMessage, frozen=True):
    """Garbled labels of a block of bins and, where matches are counted, their sum.

    With them the block's rows and tags under the labels of the outcomes, and corrections of the transfers by which the row
    holder enters its own shares of the matches.
    """

    tables: U64Array
    rows: U64Array
    corrections: U64Array


class TagsMasked(Marked, MaskedMessage, frozen=True):
    """The label holder's tags under the labels of the same matches."""

    tags: U64Array


class OverlapGarbled(TablesGarbled, frozen=True):
    """Garbled comparison of the counted matches with the minimum, and the tags of its one bit."""

    trust: ClassVar[Trust] = Trust.CLEAR


class NoiseChosen(BitsChosen, frozen=True):
    """Corrections of the transfers by which a party enters its noise into the sum of the counted matches."""


class OverlapNoised(TablesGarbled, frozen=True):
    """Garbled circuit that adds the noise of both parties to the number of matches, with the tags that decode its output."""

    trust: ClassVar[Trust] = Trust.NOISY


class CountsChosen(BitsChosen, frozen=True):
    """Corrections of the transfers by which a party enters its shares of class counts, and its masks, into a circuit."""


class CountsGarbled(TablesGarbled, frozen=True):
    """Garbled tables over the shares of class counts, and in the first execution the tags of the outputs (masked values)."""
