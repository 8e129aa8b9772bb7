"""The study file: one TOML for all parties, hashed, and signed by each.

It holds everything the parties agree on, the codebook included, and who they are by identity key. Its SHA-256 stands in every
offer, key and signature of a run: two sites whose files differ in anything but comments and signatures never get a session.
Signatures stand in the file and outside the hash.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import tomlkit

from blindbayes.codebook import MAX_NAME_LENGTH, Codebook
from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError
from blindbayes.foreign import NAME, read_toml, require_seen
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.signatures import SigningKey, verify
from blindbayes.protocol import registry
from blindbayes.protocol.core import Run
from blindbayes.protocol.steps import step
from blindbayes.study.study import RATIO, Study

if TYPE_CHECKING:
    from blindbayes.protocol.columns import Columns
    from blindbayes.protocol.joined import Join
    from blindbayes.scheme.histograms import NoisyColumns

FORMAT = "blindbayes.study-file/1"
NOISY = "noisy_histograms"
COLUMNS = ("class_sums", "joined_sums", NOISY)
SIMULATED = ("scalar_product", RATIO)  # in one process only: no site's agent runs them


def _as_floats(struct: msgspec.Struct, *names: str) -> None:
    """60 and 60.0 hash alike."""
    for name in names:
        value = getattr(struct, name)
        if value is not None:
            msgspec.structs.force_setattr(struct, name, float(value) + 0.0)


class Party(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One organisation. `identity` is its Ed25519 public key; one that brings no rows has `contributes = false`."""

    name: str
    identity: str
    contributes: bool = True


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the opened sum promises. Without an epsilon it is exact."""

    epsilon: float | None = None
    delta: float = 0.0
    mechanism: Literal["auto", "polya", "skellam", "diluted"] = "auto"
    unit: Literal["record", "party", "person"] = "record"  # "person" is what earlier versions called a record
    party_rows: int | None = None
    rows_per_person: int | None = None  # most rows of a person that a site counts, by the codebook's identifier
    rows: int | None = None  # declared number of rows of all parties together: how fine the noisy tables are
    gamma: float = 2 / 3

    def __post_init__(self) -> None:
        _as_floats(self, "epsilon", "delta", "gamma")
        if self.unit == "person":
            msgspec.structs.force_setattr(self, "unit", "record")


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

    def __post_init__(self) -> None:
        _as_floats(self, "alpha", "var_smoothing")


class Holdings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a study over columns: who holds what. The first of `labelled` acts for the class."""

    holds: dict[str, tuple[str, ...]]  # party -> its features
    labelled: tuple[str, ...]  # parties that have the class column
    rows: int | None = None  # aligned only: the number of rows, which is public


class StudyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What stands in the file."""

    title: str
    parties: tuple[Party, ...]
    codebook: dict[str, Any]
    partition: Literal["rows", "columns"] = "rows"
    protocol: str = "masked_sum"
    hosts: dict[str, str] = {}  # roles that no contributor fills (such as `server`) -> the party that hosts them
    privacy: Privacy = Privacy()
    thresholds: Thresholds = Thresholds()
    deadlines: Deadlines = Deadlines()
    options: dict[str, Any] = {}
    model: Model = Model()
    columns: Holdings | None = None
    reveal_to: str = "all"  # columns: who learns the class of a classified instance
    key: tuple[str, ...] = ()  # columns that do not line up: the identifier, if the codebook has no recipe
    aligned: bool = True  # columns: row i of every party is the same entity
    duplicates: Literal["join", "first", "reject"] = "join"  # columns that do not line up: rows of one identifier
    signatures: dict[str, str] = {}
    format: Literal["blindbayes.study-file/1"] = "blindbayes.study-file/1"

    def __post_init__(self) -> None:
        names = [party.name for party in self.parties]
        for text in (self.title, *names):  # people approve what their terminal shows them
            if not text or len(text) > MAX_NAME_LENGTH:
                raise ConfigError(f"the title and the names of a study have 1 to {MAX_NAME_LENGTH} characters")
            require_seen(text, "the title and the names of a study")
        if strange := [name for name in names if not NAME.fullmatch(name)]:
            raise ConfigError(f"{strange[0]!r} is no site's name: small letters, digits and dashes, as on its card")
        if len(set(names)) != len(names):
            raise ConfigError("a party stands twice in the study")
        if len({party.identity for party in self.parties}) != len(names):
            raise ConfigError("two parties of the study have the same identity")
        for party in self.parties:
            if len(party.identity) != 64 or not set(party.identity) <= set("0123456789abcdef"):
                raise ConfigError(f"the identity of {party.name} is not 64 hexadecimal digits; take it from its card")
        if unknown := sorted(set(self.hosts.values()) - set(names)):
            raise ConfigError(f"{unknown[0]!r} hosts a role but is no party of the study")
        if unknown := sorted(set(self.signatures) - set(names)):
            raise ConfigError(f"{unknown[0]!r} signed the study but is no party of it")
        if self.protocol in SIMULATED:
            rows = ", ".join(name for name in registry.ROWS if name != "reference")
            raise ConfigError(
                f"{self.protocol} runs in one process only (Study.simulate in Python); between sites take one of {rows} for "
                f"rows, {' or '.join(COLUMNS)} for columns"
            )
        if self.partition == "columns":
            self._require_columns()
        else:
            self._require_rows()

    def _require_rows(self) -> None:
        names = self.names
        if self.columns is not None or self.reveal_to != "all" or self.key or not self.aligned or self.duplicates != "join":
            raise ConfigError("[columns], reveal_to, key, aligned and duplicates are for partition = 'columns'; leave them out")
        extra = [name for name in self.seats if name not in self.contributors]
        if clash := sorted(set(extra) & set(names)):
            raise ConfigError(f"a party may not be called {clash[0]!r}: {self.protocol} keeps that name for a role")
        if missing := sorted(set(extra) - set(self.hosts)):
            raise ConfigError(f"who hosts the role {missing[0]!r} of {self.protocol}? Say so under [hosts]")
        if unknown := sorted(set(self.hosts) - set(extra)):
            raise ConfigError(f"{self.protocol} has no role {unknown[0]!r} to host")
        for pair in _apart(self.protocol):
            if set(pair) <= set(self.hosts) and len({self.hosts[seat] for seat in pair}) < len(pair):
                raise ConfigError(
                    f"the roles {' and '.join(pair)} of {self.protocol} must be on different sites: together they could read "
                    "every contribution. Change [hosts]"
                )

    def _require_columns(self) -> None:
        names, held = self.names, self.columns
        if self.protocol not in COLUMNS:
            raise ConfigError(
                f"{self.protocol} is no protocol for columns: say protocol = 'class_sums' if row i of every party is the same "
                "entity, 'joined_sums' if rows are matched by an identifier, 'noisy_histograms' if all parties know the class"
            )
        if held is None:
            raise ConfigError("a study over columns says who holds what: add [columns] labelled = [...] and [columns.holds]")
        if self.protocol != NOISY and self.hosts:
            raise ConfigError("a study over columns has no roles to host; take [hosts] out")
        if self.protocol == NOISY and set(self.hosts) != {"miner"}:
            raise ConfigError("who builds the model from what the parties release? [hosts] miner = a party, and nothing else")
        if idle := [party.name for party in self.parties if not party.contributes]:
            raise ConfigError(f"{idle[0]} contributes nothing: every party of a study over columns holds columns or the class")
        if unknown := sorted(set(held.holds) - set(names)):
            raise ConfigError(f"[columns.holds] names {unknown[0]!r}, who is no party of the study")
        if missing := [name for name in names if name not in held.holds]:
            raise ConfigError(f"what does {missing[0]} hold? Add it to [columns.holds], with [] if it has the class alone")
        if unknown := sorted({name for names_ in held.holds.values() for name in names_} - set(self.book.names)):
            raise ConfigError(f"[columns.holds] names the feature {unknown[0]!r}, which the codebook does not declare")
        if not held.labelled:
            raise ConfigError(f"who has the class column {self.book.target!r}? Say so: [columns] labelled = [...]")
        if not set(held.labelled) <= set(names) or len(set(held.labelled)) < len(held.labelled):
            raise ConfigError("[columns] labelled names parties of the study, each once")
        if self.aligned != (self.protocol != "joined_sums"):
            raise ConfigError(
                "rows that line up take protocol = 'class_sums', rows matched by an identifier protocol = 'joined_sums' and "
                "aligned = false; change one of the two"
            )
        if "all" in names:  # else reveal_to = "all" would read as that party's, and be everybody's
            raise ConfigError("over columns a party may not be called 'all': that name stands for everybody in reveal_to")
        from blindbayes.scheme.aligned import require_learner

        require_learner(self.reveal_to, names)
        if self.protocol == NOISY:
            self._require_noisy()
            return
        if self.aligned:
            if held.rows is None:
                raise ConfigError("how many rows do the tables have? All parties know it: [columns] rows = ...")
            if not 1 <= held.rows <= self.book.max_rows:
                raise ConfigError(f"[columns] rows lies between 1 and the codebook's max_rows = {self.book.max_rows}")
            if self.key or self.duplicates != "join":
                raise ConfigError("key and duplicates are for rows that do not line up; leave them out, or set aligned = false")
        elif held.rows is not None:
            raise ConfigError(
                "rows that do not line up have no common number; leave [columns] rows out, and give options.bounds"
            )
        self.agreed  # noqa: B018 - options, bounds, features held by nobody or by two: all of it is refused here

    def _require_noisy(self) -> None:
        held = self.holdings
        if unlabelled := [name for name in self.names if held.holds[name] and name not in held.labelled]:
            raise ConfigError(f"{unlabelled[0]} does not know the class; noisy_histograms is for parties that all do")
        if held.rows is not None or self.key or self.duplicates != "join" or self.reveal_to != "all":
            raise ConfigError("noisy_histograms takes no rows, key, duplicates or reveal_to: the miner gets a model of its own")
        self.noisy  # noqa: B018 - what NoisyColumns refuses

    # -- what it says --------------------------------------------------------------------------------------------------

    @cached_property
    def book(self) -> Codebook:
        """The codebook."""
        return Codebook.from_dict(self.codebook)

    @cached_property
    def study(self) -> Study:
        """The agreement without the parties."""
        agreed: dict[str, Any] = {}
        for part in (self.privacy, self.thresholds, self.model):
            agreed.update(msgspec.structs.asdict(part))
        if self.partition == "columns":
            agreed |= {"reveal_to": self.reveal_to, "key": list(self.key) or None}
            agreed |= {"aligned": self.aligned, "duplicates": self.duplicates}
        return Study(self.book, partition=self.partition, protocol=self.protocol, options=self.options, **agreed)

    @property
    def names(self) -> tuple[str, ...]:
        """Every party, in order."""
        return tuple(party.name for party in self.parties)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Who brings rows."""
        return tuple(party.name for party in self.parties if party.contributes)

    @cached_property
    def agreed(self) -> Columns | Join:
        """What is public about a study over columns."""
        from blindbayes.scheme import aligned, joined

        held, owners = self.holdings, self._owners()
        if held.rows is not None:
            aligned.options_of(self.study)
            agreed = aligned.columns_for(self.study, held.rows, owners, held.labelled)
            agreed.plan  # noqa: B018 - whether scores fit, and have a least variance, is known now
            return agreed
        if len(held.labelled) != 1:
            raise ConfigError("where rows do not line up, one party alone has the class: [columns] labelled = [one name]")
        options = joined.options_of(self.study)
        if options["reveal"] != "nothing":
            raise ConfigError("reveal = 'matching' runs in one process only; between sites leave the option out")
        found = joined.join_of(self.study, owners, held.labelled[0], options["bounds"])
        found.columns.plan  # noqa: B018 - what Columns refuses, and whether scores fit
        return found

    @cached_property
    def noisy(self) -> NoisyColumns:
        """What is public about noisy_histograms."""
        from blindbayes.scheme.histograms import NoisyColumns

        return NoisyColumns(self.study, self._owners())

    def _owners(self) -> dict[str, tuple[str, ...]]:
        holds = self.holdings.holds
        return {name: tuple(each for each in self.book.names if each in holds[name]) for name in self.names}

    @property
    def holdings(self) -> Holdings:
        """Who holds which columns."""
        if self.columns is None:
            raise ConfigError("this is no study over columns")
        return self.columns

    @cached_property
    def setting(self) -> registry.Setting:
        """The public setting of the sum. Raises `PrivacyError` for one that policy can never allow."""
        return self.study.setting(self.contributors)

    @cached_property
    def seats(self) -> tuple[str, ...]:
        """Every role of the protocol: the contributors under their own names, then the others."""
        if self.protocol == NOISY:
            return (*self.noisy.names, "miner")
        if self.partition == "columns":
            return self.names
        return registry.load(self.protocol).roster(self.setting)

    def require_options(self) -> None:
        """Refuse an option whose value the protocol cannot work with, before people approve it.

        Over columns the file checks its options itself; the protocols for rows check theirs in their roles, so one takes its
        first step here, on zeros.
        """
        if self.partition == "columns":
            return
        name, setting, coins = self.contributors[0], self.setting, Coins.seeded(bytes(32))
        keys = {seat: SigningKey.generate(coins) for seat in self.seats}
        public = {seat: key.public for seat, key in keys.items()}
        run = Run(self.sha256, "0" * 32, self.seats, name, public, keys[name])
        role = registry.load(self.protocol).role(run, setting, np.zeros(setting.length, dtype=np.uint64), coins)
        try:
            step(role, None)
        except BlindbayesError:
            raise
        except Exception as cause:
            raise ConfigError(
                f"an option of {self.protocol} has a value that it cannot work with: {', '.join(sorted(self.options))}; see "
                "the protocol's page"
            ) from cause
        finally:
            role.close()

    def host(self, seat: str) -> str:
        """The party that runs a role."""
        return self.hosts.get(seat, seat)

    def party(self, name: str) -> Party:
        """The party of that name."""
        for party in self.parties:
            if party.name == name:
                return party
        raise ConfigError(f"{name!r} is no party of this study")

    def identity(self, seat: str) -> bytes:
        """The public key of whoever runs a role."""
        return bytes.fromhex(self.party(self.host(seat)).identity)

    # -- hash and signatures ---------------------------------------------------------------------------------------------

    def canonical(self) -> bytes:
        """Canonical JSON of everything but the signatures; the codebook enters as its own canonical form.

        No field at its default: one that a later version adds leaves the hash of an agreed study as it is.
        """
        fields = _without_defaults(self)
        fields.pop("signatures", None)
        fields |= {"codebook": self.book.sha256, "format": self.format}
        try:
            return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            raise ConfigError("the numbers of a study are finite") from None

    @cached_property
    def sha256(self) -> str:
        """What identifies the study on every screen and in every message."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def _signed_bytes(self, name: str) -> bytes:
        return b"blindbayes study v1\n" + self.sha256.encode() + b"\n" + name.encode()

    def sign(self, name: str, key: SigningKey) -> StudyFile:
        """The same study with one more signature."""
        if key.public.hex() != self.party(name).identity:
            raise ConfigError(f"the study names another identity for {name} than this site's")
        signature = key.sign(self._signed_bytes(name)).hex()
        return msgspec.structs.replace(self, signatures={**self.signatures, name: signature})

    def require_signatures(self) -> tuple[str, ...]:
        """Who has signed. Raises `ConfigError` naming a party whose signature is wrong."""
        for name, signature in self.signatures.items():
            try:
                verify(bytes.fromhex(self.party(name).identity), self._signed_bytes(name), bytes.fromhex(signature))
            except (IntegrityError, ValueError):
                raise ConfigError(f"the signature of {name} is not of this study; has the file changed since?") from None
        return tuple(name for name in self.names if name in self.signatures)

    # -- files -----------------------------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> StudyFile:
        """From plain builtins. Unknown fields are refused."""
        if "features" in fields and "parties" not in fields:
            raise ConfigError("this is a codebook, not a study; make a study with it: `blindbayes study init --codebook ...`")
        if "certificate" in fields:
            raise ConfigError("this is a site's card, not a study; `blindbayes study init` writes a study from cards")
        try:
            return msgspec.convert(dict(fields), cls, strict=True)
        except msgspec.ValidationError as cause:
            if isinstance(cause.__cause__, ConfigError):
                raise cause.__cause__ from None
            raise ConfigError(f"study: {cause}") from None

    @classmethod
    def from_text(cls, text: str) -> StudyFile:
        """Read a study."""
        return cls.from_dict(read_toml(text, "the study"))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> StudyFile:
        """Read a study file."""
        try:
            return cls.from_text(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"study file {os.fspath(path)!r} does not exist") from None
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"study file {os.fspath(path)!r} cannot be read as UTF-8 text") from None

    def to_toml(self) -> str:
        """The study as TOML, with a comment to each setting that people decide on."""
        fields = {name: value for name, value in _no_none(msgspec.to_builtins(self)).items() if value not in ({}, [])}
        codebook = fields.pop("codebook")
        for name in () if self.partition == "columns" else _OF_COLUMNS:  # at their defaults: they say nothing here
            fields.pop(name, None)
        document = tomlkit.document()
        document.add(tomlkit.comment(f"sha256 {self.sha256}"))
        for name in sorted(fields, key=lambda name: isinstance(fields[name], dict | list)):  # plain values first
            document[name] = fields[name]
        _comment(document, _COMMENTS)
        if self.partition == "rows":
            document["partition"].comment("each party holds other records of the same columns")
            if self.privacy.epsilon is None:
                document["privacy"].comment("no epsilon: the exact sum is opened")
        else:
            document["partition"].comment("each party holds other columns of the same entities")
        document["codebook"] = _no_none(codebook)
        return tomlkit.dumps(document)


_OF_COLUMNS = ("reveal_to", "key", "aligned", "duplicates", "columns")
_COMMENTS: dict[str, Any] = {
    "protocol": "how the sums are added up, and so who learns them; `blindbayes study check` says who",
    "reveal_to": "who learns the class of a classified instance: all, or one party",
    "columns": {
        "rows": "row i of every party is the same entity; so many of them",
        "labelled": "who has the class column; the first acts for it",
    },
    "hosts": "who runs the roles that no contributor fills",
    "privacy": {
        "epsilon": "privacy loss of one run: smaller hides more; take the line out for an exact sum",
        "delta": "chance that epsilon does not hold; 0 for none",
        "unit": "whom epsilon protects: one record (a row, not a person), or all rows of a party",
        "rows_per_person": "a site counts so many rows of a person, drawn at random; epsilon protects them together",
        "rows": "rows of all parties together, about, from public knowledge: how fine the noisy tables are",
        "gamma": "the fraction of parties assumed to add their noise",
    },
    "thresholds": {
        "min_parties": "fewest parties that bring rows",
        "min_rows": "fewest rows of each party",
        "quorum": "fewest parties whose sum may be opened",
        "min_cell": "with epsilon only: noisy counts below it are published as 0; exact sums are never altered",
    },
    "deadlines": {
        "step": "seconds that a site may be silent within a step",
        "join": "seconds until everybody has come",
        "run": "seconds of the whole run",
    },
    "model": {"alpha": "Laplace smoothing", "var_smoothing": "share of the largest variance that is added to all"},
    "signatures": "who agreed; outside the hash",
}


def comment_of(*path: str) -> str:
    """What a setting is, in the words that stand beside it in the file; empty if there are none."""
    found: Any = _COMMENTS
    for name in path:
        found = found.get(name, "") if isinstance(found, dict) else ""
    return found if isinstance(found, str) else ""


def _without_defaults(value: Any) -> Any:
    """Plain builtins of a struct, without the fields that are at their default."""
    if not isinstance(value, msgspec.Struct):
        return [_without_defaults(item) for item in value] if isinstance(value, tuple) else msgspec.to_builtins(value)
    fields = {}
    for field in msgspec.structs.fields(value):
        found = getattr(value, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if default is msgspec.NODEFAULT or found != default:
            fields[field.name] = _without_defaults(found)
    return fields


def _comment(document: Any, comments: Mapping[str, Any]) -> None:
    for name, text in comments.items():
        if name in document and isinstance(text, str):
            document[name].comment(text)
        elif name in document:
            _comment(document[name], text)


def _no_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _no_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_no_none(item) for item in value]
    return value


def default_hosts(protocol: str, setting: registry.Setting, parties: tuple[Party, ...]) -> dict[str, str]:
    """A host for every role that no contributor fills: a party without rows if there is one, else the first party.

    Roles that the protocol wants apart get different hosts.
    """
    order = [party.name for party in sorted(parties, key=lambda party: party.contributes)]
    hosts: dict[str, str] = {}
    for seat in registry.load(protocol).roster(setting):
        if seat not in setting.contributors:
            taken = {hosts[other] for pair in _apart(protocol) if seat in pair for other in pair if other in hosts}
            hosts[seat] = next((name for name in order if name not in taken), order[0])
    return hosts


def _apart(protocol: str) -> tuple[tuple[str, ...], ...]:
    """Roles of a protocol that no one site may fill together."""
    found: tuple[tuple[str, ...], ...] = getattr(registry.load(protocol), "apart", ())
    return found
