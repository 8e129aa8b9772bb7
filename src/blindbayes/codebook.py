"""The codebook: everything public and agreed before any data is read.

A codebook names the class column and its labels, and each feature with its closed domain or its bounds and grid. It is
written by people, from public knowledge. **Building it from private rows is a leak**: the observed minimum, maximum and
category list of a table are facts about single records. `Codebook.from_frame` is therefore for public frames only, and a
codebook that was inferred from training data is refused wherever privacy is claimed.
"""

from __future__ import annotations

import bisect
import hashlib
import inspect
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import tomlkit
import tomlkit.items

from blindbayes.errors import ConfigError
from blindbayes.foreign import read_toml, require_seen

_INFERENCE = "blindbayes.data.infer"
DEFAULT_MAX_ROWS = 10**9
MAX_NAME_LENGTH = 256
MAX_FEATURES = 10_000
MAX_CELLS = 4_000_000  # statistics of one table, per class and value: 32 MB in one vector
MAX_CODE = 2**46  # what the statistics' two-limb squares carry exactly
_LARGEST = 1e150  # its square, and the square of its inverse, are still ordinary floats


class Categorical(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="categorical", tag_field="kind"):
    """A feature with a closed list of values. Numbers and truth values match by their plain text: 3, true.

    A value that is not listed is an error; in a private fit, where no error may tell one table from another, it counts as
    missing. `other` names the listed value that it counts as instead, everywhere.
    """

    name: str
    values: tuple[str, ...]
    labels: dict[str, str] = {}
    optional: bool = False
    missing: tuple[str, ...] = ()
    description: str = ""
    other: str | None = None

    def __post_init__(self) -> None:
        _require_name(self.name, "feature")
        where = f"feature {self.name!r}"
        _settle_texts(self, where, "values", "missing")
        _require_labels(self.values, where, "values")
        if unknown := sorted(set(self.labels) - set(self.values)):
            raise ConfigError(f"{where}: labels are given for {unknown[0]!r}, which is not among its values; add it or drop it")
        for text in (" ".join(self.description.split()), *self.labels.values(), *self.missing):
            _require_text(text, f"{where}: description, labels and missing markers")
        if clash := sorted(set(self.missing) & set(self.values)):
            raise ConfigError(f"{where}: {clash[0]!r} is both a value and a missing marker; keep it in one list")
        if self.other is not None and self.other not in self.values:
            raise ConfigError(f"{where}: other must be one of its values, for example values = [..., 'other']")

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)


class Numeric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="numeric", tag_field="kind"):
    """A feature with public bounds on a public grid.

    A number x becomes the integer floor(x / precision + 0.5), and that minus the grid's centre is its *code*. Without `bins`
    the feature is Gaussian (its statistics are sums of codes); with `bins` it is a histogram of that many equal-width cells,
    or with `scale = "log"` of cells that grow with the distance from zero, where zero has a cell of its own. With `edges` it is
    a histogram too: a cell begins at the lower bound and at each edge. `spacing` is what files call `scale`.
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
        _require_name(self.name, "feature")
        where = f"feature {self.name!r}"
        for label, value in (("low", self.low), ("high", self.high), ("precision", self.precision)):
            msgspec.structs.force_setattr(self, label, _finite(value, f"{where}: {label}"))
        _settle_texts(self, where, "missing")
        if max(abs(self.low), abs(self.high), self.precision) > _LARGEST or 0 < self.precision < 1 / _LARGEST:
            raise ConfigError(f"{where}: numbers this large or small have no square in floating point; choose another unit")
        if self.low > self.high:
            raise ConfigError(f"{where}: low is above high; swap them")
        if self.precision <= 0:
            raise ConfigError(f"{where}: precision must be positive: it is the step of the grid, for example 0.01")
        inverse = 1 / self.precision
        if not ((math.isfinite(inverse) and _is_whole(inverse)) or _is_whole(self.precision)):
            raise ConfigError(f"{where}: precision must be a whole number or one over a whole number (0.5, 0.01, 10, ...)")
        # From 2^52 on, x + 0.5 is no float, and floor(x + 0.5) would move odd grid points.
        if max(abs(self.low), abs(self.high)) * self.scale >= 2**52 or self.grid_high - self.grid_low > 2 * MAX_CODE:
            raise ConfigError(f"{where}: too many grid points to sum exactly; coarsen the precision or tighten the bounds")
        if self.spacing not in ("linear", "log"):
            raise ConfigError(f"{where}: scale is linear or log")
        if self.edges:
            self._settle_edges(where)
        if self.bins is not None and not (type(self.bins) is int and 1 <= self.bins <= self.width):
            raise ConfigError(f"{where}: bins must be between 1 and the number of grid points")
        if self.bins is not None and self.equal_cells and self.width * self.bins > 2**52:  # engines divide integers in float64
            raise ConfigError(f"{where}: too many grid points for bins; coarsen the precision")
        for marker in self.missing:
            _require_text(marker, f"{where}: a missing marker")
        _require_text(self.unit, f"{where}: unit")
        _require_text(" ".join(self.description.split()), f"{where}: description")
        if self.spacing == "log" and self.bins is not None and self.bins > len(_ladder(self.grid_low, self.grid_high)):
            raise ConfigError(f"{where}: fewer than {self.bins} cells of a logarithmic scale fit its grid; take fewer bins")

    def _settle_edges(self, where: str) -> None:
        if self.spacing != "linear":
            raise ConfigError(f"{where}: edges say where the cells are; drop scale")
        edges = tuple(_finite(edge, f"{where}: an edge") for edge in self.edges)
        if not all(self.low < edge <= self.high for edge in edges):
            raise ConfigError(f"{where}: edges lie above the lower bound and not above the upper one")
        points = [self.grid_low, *map(self.grid, edges)]
        if any(after <= before for before, after in pairwise(points)):
            raise ConfigError(f"{where}: edges must rise, by at least one step of the grid")
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
        """The grid point of a number: floor(x * scale + 0.5), the one rule that every engine computes alike."""
        return math.floor(value * self.scale + 0.5)

    @property
    def grid_low(self) -> int:
        """Grid point of the lower bound."""
        return self.grid(self.low)

    @property
    def grid_high(self) -> int:
        """Grid point of the upper bound."""
        return self.grid(self.high)

    @property
    def centre(self) -> int:
        """The public grid point that codes are counted from, so that sums of squares stay small."""
        return (self.grid_low + self.grid_high) // 2

    @property
    def code_low(self) -> int:
        """Smallest code."""
        return self.grid_low - self.centre

    @property
    def code_high(self) -> int:
        """Largest code."""
        return self.grid_high - self.centre

    @property
    def width(self) -> int:
        """Number of grid points between the bounds, both included."""
        return self.grid_high - self.grid_low + 1

    @property
    def size(self) -> int:
        """Number of histogram cells; only for a binned feature."""
        if self.bins is None:
            raise ConfigError(f"feature {self.name!r} has no bins")
        return self.bins

    @property
    def equal_cells(self) -> bool:
        """Whether the histogram's cells hold equal numbers of grid points, up to one."""
        return self.spacing == "linear" and not self.edges

    @property
    def starts(self) -> tuple[int, ...]:
        """The first code of each histogram cell."""
        if self.edges:
            return (self.code_low, *(self.grid(edge) - self.centre for edge in self.edges))
        if self.spacing == "log":
            return tuple(point - self.centre for point in _thinned(_ladder(self.grid_low, self.grid_high), self.size))
        return tuple(-(-cell * self.width // self.size) + self.code_low for cell in range(self.size))

    def bin_of(self, code: int) -> int:
        """The histogram cell of a code, in integers."""
        if self.equal_cells:
            return (code - self.code_low) * self.size // self.width
        return bisect.bisect_right(self.starts, code) - 1


def log_points(low: int, high: int, steps: int) -> list[int]:
    """First grid points of cells that grow with the distance from zero (or from the bound nearest to it), from low to high.

    `steps` equal cells to each doubling; nearer than that every grid point is a cell. Integers alone: every site, on every
    machine, finds the same cells.
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
    """The finest logarithmic cells, 16 to each doubling, that bins are chosen from."""
    return log_points(low, high, 16)


def _thinned(points: list[int], cells: int) -> list[int]:
    """`cells` of these cells together: evenly spread, zero by itself where there are three or more."""
    anchor = min(max(points[0], 0), points[-1])
    inner = points[1:]
    kept = {point for point in (anchor, anchor + 1) if point in inner} if cells > 2 else set()
    rest = [point for point in inner if point not in kept]
    wanted = cells - 1 - len(kept)
    kept |= {rest[(2 * at + 1) * len(rest) // (2 * wanted)] for at in range(wanted)}
    return [points[0], *sorted(kept)]


Feature: TypeAlias = Categorical | Numeric


class IdPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column of an identifier and how it is normalised."""

    column: str
    normalise: Literal["exact", "text", "digits", "email", "phone", "date"] = "text"
    region: str = ""  # for phone numbers without a country code, for example "GB"

    def __post_init__(self) -> None:
        _require_name(self.column, "identifier column")
        if self.normalise == "phone" and len(self.region) != 2:
            raise ConfigError(f"identifier column {self.column!r}: a phone number needs region, a two-letter country code")


class IdRecipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How two parties turn their own columns into the same identifier bytes."""

    parts: tuple[IdPart, ...]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ConfigError("identifier: at least one column is needed")
        _require_distinct([part.column for part in self.parts], "identifier", "column")


class Codebook(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Class column, labels, features and row limit. Immutable; `sha256` identifies it on every screen and message."""

    target: str
    classes: tuple[str, ...]
    features: tuple[Feature, ...]
    max_rows: int = DEFAULT_MAX_ROWS
    missing: tuple[str, ...] = ()
    variance_floor: float | None = None
    identifier: IdRecipe | None = None
    provenance: Literal["declared", "public frame", "data dictionary", "inferred"] = "declared"
    expected_rows: int | None = None  # about how many rows a table has, as publicly known; plans of private releases use it
    format: Literal["blindbayes.codebook/1"] = "blindbayes.codebook/1"

    def __post_init__(self) -> None:
        _require_name(self.target, "class column")
        _settle_texts(self, f"class column {self.target!r}", "classes")
        _settle_texts(self, "codebook", "missing")
        _require_labels(self.classes, f"class column {self.target!r}", "classes")
        msgspec.structs.force_setattr(self, "features", tuple(self.features))
        if not self.features:
            raise ConfigError("features: at least one feature is needed; add a [[features]] table")
        if not all(isinstance(feature, Categorical | Numeric) for feature in self.features):
            raise ConfigError("features: each is a Categorical or a Numeric")
        if len(self.features) > MAX_FEATURES:
            raise ConfigError(f"features: at most {MAX_FEATURES:,}; choose those that matter")
        cells = len(self.classes) * (1 + sum(_columns(feature) for feature in self.features))
        if cells > MAX_CELLS:
            raise ConfigError(
                f"the statistics would have {cells:,} cells (classes times values), more than {MAX_CELLS:,}: take fewer bins, "
                "or group the values"
            )
        _require_distinct([self.target, *self.names], "features", "name")
        _require_apart([self.target, *self.names])
        if not (type(self.max_rows) is int and 1 <= self.max_rows <= 2**48):
            raise ConfigError("max_rows must be a whole number between 1 and 2^48")
        if self.expected_rows is not None and not (
            type(self.expected_rows) is int and 1 <= self.expected_rows <= self.max_rows
        ):
            raise ConfigError("expected_rows must be a whole number between 1 and max_rows, or absent")
        if self.variance_floor is not None:
            msgspec.structs.force_setattr(self, "variance_floor", _finite(self.variance_floor, "variance_floor"))
            if not 1 / _LARGEST <= self.variance_floor <= _LARGEST:
                raise ConfigError("variance_floor must be a positive number, or absent")
        for feature in self.features:
            if isinstance(feature, Categorical) and (clash := sorted(set(self.missing) & set(feature.values))):
                raise ConfigError(f"feature {feature.name!r}: {clash[0]!r} is a value and a missing marker of the codebook")

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names, in order."""
        return tuple(feature.name for feature in self.features)

    def feature(self, name: str) -> Feature:
        """The feature of that name."""
        for feature in self.features:
            if feature.name == name:
                return feature
        raise ConfigError(f"the codebook has no feature {name!r}")

    def numeric(self, name: str) -> Numeric:
        """The feature of that name, which is a number."""
        feature = self.feature(name)
        if not isinstance(feature, Numeric):
            raise ConfigError(f"feature {name!r} is not a number")
        return feature

    def markers(self, feature: Feature) -> tuple[str, ...]:
        """Texts that stand for a missing value in this feature, besides null, NaN and the empty text."""
        return tuple(dict.fromkeys(("", *self.missing, *feature.missing)))

    @property
    def label_markers(self) -> tuple[str, ...]:
        """Texts that stand for a missing class label."""
        return tuple(dict.fromkeys(("", *self.missing)))

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the canonical JSON. Comments and layout of the file do not enter; every fact does."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """Canonical JSON: keys sorted, no spaces, UTF-8, floats in shortest round-trip form, no field at its default.

        Without the defaults, a field that a later version adds leaves the hash of an agreed codebook as it is.
        """
        fields = msgspec.to_builtins(self.to_dict())
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def __hash__(self) -> int:
        return hash(self.sha256)

    # -- reading -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Codebook:
        """From plain builtins, as TOML or JSON give them. Unknown fields are refused."""
        if "parties" in fields and "features" not in fields:
            raise ConfigError("this is a study, not a codebook; the codebook is the file that it was made with")
        try:
            return msgspec.convert(dict(fields), cls, strict=True)
        except msgspec.ValidationError as cause:
            if isinstance(cause.__cause__, ConfigError):
                raise cause.__cause__ from None
            raise ConfigError(f"codebook: {_plain(str(cause), fields)}") from None

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Codebook:
        """Read a codebook file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(
                f"codebook file {os.fspath(path)!r} does not exist; `blindbayes codebook --help` says how to make one"
            ) from None
        except (OSError, UnicodeDecodeError) as cause:
            raise ConfigError(f"codebook file {os.fspath(path)!r} cannot be read as UTF-8 text") from cause
        return cls.from_dict(read_toml(text, f"codebook file {os.fspath(path)!r}", wide=True))

    @classmethod
    def from_frame(
        cls,
        public_frame: Any,
        target: str,
        *,
        bins: int | None = None,
        max_rows: int = DEFAULT_MAX_ROWS,
        missing: Sequence[str] = (),
    ) -> Codebook:
        """Categories, bounds, labels and the expected number of rows taken from a PUBLIC frame.

        Call this only on data that everybody may see (a published sample, a synthetic table). The result holds the frame's
        minima, maxima and categories: from private rows that is a leak, and no noise added later repairs it.
        """
        infer = import_module(_INFERENCE).infer_codebook  # tables are known to `data`, which knows codebooks
        found: Codebook = infer(public_frame, target, bins=bins, max_rows=max_rows, missing=missing, provenance="public frame")
        return found

    @classmethod
    def from_dictionary(
        cls, rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]], target: str, *, max_rows: int = DEFAULT_MAX_ROWS
    ) -> Codebook:
        """From a data dictionary: one row per column with name, kind, values (separated by |), low, high, precision, bins.

        `rows` is a CSV file with those headings, or the rows themselves. The row whose name is `target` gives the classes.
        """
        found: Codebook = import_module(_INFERENCE).codebook_from_dictionary(rows, target, max_rows=max_rows)
        return found

    # -- writing -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain builtins without the fields that stand at their defaults."""
        fields = _without_defaults(self)
        fields["features"] = [{"kind": item.__struct_config__.tag, **_without_defaults(item)} for item in self.features]
        if self.identifier is not None:
            fields["identifier"] = {"parts": [_without_defaults(part) for part in self.identifier.parts]}
        return fields

    def to_toml(self, path: str | os.PathLike[str] | None = None) -> str:
        """The codebook as commented TOML, written to `path` if given. Comments of a file that stands there are kept."""
        document = _document(self, Path(path) if path is not None else None)
        text = tomlkit.dumps(document)
        if path is not None:
            scratch = Path(path).with_name(Path(path).name + ".part")  # a codebook is never left half written
            try:
                scratch.write_text(text, encoding="utf-8")
                scratch.replace(path)
            except OSError as cause:
                scratch.unlink(missing_ok=True)
                raise ConfigError(f"{os.fspath(path)!r} cannot be written ({type(cause).__name__})") from None
        return text

    def with_features(self, features: Iterable[Feature]) -> Codebook:
        """The same codebook with other features (for example with bins chosen)."""
        return msgspec.structs.replace(self, features=tuple(features))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a codebook file."""
    schema = msgspec.json.schema(Codebook)
    for part in schema["$defs"].values():
        if "description" in part:  # a docstring: Python 3.13 takes its indentation off, earlier ones do not
            part["description"] = inspect.cleandoc(part["description"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "blindbayes codebook", **schema}


# -- rules -----------------------------------------------------------------------------------------------------------


def _columns(feature: Feature) -> int:
    """How many numbers per class the statistics keep of a feature."""
    if isinstance(feature, Categorical):
        return len(feature.values)
    return 3 if feature.bins is None else feature.bins


def _is_whole(value: float) -> bool:
    return value >= 1 and math.isclose(value, round(value), rel_tol=1e-12, abs_tol=0)


def _finite(value: Any, what: str) -> float:
    """A finite float; 0, 0.0 and -0.0 hash alike."""
    try:
        number = float(value) if not isinstance(value, bool | str) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{what} must be a finite number")
    return number + 0.0


def _settle_texts(struct: msgspec.Struct, where: str, *fields: str) -> None:
    """Lists become tuples, so that codebooks of one hash are equal; what is no list of texts is refused."""
    for field in fields:
        texts = getattr(struct, field)
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{where}: {field} must be a list of texts; write numbers in quotes")
        msgspec.structs.force_setattr(struct, field, tuple(texts))


def _require_text(text: str, what: str) -> None:
    require_seen(text, what)


def _require_name(name: str, what: str) -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_LENGTH:
        raise ConfigError(f"{what}: a name has 1 to {MAX_NAME_LENGTH} characters")
    _require_text(name, f"{what}: a name")


def _require_labels(labels: tuple[str, ...], where: str, field: str) -> None:
    if not labels:
        raise ConfigError(f"{where}: {field} must list at least one label")
    for label in labels:
        if not label:
            raise ConfigError(f"{where}: {field} holds the empty text, which stands for a missing value; drop it")
        _require_text(label, f"{where}: a label in {field}")
    _require_distinct(labels, where, f"label in {field}")


def _require_distinct(items: Sequence[str], where: str, what: str) -> None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise ConfigError(f"{where}: {what} {item!r} stands twice; keep one")
        seen.add(item)


def _require_apart(names: Sequence[str]) -> None:
    """Names that differ in case only are one column to most databases."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise ConfigError(f"features: names {other!r} and {name!r} differ in upper and lower case only; rename one")


def _plain(message: str, fields: Mapping[str, Any]) -> str:
    """msgspec's message with the feature's name instead of its position, where it has one."""
    features = fields.get("features")
    if isinstance(features, list):
        for position, feature in enumerate(features):
            mark = f"$.features[{position}]"
            if mark in message and isinstance(feature, dict) and isinstance(feature.get("name"), str):
                message = message.replace(mark, f"feature {feature['name']!r}")
    return message.replace(" - at `$.", " - at `").replace(" - at `$`", "")


def _without_defaults(struct: msgspec.Struct) -> dict[str, Any]:
    fields = {}
    for info in msgspec.structs.fields(struct):
        value = getattr(struct, info.name)
        default = info.default_factory() if info.default_factory is not msgspec.NODEFAULT else info.default
        if value != default or info.required or info.name == "format":
            fields[info.encode_name] = list(value) if isinstance(value, tuple) else value
    return fields


_COMMENTS = {
    "format": "A blindbayes codebook: public facts only. Never fill it from private rows: bounds and categories read off\n"
    "private data are a leak that no noise repairs.",
    "target": "The class column.",
    "classes": "Every label the class column may hold.",
    "max_rows": "No table may hold more rows than this; it proves that no sum overflows.",
    "expected_rows": "About how many rows the table has, from public knowledge: private releases are planned for it.",
    "missing": "Texts that stand for a missing value, besides null, NaN and the empty text.",
    "variance_floor": "Smallest variance of a Gaussian feature, in squared units; studies over columns need it.",
    "provenance": "Where the public facts come from.",
}


def _document(codebook: Codebook, path: Path | None) -> tomlkit.TOMLDocument:
    fields = codebook.to_dict()
    features = fields.pop("features")
    identifier = fields.pop("identifier", None)
    if path is not None and path.exists():
        try:
            text = path.read_text(encoding="utf-8")
            read_toml(text, "it", wide=True)  # its bounds; the other reader, which keeps comments, has none
            document = tomlkit.parse(text)
        except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError, ConfigError):
            raise ConfigError(f"{os.fspath(path)!r} exists and is not TOML; move it away or choose another path") from None
        for key in [key for key in document if key not in (*fields, "features", "identifier")]:
            del document[key]
        for key, value in fields.items():
            if document.get(key) != value:
                document[key] = value
        old = {str(item["name"]): item for item in document.get("features", []) if "name" in item}
        tables = tomlkit.aot()
        for feature in features:
            tables.append(_updated(old[feature["name"]], feature) if feature["name"] in old else _table(feature))
        document["features"] = tables
    else:
        document = tomlkit.document()
        for key in ("format", "target", "classes", "max_rows", "expected_rows", "missing", "variance_floor", "provenance"):
            if key in fields:
                for line in _COMMENTS[key].split("\n"):
                    document.add(tomlkit.comment(line))
                document.add(key, _multiline(fields[key]))
        tables = tomlkit.aot()
        for feature in features:
            tables.append(_table(feature))
        document.add("features", tables)
    if identifier is not None:
        document["identifier"] = identifier
    elif "identifier" in document:
        del document["identifier"]
    return document


def _multiline(value: Any) -> Any:
    if isinstance(value, list) and len(value) > 8:
        array = tomlkit.array()
        array.extend(value)
        return array.multiline(True)
    return value


def _table(fields: Mapping[str, Any]) -> tomlkit.items.Table:
    table = tomlkit.table()
    for key, value in fields.items():
        table.add(key, _multiline(value))
    return table


def _updated(table: Any, fields: Mapping[str, Any]) -> Any:
    for key in [key for key in table if key not in fields]:
        del table[key]
    for key, value in fields.items():
        if table.get(key) != value:
            table[key] = _multiline(value)
    return table
