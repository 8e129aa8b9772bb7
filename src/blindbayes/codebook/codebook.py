"""The codebook: everything public and agreed before any data is read.

A codebook names the class column and its labels, and each feature with its closed domain or its bounds and grid. It is
written by people, from public knowledge. **Building it from private rows is a leak**: the observed minimum, maximum and
category list of a table are facts about single records. `Codebook.from_frame` is therefore for public frames only, and a
codebook that was inferred from training data is refused wherever privacy is claimed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

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
    require_text,
    settle_texts,
)
from blindbayes.codebook.toml import document_of
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import convert, read_limited, read_toml

_FORMULA = re.compile(r"\s*[=+@-].*(\w\(|['\w]!)")  # that calls something, or names another sheet, file or program
_INFERENCE = "blindbayes.data.infer"
DEFAULT_MAX_ROWS = 10**9
MAX_FEATURES = 10_000
MAX_CELLS = 4_000_000  # statistics of one table, per class and value: 32 MB in one vector


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
        require_name(self.target, "class column")
        settle_texts(self, f"class column {self.target!r}", "classes")
        settle_texts(self, "codebook", "missing")
        require_labels(self.classes, f"class column {self.target!r}", "classes")
        if any(_FORMULA.match(text) for text in (self.target, *self.classes)):
            raise ConfigError(
                "the class column and its labels are opened in spreadsheets: none may be a formula, such as =f(x)"
            )
        msgspec.structs.force_setattr(self, "features", tuple(self.features))
        if not self.features:
            raise ConfigError("features: at least one feature is needed; add a [[features]] table")
        if not all(isinstance(feature, Feature) for feature in self.features):
            raise ConfigError("features: each is a Categorical, a Numeric or a Text")
        if len(self.features) > MAX_FEATURES:
            raise ConfigError(f"features: at most {MAX_FEATURES:,}; choose those that matter")
        cells = len(self.classes) * (1 + sum(feature.columns for feature in self.features))
        if cells > MAX_CELLS:
            raise ConfigError(
                f"the statistics would have {cells:,} cells (classes times values), more than {MAX_CELLS:,}: take fewer bins, "
                "or group the values"
            )
        require_distinct([self.target, *self.names], "features", "name")
        _require_apart([self.target, *self.names])
        if not (type(self.max_rows) is int and 1 <= self.max_rows <= 2**48):
            raise ConfigError("max_rows must be a whole number between 1 and 2^48")
        if self.expected_rows is not None and not (
            type(self.expected_rows) is int and 1 <= self.expected_rows <= self.max_rows
        ):
            raise ConfigError("expected_rows must be a whole number between 1 and max_rows, or absent")
        if self.variance_floor is not None:
            msgspec.structs.force_setattr(self, "variance_floor", finite(self.variance_floor, "variance_floor"))
            if not 1 / LARGEST <= self.variance_floor <= LARGEST:
                raise ConfigError("variance_floor must be a positive number, or absent")
        for marker in self.missing:
            require_text(marker, "a missing marker")
        for feature in self.features:
            if isinstance(feature, Categorical) and (clash := sorted(set(self.missing) & set(feature.values))):
                raise ConfigError(f"feature {feature.name!r}: {clash[0]!r} is a value and a missing marker of the codebook")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Feature names, in order."""
        return tuple(feature.name for feature in self.features)

    def feature(self, name: str) -> Feature:
        """The feature of that name."""
        try:
            return self._by_name[name]
        except KeyError:
            raise ConfigError(f"the codebook has no feature {name!r}") from None

    @cached_property
    def _by_name(self) -> dict[str, Feature]:
        return {feature.name: feature for feature in self.features}

    def numeric(self, name: str) -> Numeric:
        """The feature of that name, which is a number."""
        feature = self.feature(name)
        if not isinstance(feature, Numeric):
            raise ConfigError(f"feature {name!r} is not a number")
        return feature

    def text(self, name: str) -> Text:
        """The feature of that name, which is text."""
        feature = self.feature(name)
        if not isinstance(feature, Text):
            raise ConfigError(f"feature {name!r} is not text")
        return feature

    @property
    def texts(self) -> tuple[Text, ...]:
        """The features that are text."""
        return tuple(feature for feature in self.features if isinstance(feature, Text))

    def require_one_value(self, what: str) -> None:
        """Refuse text where a row must have one value of each feature, and a kind whose statistics are neither counts nor
        number, sum and squares."""
        for feature in self.texts:
            raise ConfigError(
                f"feature {feature.name!r} is text: {what} takes features that have one value in a row, and a document has "
                "many words; leave it out, or make categories of it"
            )
        for other in (each for each in self.features if not each.counted and each.columns != 3):
            raise ConfigError(
                f"feature {other.name!r}: {what} does not know statistics of its kind; leave it out, or cut it into bins"
            )

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
        """From plain builtins, as TOML or JSON give them. Unknown fields are refused."""
        if "parties" in fields and "features" not in fields:
            raise ConfigError("this is a study, not a codebook; the codebook is the file that it was made with")
        return convert(dict(fields), cls, "codebook", lambda problem: _plain(problem, fields))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Codebook:
        """Read a codebook file."""
        try:
            text = read_limited(path)
        except FileNotFoundError:
            raise ConfigError(
                f"codebook file {os.fspath(path)!r} does not exist; `blindbayes codebook --help` says how to make one"
            ) from None
        except OSError as cause:
            raise ConfigError(f"codebook file {os.fspath(path)!r} cannot be read ({type(cause).__name__})") from None
        tabular = Path(path).suffix.lower() in (".csv", ".tsv", ".txt")
        hint = "a table is no codebook: `blindbayes codebook draft` or `from-dictionary` makes one" if tabular else ""
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
        document = document_of(self.to_dict(), Path(path) if path is not None else None)
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


_fields_of = functools.cache(msgspec.structs.fields)


def _without_defaults(struct: msgspec.Struct) -> dict[str, Any]:
    fields = {}
    for info in _fields_of(type(struct)):
        value = getattr(struct, info.name)
        default = info.default_factory() if info.default_factory is not msgspec.NODEFAULT else info.default
        if value != default or info.required or info.name == "format":
            fields[info.encode_name] = list(value) if isinstance(value, tuple) else value
    return fields
