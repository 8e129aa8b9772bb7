"""Identifier columns of a party's table, as keyed digests row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, IdPart, IdRecipe
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.identifiers import digests, identify
from blindbayes.data.libraries import pa
from blindbayes.errors import ConfigError, DataError


def recipe_of(codebook: Codebook, key: str | Sequence[str] | None) -> IdRecipe:
    """Return the codebook's recipe, or the exact text of the key columns if the codebook has none."""
    names = (key,) if isinstance(key, str) else tuple(key or ())
    if codebook.identifier is not None:
        declared = tuple(part.column for part in codebook.identifier.parts)
        if names and names != declared:
            raise ConfigError("key and the codebook's identifier recipe name different columns; leave key out")
        return codebook.identifier
    if not names:
        raise ConfigError("rows that do not line up need identifiers: an [identifier] recipe in the codebook, or key")
    return IdRecipe(tuple(IdPart(name, "exact") for name in names))


def read_digests(source: ColumnSource, recipe: IdRecipe, salt: bytes) -> list[bytes | None]:
    """Return one keyed digest per row, None for a row without identifier; they never leave the site.

    The table is loaded into memory: an engine may return rows in another order next time, which would pair values with other
    identifiers.
    """
    names = [part.column for part in recipe.parts]
    for name in names:
        if name not in source.names:
            raise DataError(f"identifier column {name!r} is missing from the table; add it or change the recipe")
    source.keep()
    table = source.arrow(names)
    identifiers, _ = identify({name: table.column(name) for name in names}, recipe)
    return digests(identifiers, salt)


def rows_at(source: ColumnSource, places: npt.NDArray[np.int64], codebook: Codebook) -> ColumnSource:
    """Return the columns of the codebook at `places`, in that order, with their randomised labels."""
    names = [feature.name for feature in source.features] + ([source.codebook.target] if source.labelled else [])
    chosen = open_columns(source.arrow(names).take(pa.array(places)), codebook)
    return replace(chosen, lenient=source.lenient, randomised=None if source.randomised is None else source.randomised[places])
