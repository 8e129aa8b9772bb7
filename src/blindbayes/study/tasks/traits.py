"""Traits of a protocol, stated by its task class: what it is and what it supports."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Partition = Literal["rows", "columns"]
Queries = Annotated[
    Annotated[int, Meta(ge=1)] | None,
    "maximum number of instances that all models of the study together may classify",
]
CompareAll = Annotated[bool, "all parties compare the scores together, so that no two of them can see a third's part"]


class ModelForm(Enum):
    """The form in which the result of a run ends."""

    OPENED = "opened"  # with the learners
    SHARED = "shared"  # in shares: nobody gets the model, and a classification is a run of its own


class Support(Enum):
    """A capability of a protocol beyond the common settings of a study."""

    TEXT = "text"  # features may be text
    WORDS = "words"  # of text, whether a document has a word
    CLASS_WEIGHT = "class_weight"
    MIN_CELL = "min_cell"
    LABEL_EPSILON = "label_epsilon"  # the class holder may randomise its labels
    ROSTER_CHANGES = "roster changes"  # sites may join and leave: the roster is signed again, the study stays
    INCREMENTS = "increments"  # a run may add to an earlier result and take rows back
    DROPOUT = "dropout"  # a result may be opened without some of the sites
    EVALUATION = "evaluation"  # held-out rows evaluate the model by a further sum
    SLOW_COURIER = "slow courier"  # the rounds grow neither with parties nor with columns or rows


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a protocol without options."""
