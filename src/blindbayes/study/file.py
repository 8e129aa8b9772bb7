"""The study file: one TOML for all parties, hashed, and signed by each.

It holds everything the parties agree on, the codebook included, and who they are by identity key. Its SHA-256 names the study;
two sites whose files differ in anything but comments and signatures never get a session. Signatures stand in the file and
outside the hash. So do changes of the roster, which have hashes of their own (`study.roster`): `parties` and `hosts` are the
founders', `members`, `names`, `contributors` and `host` those of the newest roster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

import msgspec
import tomlkit

from blindbayes.codebook import MAX_NAME_LENGTH
from blindbayes.codebook.toml import multiline
from blindbayes.crypto.signatures import SigningKey, verify
from blindbayes.errors import ConfigError, IntegrityError
from blindbayes.io.untrusted import require_seen
from blindbayes.protocols.registry import SumSetup
from blindbayes.study import schemes
from blindbayes.study.agreement import Agreement, Holdings
from blindbayes.study.fields import Deadlines, Duplicates, Model, Privacy, StudyFields, Thresholds
from blindbayes.study.roster import Change, Party, require_party, steps_of
from blindbayes.study.settings import annotate, no_none
from blindbayes.study.study import Study

__all__ = ["Deadlines", "Duplicates", "Model", "Party", "Privacy", "StudyFile", "Thresholds"]


class StudyFile(StudyFields, frozen=True, forbid_unknown_fields=True, dict=True):
    """A study and its parties, checked when it is made."""

    def __post_init__(self) -> None:
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
            raise ConfigError(f"{unknown[0]!r} signs changes of the roster (changed_by) but is no party of the study")
        if unknown := sorted(set(self.signatures) - set(names)):
            raise ConfigError(f"{unknown[0]!r} signed the study but is no party of it")
        if not schemes.scheme(self.protocol).facts.between_sites:
            rows, columns = (schemes.known(kind, between_sites=True, allowed=True) for kind in ("rows", "columns"))
            raise ConfigError(
                f"{self.protocol} runs in one process only (Study.simulate in Python); between sites take one of "
                f"{', '.join(rows)} for rows, {' or '.join(columns)} for columns"
            )
        if self.partition == "rows" and (
            self.columns is not None or self.reveal_to != "all" or self.key or not self.aligned or self.duplicates != "join"
        ):
            raise ConfigError("[columns], reveal_to, key, aligned and duplicates are for partition = 'columns'; leave them out")
        if self.partition not in schemes.scheme(self.protocol).facts.partitions:
            others = schemes.known(self.partition, allowed=True)
            lines = "; ".join(f"{name}: {schemes.scheme(name).facts.line}" for name in others)
            raise ConfigError(f"{self.protocol} is no protocol for {self.partition}. Take one of {lines}")
        if self.changes and not self.is_living:
            raise ConfigError(
                f"the roster of a study by {self.protocol} does not change: only sums over rows go on without a site"
            )
        if self.partition == "columns":
            self._require_columns()
        if unknown := sorted(set(self.roster.hosts.values()) - set(self.names)):
            raise ConfigError(f"{unknown[0]!r} hosts a role but is no party of the study")
        self.agreement.public  # noqa: B018 - options, quorum, bounds, features held by nobody or by two: refused here
        self._require_hosts()

    def _require_hosts(self) -> None:
        contributors = set(self.contributors)
        extra = [name for name in self.seats if name not in contributors]
        if clash := sorted(set(extra) & set(self.names)):
            raise ConfigError(f"a party may not be called {clash[0]!r}: {self.protocol} keeps that name for a role")
        if missing := sorted(set(extra) - set(self.roster.hosts)):
            raise ConfigError(f"who hosts the role {missing[0]!r} of {self.protocol}? Say so under [hosts]")
        if unknown := sorted(set(self.roster.hosts) - set(extra)):
            raise ConfigError(f"{self.protocol} has no role {unknown[0]!r} to host; take it out of [hosts]")
        for pair in self.study.scheme.apart():
            if set(pair) <= set(self.roster.hosts) and len({self.roster.hosts[seat] for seat in pair}) < len(pair):
                raise ConfigError(
                    f"the roles {' and '.join(pair)} of {self.protocol} must be on different sites: together they could read "
                    "every contribution. Change [hosts]"
                )

    def _require_columns(self) -> None:
        names, held = self.names, self.columns
        if held is None:
            raise ConfigError("a study over columns says who holds what: add [columns] labelled = [...] and [columns.holds]")
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
        if self.aligned != schemes.scheme(self.protocol).facts.aligned:
            lined, matched = (" or ".join(schemes.known("columns", aligned=way, between_sites=True)) for way in (True, False))
            raise ConfigError(
                f"rows that line up take protocol = {lined}, rows matched by an identifier protocol = {matched} and "
                "aligned = false; change one of the two"
            )
        if "all" in names:  # else reveal_to = "all" would read as that party's, and be everybody's
            raise ConfigError("over columns a party may not be called 'all': that name stands for everybody in reveal_to")
        if self.aligned and (self.key or self.duplicates != "join"):
            raise ConfigError("key and duplicates are for rows that do not line up; leave them out, or set aligned = false")

    # -- what it says --------------------------------------------------------------------------------------------------

    @cached_property
    def study(self) -> Study:
        """The agreement without the parties. Its hash is this file's: one study, one hash."""
        agreed: dict[str, Any] = {}
        for part in (self.privacy, self.thresholds, self.model):
            agreed.update(msgspec.structs.asdict(part))
        agreed["party_rows"] = self.roster.party_rows
        if self.partition == "columns":
            agreed |= {"reveal_to": self.reveal_to, "key": list(self.key) or None}
            agreed |= {"aligned": self.aligned, "duplicates": self.duplicates}
        found = Study(self.book, partition=self.partition, protocol=self.protocol, options=self.options, **agreed)
        return found.agreed_as(self.sha256)

    @cached_property
    def agreement(self) -> Agreement:
        """The study and its parties, as jobs and schemes see them."""
        now, founders = self.roster, tuple(party.name for party in self.parties if party.contributes)
        return Agreement(
            self.study,
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
        """Whether sites may come and go."""
        return schemes.scheme(self.protocol).facts.living

    def at(self, roster: str) -> StudyFile | None:
        """The study as it stood with a roster, by its hash; None if it never had that one."""
        number = next((each.number for each in self.rosters if each.sha256 == roster), None)
        if number is None or number == len(self.changes):
            return None if number is None else self
        return msgspec.structs.replace(self, changes=self.changes[:number])

    def change(self, change: Change) -> StudyFile:
        """The study with one more change of its roster, on top of the newest."""
        return msgspec.structs.replace(self, changes=(*self.changes, change))

    def sign_change(self, name: str, key: SigningKey) -> StudyFile:
        """The same study with one more signature on its newest change."""
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
        """Who brings rows."""
        return tuple(party.name for party in self.members if party.contributes)

    @property
    def holdings(self) -> Holdings:
        return self.agreement.holdings

    @property
    def seats(self) -> tuple[str, ...]:
        """Every role of the protocol: the contributors under their own names, then the others."""
        return self.agreement.seats

    @property
    def setting(self) -> SumSetup:
        """Of a study over rows: the public setting of the sum."""
        found: SumSetup = self.agreement.public.setting
        return found

    def simulate(self, sources: Mapping[str, Any], **options: Any) -> Any:
        """Run it in this process, as agreed: under its own hash, with its parties and hosts. See `Study.simulate`."""
        return self.study.simulate(sources, agreement=self.agreement, **options)

    def host(self, seat: str) -> str:
        """The party that runs a role."""
        return self.roster.hosts.get(seat, seat)

    @cached_property
    def _by_name(self) -> dict[str, Party]:
        return {party.name: party for party in self.members}

    def party(self, name: str) -> Party:
        if (found := self._by_name.get(name)) is None:
            raise ConfigError(f"{name!r} is no party of this study")
        return found

    def identity(self, seat: str) -> bytes:
        """The public key of whoever runs a role."""
        return bytes.fromhex(self.party(self.host(seat)).identity)

    # -- hash and signatures ---------------------------------------------------------------------------------------------

    def _signed_bytes(self, name: str) -> bytes:
        return b"blindbayes study v1\n" + self.sha256.encode() + b"\n" + name.encode()

    def sign(self, name: str, key: SigningKey) -> StudyFile:
        """The same study with one more founder's signature."""
        if key.public.hex() != self.rosters[0].identities.get(name):
            raise ConfigError(f"the study names another identity for {name} than this site's")
        signature = key.sign(self._signed_bytes(name)).hex()
        return msgspec.structs.replace(self, signatures={**self.signatures, name: signature})

    def require_signatures(self) -> tuple[str, ...]:
        """Who has signed. Raises `ConfigError` naming a party whose signature is wrong."""
        for name, signature in self.signatures.items():
            try:
                founder = bytes.fromhex(self.rosters[0].identities[name])
                verify(founder, self._signed_bytes(name), bytes.fromhex(signature))
            except (IntegrityError, ValueError):
                raise ConfigError(f"the signature of {name} is not of this study; has the file changed since?") from None
        return tuple(party.name for party in self.parties if party.name in self.signatures)

    # -- files -----------------------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls,
        study: Study,
        title: str,
        parties: tuple[Party, ...],
        *,
        columns: Holdings | None = None,
        hosts: Mapping[str, str] | None = None,
        deadlines: Deadlines | None = None,
    ) -> StudyFile:
        """A study and its parties; roles without a host get the usual one."""
        contributors = tuple(party.name for party in parties if party.contributes)
        agreement = Agreement(study, study.sha256, tuple(party.name for party in parties), contributors, held=columns)
        study.scheme.require_runnable(agreement)
        return cls(
            title=title,
            parties=parties,
            codebook=study.codebook.to_dict(),
            partition=study.partition,
            protocol=study.protocol,
            hosts={**schemes.default_hosts(agreement), **(hosts or {})},
            privacy=study.privacy,
            thresholds=study.thresholds,
            deadlines=deadlines or Deadlines(),
            options=study.options,
            model=study.model,
            columns=columns,
            reveal_to=study.reveal_to,
            key=(study.key,) if isinstance(study.key, str) else tuple(study.key or ()),
            aligned=study.aligned,
            duplicates=cast(Duplicates, study.duplicates),
        )

    def to_toml(self) -> str:
        """The study as TOML, with a comment to each setting that people decide on."""
        return self._toml

    @cached_property
    def _toml(self) -> str:
        fields = {name: value for name, value in no_none(msgspec.to_builtins(self)).items() if value not in ({}, [])}
        codebook = fields.pop("codebook")
        if not self.model.class_weight:
            del fields["model"]["class_weight"]
        for name in () if self.partition == "columns" else _OF_COLUMNS:  # at their defaults: they say nothing here
            fields.pop(name, None)
        document = tomlkit.document()
        document.add(tomlkit.comment(f"sha256 {self.sha256}"))
        for name in sorted(fields, key=lambda name: isinstance(fields[name], dict | list)):  # plain values first
            document[name] = fields[name]
        annotate(document, "study")
        if self.partition == "rows" and self.privacy.epsilon is None:
            document["privacy"].comment("no epsilon: the exact sum is opened")
        book = no_none(codebook)
        book["features"] = [{name: multiline(value) for name, value in each.items()} for each in book["features"]]
        document["codebook"] = book
        return tomlkit.dumps(document)


_OF_COLUMNS = ("reveal_to", "key", "aligned", "duplicates", "columns")
