"""Messages of shared_model."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.protocol.garbled import TablesGarbled
from blindbayes.wire import Message, Trust, Words


class SumsChosen(Message, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its share's bits."""

    trust: ClassVar[Trust] = Trust.MASKED
    corrections: Words


class ModelGarbled(TablesGarbled, frozen=True):
    """Garbled tables, and with the last piece of a step the tags of its outputs (masked values)."""
