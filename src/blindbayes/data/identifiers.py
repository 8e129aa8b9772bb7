"""Normalise identifier columns to the same bytes at every party.

The codebook's recipe lists columns and how each is normalised:

    exact    the text unchanged
    text     Unicode NFKC, case folded, white space stripped at the ends and folded to one blank inside
    digits   the ASCII digits after NFKC (02-77 and 0277 are equal)
    email    as text, without blanks; must have one @ with something on both sides
    phone    E.164 by the recipe's region (+44...), for numbers that can exist there
    date     YYYY-MM-DD, from dates or from text in that order of year, month, day

Each part is prefixed by its length, so that ("ab", "c") and ("a", "bc") differ. A row with a part that is missing or does not
normalise has no identifier. Identifiers never leave the site: protocols work on keyed digests, and do not send those either.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import need
from blindbayes.codebook import Codebook, IdPart, IdRecipe
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.libraries import pa, pc
from blindbayes.errors import ConfigError, DataError

DIGEST_BYTES = 16
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_DATE = re.compile(r"(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})")


@dataclass(frozen=True, slots=True)
class IdReport:
    """Counts for the site itself, without any identifier."""

    rows: int
    missing: int  # rows with a part that is null or empty
    unusable: Mapping[str, int]  # rows per column that do not normalise
    identified: int  # rows with an identifier
    distinct: int  # distinct identifiers
    repeated: int  # identifiers of more than one row
    max_rows: int  # rows of the most frequent identifier

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def identify(columns: Mapping[str, Any], recipe: IdRecipe) -> tuple[list[bytes | None], IdReport]:
    """Return the identifier of each row, None if it has none, and the report."""
    unusable: dict[str, int] = {}
    absent: list[list[bool]] = []
    identifiers = _identifiers(columns, recipe, unusable, absent)
    if identifiers and not any(identifiers):
        raise DataError("no row has a usable identifier; check the identifier columns against the codebook's recipe")
    counted = Counter(identifier for identifier in identifiers if identifier is not None)
    report = IdReport(
        rows=len(identifiers),
        missing=sum(any(flags) for flags in zip(*absent, strict=True)),
        unusable=unusable,
        identified=sum(counted.values()),
        distinct=len(counted),
        repeated=sum(rows > 1 for rows in counted.values()),
        max_rows=max(counted.values(), default=0),
    )
    return identifiers, report


def normalised(columns: Mapping[str, Any], recipe: IdRecipe) -> list[bytes | None]:
    """Return the identifier of each row, None if it has none. No value is an error: noise must hide each row."""
    return _identifiers(columns, recipe, {}, [])


def _identifiers(
    columns: Mapping[str, Any], recipe: IdRecipe, unusable: dict[str, int], absent: list[list[bool]]
) -> list[bytes | None]:
    """Return the identifier of each row, and record what is missing or does not normalise."""
    parts: list[list[str | None]] = []
    for part in recipe.parts:
        if part.column not in columns:
            raise DataError(f"identifier column {part.column!r} is missing from the table; add it or change the recipe")
        raw = _texts(columns[part.column], part)
        texts = _normalised(raw, part)
        gone = [text is None or text == "" for text in raw]
        unusable[part.column] = sum(text is None and not empty for text, empty in zip(texts, gone, strict=True))
        parts.append(texts)
        absent.append(gone)
    return [
        None if None in each else b"".join(_framed(text) for text in each if text is not None)
        for each in zip(*parts, strict=True)
    ]


def digests(identifiers: Sequence[bytes | None], key: bytes) -> list[bytes | None]:
    """Return keyed 128-bit digests. `key` is public (the study's hash), so digests must not leave the site."""
    hashed = partial(hashlib.blake2b, digest_size=DIGEST_BYTES, key=key, person=b"blindbayes id")
    return [None if identifier is None else hashed(identifier).digest() for identifier in identifiers]


def _framed(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(4, "big") + encoded


def _texts(values: Any, part: IdPart) -> list[str | None]:
    """Return raw values as text: dates as YYYY-MM-DD, whole numbers as digits."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else pa.array(values, from_pandas=True)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_null(kind):
        return [None] * len(column)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        if part.normalise != "date":
            raise DataError(f"identifier column {part.column!r} holds dates; its recipe must say normalise = 'date'")
        column = pc.strftime(column, format="%Y-%m-%d")
    elif pa.types.is_integer(kind):
        column = column.cast(pa.string())
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise DataError(f"identifier column {part.column!r} holds neither text, whole numbers nor dates; cast it before")
    texts: list[str | None] = column.to_pylist()
    return texts


def _normalised(raw: Sequence[str | None], part: IdPart) -> list[str | None]:
    rule = _RULES[part.normalise] if part.normalise != "phone" else _phone_rule(part.region)
    return [None if text is None else (rule(text) or None) for text in raw]


def _folded(text: str) -> str:
    if not text.isascii():
        # Folding can undo NFKC and vice versa; two passes reach a fixed point (Unicode 3.13, D145).
        for _ in range(2):
            text = unicodedata.normalize("NFKC", text).casefold()
        text = unicodedata.normalize("NFKC", text)
    else:
        text = text.lower()
    return " ".join(text.split())


def _email(text: str) -> str | None:
    folded = _folded(text).replace(" ", "")
    return folded if _EMAIL.fullmatch(folded) else None


def _digits(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKC", text) if char in "0123456789")


def _date(text: str) -> str | None:
    match = _DATE.fullmatch(text.strip())
    if not match:
        return None
    try:
        return date(int(match[1]), int(match[2]), int(match[3])).isoformat()
    except ValueError:
        return None


_RULES: dict[str, Callable[[str], str | None]] = {
    "exact": lambda text: text,
    "text": _folded,
    "digits": _digits,
    "email": _email,
    "date": _date,
}


def _phone_rule(region: str) -> Callable[[str], str | None]:
    phonenumbers = need("phonenumbers")
    if region.upper() not in phonenumbers.SUPPORTED_REGIONS:
        raise ConfigError("the identifier recipe's region is not a country with telephone numbers; use a code such as GB")

    def rule(text: str) -> str | None:
        try:
            number = phonenumbers.parse(unicodedata.normalize("NFKC", text), region.upper())
        except phonenumbers.NumberParseException:
            return None
        if not phonenumbers.is_possible_number(number):
            return None
        written: str = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
        return written

    return rule


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
