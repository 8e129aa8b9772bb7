"""Messages of joint_circuit."""

from __future__ import annotations

from blindbayes.wire import Marked, MaskedMessage, ShareMessage, U64Array


class TriplesChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which two parties multiply their parts of random bits."""

    corrections: U64Array


class TriplesMasked(Marked, MaskedMessage, frozen=True):
    """The sender's part of those products, under transfer pads."""

    bits: U64Array


class GatesMasked(Marked, MaskedMessage, frozen=True):
    """Shares of the inputs of one layer of AND gates, each under a share of a random bit."""

    bits: U64Array


class OutputsShared(Marked, ShareMessage, frozen=True):
    """A share of the outputs, for those who are to learn them."""

    bits: U64Array
