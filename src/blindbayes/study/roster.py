"""Who takes part in a study, as sites come and go.

A study's file names its founders; its hash is roster 0. Each `Change` names the hash of the one roster that it changes and is
signed by those the study's rule names: every member that stays (or `changed_by`), and whoever comes. Its own hash covers study,
number, predecessor and change: it stands for the new roster, and for all before it, in every offer, key and signature of a
run. So sites that do not have the same rosters, in the same order, never get a session with each other.
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
    """One organisation. `identity` is its Ed25519 public key; one that brings no rows has `contributes = false`."""

    name: str
    identity: str
    contributes: bool = True
    key: str | None = None  # its X25519 public key, as on its card: for keys that stand over many runs


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a roster. Sites that left may come back under their own name and identity."""

    previous: str  # the hash of the roster that it changes
    add: tuple[Party, ...] = ()
    remove: tuple[str, ...] = ()
    hosts: dict[str, str] = {}  # roles that move -> the party that hosts them from now on
    party_rows: int | None = None  # the largest number of rows of a party from now on
    signatures: dict[str, str] = {}

    def sha256(self, study: str, number: int) -> str:
        """The hash of the roster after it."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["signatures"]
        fields |= {"format": "blindbayes.roster/1", "study": study, "number": number}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Roster:
    """Who takes part from one change to the next."""

    study: str
    number: int
    sha256: str
    parties: tuple[Party, ...]
    hosts: Mapping[str, str]
    party_rows: int | None
    known: Mapping[str, str]  # every party that ever took part: name -> identity
    rule: tuple[str, ...]  # whose signatures a change needs, as far as they stay; empty: every member's
    signers: tuple[str, ...] = ()  # who had to sign this one

    def then(self, change: Change) -> Roster:
        """The roster after a change. Raises `ConfigError` for one that does not fit."""
        number, names = self.number + 1, [party.name for party in self.parties]
        if change.previous != self.sha256:
            raise ConfigError(f"change {number} of the roster is not on top of change {self.number}: the chain is broken")
        if not (change.add or change.remove or change.hosts or change.party_rows):
            raise ConfigError(f"change {number} of the roster changes nothing")
        if strange := [name for name in change.remove if name not in names]:
            raise ConfigError(f"{strange[0]!r} cannot leave: it is no party of the study now")
        known = dict(self.known)
        for party in change.add:
            require_party(party)
            taken = {identity: name for name, identity in known.items()}
            if known.get(party.name, party.identity) != party.identity or taken.get(party.identity, party.name) != party.name:
                raise ConfigError(f"{party.name} has a name or an identity that another site of this study has or had")
            known[party.name] = party.identity
        added = [party.name for party in change.add]
        if len({*added, *change.remove}) < len(added) + len(change.remove) or set(added) & set(names):
            raise ConfigError(f"a party stands twice in change {number} of the roster, or is a party already")
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
        """The parties' public keys by name."""
        return {party.name: party.identity for party in self.parties}

    def payload(self, name: str) -> bytes:
        """What a party signs of this roster."""
        return b"blindbayes roster v1\n" + self.sha256.encode() + b"\n" + name.encode()

    def sign(self, change: Change, name: str, key: SigningKey) -> Change:
        """The change that led to this roster with one more signature."""
        if key.public.hex() != self.identities.get(name):
            raise ConfigError(f"the roster names another identity for {name} than this site's, or none")
        return msgspec.structs.replace(change, signatures={**change.signatures, name: key.sign(self.payload(name)).hex()})

    def require_signed(self, change: Change, *, complete: bool = True) -> tuple[str, ...]:
        """Whose signatures are missing on the change that led here. Raises for a wrong one, and if `complete` for a missing."""
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

    def told(self, change: Change) -> list[str]:
        """The change that led here, in words."""
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
    """Refuse a party whose name or keys are none."""
    if not NAME.fullmatch(party.name):
        raise ConfigError(f"{party.name!r} is not a site's name: small letters, digits and dashes, as on its card")
    if len(party.identity) != 64 or not set(party.identity) <= _HEX:
        raise ConfigError(f"the identity of {party.name} is not 64 hexadecimal digits; take it from its card")
    if party.key is not None and (len(party.key) != 64 or not set(party.key) <= _HEX):
        raise ConfigError(f"the key of {party.name} is not 64 hexadecimal digits; take it from its card")
    return party


def rosters_of(founding: Roster, changes: Sequence[Change]) -> tuple[Roster, ...]:
    """Every roster, from the founders to the newest."""
    found = [founding]
    for change in changes:
        found.append(found[-1].then(change))
    return tuple(found)


def steps_of(rosters: Sequence[Roster]) -> tuple[tuple[str, bool], ...]:
    """Who that brings rows left (False) or came (True) since the founding, in order: noise and key graph follow from it."""
    steps: list[tuple[str, bool]] = []
    for before, after in pairwise(rosters):
        old, new = ({party.name for party in each.parties if party.contributes} for each in (before, after))
        steps += [(party.name, False) for party in before.parties if party.name in old - new]
        steps += [(party.name, True) for party in after.parties if party.name in new - old]
    return tuple(steps)
