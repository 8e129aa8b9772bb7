"""Versions that two sites must share before either computes or pays: exchanged and compared in `confirm`.

Raise a number when what it stands for changes so that an older release could not follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from blindbayes import __version__
from blindbayes.wire import VERSION as WIRE

ENVELOPE = 3
LINK = 1
JOURNAL = 1
NOISE = 2  # what the parties of a sum add to it: shares of one law rely on the others to add theirs
PROTOCOLS = 2  # messages and roles of any protocol
VERSIONS: Mapping[str, str] = {
    "blindbayes": __version__,
    "envelope": str(ENVELOPE),
    "journal": str(JOURNAL),
    "link": str(LINK),
    "noise": str(NOISE),
    "protocols": str(PROTOCOLS),
    "wire": str(WIRE),
}
_TEXT = re.compile(r"[A-Za-z0-9.+_-]{1,24}")
_OWN = {"blindbayes", "journal"}  # for people to read; sites need not have the same


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """Return why a peer with these versions cannot take part, or None if it can."""
    own, other = mine["blindbayes"], theirs.get("blindbayes", "of a release that sends no versions")
    for name in sorted(set(mine) - _OWN):
        if theirs.get(name) != mine[name]:
            return (
                f"runs blindbayes {other} with {name} version {theirs.get(name, 'none')}; this site runs {own} with "
                f"{mine[name]}: use one release at all sites"
            )
    return None


def are_versions(versions: Mapping[str, str]) -> bool:
    """Return True if a peer's versions are a few short strings."""
    return len(versions) <= 16 and all(_TEXT.fullmatch(text) for each in versions.items() for text in each)
