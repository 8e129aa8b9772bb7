"""Public facts about columns; see `codebook.codebook`."""

from __future__ import annotations

from blindbayes.codebook.codebook import DEFAULT_MAX_ROWS, Codebook, Origin, json_schema
from blindbayes.codebook.features import MAX_NAME_LENGTH, Categorical, Feature, IdPart, IdRecipe, Numeric, Text, log_points
from blindbayes.codebook.omop import Omop, OmopCohort, OmopColumn

__all__ = [
    "DEFAULT_MAX_ROWS",
    "MAX_NAME_LENGTH",
    "Categorical",
    "Codebook",
    "Feature",
    "IdPart",
    "IdRecipe",
    "Numeric",
    "Omop",
    "OmopCohort",
    "OmopColumn",
    "Origin",
    "Text",
    "json_schema",
    "log_points",
]
