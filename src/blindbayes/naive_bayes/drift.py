"""Drift of rows, or of a later model's rows, from those that a model was trained on."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from blindbayes.data.columns import open_columns
from blindbayes.data.sources import require_columns
from blindbayes.data.split import Reading
from blindbayes.data.table import evaluate_table
from blindbayes.dp.release.intervals import plausible_marginals
from blindbayes.naive_bayes.base import BaseNaiveBayes
from blindbayes.naive_bayes.load import load
from blindbayes.naive_bayes.model_file import ModelRecord
from blindbayes.statistics.drift import Drift, Marginals, compare

_BINS = 40


def measure_drift(model: Any, current: Any, *, extra_columns: str = "refuse") -> Drift:
    """Compare a model, or its file, with a current table or with a later model, or its file.

    A table without the class column is compared by its features alone. What the model's noise explains is no drift.
    """
    record = (load(model) if isinstance(model, str | os.PathLike) else model)._record()
    own, before = record.parameters, _marginals(record)
    book = own.codebook
    if isinstance(current, str | os.PathLike) and os.fspath(current).endswith(".json"):
        current = load(current)
    if isinstance(current, BaseNaiveBayes):
        return compare(before, _marginals(current._record()))
    if hasattr(current, "columns"):
        require_columns([*map(str, current.columns)], book, extra_columns=extra_columns, required=False)
    others = [] if book.identifier is None else [part.column for part in book.identifier.parts]
    others += current.columns if extra_columns == "ignore" else []
    columns = open_columns(current, book, ignore=others)
    now = Marginals.from_rows(book, columns.blocks(training=columns.labelled, lenient=True), before.edges)
    if not columns.labelled:
        return compare(before, now)
    reading = Reading(book, lenient=True)
    return compare(before, now, evaluate_table(current, reading, [own], _BINS, extra_columns=extra_columns)[0])


def _marginals(record: ModelRecord) -> Marginals:
    """Return the marginals of a model's rows: by its counts, since weights, rules and declared priors move its parameters."""
    parameters, statistics = record.parameters, record.statistics
    if record.privacy is not None:
        plausible = plausible_marginals(record.privacy, parameters.codebook)
        if plausible is not None:
            return Marginals.from_release(plausible, parameters.codebook)
    known = (
        Marginals.from_statistics(statistics)
        if statistics is not None and statistics.codebook == parameters.codebook
        else Marginals.from_parameters(parameters)
    )
    return replace(known, has_unknown_noise=record.privacy is not None)
