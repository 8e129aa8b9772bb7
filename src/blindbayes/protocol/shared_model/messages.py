"""Messages of shared_model."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, Words


class SumsChosen(Message, frozen=True):
    """Corrections of the transfers by which the evaluator gets the labels of its share's bits."""

    trust: ClassVar[Trust] = Trust.MASKED
    corrections: Words


class ModelGarbled(Message, frozen=True):
    """Garbled tables, and with the last piece of a step the tags of its outputs (masked values)."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    tables: Words
    tags: Words
    last: bool
