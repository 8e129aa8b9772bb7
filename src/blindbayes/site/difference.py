"""The difference rule: an exact sum must not open, with earlier ones, what belongs to a single site.

It asks for every coalition of as many sites as the policy says, past and present ones: a member knows its own vector, so
{a,b,c} and then {a,b,d} tells d what c has. Who will survive is not known beforehand, so every set that the quorum allows
counts; and of an earlier run whose end is not known, every set that it allowed. Noisy sums are accounted by epsilon instead.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blindbayes.codebook import Text
from blindbayes.errors import PrivacyError
from blindbayes.site.determined import Finding, Question, TooManySums, find_determined
from blindbayes.site.policy import Policy
from blindbayes.statistics import Statistics
from blindbayes.study.file import StudyFile


@dataclass(frozen=True, slots=True)
class Data:
    """The state of this site's data, by keyed digests: within one codebook by all statistics, else by class counts and tables.

    A column that two codebooks declare differently has, as a rule, different tables: it counts as changed, since nobody
    can tell. The rule asks both what a change would tell and what it tells if nothing, or next to nothing, changed.
    """

    codebook: str
    columns: frozenset[str]
    statistics: str
    class_counts: str
    tables: Mapping[str, str] = field(default_factory=dict)  # per feature's column

    def is_same(self, other: Data) -> bool:
        """No change is seen between the two."""
        if self.codebook == other.codebook:
            return self.statistics == other.statistics
        common = self.tables.keys() & other.tables.keys()
        return self.class_counts == other.class_counts and all(self.tables[name] == other.tables[name] for name in common)

    def meets(self, other: Data) -> bool:
        """Whether both may be of the same rows: a column of one name or of one content, since a map or a view renames."""
        same = self.class_counts == other.class_counts or not set(self.tables.values()).isdisjoint(other.tables.values())
        return same or not self.columns.isdisjoint(other.columns)


@dataclass(frozen=True, slots=True)
class PastSum:
    """An exact sum this site took part in: whose vectors, and which state of its own data."""

    included: frozenset[str]  # identities, hexadecimal
    data: Data
    quorum_size: int | None = None  # if set: nobody knows which sites; at least so many of `included`, or none at all
    run: str = ""

    @property
    def fewest(self) -> int:
        """Of so many sites at least, if it was opened."""
        return len(self.included) if self.quorum_size is None else self.quorum_size


def data_state(key: bytes, statistics: Statistics) -> Data:
    """The state of the rows by digests that mean nothing without the site's key."""

    def digest(payload: bytes) -> str:
        return hashlib.blake2b(payload, key=key, digest_size=32, person=b"blindbayes data").hexdigest()

    book = statistics.codebook
    counts = {label: int(count) for label, count in zip(book.classes, statistics.class_counts, strict=True)}
    columns = frozenset((book.target, *book.names))
    by_class = digest(json.dumps(counts, sort_keys=True).encode())
    tables = {name: digest(json.dumps(table, sort_keys=True).encode()) for name, table in _tables(statistics).items()}
    return Data(book.sha256, columns, digest(statistics.words.tobytes()), by_class, tables)


def _tables(statistics: Statistics) -> dict[str, dict[str, Any]]:
    """Each feature's statistics by labels, without empty cells: the same for codebooks that differ elsewhere."""
    book, named = statistics.codebook, statistics.by_name()
    found: dict[str, dict[str, Any]] = {}
    for feature in book.features:
        values = getattr(feature, "words", None) if isinstance(feature, Text) else getattr(feature, "values", None)
        counts = named.get("words" if isinstance(feature, Text) else "counts", {}).get(feature.name)
        for at, label in enumerate(book.classes):
            cells: dict[str, int] = {}
            for kind in ("n", "sums", "squares"):
                if feature.name in named[kind]:
                    cells[kind] = named[kind][feature.name][at]
            for place, count in enumerate(() if counts is None else counts[at]):
                cells[f"value {values[place] if values else place}"] = count
            found.setdefault(feature.name, {})[label] = {name: count for name, count in cells.items() if count}
    return found


SMALL = 10  # contributors: a consortium in which two members may well be one interest
_MOST_HISTORIES = 1024


def colluders(policy: Policy, study: StudyFile) -> int:
    """How many sites the rule lets pool what they know, whether or not they are in this sum."""
    asked = policy.difference_colluders
    if asked is None:
        asked = 2 if len(study.setting.contributors) <= SMALL else 1
    return max(0, asked)


def require_independent(
    policy: Policy,
    study: StudyFile,
    identity: str,
    data: Data,
    past: Sequence[PastSum],
    *,
    names: Mapping[str, str] | None = None,
) -> None:
    """The difference rule for an exact sum, seen from the site with `identity`. Sums over other columns do not count."""
    past = [each for each in past if each.data.meets(data)]
    if study.privacy.epsilon is not None or not past:
        return
    if not policy.repeated_exact_sums and any(each.data.codebook == data.codebook for each in past):
        raise PrivacyError("this site takes part in one exact sum per codebook only")
    rule = _Rule(policy, study, identity, data, past)
    known = {identity: name for name, identity in study.roster.known.items()} | dict(names or {})
    try:
        found = rule.finding(study.setting.quorum_size)
    except TooManySums:
        raise PrivacyError(
            "the quorum allows more sets of sites than can be compared with the earlier sums; "
            f"run it with a quorum of all {len(study.contributors)} sites, or with an epsilon"
        ) from None
    if found is not None:
        raise PrivacyError(rule.words(found, known))


def require_unchanged(policy: Policy, data: Data, before: Data | None, *, gone: bool) -> None:
    """The rule for an exact sum of changes: the others may bring none, so that it is this site's alone."""
    if gone:  # whatever the policy says of changes
        raise PrivacyError(
            "an exact sum of changes would tell what this site takes back, its whole table. Run it with an epsilon, or leave "
            "the rows in earlier totals: `blindbayes site withdraw --undo`"
        )
    if before is None:
        raise PrivacyError(
            "an exact sum of changes could be all statistics of a site that is new in it. Run it with an epsilon, or without a "
            "base once several sites have joined"
        )
    if not policy.changed_data and not before.is_same(data):
        raise PrivacyError(
            "an exact sum of changes could be this site's alone, and its data changed. Run it with an epsilon, or allow it: "
            "changed_data under [policy] in site.toml"
        )


class _Rule:
    """What this site knows of earlier sums, as equations, and the new one."""

    def __init__(self, policy: Policy, study: StudyFile, identity: str, data: Data, past: Sequence[PastSum]) -> None:
        self._study, self._identity, self._past = study, identity, past
        self._colluders = colluders(policy, study)
        states: list[list[Data]] = []  # of my data, in the order they were first seen; alike with every one seen before
        numbers = []
        for state in [*(each.data for each in past), data]:
            alike = (at for at, known in enumerate(states) if all(each.is_same(state) for each in known))
            number = next(alike, len(states))
            if number == len(states):
                states.append([])
            states[number].append(state)
            numbers.append(number)
        # What my data were, by variables: one for all states, since a change may be a single row or another grid, and others
        # are then read up to that; and one more for each change, unless changes may be opened.
        still = [frozenset([f"{identity} #0"])] * len(numbers)
        grown = [frozenset(f"{identity} #{step}" for step in range(number + 1)) for number in numbers]
        self._mine = [still] if policy.changed_data or grown == still else [still, grown]

    def finding(self, quorum_size: int) -> Finding | None:
        """What some history that is possible, with some sum that the quorum allows, would open."""
        contributors = {self._study.party(name).identity for name in self._study.contributors}
        for mine in self._mine:
            adds = {site: frozenset([site]) for site in contributors - {self._identity}}
            if self._identity in contributors:
                adds[self._identity] = mine[-1]
            owned = {self._identity: frozenset(name for own in mine for name in own)}
            for history in self._histories(mine):
                found = find_determined(Question(history, adds, owned, quorum_size, self._colluders))
                if found is not None:
                    return found
        return None

    def _histories(self, mine_then: Sequence[frozenset[str]]) -> Iterator[list[frozenset[str]]]:
        """The earlier equations: one list, or one for every choice of the sets that nobody knows."""
        choices = []
        total = 1
        for each, mine in zip(self._past, mine_then, strict=False):
            sets = [each.included] if each.quorum_size is None else list(_allowed_sets(each.included, each.quorum_size))
            choices.append([(one - {self._identity}) | (mine if self._identity in one else frozenset()) for one in sets])
            total *= len(sets)
            if total > _MOST_HISTORIES:
                raise PrivacyError(
                    "too many earlier runs ended without saying whom they included: see `blindbayes site unsettled`, "
                    "or run it with an epsilon"
                )
        for chosen in itertools.product(*choices):
            yield [equation for equation in chosen if equation]

    def words(self, found: Finding, names: Mapping[str, str]) -> str:
        """What would happen, and what would have to change."""

        def name(site: str) -> str:
            return names.get(site, f"a site of an earlier sum ({site[:8]})")

        reader = " and ".join(name(site) for site in found.coalition) or "anybody"
        changed = found.site == self._identity and len(self._mine) > 1
        opened = f"a change in the data of {name(found.site)}" if changed else f"the statistics of {name(found.site)}"
        unsure = [each.run for each in self._past if each.quorum_size is not None]
        ways = []
        everybody = len(self._study.contributors)
        if self._study.setting.quorum_size < everybody and self._fits(everybody):
            ways.append(f"a quorum of all {everybody} sites")
        earlier = next((each.included for each in self._past if each.quorum_size is None), None)
        if earlier is not None and not ways:
            ways.append(f"exactly the sites of an earlier sum ({', '.join(sorted(map(name, earlier)))}) on unchanged data")
        if not changed:
            ways.append(f"{self._colluders + 2} sites or more that come or leave together")
        if unsure:
            ways.append(f"the end of run {unsure[0][:16]} settled (`blindbayes site unsettled`)")
        ways.append("an epsilon")
        return (
            f"with earlier sums this one could open a single site: {reader} could compute {opened}. "
            f"Run it with {', or with '.join(ways)}"
        )

    def _fits(self, quorum_size: int) -> bool:
        try:
            return self.finding(quorum_size) is None
        except TooManySums:
            return False


def _allowed_sets(sites: frozenset[str], quorum_size: int) -> Iterator[frozenset[str]]:
    """Every set that a run may have opened, and none."""
    yield frozenset()
    ordered = sorted(sites)
    chosen = (each for size in range(len(ordered), quorum_size - 1, -1) for each in itertools.combinations(ordered, size))
    for each in itertools.islice(chosen, _MOST_HISTORIES + 1):  # more are refused
        yield frozenset(each)
