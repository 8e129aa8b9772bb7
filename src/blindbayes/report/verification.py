"""Verify who vouches for which file of a release folder, with keys that the reader brings.

The keys in a folder prove nothing: a forger can write its own. So the reader brings the cards of the sites (or the pins of its
own site), and a signature counts only if the card of that name has its key. The study in a folder proves nothing either, until
every party that it names for the result has signed a receipt of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blindbayes.crypto.signatures import is_of
from blindbayes.errors import ConfigError, DataError
from blindbayes.report.checksums import Verified, verify_files
from blindbayes.report.manifest import (
    CLAIMS,
    LEAKAGE,
    OWN,
    SEALS,
    STUDY,
    Manifest,
    read_manifest,
    require_key,
    verified_signatures,
)
from blindbayes.report.output_check import DISCLOSURE
from blindbayes.report.receipts import RECEIPTS, read_receipts

_WITHOUT_RESULT = OWN | SEALS | {STUDY, CLAIMS, DISCLOSURE, "statement.md"}  # files of a site that learned no result
_DISTRUST = "do not rely on this folder"


@dataclass(frozen=True, slots=True)
class NamedParties:
    """The parties, keys and roles that the study in a folder names. Nothing confirms them but signatures."""

    roster: str  # its hash
    identities: Mapping[str, bytes]  # party -> public key
    roles: Mapping[str, str]  # role -> the party that runs it; a contributor's role has its own name
    contributors: tuple[str, ...]
    quorum: int  # minimum number of contributors of a result
    learners: tuple[str, ...]  # parties that learn the result, and so can sign it
    classifies: bool = False  # runs may also end in a site's own classes


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome: who vouches for what in a release folder, by the reader's keys."""

    verified: Verified
    manifest: Manifest
    makers: tuple[str, ...]  # signed all files of the folder
    signed: tuple[str, ...]  # signed the manifest
    unknown: tuple[str, ...]  # signed, but the reader has no card of them: these signatures do not count
    missing: tuple[str, ...]  # learn the result and have not signed it with a key that the reader knows
    receipts: tuple[str, ...]  # signed, with a key that the reader knows, that they took part in this run
    no_receipt: tuple[str, ...]  # are named for the result and signed no such receipt
    left_out: tuple[str, ...]  # contributors of the study that are not in the result
    alone: tuple[str, ...]  # the makers, if the folder holds no result that others could sign
    files: Mapping[str, tuple[str, ...]]  # file -> who vouches for it

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Sentences about what the signatures leave open."""
        maker = ", ".join(self.makers)
        if self.alone:
            return (f"Nobody but {maker} vouches for anything here: the folder holds no result that others could have signed.",)
        own = ", ".join(sorted(OWN & set(self.files) - {RECEIPTS}))
        lines = [f"Only {maker} vouches for what {maker} received and what the run cost it ({own})."]
        if silent := [name for name in self.receipts if name not in self.signed]:
            lines.append(
                f"Only {', '.join(self.signed)} signed the result itself. {', '.join(silent)} signed a receipt of the run, and "
                "either did not learn the result or did not sign it."
            )
        return tuple(lines)


def verify_release(files: Mapping[str, bytes], named: NamedParties, keys: Mapping[str, bytes]) -> Verification:
    """Verify a release folder with the reader's own keys.

    `keys` are both public keys on each card. Raises `DataError` for anything that is wrong, or that nobody with a known key
    vouches for. Signatures and receipts that are only missing are left to the caller.
    """
    _require_keys(named, keys)
    verified, manifest = verify_files(files), read_manifest(files)
    makers = _makers(files, verified, named, keys)
    signatures = verified_signatures(files, manifest, {name: keys.get(name, own) for name, own in named.identities.items()})
    signed = tuple(name for name in signatures if name in keys)
    if manifest.learned and not set(makers) <= set(signed):
        raise DataError(f"{makers[0]} made this folder and did not sign the common files; ask for the release again")
    alone = _is_alone(files, verified, manifest, named)
    left_out = () if alone else _left_out(manifest, named)
    receipts, no_receipt = ((), ()) if alone else _receipts(files, manifest, named, keys, left_out)
    return Verification(
        verified,
        manifest,
        makers,
        signed,
        tuple(name for name in dict.fromkeys((*verified.signers, *signatures)) if name not in keys),
        () if alone else tuple(name for name in named.learners if name not in signed),
        receipts,
        no_receipt,
        left_out,
        makers if alone else (),
        {
            name: tuple(dict.fromkeys((*makers, *(signed if name in manifest.digests else ()))))
            for name in sorted(files)
            if name not in SEALS
        },
    )


def _require_keys(named: NamedParties, keys: Mapping[str, bytes]) -> None:
    """Raise unless the reader brought keys, and the study names the same ones."""
    if not keys:
        raise ConfigError(
            "no cards were given, and the keys in a folder prove nothing: pass the sites' cards with --card, or your "
            "site's folder with --config, whose pins count"
        )
    for name, identity in named.identities.items():
        if not is_of(keys.get(name, identity), identity):
            raise DataError(f"the study in the folder names another key for {name} than its card; {_DISTRUST}")


def _makers(files: Mapping[str, bytes], verified: Verified, named: NamedParties, keys: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the parties that signed the whole folder with a known key. Raises if nobody did."""
    for name, public in verified.signers.items():
        require_key(name, public, named.identities.get(name, b""))
        require_key(name, public, keys.get(name, public))
    if LEAKAGE not in files:
        raise DataError(f"{LEAKAGE} is missing: nobody says who learned what; ask for the release again")
    makers = tuple(name for name in verified.signers if name in keys)
    if not makers:
        made = ", ".join(verified.signers)
        raise DataError(f"{made} made this folder, and you brought no card of {made}: no party that you know vouches for it")
    return makers


def _is_alone(files: Mapping[str, bytes], verified: Verified, manifest: Manifest, named: NamedParties) -> bool:
    """Return True if the maker learned no result that others could sign. Raise if the folder holds a result all the same."""
    alone = set(named.learners).isdisjoint(verified.signers) or (named.classifies and not manifest.learned)
    allowed = _WITHOUT_RESULT if named.classifies else _WITHOUT_RESULT - {"classes.csv"}
    if alone and (others := sorted(set(files) - allowed)):
        made = ", ".join(verified.signers)
        raise DataError(f"{others[0]} is not a file that {made} can have of a run whose result it did not learn; {_DISTRUST}")
    return alone


def _left_out(manifest: Manifest, named: NamedParties) -> tuple[str, ...]:
    """Return the contributors that are not in the result; none for a run that opens no sum."""
    included = manifest.facts["included"]
    if included is None:
        return ()
    if not isinstance(included, list) or not all(name in named.contributors for name in included):
        raise DataError(f"the release names contributors that the study does not have; {_DISTRUST}")
    if len(set(map(str, included))) < named.quorum:
        raise DataError(f"the release names fewer contributors than the quorum of its study, {named.quorum}; {_DISTRUST}")
    return tuple(name for name in named.contributors if name not in included)


def _receipts(
    files: Mapping[str, bytes], manifest: Manifest, named: NamedParties, keys: Mapping[str, bytes], left_out: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the parties that signed a receipt for each of their roles in this run, and those that did not."""
    identities = {role: named.identities[party] for role, party in named.roles.items()}
    receipts = read_receipts(files.get(RECEIPTS, b"{}"), named.roster, str(manifest.facts["run"]), identities)
    for role, receipt in receipts.items():
        if receipt.left_out is not None and set(receipt.left_out) != set(left_out):
            raise DataError(f"the receipt of {role} is for a sum of other contributors than the release names; {_DISTRUST}")
    needed = {role: party for role, party in named.roles.items() if role not in left_out}
    silent = {party for role, party in needed.items() if role not in receipts or party not in keys}
    parties = tuple(dict.fromkeys(needed.values()))
    return tuple(name for name in parties if name not in silent), tuple(name for name in parties if name in silent)
