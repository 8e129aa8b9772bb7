"""Who vouches for which file of a release folder, by keys that the reader brings.

The keys in a folder are the folder's own word: whoever forges one puts keys of its own into it. So a reader brings the cards
of the sites (or the pins of its own site), and a signature counts only if the card of that name has its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blindbayes.errors import ConfigError, DataError
from blindbayes.report.checksums import Verified, verify_files
from blindbayes.report.common import CLAIMS, LEAKAGE, OWN, SEALS, STUDY, Common, common_of, signatures_of

_ALONE = OWN | SEALS | {STUDY, CLAIMS, "statement.md"}  # all that a site has to tell that learned no result


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a release folder is worth to whoever brought these keys."""

    verified: Verified
    common: Common
    makers: tuple[str, ...]  # who signed all of the folder's files
    signed: tuple[str, ...]  # who signed what is common to all
    strangers: tuple[str, ...]  # parties that signed and whose card was not brought: their signatures count for nothing
    missing: tuple[str, ...]  # parties that learned the result and have not signed, or are strangers
    alone: tuple[str, ...]  # the makers, if the folder holds no result that others could sign: all stands on their word
    files: Mapping[str, tuple[str, ...]]  # file -> who vouches for it

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the signatures leave open, one sentence each."""
        maker = ", ".join(self.makers)
        if self.alone:
            return (f"Nobody but {maker} vouches for anything here: the folder holds no result that others could have signed.",)
        return (f"What {maker} received and what the run cost it ({', '.join(sorted(OWN & set(self.files)))}): {maker} alone.",)


def vouched(
    files: Mapping[str, bytes],
    identities: Mapping[str, bytes],
    learners: Sequence[str],
    keys: Mapping[str, bytes],
    *,
    classifies: bool = False,
) -> Vouched:
    """Check a release folder. `identities` are the keys that its study names, `keys` the reader's own.

    `learners` are the parties that learn the result and so can sign it, `classifies` says whether runs may also end in a site's
    own classes: both by the study, which all signed. What run.json says of it is the maker's word. Raises `DataError` for
    anything that is wrong, or that nobody with a key of the reader's vouches for. Signatures that are only missing are left to
    the caller.
    """
    if not keys:
        raise ConfigError(
            "whose signatures count? The keys in a folder are its own word: name the sites' cards with --card, or your site's "
            "folder with --config, whose pins count"
        )
    for name, identity in identities.items():
        if name in keys and keys[name] != identity:
            raise DataError(f"the study in the folder names another key for {name} than its card; do not rely on this folder")
    verified, common = verify_files(files), common_of(files)
    for name, identity in verified.signers.items():
        if identities.get(name) != identity:
            raise DataError(f"{name} signed with a key that the study does not name for it; do not rely on this folder")
    if LEAKAGE not in files:
        raise DataError(f"{LEAKAGE} is missing: nobody says who learned what; ask for the release again")
    makers = tuple(name for name in verified.signers if name in keys)
    if not makers:
        made = ", ".join(verified.signers)
        raise DataError(f"{made} made this folder, and you brought no card of {made}: nobody whom you know vouches for it")
    everyone = signatures_of(files, common, identities)
    signed = tuple(name for name in everyone if name in keys)
    if common.learned and not set(makers) <= set(signed):
        raise DataError(f"{makers[0]} made this folder and did not sign what is common to all; ask for the release again")
    alone = set(learners).isdisjoint(verified.signers) or (classifies and not common.learned)
    if alone and (others := sorted(set(files) - (_ALONE if classifies else _ALONE - {"classes.csv"}))):
        made = ", ".join(verified.signers)
        raise DataError(
            f"{others[0]} is no file that {made} can have of a run whose result it did not learn; do not rely on it"
        )
    by_file = {
        name: tuple(dict.fromkeys((*makers, *(signed if name in common.digests else ()))))
        for name in sorted(files)
        if name not in SEALS
    }
    return Vouched(
        verified,
        common,
        makers,
        signed,
        tuple(name for name in dict.fromkeys((*verified.signers, *everyone)) if name not in keys),
        () if alone else tuple(name for name in learners if name not in signed),
        makers if alone else (),
        by_file,
    )
