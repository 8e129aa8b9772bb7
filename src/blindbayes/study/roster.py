"""Rosters: the parties of a study as sites join and leave.

The study file names the founders; its hash is that of roster 0. Each `Change` names the hash of the roster that it changes and
is signed by every party that stays (or those in `changed_by`) and by every party that joins. The hash of the new roster covers
study, number, predecessor and change, and so all rosters before it. It is part of every offer, key and signature of a run:
sites with different rosters never get a session with each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from blindbayes.errors import ConfigError, IntegrityError
from blindbayes.io.untrusted import NAME

if TYPE_CHECKING:
    from blindbayes.crypto.signatures import SigningKey

_HEX = set("0123456789abcdef")


class Party(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One organisation, with its Ed25519 public key as `identity`. One that brings no rows has `contributes = false`."""

    name: str
    identity: str
    contributes: bool = True
    key: str | None = None  # the SHA-256 of the keys on its card that are used beside the identity


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a roster. A site that left may return under its own name and identity."""

    previous: str  # hash of the roster that it changes
    add: tuple[Party, ...] = ()
    remove: tuple[str, ...] = ()
    hosts: dict[str, str] = {}  # role that moves -> its new host
    party_rows: int | None = None  # new maximum number of rows of a party
    signatures: dict[str, str] = {}

    def sha256(self, study: str, number: int) -> str:
        """Return the hash of the roster after the change."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["signatures"]
        fields |= {"format": "blindbayes.roster/1", "study": study, "number": number}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Roster:
    """The parties of a study between two changes."""

    study: str
    number: int
    sha256: str
    parties: tuple[Party, ...]
    hosts: Mapping[str, str]
    party_rows: int | None
    known: Mapping[str, str]  # name -> identity of every party that ever took part
    rule: tuple[str, ...]  # parties that must sign a change, if they stay; empty: all
    signers: tuple[str, ...] = ()  # parties that must sign the change that led here

    def then(self, change: Change) -> Roster:
        """Return the roster after a change. Raises `ConfigError` for a change that does not fit."""
        number, names = self.number + 1, [party.name for party in self.parties]
        if change.previous != self.sha256:
            raise ConfigError(f"change {number} of the roster is not on top of change {self.number}: the chain is broken")
        if not (change.add or change.remove or change.hosts or change.party_rows):
            raise ConfigError(f"change {number} of the roster changes nothing")
        if unknown := [name for name in change.remove if name not in names]:
            raise ConfigError(f"{unknown[0]!r} cannot leave: it is not a party of the study now")
        known = dict(self.known)
        for party in change.add:
            require_party(party)
            taken = {identity: name for name, identity in known.items()}
            if known.get(party.name, party.identity) != party.identity or taken.get(party.identity, party.name) != party.name:
                raise ConfigError(f"{party.name} has a name or an identity that another site of this study has or had")
            known[party.name] = party.identity
        added = [party.name for party in change.add]
        if len({*added, *change.remove}) < len(added) + len(change.remove) or set(added) & set(names):
            raise ConfigError(f"a party occurs twice in change {number} of the roster, or is a party already")
        stay = tuple(party for party in self.parties if party.name not in change.remove)
        left = [party.name for party in stay]
        signers = [name for name in left if name in self.rule] or left
        return Roster(
            self.study,
            number,
            change.sha256(self.study, number),
            (*stay, *change.add),
            {**self.hosts, **change.hosts},
            change.party_rows or self.party_rows,
            known,
            self.rule,
            (*signers, *added),
        )

    @property
    def identities(self) -> dict[str, str]:
        """Public keys by name."""
        return {party.name: party.identity for party in self.parties}

    def payload(self, name: str) -> bytes:
        """Return the bytes that a party signs for this roster."""
        return b"blindbayes roster v1\n" + self.sha256.encode() + b"\n" + name.encode()

    def sign(self, change: Change, name: str, key: SigningKey) -> Change:
        """Return the change that led to this roster with one more signature."""
        if key.public.hex() != self.identities.get(name):
            raise ConfigError(f"the roster names another identity for {name} than this site's, or none")
        return msgspec.structs.replace(change, signatures={**change.signatures, name: key.sign(self.payload(name)).hex()})

    def require_signed(self, change: Change, *, complete: bool = True) -> tuple[str, ...]:
        """Return the parties whose signatures are missing on the change that led here.

        Raises `ConfigError` for a wrong signature and, if `complete`, for a missing one.
        """
        from blindbayes.crypto.signatures import verify  # hashes are compared often, and need no keys

        for name, signature in change.signatures.items():
            try:
                verify(bytes.fromhex(self.identities.get(name, "")), self.payload(name), bytes.fromhex(signature))
            except (IntegrityError, ValueError):
                raise ConfigError(f"the signature of {name} is not of change {self.number} of this roster") from None
        missing = tuple(name for name in self.signers if name not in change.signatures)
        if missing and complete:
            raise ConfigError(f"change {self.number} of the roster is not signed by {', '.join(missing)}: nothing runs on it")
        return missing

    def describe(self, change: Change) -> list[str]:
        """Return lines that describe the change that led here."""
        missing = ", ".join(self.require_signed(change, complete=False))
        return [
            f"change {self.number} of the roster, hash {self.sha256}",
            *(f"  {party.name} comes (identity {party.identity[:16]})" for party in change.add),
            *(f"  {name} leaves" for name in change.remove),
            *(f"  {site} hosts the role {role}" for role, site in change.hosts.items()),
            *([f"  a site has at most {change.party_rows} rows"] if change.party_rows else []),
            f"  then it is: {', '.join(party.name for party in self.parties)}",
            "  signed by all who must" if not missing else f"  not signed yet by {missing}",
        ]


def require_party(party: Party) -> Party:
    """Refuse a party with an invalid name or key."""
    if not NAME.fullmatch(party.name):
        raise ConfigError(f"{party.name!r} is not a site's name: small letters, digits and dashes, as on its card")
    if len(party.identity) != 64 or not set(party.identity) <= _HEX:
        raise ConfigError(f"the identity of {party.name} is not 64 hexadecimal digits; take it from its card")
    if party.key is not None and (len(party.key) != 64 or not set(party.key) <= _HEX):
        raise ConfigError(f"the key of {party.name} is not 64 hexadecimal digits; take it from its card")
    return party


def rosters_of(founding: Roster, changes: Sequence[Change]) -> tuple[Roster, ...]:
    """Return every roster, from the founders' to the newest."""
    rosters = [founding]
    for change in changes:
        rosters.append(rosters[-1].then(change))
    return tuple(rosters)


def steps_of(rosters: Sequence[Roster]) -> tuple[tuple[str, bool], ...]:
    """Return the contributors that left (False) or came (True) since the founding, in order. Noise and key graph follow."""
    steps: list[tuple[str, bool]] = []
    for before, after in pairwise(rosters):
        old, new = ({party.name for party in each.parties if party.contributes} for each in (before, after))
        steps += [(party.name, False) for party in before.parties if party.name in old - new]
        steps += [(party.name, True) for party in after.parties if party.name in new - old]
    return tuple(steps)
