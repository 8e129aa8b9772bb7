"""Export a model as a SQL query that classifies the rows of a table.

Numbers are put on the grid by floor(x * scale + 0.5) and clamped, as in prediction. Literals have exponents: without one,
some engines read a decimal number of few digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from blindbayes.codebook import Categorical, Feature, Numeric
from blindbayes.data.values import marker_numbers
from blindbayes.errors import ConfigError
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term

Dialect = Literal["standard", "spark"]
_PART = r"(?:[A-Za-z_][A-Za-z0-9_]*|\"[^\"\n]+\"|`[^`\n]+`)"
_TABLE = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")
_SPAN = 700  # e to this power is still a float; some engines refuse to round the reciprocal to 0


def to_sql(parameters: Parameters, table: str, *, dialect: Dialect = "standard") -> str:
    """Return a SELECT with the columns of `table`, the class as `predicted` and a column P(class) per class.

    Categories are compared as text, and a missing value is NULL or one of the codebook's markers.
    """
    codebook = parameters.codebook
    codebook.require_one_value("SQL")
    if not _TABLE.fullmatch(table):
        raise ConfigError(
            "the table is named by letters, digits and underscores, with dots between, or as the engine quotes it: "
            'analysis.visits, or analysis."Visits 2024"'
        )
    quote = _Quote(dialect)
    scores = {at: f"bb_score_{at}" for at, prior in enumerate(parameters.log_prior) if math.isfinite(prior)}
    sums = [f"{_score(parameters, at, quote)} AS {score}" for at, score in scores.items()]
    best = " ".join(
        f"WHEN {' AND '.join(f'{score} >= {other}' for other in scores.values())} THEN {quote.text(codebook.classes[at])}"
        for at, score in scores.items()
    )
    shares = [
        f"{_share(scores.get(at), list(scores.values()))} AS {quote.name(f'P({each})')}"
        for at, each in enumerate(codebook.classes)
    ]
    inner = f"SELECT bb_rows.*,{_lines(sums)}\nFROM {table} AS bb_rows"
    return f"SELECT bb_scored.*,{_lines([f'CASE {best} END AS predicted', *shares])}\nFROM ({inner}) AS bb_scored\n"


class _Quote:
    """Names and texts as the engine reads them: Spark takes double quotes for text, and a backslash for an escape."""

    def __init__(self, dialect: Dialect) -> None:
        self._mark, self._spark = "`" if dialect == "spark" else '"', dialect == "spark"

    def name(self, text: str) -> str:
        return self._mark + text.replace(self._mark, self._mark * 2) + self._mark

    def text(self, text: str) -> str:
        return "'" + (text.replace("\\", "\\\\").replace("'", "\\'") if self._spark else text.replace("'", "''")) + "'"


def _lines(parts: Sequence[str]) -> str:
    return ",".join(f"\n  {part}" for part in parts)


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise ConfigError("the model has a probability of 0, which SQL cannot add: take ONNX, or more smoothing (alpha)")
    digits = repr(float(value))
    return digits if "e" in digits else f"{digits}e0"


def _share(score: str | None, scores: list[str]) -> str:
    if score is None:
        return "0e0"
    return f"1e0 / ({' + '.join(f'EXP(GREATEST(LEAST({other} - {score}, {_SPAN}e0), -{_SPAN}e0))' for other in scores)})"


def _score(parameters: Parameters, at: int, quote: _Quote) -> str:
    parts = [_number(parameters.log_prior[at])]
    for feature in parameters.codebook.features:
        markers = parameters.codebook.markers(feature)
        part = _part(feature, parameters.terms[feature.name], at, markers, quote)
        parts += [part] if part is not None else []
    return "\n  + ".join(parts)


def _part(feature: Feature, term: Term, at: int, markers: tuple[str, ...], quote: _Quote) -> str | None:
    """Return what a feature adds to the score of class `at`, or None if it adds nothing."""
    column = f"bb_rows.{quote.name(feature.name)}"
    if isinstance(feature, Categorical) and isinstance(term, Histogram):
        absent = f"WHEN {column} IN ({', '.join(map(quote.text, markers))}) THEN 0e0" if markers else ""
        cases = [f"WHEN {quote.text(value)} THEN {_number(term.log_prob[at, k])}" for k, value in enumerate(feature.values)]
        other = 0.0 if feature.other is None else term.log_prob[at, feature.values.index(feature.other)]
        return (
            f"CASE WHEN {column} IS NULL THEN 0e0 {absent} ELSE CASE {column} {' '.join(cases)} ELSE {_number(other)} END END"
        )
    if not isinstance(feature, Numeric) or not isinstance(term, Histogram | Gaussian):
        raise ConfigError(f"feature {feature.name!r} has parameters of another kind")
    absent = f"{column} IS NULL"
    if numbers := sorted(marker_numbers(markers)):
        absent += f" OR {column} IN ({', '.join(map(_number, numbers))})"
    point = f"FLOOR({column} * {_number(feature.scale)} + 0.5e0)"
    if isinstance(term, Histogram):
        starts = [start + feature.centre for start in feature.starts]
        cases = [f"WHEN {point} < {_number(start)} THEN {_number(term.log_prob[at, k])}" for k, start in enumerate(starts[1:])]
        return f"CASE WHEN {absent} THEN 0e0 {' '.join(cases)} ELSE {_number(term.log_prob[at, -1])} END"
    if not np.isfinite(term.variance).all():
        return None  # no class has a value: the feature says nothing
    mean, variance = float(term.mean[at]), float(term.variance[at])
    clamped = f"LEAST(GREATEST({point}, {_number(feature.grid_low)}), {_number(feature.grid_high)}) / {_number(feature.scale)}"
    constant = _number(-0.5 * math.log(2 * math.pi * variance))
    distance = f"({clamped} - {_number(mean)})"
    return f"CASE WHEN {absent} THEN 0e0 ELSE {constant} - {distance} * {distance} / {_number(2 * variance)} END"
