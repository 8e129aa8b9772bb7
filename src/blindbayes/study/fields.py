"""What stands in a study file, and its hash. Nothing here knows a protocol, so it is read at once; `StudyFile` checks it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, Literal, Self

import msgspec

from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import convert, read_limited, read_toml
from blindbayes.study.agreement import Holdings
from blindbayes.study.roster import Change, Party, Roster, rosters_of

FORMAT = "blindbayes.study-file/1"
Duplicates = Literal["join", "first", "reject"]


def _as_floats(struct: msgspec.Struct, *names: str) -> None:
    """60 and 60.0 hash alike."""
    for name in names:
        value = getattr(struct, name)
        if value is not None:
            msgspec.structs.force_setattr(struct, name, float(value) + 0.0)


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the opened sum promises. Without an epsilon it is exact."""

    epsilon: float | None = None
    delta: float = 0.0
    label_epsilon: float | bool | None = None  # over columns: of randomised labels; None: as planned from epsilon, False: none
    unit: Literal["record", "party"] = "record"
    party_rows: int | None = None
    rows_per_person: int | None = None
    tuning: str | None = None
    expected_rows: int | None = None
    gamma: float = 2 / 3

    def __post_init__(self) -> None:
        _as_floats(self, "epsilon", "delta", "gamma")
        if not isinstance(self.label_epsilon, bool):
            _as_floats(self, "label_epsilon")


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Below these nothing is opened; below `min_cell` a noisy count is published as 0 (refused for exact sums)."""

    min_parties: int = 3
    min_rows: int = 0
    quorum: int | None = None
    min_cell: int = 0


class Deadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds: of silence within a step, until everybody has joined, of the whole run."""

    step: float = 60.0
    join: float = 600.0
    run: float = 3600.0

    def __post_init__(self) -> None:
        _as_floats(self, "step", "join", "run")
        if not 0 < self.step <= self.run <= 30 * 86400 or not 0 < self.join <= self.run:
            raise ConfigError("deadlines: 0 < step, join <= run, in seconds, at most 30 days")


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the opened statistics become a model."""

    alpha: float = 1.0
    var_smoothing: float = 1e-9
    class_weight: dict[str, float] = {}

    def __post_init__(self) -> None:
        _as_floats(self, "alpha", "var_smoothing")
        plain = {label: float(weight) + 0.0 for label, weight in self.class_weight.items()}
        msgspec.structs.force_setattr(self, "class_weight", plain)


class StudyFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What stands in the file. Only its form is checked."""

    title: str
    parties: tuple[Party, ...]
    codebook: dict[str, Any]
    partition: Literal["rows", "columns"] = "rows"
    protocol: str = "masked_sum"
    hosts: dict[str, str] = {}
    privacy: Privacy = Privacy()
    thresholds: Thresholds = Thresholds()
    deadlines: Deadlines = Deadlines()
    options: dict[str, Any] = {}
    model: Model = Model()
    columns: Holdings | None = None
    reveal_to: str = "all"
    key: tuple[str, ...] = ()
    aligned: bool = True
    duplicates: Duplicates = "join"
    changed_by: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    signatures: dict[str, str] = {}
    format: Literal["blindbayes.study-file/1"] = "blindbayes.study-file/1"

    @cached_property
    def book(self) -> Codebook:
        return Codebook.from_dict(self.codebook)

    def canonical(self) -> bytes:
        """Canonical JSON of everything but the signatures; the codebook enters as its own canonical form.

        No field at its default: one that a later version adds leaves the hash of an agreed study as it is.
        """
        fields = _without_defaults(self)
        for outside in ("signatures", "changes"):
            fields.pop(outside, None)
        fields |= {"codebook": self.book.sha256, "format": self.format}
        try:
            return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            raise ConfigError("the numbers of a study are finite") from None

    @cached_property
    def sha256(self) -> str:
        """What identifies the study on every screen and in every message."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @cached_property
    def rosters(self) -> tuple[Roster, ...]:
        """Every roster that the study had, the founders' first."""
        known, limit = {party.name: party.identity for party in self.parties}, self.privacy.party_rows
        first = Roster(self.sha256, 0, self.sha256, self.parties, self.hosts, limit, known, self.changed_by)
        return rosters_of(first, self.changes)

    @property
    def roster(self) -> Roster:
        """The newest. Its hash stands in every message of a run."""
        return self.rosters[-1]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """From plain builtins. Unknown fields are refused."""
        if "features" in fields and "parties" not in fields:
            raise ConfigError("this is a codebook, not a study; make a study with it: `blindbayes study init --codebook ...`")
        if "certificate" in fields:
            raise ConfigError("this is a site's card, not a study; `blindbayes study init` writes a study from cards")
        return convert(fields, cls, "study")

    @classmethod
    def from_text(cls, text: str | bytes) -> Self:
        return cls.from_dict(read_toml(text, "the study"))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Self:
        try:
            return cls.from_text(read_limited(path))
        except FileNotFoundError:
            raise ConfigError(f"study file {os.fspath(path)!r} does not exist") from None
        except OSError as cause:
            raise ConfigError(f"study file {os.fspath(path)!r} cannot be read ({type(cause).__name__})") from None


_fields = cache(msgspec.structs.fields)


def _without_defaults(value: Any) -> Any:
    """Plain builtins of a struct, without the fields that are at their default."""
    if not isinstance(value, msgspec.Struct):
        return [_without_defaults(item) for item in value] if isinstance(value, tuple) else msgspec.to_builtins(value)
    fields = {}
    for field in _fields(type(value)):
        found = getattr(value, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if default is msgspec.NODEFAULT or found != default:
            fields[field.name] = _without_defaults(found)
    return fields
