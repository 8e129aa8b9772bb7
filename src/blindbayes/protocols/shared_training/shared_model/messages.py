"""Messages of shared_model; those that compare the two executions are `garbled`'s."""

from __future__ import annotations

from blindbayes.protocols.two_party.garbled import BitsChosen, TablesGarbled


class SumsChosen(BitsChosen, frozen=True):
    """Corrections of the transfers by which an evaluator gets the labels of its bits.

    The bits are its share and, in the second execution, class counts and masks.
    """


class ModelGarbled(TablesGarbled, frozen=True):
    """Garbled tables, and in the first execution, with the last piece of a step, the tags of its outputs (masked values)."""
