"""Drift of rows, or of a later model's rows, from those that a model was trained on."""

from __future__ import annotations

import os
from typing import Any

from blindbayes.data.columns import open_columns
from blindbayes.data.table import evaluate_table
from blindbayes.naive_bayes.load import load
from blindbayes.statistics.drift import Drift, Marginals, compare

_BINS = 40


def measure_drift(model: Any, current: Any) -> Drift:
    """Compare a model, or its file, with a current table or with a later model's file.

    A table without the class column is compared by its features alone.
    """
    own = (load(model) if isinstance(model, str | os.PathLike) else model)._parameters()
    before, book = Marginals.from_parameters(own), own.codebook
    if isinstance(current, str | os.PathLike) and os.fspath(current).endswith(".json"):
        return compare(before, Marginals.from_parameters(load(current)._parameters()))
    people = [] if book.identifier is None else [part.column for part in book.identifier.parts]
    columns = open_columns(current, book, ignore=people)
    now = Marginals.from_rows(book, columns.blocks(training=columns.labelled, lenient=True))
    evaluation = evaluate_table(current, book, [own], _BINS, lenient=True)[0] if columns.labelled else None
    return compare(before, now, evaluation)
