"""The difference rule. An exact sum over a set of sites is one linear equation in their vectors. If the equations of earlier
runs and of this one together determine one site's vector (or the change of one site's data), this run would open it. Who will
survive is not known beforehand, so every set that the quorum allows counts. Noisy sums are accounted by epsilon instead.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from blindbayes.codebook import Categorical
from blindbayes.errors import PrivacyError
from blindbayes.site.policy import Policy
from blindbayes.statistics import Statistics
from blindbayes.study.file import StudyFile

MAX_DISTINCT_SUMS = 14


@dataclass(frozen=True, slots=True)
class Data:
    """The state of this site's data, by keyed digests: within one codebook by all statistics, else by class counts and tables.

    A column that two codebooks declare differently has, as a rule, different tables: it counts as changed, since nobody
    can tell. Otherwise a slightly different codebook would be a way around the difference rule.
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


@dataclass(frozen=True, slots=True)
class PastSum:
    """An exact sum this site took part in: whose vectors, and which state of its own data."""

    included: frozenset[str]  # identities, hexadecimal
    data: Data
    certain: bool = True  # False: the set may have been any that the quorum allowed


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
        values = feature.values if isinstance(feature, Categorical) else None
        for at, label in enumerate(book.classes):
            cells: dict[str, int] = {}
            for kind in ("n", "sums", "squares"):
                if feature.name in named[kind]:
                    cells[kind] = named[kind][feature.name][at]
            for place, count in enumerate(named["counts"].get(feature.name, [()] * len(book.classes))[at]):
                cells[f"value {values[place] if values is not None and place < len(values) else place}"] = count
            found.setdefault(feature.name, {})[label] = {name: count for name, count in cells.items() if count}
    return found


def require_independent(policy: Policy, study: StudyFile, identity: str, data: Data, past: Sequence[PastSum]) -> None:
    """The difference rule for an exact sum, seen from the site with `identity`. Sums over other columns do not count."""
    past = [each for each in past if each.data.columns & data.columns]
    if study.privacy.epsilon is not None or not past:
        return
    if not policy.repeated_exact_sums and any(each.data.codebook == data.codebook for each in past):
        raise PrivacyError("this site takes part in one exact sum per codebook only")
    if not all(each.certain for each in past):
        raise PrivacyError("an earlier exact sum did not say whom it included; no further exact sum is safe")
    states: list[list[Data]] = []  # of my data, in the order they were first seen; alike with every one seen before
    numbers = []
    for state in [*(each.data for each in past), data]:
        alike = (at for at, known in enumerate(states) if all(each.is_same(state) for each in known))
        number = next(alike, len(states))
        if number == len(states):
            states.append([])
        states[number].append(state)
        numbers.append(number)
    if not policy.changed_data:
        equations = [_variables(each.included, identity, number) for each, number in zip(past, numbers, strict=False)]
        mine = _mine(identity, numbers[-1])
    else:  # changes of my data count as drowned in those of the others
        equations = [_variables(each.included, f"{identity} {number}", 0) for each, number in zip(past, numbers, strict=False)]
        mine = _mine(f"{identity} {numbers[-1]}", 0)
    others = {study.party(name).identity for name in study.contributors} - {identity}
    opened = opens_one(equations, others, mine, study.setting.fewest)
    if opened is not None:
        raise PrivacyError(
            "together with earlier sums this one could open a single site's statistics; "
            "run it with the same sites and a quorum of all of them, or with an epsilon"
        )


def _mine(identity: str, state: int) -> frozenset[str]:
    return frozenset(f"{identity} #{step}" for step in range(state + 1))


def _variables(included: frozenset[str], identity: str, state: int) -> frozenset[str]:
    base = identity.split(" ")[0]
    if base not in included:
        return included
    return (included - {base}) | _mine(identity, state)


def opens_one(equations: Sequence[frozenset[str]], others: Iterable[str], mine: frozenset[str], fewest: int) -> str | None:
    """A variable that some allowed sum, added to the equations, would determine; None if there is none.

    An allowed sum takes any of `others`, and all or none of `mine`, at least `fewest` sites. If it determines variable j and
    the equations do not, it lies in the span of the equations and e_j: a space of few dimensions, whose 0/1 vectors are
    enumerated by their pivots.
    """
    others = sorted(others)
    names = sorted({name for equation in equations for name in equation} | set(others) | mine)
    column = {name: at for at, name in enumerate(names)}
    vectors = [[Fraction(name in equation) for name in names] for equation in set(equations)]
    base = _echelon(vectors)
    if len(base) > MAX_DISTINCT_SUMS:
        return names[0]  # too many different sums to search: refuse
    free = {column[name] for name in others} | {column[name] for name in mine}
    for name in names:
        unit = [Fraction(other == name) for other in names]
        space = _echelon([*base, unit])
        if len(space) == len(base):
            return name  # determined already
        pivots = [next(at for at, value in enumerate(row) if value) for row in space]
        for bits in itertools.product((0, 1), repeat=len(space)):
            if any(bit and at not in free for bit, at in zip(bits, pivots, strict=True)):
                continue
            vector = [
                sum((row[at] for bit, row in zip(bits, space, strict=True) if bit), Fraction()) for at in range(len(names))
            ]
            if _is_allowed(vector, column, others, mine, free, fewest) and len(_echelon([*base, vector])) > len(base):
                return name
    return None


def _is_allowed(
    vector: Sequence[Fraction], column: dict[str, int], others: Sequence[str], mine: frozenset[str], free: set[int], fewest: int
) -> bool:
    if any(value not in (0, 1) or (value and at not in free) for at, value in enumerate(vector)):
        return False
    own = {vector[column[name]] for name in mine}
    if len(own) > 1:
        return False
    return sum(vector[column[name]] for name in others) + (own == {Fraction(1)}) >= fewest


def _echelon(rows: Iterable[Sequence[Fraction]]) -> list[list[Fraction]]:
    """Reduced row echelon form, without zero rows."""
    done: list[list[Fraction]] = []
    for row in rows:
        rest = list(row)
        for basis in done:
            pivot = next(at for at, value in enumerate(basis) if value)
            if rest[pivot]:
                factor = rest[pivot]
                rest = [a - factor * b for a, b in zip(rest, basis, strict=True)]
        lead = next((at for at, value in enumerate(rest) if value), None)
        if lead is None:
            continue
        scale = rest[lead]
        rest = [value / scale for value in rest]
        done = [[a - basis[lead] * b for a, b in zip(basis, rest, strict=True)] for basis in done]
        done.append(rest)
    return done
