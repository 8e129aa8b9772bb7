"""The study file: one TOML file for all parties, hashed, and signed by each.

It holds the study, codebook included, and the parties by identity key. Its SHA-256 names the study; two sites whose files
differ in anything but comments and signatures never get a session. Signatures are outside the hash, and so are changes of the
roster, which have hashes of their own (`study.roster`): `parties` and `hosts` are the founders', `members`, `names`,
`contributors` and `host` those of the newest roster.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import tomlkit

from blindbayes.codebook import MAX_NAME_LENGTH, Codebook
from blindbayes.codebook.toml import multiline
from blindbayes.crypto.signatures import SigningKey, verify
from blindbayes.errors import ConfigError, IntegrityError
from blindbayes.io.untrusted import convert, read_limited, read_toml, require_seen
from blindbayes.protocols.registry import SumSetup
from blindbayes.study.agreement import Agreement, Holdings
from blindbayes.study.fields import Deadlines, Estimation, Limits, Privacy
from blindbayes.study.roster import Change, Party, Roster, require_party, rosters_of, steps_of
from blindbayes.study.settings import annotate, no_none
from blindbayes.study.study import KINDS, SIMULATION, ColumnStudy, JoinStudy, RowStudy, Study, canonical, without_defaults
from blindbayes.study.tasks import registry
from blindbayes.study.tasks.task import StudyTask
from blindbayes.study.tasks.traits import Support

if TYPE_CHECKING:
    from blindbayes.crypto.coins import Coins
    from blindbayes.disclosure.policy import Policy
    from blindbayes.study.tasks.result import JointResult, Result

__all__ = ["Deadlines", "Estimation", "Limits", "Party", "Privacy", "StudyFile"]
_OUTSIDE_THE_HASH = ("changes", "signatures")


class StudyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A study and its parties, checked when it is made."""

    title: str
    parties: tuple[Party, ...]
    study: RowStudy | ColumnStudy | JoinStudy
    hosts: dict[str, str] = {}
    deadlines: Deadlines = Deadlines()
    columns: Holdings | None = None
    changed_by: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    signatures: dict[str, str] = {}
    format: Literal["blindbayes.study-file/1"] = "blindbayes.study-file/1"

    def __post_init__(self) -> None:
        self._require_parties()
        if self.changes and not self.is_living:
            raise ConfigError(
                f"the roster of a study by {self.protocol} does not change: only sums over rows go on without a site"
            )
        if self.study.partition == "columns":
            self._require_columns()
        elif self.columns is not None:
            raise ConfigError("[columns] is for kind = 'columns' or 'join'; leave it out")
        if unknown := sorted(set(self.roster.hosts.values()) - set(self.names)):
            raise ConfigError(f"{unknown[0]!r} hosts a role but is not a party of the study")
        self.task  # noqa: B018 - options, quorum, bounds, features held by nobody or by two: refused here
        self._require_hosts()

    def _require_parties(self) -> None:
        names = [party.name for party in self.parties]
        for text in (self.title, *names):  # people approve what their terminal shows them
            if not text or len(text) > MAX_NAME_LENGTH:
                raise ConfigError(f"the title and the names of a study have 1 to {MAX_NAME_LENGTH} characters")
            require_seen(text, "the title and the names of a study")
        if len(set(names)) != len(names):
            raise ConfigError(
                f"party {Counter(names).most_common(1)[0][0]!r} stands twice in the study; is a card named twice?"
            )
        if len({party.identity for party in self.parties}) != len(names):
            raise ConfigError("two parties of the study have the same identity")
        for party in self.parties:
            require_party(party)
        if unknown := sorted(set(self.changed_by) - set(names)):
            raise ConfigError(f"{unknown[0]!r} signs changes of the roster (changed_by) but is not a party of the study")
        if unknown := sorted(set(self.signatures) - set(names)):
            raise ConfigError(f"{unknown[0]!r} signed the study but is not a party of it")

    def _require_hosts(self) -> None:
        contributors = set(self.contributors)
        extra = [name for name in self.roles if name not in contributors]
        if clash := sorted(set(extra) & set(self.names)):
            raise ConfigError(f"a party may not be called {clash[0]!r}: {self.protocol} keeps that name for a role")
        if missing := sorted(set(extra) - set(self.roster.hosts)):
            raise ConfigError(f"who hosts the role {missing[0]!r} of {self.protocol}? Say so under [hosts]")
        if unknown := sorted(set(self.roster.hosts) - set(extra)):
            raise ConfigError(f"{self.protocol} has no role {unknown[0]!r} to host; take it out of [hosts]")
        for pair in self.task.apart:
            if set(pair) <= set(self.roster.hosts) and len({self.roster.hosts[role] for role in pair}) < len(pair):
                raise ConfigError(
                    f"the roles {' and '.join(pair)} of {self.protocol} must be on different sites: together they could read "
                    "every contribution. Change [hosts]"
                )

    def _require_columns(self) -> None:
        names, columns = self.names, self.columns
        if columns is None:
            raise ConfigError("a study over columns says who holds what: add [columns] labelled = [...] and [columns.holds]")
        if idle := [party.name for party in self.parties if not party.contributes]:
            raise ConfigError(f"{idle[0]} contributes nothing: every party of a study over columns holds columns or the class")
        if unknown := sorted(set(columns.holds) - set(names)):
            raise ConfigError(f"[columns.holds] names {unknown[0]!r}, who is not a party of the study")
        if missing := [name for name in names if name not in columns.holds]:
            raise ConfigError(f"what does {missing[0]} hold? Add it to [columns.holds], with [] if it has the class alone")
        if unknown := sorted({name for names_ in columns.holds.values() for name in names_} - set(self.book.names)):
            raise ConfigError(f"[columns.holds] names the feature {unknown[0]!r}, which the codebook does not declare")
        if not columns.labelled:
            raise ConfigError(f"who has the class column {self.book.target!r}? Say so: [columns] labelled = [...]")
        if not set(columns.labelled) <= set(names) or len(set(columns.labelled)) < len(columns.labelled):
            raise ConfigError("[columns] labelled names parties of the study, each once")
        if "all" in names:  # else reveal_to = "all" would read as that party's, and be everybody's
            raise ConfigError("over columns a party may not be called 'all': that name stands for everybody in reveal_to")

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def task(self) -> StudyTask:
        """The task of the study's protocol."""
        return self.agreement.task

    @property
    def protocol(self) -> str:
        return self.study.protocol

    @property
    def options(self) -> dict[str, Any]:
        return self.study.options

    @property
    def privacy(self) -> Privacy:
        return self.study.privacy

    @property
    def book(self) -> Codebook:
        return self.study.codebook

    @cached_property
    def agreement(self) -> Agreement:
        """The study and its parties, as tasks see them."""
        now, founders = self.roster, tuple(party.name for party in self.parties if party.contributes)
        study: Study = self.study
        if now.party_rows != study.privacy.party_rows:
            study = study.replace(privacy=msgspec.structs.replace(study.privacy, party_rows=now.party_rows))
        return Agreement(
            study,
            self.sha256,
            self.names,
            self.contributors,
            now.hosts,
            self.columns,
            self.title,
            now.identities,
            roster=now.sha256,
            founders=founders if self.is_living else (),
            steps=steps_of(self.rosters),
        )

    @property
    def is_living(self) -> bool:
        """True if sites may join and leave."""
        return Support.ROSTER_CHANGES in self.study.task_class.supports

    def at(self, roster: str) -> StudyFile | None:
        """Return the study with an earlier roster, by its hash; None if it never had that one."""
        number = next((each.number for each in self.rosters if each.sha256 == roster), None)
        if number is None or number == len(self.changes):
            return None if number is None else self
        return msgspec.structs.replace(self, changes=self.changes[:number])

    def change(self, change: Change) -> StudyFile:
        """Return the study with one more change of its roster."""
        return msgspec.structs.replace(self, changes=(*self.changes, change))

    def sign_change(self, name: str, key: SigningKey) -> StudyFile:
        """Return the study with one more signature on its newest change."""
        signed = self.roster.sign(self.changes[-1], name, key)
        return msgspec.structs.replace(self, changes=(*self.changes[:-1], signed))

    def require_changes(self) -> None:
        """Raise unless every change of the roster carries the signatures that it needs."""
        for change, roster in zip(self.changes, self.rosters[1:], strict=True):
            roster.require_signed(change)

    @property
    def members(self) -> tuple[Party, ...]:
        """Every party of the newest roster, in order."""
        return self.roster.parties

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every party, in order."""
        return tuple(party.name for party in self.members)

    @cached_property
    def contributors(self) -> tuple[str, ...]:
        """The parties that bring rows or columns."""
        return tuple(party.name for party in self.members if party.contributes)

    @property
    def holdings(self) -> Holdings:
        return self.agreement.holdings

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role of the protocol: the contributors under their own names, then the others."""
        return self.agreement.roles

    @property
    def setting(self) -> SumSetup:
        """The public setting of the sum over rows."""
        if self.task.setting is None:
            raise ConfigError(f"{self.protocol} adds up no rows")
        return self.task.setting

    def simulate(
        self,
        sources: Mapping[str, Any],
        *,
        base: Result | None = None,
        removed: Mapping[str, Any] | None = None,
        ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
        policies: Mapping[str, Policy] | None = None,
        coins: Coins | None = None,
    ) -> Result | JointResult:
        """Run the study in this process under its own hash, with its parties and hosts. See `Study.simulate`."""
        simulation = import_module(SIMULATION).Simulation(self.agreement, sources, ledgers, policies, coins)
        result: Result | JointResult = simulation.train(base, removed)
        return result

    def host(self, role: str) -> str:
        """Return the party that runs a role."""
        return self.roster.hosts.get(role, role)

    @cached_property
    def _by_name(self) -> dict[str, Party]:
        return {party.name: party for party in self.members}

    def party(self, name: str) -> Party:
        if (party := self._by_name.get(name)) is None:
            raise ConfigError(f"{name!r} is not a party of this study")
        return party

    @property
    def identities(self) -> dict[str, bytes]:
        """The public key of every party."""
        return {party.name: bytes.fromhex(party.identity) for party in self.members}

    def identity(self, role: str) -> bytes:
        """Return the public key of the party that runs a role."""
        return bytes.fromhex(self.party(self.host(role)).identity)

    # -- hash and signatures ---------------------------------------------------------------------------------------------

    def canonical(self) -> bytes:
        """Return canonical JSON of everything but the signatures and the changes of the roster."""
        fields = {name: value for name, value in without_defaults(self).items() if name not in ("study", *_OUTSIDE_THE_HASH)}
        return canonical(self.study.to_dict() | fields | {"format": self.format})

    @cached_property
    def sha256(self) -> str:
        """The hash that identifies the study on every screen and in every message."""
        return hashlib.sha256(self.canonical()).hexdigest()

    @cached_property
    def rosters(self) -> tuple[Roster, ...]:
        """Every roster that the study had, the founders' first."""
        known = {party.name: party.identity for party in self.parties}
        first = Roster(self.sha256, 0, self.sha256, self.parties, self.hosts, self.privacy.party_rows, known, self.changed_by)
        return rosters_of(first, self.changes)

    @property
    def roster(self) -> Roster:
        """The newest roster. Every message of a run contains its hash."""
        return self.rosters[-1]

    def _signed_bytes(self, name: str) -> bytes:
        return b"blindbayes study v1\n" + self.sha256.encode() + b"\n" + name.encode()

    def sign(self, name: str, key: SigningKey) -> StudyFile:
        """Return the study with one more founder's signature."""
        if key.public.hex() != self.rosters[0].identities.get(name):
            raise ConfigError(f"the study names another identity for {name} than this site's")
        signature = key.sign(self._signed_bytes(name)).hex()
        return msgspec.structs.replace(self, signatures={**self.signatures, name: signature})

    def require_signatures(self) -> tuple[str, ...]:
        """Return the parties that signed. Raises `ConfigError` that names a party whose signature is wrong."""
        for name, signature in self.signatures.items():
            try:
                founder = bytes.fromhex(self.rosters[0].identities[name])
                verify(founder, self._signed_bytes(name), bytes.fromhex(signature))
            except (IntegrityError, ValueError):
                raise ConfigError(f"the signature of {name} is not of this study; has the file changed since?") from None
        return tuple(party.name for party in self.parties if party.name in self.signatures)

    # -- files -----------------------------------------------------------------------------------------------------------

    @classmethod
    def make(
        cls,
        study: RowStudy | ColumnStudy | JoinStudy,
        title: str,
        parties: tuple[Party, ...],
        *,
        columns: Holdings | None = None,
        hosts: Mapping[str, str] | None = None,
        deadlines: Deadlines | None = None,
    ) -> StudyFile:
        """Make the file of a study and its parties; roles without a host get the default one."""
        contributors = tuple(party.name for party in parties if party.contributes)
        agreement = Agreement(study, study.sha256, tuple(party.name for party in parties), contributors, columns=columns)
        agreement.task.require_runnable()
        given = {**registry.default_hosts(agreement), **(hosts or {})}
        return cls(title, parties, study, given, deadlines or Deadlines(), columns)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> StudyFile:
        """Make a study file from plain builtins, in which the study's own fields are mixed with those of the file."""
        if "features" in fields and "parties" not in fields:
            raise ConfigError("this is a codebook, not a study; make a study with it: `blindbayes study init --codebook ...`")
        if "certificate" in fields:
            raise ConfigError("this is a site's card, not a study; `blindbayes study init` writes a study from cards")
        rest = dict(fields)
        own = {name: rest.pop(name) for name in _STUDY_FIELDS if name in rest}
        _require_kind(own)
        return convert({**rest, "study": own}, cls, "study", lambda text: text.replace("$.study.", "$."))

    @classmethod
    def from_text(cls, text: str | bytes) -> StudyFile:
        return cls.from_dict(read_toml(text, "the study"))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> StudyFile:
        try:
            return cls.from_text(read_limited(path))
        except FileNotFoundError:
            raise ConfigError(f"study file {os.fspath(path)!r} does not exist") from None
        except OSError as cause:
            raise ConfigError(f"study file {os.fspath(path)!r} cannot be read ({type(cause).__name__})") from None

    def to_toml(self) -> str:
        """Return the study as TOML, with a comment to each setting that people decide on."""
        return self._toml

    @cached_property
    def _toml(self) -> str:
        builtins = msgspec.to_builtins(self)
        fields = {name: value for name, value in no_none(builtins.pop("study") | builtins).items() if value not in ({}, [])}
        codebook = fields.pop("codebook")
        for name in ("class_weight", "candidates"):
            if not getattr(self.study.estimation, name):
                del fields["estimation"][name]
        document = tomlkit.document()
        document.add(tomlkit.comment(f"sha256 {self.sha256}"))
        for name in sorted(fields, key=lambda name: isinstance(fields[name], dict | list)):  # plain values first
            document[name] = fields[name]
        annotate(document, "study")
        if self.study.partition == "rows" and self.privacy.epsilon is None:
            document["privacy"].comment("no epsilon: the exact sum is opened")
        book = no_none(codebook)
        book["features"] = [{name: multiline(value) for name, value in each.items()} for each in book["features"]]
        document["codebook"] = book
        return tomlkit.dumps(document)


_STUDY_FIELDS = ("kind", *dict.fromkeys(name for kind in KINDS.values() for name in kind.__struct_fields__))


def _require_kind(fields: dict[str, Any]) -> None:
    """Refuse what the kind of study does not have, and a protocol of another kind, before types are checked."""
    name = fields.setdefault("kind", "rows")
    if not isinstance(name, str) or (kind := KINDS.get(name)) is None:
        raise ConfigError(f"kind is one of {', '.join(KINDS)}")
    if extra := [field for field in fields if field != "kind" and field not in kind.__struct_fields__]:
        raise ConfigError(f"{extra[0]} does not apply to kind = {name!r}; leave it out")
