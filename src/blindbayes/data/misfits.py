"""Cells that do not fit the codebook, counted by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from blindbayes.codebook import Codebook, Feature, Numeric
from blindbayes.errors import DataError


@dataclass(slots=True)
class Misfit:
    """Numbers of rows of a column that are missing, unmapped, unreadable or out of bounds."""

    name: str
    missing: int = 0
    unmapped: int = 0
    unreadable: int = 0
    outside: int = 0
    fractional: bool = False  # a fractional number where a category is expected
    case: bool = False  # a category or label that differs from a listed one in case or blanks only
    many: bool = False  # more distinct values than are listed
    codes: Counter[str] | None = field(default=None, repr=False)  # unmapped values, for readers who may see rows

    def require_clean(self, feature: Feature | None) -> None:
        """Raise if a row of the feature (None: of the class) does not fit."""
        if feature is None:
            self._require_labels()
            return
        if self.fractional:
            raise DataError(
                f"column {self.name!r}: a category is a fractional number; declare the feature numeric or cast it to text"
            )
        if self.missing and not feature.optional:
            raise DataError(
                f"feature {self.name!r}: {self.missing} rows are missing, and the feature is not optional; "
                "set optional = true in the codebook or fill them"
            )
        if self.unmapped or self.many:
            more = "more than " if self.many else ""
            raise DataError(
                f"feature {self.name!r}: {more}{self.unmapped} rows hold a category that the codebook does not list; "
                f"add it to values or map it before{self._hint()}"
            )
        if self.unreadable:
            raise DataError(
                f"feature {self.name!r}: {self.unreadable} rows hold a text that is neither a number nor a missing "
                "marker; add the marker to missing or mend the rows"
            )
        if self.outside and isinstance(feature, Numeric):
            raise DataError(
                f"feature {self.name!r}: {self.outside} rows are out of bounds [{feature.low}, {feature.high}]; "
                "widen the bounds in the codebook, clip, or drop the rows"
            )

    def _require_labels(self) -> None:
        if self.many:
            raise DataError(
                f"class column {self.name!r} holds far more labels than the codebook lists; is it the right column?"
            )
        if self.missing:
            raise DataError(f"class column {self.name!r}: {self.missing} rows have no label; drop them")
        if self.unmapped:
            raise DataError(
                f"class column {self.name!r}: {self.unmapped} rows hold a label that the codebook does not list; "
                f"add it to classes or drop the rows{self._hint()}"
            )

    def _hint(self) -> str:
        return " (one differs from a listed one in case or blanks only)" if self.case else ""


class Misfits(dict[str, Misfit]):
    """Misfits by column; `codes` collects unmapped values."""

    def __init__(self, known: Mapping[str, Misfit] = MappingProxyType({}), *, codes: bool = False) -> None:
        super().__init__(known)
        self._codes = codes

    def __missing__(self, name: str) -> Misfit:
        self[name] = Misfit(name, codes=Counter() if self._codes else None)
        return self[name]

    def require_clean(self, codebook: Codebook) -> None:
        """Raise if a row does not fit, checking the class column first, then the features in order."""
        for name in (codebook.target, *codebook.names):
            if name in self:
                self[name].require_clean(None if name == codebook.target else codebook.feature(name))
