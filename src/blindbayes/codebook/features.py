"""Feature kinds, and recipes for identifiers.

Each kind has `columns`, its number of statistics per class, and `counted`: True if they count values of which a row has at most
one. Moments and words are not counted.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import msgspec

from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import require_seen

MAX_NAME_LENGTH = 256
MAX_CODE = 2**46  # sums of squares in two limbs are exact up to here
MAX_WORDS = 2**20  # of a document, where its bound is not declared
LARGEST = 1e150  # its square, and the square of its inverse, are still ordinary floats


def number_name(value: float) -> str:
    """Return a number as people read it: six digits, and a large one without an exponent."""
    text = f"{value:.6g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e15 else text


class Categorical(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="categorical", tag_field="kind"):
    """A feature with a closed list of values. Numbers and truth values match by their plain text: 3, true.

    A value that is not listed is an error. In a private fit, where no error may distinguish two tables, it counts as missing.
    `other` names a listed value that it counts as instead, everywhere.
    """

    name: str
    values: tuple[str, ...]
    labels: dict[str, str] = {}
    optional: bool = False
    missing: tuple[str, ...] = ()
    description: str = ""
    other: str | None = None

    def __post_init__(self) -> None:
        require_name(self.name, "feature")
        where = f"feature {self.name!r}"
        settle_texts(self, where, "values", "missing")
        require_labels(self.values, where, "values")
        if unknown := sorted(set(self.labels) - set(self.values)):
            raise ConfigError(f"{where}: labels has {unknown[0]!r}, which is not one of its values; add it or drop it")
        for text in (" ".join(self.description.split()), *self.labels.values(), *self.missing):
            require_seen(text, f"{where}: description, labels and missing markers")
        if clash := sorted(set(self.missing) & set(self.values)):
            raise ConfigError(f"{where}: {clash[0]!r} is both a value and a missing marker; keep it in one list")
        if self.other is not None and self.other not in self.values:
            raise ConfigError(f"{where}: other must be one of its values, for example values = [..., 'other']")

    def named(self, value: str) -> str:
        """Return a value with its label, as people read it: `2 (heavy)`."""
        label = self.labels.get(value, "")
        return f"{value} ({label})" if label and label != value else value

    @property
    def columns(self) -> int:
        return len(self.values)

    @property
    def counted(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return len(self.values)


class Numeric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="numeric", tag_field="kind"):
    """A feature with public bounds on a public grid.

    The grid point of a number x is floor(x / precision + 0.5); its *code* is the grid point minus the centre of the grid.
    Without `bins` the feature is Gaussian: its statistics are sums of codes and squares. With `bins` it is a histogram of
    equal-width cells, or with `scale = "log"` of cells that grow with the distance from zero, which has its own cell. With
    `edges` a cell begins at the lower bound and at each edge. The attribute `spacing` is `scale` in files.
    """

    name: str
    low: float
    high: float
    precision: float = 1.0
    bins: int | None = None
    optional: bool = False
    missing: tuple[str, ...] = ()
    unit: str = ""
    description: str = ""
    spacing: Literal["linear", "log"] = msgspec.field(default="linear", name="scale")
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require_name(self.name, "feature")
        where = f"feature {self.name!r}"
        for label, value in (("low", self.low), ("high", self.high), ("precision", self.precision)):
            msgspec.structs.force_setattr(self, label, finite(value, f"{where}: {label}"))
        settle_texts(self, where, "missing")
        if max(abs(self.low), abs(self.high), self.precision) > LARGEST or 0 < self.precision < 1 / LARGEST:
            raise ConfigError(f"{where}: numbers this large or small have no square in floating point; choose another unit")
        if self.low > self.high:
            raise ConfigError(f"{where}: low is above high; swap them")
        if self.precision <= 0:
            raise ConfigError(f"{where}: precision must be positive: it is the step of the grid, for example 0.01")
        inverse = 1 / self.precision
        if not ((math.isfinite(inverse) and _is_whole(inverse)) or _is_whole(self.precision)):
            raise ConfigError(f"{where}: precision must be a whole number or one over a whole number (0.5, 0.01, 10, ...)")
        # From 2^52 on, x + 0.5 is not a float, and floor(x + 0.5) would move odd grid points.
        if max(abs(self.low), abs(self.high)) * self.scale >= 2**52 or self.grid_high - self.grid_low > 2 * MAX_CODE:
            raise ConfigError(f"{where}: too many grid points to sum exactly; coarsen the precision or tighten the bounds")
        if self.spacing not in ("linear", "log"):
            raise ConfigError(f"{where}: scale must be linear or log")
        if self.edges:
            self._settle_edges(where)
        if self.bins is not None and not (type(self.bins) is int and 1 <= self.bins <= self.width):
            raise ConfigError(f"{where}: bins must be between 1 and the number of grid points")
        if self.bins is not None and self.equal_cells and self.width * self.bins > 2**52:  # engines divide integers in float64
            raise ConfigError(f"{where}: too many grid points for bins; coarsen the precision")
        for marker in self.missing:
            require_seen(marker, f"{where}: a missing marker")
        require_seen(self.unit, f"{where}: unit")
        require_seen(" ".join(self.description.split()), f"{where}: description")
        if self.spacing == "log" and self.bins is not None and self.bins > len(_ladder(self.grid_low, self.grid_high)):
            raise ConfigError(f"{where}: fewer than {self.bins} cells of a logarithmic scale fit its grid; take fewer bins")

    def _settle_edges(self, where: str) -> None:
        if self.spacing != "linear":
            raise ConfigError(f"{where}: edges define the cells; drop scale")
        edges = tuple(finite(edge, f"{where}: an edge") for edge in self.edges)
        if not all(self.low < edge <= self.high for edge in edges):
            raise ConfigError(f"{where}: edges must lie above the lower bound and not above the upper one")
        points = [self.grid_low, *self._points(edges)]
        if any(after <= before for before, after in pairwise(points)):
            raise ConfigError(f"{where}: edges must increase by at least one step of the grid")
        if self.bins not in (None, len(edges) + 1):
            raise ConfigError(f"{where}: {len(edges)} edges make {len(edges) + 1} bins; drop bins")
        msgspec.structs.force_setattr(self, "edges", edges)
        msgspec.structs.force_setattr(self, "bins", len(edges) + 1)

    @property
    def scale(self) -> float:
        """Grid steps per unit: a whole number, or one over a whole number."""
        inverse = 1 / self.precision
        return float(round(inverse)) if _is_whole(inverse) else inverse

    def grid(self, value: float) -> int:
        """Return the grid point of a number, floor(x * scale + 0.5), which every engine computes alike."""
        return self._points([value])[0]

    def _points(self, values: Iterable[float]) -> list[int]:
        scale = self.scale  # once: there may be hundreds of edges
        return [math.floor(value * scale + 0.5) for value in values]

    @property
    def grid_low(self) -> int:
        return self.grid(self.low)

    @property
    def grid_high(self) -> int:
        return self.grid(self.high)

    @property
    def centre(self) -> int:
        """The grid point with code 0, in the middle, so that sums of squares stay small."""
        return (self.grid_low + self.grid_high) // 2

    @property
    def code_low(self) -> int:
        return self.grid_low - self.centre

    @property
    def code_high(self) -> int:
        return self.grid_high - self.centre

    @property
    def width(self) -> int:
        """Number of grid points from bound to bound."""
        return self.grid_high - self.grid_low + 1

    @property
    def columns(self) -> int:
        return 3 if self.bins is None else self.bins

    @property
    def counted(self) -> bool:
        return self.bins is not None

    @property
    def size(self) -> int:
        """Number of histogram cells; only for a binned feature."""
        if self.bins is None:
            raise ConfigError(f"feature {self.name!r} has no bins")
        return self.bins

    @property
    def equal_cells(self) -> bool:
        """True if cells have equal numbers of grid points, up to one."""
        return self.spacing == "linear" and not self.edges

    @property
    def starts(self) -> tuple[int, ...]:
        """The first code of each histogram cell."""
        if self.edges:
            centre = self.centre
            return (self.code_low, *(point - centre for point in self._points(self.edges)))
        if self.spacing == "log":
            return tuple(point - self.centre for point in _thinned(_ladder(self.grid_low, self.grid_high), self.size))
        low, width, size = self.code_low, self.width, self.size
        return tuple(low - (-cell * width // size) for cell in range(size))

    def bin_of(self, code: int) -> int:
        """Return the histogram cell of a code, in integer arithmetic."""
        if self.equal_cells:
            return (code - self.code_low) * self.size // self.width
        return bisect.bisect_right(self.starts, code) - 1


def log_points(low: int, high: int, steps: int) -> list[int]:
    """Return the first grid points of cells that grow with the distance from zero, or from the bound nearest to it.

    Each doubling has `steps` equal cells; nearer than that every grid point is a cell. Integer arithmetic gives every site the
    same cells.
    """
    anchor = min(max(low, 0), high)
    away, step, distance = [], 1, 1
    while distance <= max(high - anchor, anchor - low):
        away.append(distance)
        step = step * 2 if distance == 2 * steps * step else step
        distance += step
    below = [anchor - distance + 1 for distance in reversed(away) if anchor - distance + 1 > low]
    return [low, *below, *(anchor + distance for distance in away if anchor + distance <= high)]


def _ladder(low: int, high: int) -> list[int]:
    return log_points(low, high, 16)


def _thinned(points: list[int], cells: int) -> list[int]:
    """Merge cells evenly to `cells` cells; zero has its own cell if there are at least three."""
    anchor = min(max(points[0], 0), points[-1])
    inner = points[1:]
    starts = {point for point in (anchor, anchor + 1) if point in inner} if cells > 2 else set()
    rest = [point for point in inner if point not in starts]
    wanted = cells - 1 - len(starts)
    starts |= {rest[(2 * i + 1) * len(rest) // (2 * wanted)] for i in range(wanted)}
    return [points[0], *sorted(starts)]


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="text", tag_field="kind"):
    """A feature whose value is a document, read as a bag of words: the count of each word of a public vocabulary.

    A document is lower-cased and split into runs of two or more letters, digits or underscores, as by scikit-learn; a row of a
    sparse matrix is used as counts. Words that are not listed do not count. With `buckets` instead of `words` every word
    counts, in the bucket of its BLAKE2b hash. `model` is how classes differ: by the frequency of a word (`multinomial`), by its
    presence (`bernoulli`), or by its frequency in all other classes (`complement`).

    At most `max_words` words of a document (distinct ones for `bernoulli`) count, chosen by a public rule from the document
    alone. A private release needs this bound on what one document can change.
    """

    name: str
    words: tuple[str, ...] = ()
    buckets: int | None = None
    model: Literal["multinomial", "bernoulli", "complement"] = "multinomial"
    max_words: int | None = None
    optional: bool = False
    missing: tuple[str, ...] = ()
    description: str = ""

    def __post_init__(self) -> None:
        require_name(self.name, "feature")
        where = f"feature {self.name!r}"
        settle_texts(self, where, "words", "missing")
        if (self.buckets is None) == (not self.words):
            raise ConfigError(f"{where}: give either its words or the number of buckets that words are hashed into")
        if self.words:
            require_labels(self.words, where, "words")
        for field, largest in (("buckets", 2**22), ("max_words", MAX_WORDS)):
            number = getattr(self, field)
            if number is not None and not (type(number) is int and 1 <= number <= largest):
                raise ConfigError(f"{where}: {field} must be a whole number from 1 to {largest:,}, or absent")
        if self.model not in ("multinomial", "bernoulli", "complement"):
            raise ConfigError(f"{where}: model must be multinomial, bernoulli or complement")
        for text in (" ".join(self.description.split()), *self.missing):
            require_seen(text, f"{where}: description and missing markers")

    @property
    def columns(self) -> int:
        return self.size + self.has_documents

    @property
    def has_documents(self) -> bool:
        """True if documents are counted too, which absence of a word needs where documents may be missing."""
        return self.once and self.optional

    @property
    def counted(self) -> bool:
        return False  # a document has many words, so counts do not add up to the rows

    @property
    def size(self) -> int:
        return self.buckets or len(self.words)

    @property
    def once(self) -> bool:
        """True if a word counts at most once per document."""
        return self.model == "bernoulli"

    @property
    def reach(self) -> int:
        """Maximum number of words of a document that count."""
        return self.max_words or (self.size if self.once else MAX_WORDS)

    def word(self, index: int) -> str:
        """Return the word at an index, or the name of a bucket."""
        return self.words[index] if self.words else f"bucket {index}"

    @property
    def by_word(self) -> tuple[Categorical, ...]:
        """The same Bernoulli model as features of two values, one for each word."""
        names = (f"{self.name}: {self.word(index)}" for index in range(self.size))
        return tuple(Categorical(name, ("absent", "present"), optional=self.optional) for name in names)


Feature: TypeAlias = Categorical | Numeric | Text


class IdPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column of an identifier and how it is normalised."""

    column: str
    normalise: Literal["exact", "text", "digits", "email", "phone", "date"] = "text"
    region: str = ""  # for phone numbers without a country code, for example "GB"

    def __post_init__(self) -> None:
        require_name(self.column, "identifier column")
        if self.normalise == "phone" and len(self.region) != 2:
            raise ConfigError(f"identifier column {self.column!r}: a phone number needs region, a two-letter country code")


class IdRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recipe by which two parties derive the same identifier from their own columns."""

    parts: tuple[IdPart, ...]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ConfigError("identifier: at least one column is needed")
        require_distinct([part.column for part in self.parts], "identifier", "column")


# -- rules -----------------------------------------------------------------------------------------------------------


def _is_whole(value: float) -> bool:
    return value >= 1 and math.isclose(value, round(value), rel_tol=1e-12, abs_tol=0)


def finite(value: Any, what: str) -> float:
    """Return a finite float; 0, 0.0 and -0.0 become the same value, for hashes."""
    try:
        number = float(value) if not isinstance(value, bool | str) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{what} must be a finite number")
    return number + 0.0


def settle_texts(struct: msgspec.Struct, where: str, *fields: str) -> None:
    """Convert lists of strings to tuples, so that codebooks with equal hashes are equal; refuse anything else."""
    for field in fields:
        texts = getattr(struct, field)
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{where}: {field} must be a list of strings; write numbers in quotes")
        msgspec.structs.force_setattr(struct, field, tuple(texts))


def require_name(name: str, what: str) -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_LENGTH:
        raise ConfigError(f"{what}: a name has 1 to {MAX_NAME_LENGTH} characters")
    require_seen(name, f"{what}: a name")


def require_labels(labels: tuple[str, ...], where: str, field: str) -> None:
    if not labels:
        raise ConfigError(f"{where}: {field} must list at least one label")
    for label in labels:
        if not label:
            raise ConfigError(f"{where}: {field} holds the empty text, which stands for a missing value; drop it")
        require_seen(label, f"{where}: a label in {field}")
    require_distinct(labels, where, f"label in {field}")


def require_distinct(items: Sequence[str], where: str, what: str) -> None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise ConfigError(f"{where}: {what} {item!r} occurs twice; keep one")
        seen.add(item)
