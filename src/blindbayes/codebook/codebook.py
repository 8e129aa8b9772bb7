"""The codebook: public facts about the columns, agreed before any data is read.

A codebook names the class column and its labels, and each feature with its closed domain or its bounds and grid. People write
it from public knowledge. **A codebook built from private rows is a leak**: minimum, maximum and categories of a table are facts
about single records. `Codebook.from_frame` is therefore for public frames, and private releases refuse inferred codebooks.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import tomlkit
import tomlkit.items

from blindbayes.codebook.features import (
    LARGEST,
    Categorical,
    Feature,
    IdRecipe,
    Numeric,
    Text,
    finite,
    require_distinct,
    require_labels,
    require_name,
    settle_texts,
)
from blindbayes.codebook.omop import Omop
from blindbayes.codebook.toml import document_of
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import convert, read_limited, read_toml, require_seen

if TYPE_CHECKING:
    from blindbayes.codebook.importers import Answers

_FORMULA = re.compile(r"\s*[=+@-].*(\w\(|['\w]!)")  # that calls something, or names another sheet, file or program
_INFERENCE = "blindbayes.data.infer"
_JOINERS = dict.fromkeys((0x200C, 0x200D))  # unseen between letters
_IMPORTERS = "blindbayes.codebook.importers"
DEFAULT_MAX_ROWS = 10**9
MAX_FEATURES = 10_000
MAX_CELLS = 4_000_000  # statistics of one table, per class and value: 32 MB in one vector


def is_formula(text: object) -> bool:
    """Return True for a text that a spreadsheet would evaluate."""
    return isinstance(text, str) and bool(_FORMULA.match(text))


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data dictionary that a codebook was imported from: its format, that format's specification, the file's SHA-256."""

    format: str
    specification: str
    sha256: str

    def __post_init__(self) -> None:
        for text in (self.format, self.specification):
            require_name(text, "origin")
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ConfigError("origin: sha256 has 64 hexadecimal digits")


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
    expected_rows: int | None = None  # public estimate of a table's rows, for planning private releases
    origin: Origin | None = None
    omop: Omop | None = None  # how a site computes the columns from an OMOP database
    order: tuple[str, ...] = ()  # features, most informative first, by public knowledge: which a private release keeps
    format: Literal["blindbayes.codebook/1"] = "blindbayes.codebook/1"

    def __post_init__(self) -> None:
        require_name(self.target, "class column")
        settle_texts(self, f"class column {self.target!r}", "classes")
        settle_texts(self, "codebook", "missing")
        require_labels(self.classes, f"class column {self.target!r}", "classes")
        msgspec.structs.force_setattr(self, "features", tuple(self.features))
        if not self.features:
            raise ConfigError("features: at least one feature is needed; add a [[features]] table")
        if not all(isinstance(feature, Feature) for feature in self.features):
            raise ConfigError("features: each must be a Categorical, a Numeric or a Text")
        self._require_no_formulas()
        if len(self.features) > MAX_FEATURES:
            raise ConfigError(f"features: at most {MAX_FEATURES:,}; choose those that matter")
        cells = len(self.classes) * (1 + sum(feature.columns for feature in self.features))
        if cells > MAX_CELLS:
            raise ConfigError(
                f"the statistics would have {cells:,} cells (classes times values), more than {MAX_CELLS:,}: use fewer bins, "
                "or group values"
            )
        require_distinct([self.target, *self.names], "features", "name")
        _require_apart([self.target, *self.names])
        if not (type(self.max_rows) is int and 1 <= self.max_rows <= 2**48):
            raise ConfigError("max_rows must be a whole number between 1 and 2^48")
        if self.expected_rows is not None and not (
            type(self.expected_rows) is int and 1 <= self.expected_rows <= self.max_rows
        ):
            raise ConfigError("expected_rows must be a whole number between 1 and max_rows, or absent")
        if len(set(self.order)) < len(self.order) or not set(self.order) <= set(self.names):
            raise ConfigError("order names features of the codebook, each at most once, most informative first")
        if self.omop is not None:
            self.omop.require([self.target, *self.names])
        if self.variance_floor is not None:
            msgspec.structs.force_setattr(self, "variance_floor", finite(self.variance_floor, "variance_floor"))
            if not 1 / LARGEST <= self.variance_floor <= LARGEST:
                raise ConfigError("variance_floor must be a positive number, or absent")
        for marker in self.missing:
            require_seen(marker, "a missing marker")
        for feature in self.features:
            if isinstance(feature, Categorical) and (clash := sorted(set(self.missing) & set(feature.values))):
                raise ConfigError(f"feature {feature.name!r}: {clash[0]!r} is a value and a missing marker of the codebook")

    def _require_no_formulas(self) -> None:
        """Refuse what a spreadsheet would evaluate: results, synthetic rows and marginals are opened there."""
        if any(map(is_formula, (self.target, *self.classes))):
            raise ConfigError(
                "the class column and its labels are opened in spreadsheets: none may be a formula, such as =f(x)"
            )
        for feature in self.features:
            values = () if isinstance(feature, Numeric | Text) else feature.values
            if any(map(is_formula, (feature.name, *values))):
                raise ConfigError(f"feature {feature.name!r}: neither its name nor a value may be a formula, such as =f(x)")

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)

    def feature(self, name: str) -> Feature:
        try:
            return self._by_name[name]
        except KeyError:
            raise ConfigError(f"the codebook has no feature {name!r}") from None

    @cached_property
    def _by_name(self) -> dict[str, Feature]:
        return {feature.name: feature for feature in self.features}

    def numeric(self, name: str) -> Numeric:
        """Return the numeric feature of that name."""
        feature = self.feature(name)
        if not isinstance(feature, Numeric):
            raise ConfigError(f"feature {name!r} is not a number")
        return feature

    def text(self, name: str) -> Text:
        """Return the text feature of that name."""
        feature = self.feature(name)
        if not isinstance(feature, Text):
            raise ConfigError(f"feature {name!r} is not text")
        return feature

    @property
    def texts(self) -> tuple[Text, ...]:
        return tuple(feature for feature in self.features if isinstance(feature, Text))

    def require_one_value(self, what: str) -> None:
        """Refuse features of which a row has several values, and kinds other than counts and moments."""
        for feature in self.texts:
            raise ConfigError(
                f"feature {feature.name!r} is text: {what} needs one value per row and feature, and a document has many words; "
                "leave it out, or use categories"
            )
        for other in (each for each in self.features if not each.counted and each.columns != 3):
            raise ConfigError(
                f"feature {other.name!r}: {what} does not support statistics of its kind; leave it out, or use bins"
            )

    def markers(self, feature: Feature) -> tuple[str, ...]:
        """Return the strings that mean a missing value of this feature, the empty one included."""
        return tuple(dict.fromkeys(("", *self.missing, *feature.missing)))

    @property
    def label_markers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("", *self.missing)))

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the canonical JSON, which has every fact but no comments or layout."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """Return canonical JSON: sorted keys, no spaces, UTF-8, shortest floats, no defaults.

        Without defaults, a field added by a later version does not change the hash of an agreed codebook.
        """
        return self._canonical

    @cached_property
    def _canonical(self) -> bytes:
        fields = msgspec.to_builtins(self.to_dict())
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def __hash__(self) -> int:
        return hash(self.sha256)

    # -- reading -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Codebook:
        """Make a codebook from builtins, as TOML or JSON give them; unknown fields are refused."""
        if "parties" in fields and "features" not in fields:
            raise ConfigError("this is a study, not a codebook; name the codebook file that the study was made from")
        return convert(dict(fields), cls, "codebook", lambda problem: _plain(problem, fields))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Codebook:
        try:
            text = read_limited(path)
        except FileNotFoundError:
            raise ConfigError(
                f"codebook file {os.fspath(path)!r} does not exist; see `blindbayes codebook --help` to make one"
            ) from None
        except OSError as cause:
            raise ConfigError(f"codebook file {os.fspath(path)!r} cannot be read ({type(cause).__name__})") from None
        tabular = Path(path).suffix.lower() in (".csv", ".tsv", ".txt")
        hint = "it looks like a table: `blindbayes codebook draft` or `codebook import` makes a codebook" if tabular else ""
        return cls.from_dict(read_toml(text, f"codebook file {os.fspath(path)!r}", wide=True, hint=hint))

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
        """Infer categories, bounds, labels and the expected number of rows from a PUBLIC frame.

        Call this only on data that anyone may see (a published sample, a synthetic table). The result contains the frame's
        minima, maxima and categories: from private rows that is a leak, which noise added later does not repair.
        """
        infer = import_module(_INFERENCE).infer_codebook  # at run time: `data` imports this package
        inferred: Codebook = infer(
            public_frame, target, bins=bins, max_rows=max_rows, missing=missing, provenance="public frame"
        )
        return inferred

    @classmethod
    def from_dictionary(
        cls,
        rows: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
        target: str | None = None,
        answers: Answers | None = None,
    ) -> Codebook:
        """Make a codebook from a data dictionary: one row per column with name, kind, values, low, high, precision, bins.

        `rows` is a CSV file with those headings, or the rows themselves; values are separated by |. The row whose name is
        `target` gives the classes. Other answers as in `from_redcap`.
        """
        return _imported("dictionary", rows, target, answers)

    @classmethod
    def from_redcap(cls, path: str | os.PathLike[str], target: str | None = None, answers: Answers | None = None) -> Codebook:
        """Make a codebook from a REDCap data dictionary (CSV). Identifiers, dates and free text stay out.

        `answers` say what a dictionary leaves open, and are those of `blindbayes codebook import`:
        `{"bounds": {"age": (0, 120)}, "units": {"height": "cm"}}`; further ones are `precision`, `values`, `keep`, `drop`,
        `missing`, `max_rows`, `table` and `columns`. The error of an import without them lists every question at once.
        """
        return _imported("redcap", path, target, answers)

    @classmethod
    def from_frictionless(
        cls, path: str | os.PathLike[str], target: str | None = None, answers: Answers | None = None
    ) -> Codebook:
        """Make a codebook from a Frictionless Table Schema or Data Package (JSON). Answers as in `from_redcap`."""
        return _imported("frictionless", path, target, answers)

    @classmethod
    def from_csvw(cls, path: str | os.PathLike[str], target: str | None = None, answers: Answers | None = None) -> Codebook:
        """Make a codebook from CSV on the Web metadata (JSON), CSVW-SAFE too. Answers as in `from_redcap`."""
        return _imported("csvw", path, target, answers)

    @classmethod
    def from_ddi(cls, path: str | os.PathLike[str], target: str | None = None, answers: Answers | None = None) -> Codebook:
        """Make a codebook from a DDI-Codebook file (XML). Answers as in `from_redcap`."""
        return _imported("ddi", path, target, answers)

    @classmethod
    def from_sdmx(cls, path: str | os.PathLike[str], target: str | None = None, answers: Answers | None = None) -> Codebook:
        """Make a codebook from the code lists of an SDMX structure message (XML or JSON). Answers as in `from_redcap`."""
        return _imported("sdmx", path, target, answers)

    @classmethod
    def from_spss(cls, path: str | os.PathLike[str], target: str | None = None, answers: Answers | None = None) -> Codebook:
        """Make a codebook from the labels of an SPSS or Stata file, without its rows. Answers as in `from_redcap`."""
        return _imported("spss", path, target, answers)

    # -- writing -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return builtins, without fields that have their default."""
        fields = _without_defaults(self)
        fields["features"] = [{"kind": item.__struct_config__.tag, **_without_defaults(item)} for item in self.features]
        if self.identifier is not None:
            fields["identifier"] = {"parts": [_without_defaults(part) for part in self.identifier.parts]}
        for name in ("origin", "omop"):
            if getattr(self, name) is not None:
                fields[name] = msgspec.to_builtins(getattr(self, name))  # these omit their defaults
        return fields

    def to_toml(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the codebook as commented TOML and write it to `path` if given, preserving comments of an existing file."""
        document = document_of(self.to_dict(), Path(path) if path is not None else None)
        text = tomlkit.dumps(document)
        if path is not None:
            scratch = Path(path).with_name(Path(path).name + ".part")  # then renamed: never half written
            try:
                scratch.write_text(text, encoding="utf-8")
                scratch.replace(path)
            except OSError as cause:
                scratch.unlink(missing_ok=True)
                raise ConfigError(f"{os.fspath(path)!r} cannot be written ({type(cause).__name__})") from None
        return text

    def to_frictionless(self) -> dict[str, Any]:
        """Return the codebook as a Frictionless Table Schema, from which `from_frictionless` makes the same codebook."""
        exported: dict[str, Any] = import_module(_IMPORTERS).exported("frictionless", self)
        return exported

    def to_csvw(self) -> dict[str, Any]:
        """Return the codebook as CSV on the Web metadata, from which `from_csvw` makes the same codebook."""
        exported: dict[str, Any] = import_module(_IMPORTERS).exported("csvw", self)
        return exported

    @cached_property
    def by_word(self) -> Codebook:
        """The codebook with a feature per word in place of each text."""
        split = (each.by_word if isinstance(each, Text) else (each,) for each in self.features)
        return self.with_features(each for part in split for each in part) if self.texts else self

    def with_features(self, features: Iterable[Feature]) -> Codebook:
        return msgspec.structs.replace(self, features=tuple(features))


def _imported(format: str, source: Any, target: str | None, answers: Answers | None) -> Codebook:
    given = {**(answers or {}), "target": target}
    codebook: Codebook = import_module(_IMPORTERS).import_codebook(format, source, given).codebook
    return codebook  # imported at first use: importers use this module


def json_schema() -> dict[str, Any]:
    schema = msgspec.json.schema(Codebook)
    for part in schema["$defs"].values():
        if "description" in part:  # a docstring: only Python 3.13 removes its indentation
            part["description"] = inspect.cleandoc(part["description"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "blindbayes codebook", **schema}


def _require_apart(names: Sequence[str]) -> None:
    # most databases treat names that differ only in case as one column; people cannot tell forms of one character apart
    seen: dict[str, str] = {}
    for name in names:
        plain = unicodedata.normalize("NFKC", name).casefold().translate(_JOINERS)
        if (other := seen.setdefault(plain, name)) != name:
            raise ConfigError(
                f"features: names {other!r} and {name!r} differ only in case, or in forms of the same characters; rename one"
            )


def _plain(message: str, fields: Mapping[str, Any]) -> str:
    """Replace positions of features in a message of msgspec by their names."""
    features = fields.get("features")
    if isinstance(features, list):
        for position, feature in enumerate(features):
            mark = f"$.features[{position}]"
            if mark in message and isinstance(feature, dict) and isinstance(feature.get("name"), str):
                message = message.replace(mark, f"feature {feature['name']!r}")
    return message.replace(" - at `$.", " - at `").replace(" - at `$`", "")


_fields_of = functools.cache(msgspec.structs.fields)


def _without_defaults(struct: msgspec.Struct) -> dict[str, Any]:
    fields = {}
    for info in _fields_of(type(struct)):
        value = getattr(struct, info.name)
        default = info.default_factory() if info.default_factory is not msgspec.NODEFAULT else info.default
        if value != default or info.required or info.name == "format":
            fields[info.encode_name] = list(value) if isinstance(value, tuple) else value
    return fields
