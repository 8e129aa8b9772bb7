"""Which single site's vector would follow from sums, for a coalition that knows its own vectors.

An exact sum is one linear equation in the sites' vectors. A coalition C learns something of a site j alone if the row space of
the equations holds a vector that lies on C and j and nowhere else. So the question is whether a new equation s brings a vector
on at most `colluders` + 1 sites that was not there before: s is not in the row space W, and is in W + span(e_i, e_j, ...).
Where s itself lies on these few sites it is all that is new to them: so small a sum tells that without any other, and does
not count.

All of it happens in the quotient by W: every site has an image there (`_Space.images`), s is the sum of its members' images,
and the question is whether that sum is a combination of few images. Arithmetic is modulo two random primes of 31 bits; a wrong
"no" takes a minor that both divide (a chance below 2^-40 for hundreds of sums over hundreds of sites). Images are projected to
a few random dimensions first, which keeps every combination of few of them, up to a chance of that order.

Who survives a run with a quorum is not known beforehand. Sites that were always in the same sums are alike, so a survivor set
that matters takes all or none of such a class, but for the few sites that it is about: sets of classes are searched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blindbayes.primitives.coins import Coins

MAX_SEARCH = 1 << 25  # sets of classes, times combinations of sites
_SPARE = 3  # dimensions beyond those of the sites in question: chance of a false "yes" 2^-90
Numbers = npt.NDArray[np.int64]


class TooManySums(Exception):
    """The survivor sets that a quorum allows are too many to search."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Together with what `coalition` knows of itself, the sum over `included` would open something of `site` alone."""

    site: str
    coalition: tuple[str, ...]
    included: frozenset[str]


@dataclass(frozen=True, slots=True)
class Question:
    """Equations known, by variables; what each contributor of the new sum would add; whose variables are whose."""

    equations: Sequence[frozenset[str]]
    contributors: Mapping[str, frozenset[str]]  # site -> its variables in the new sum
    owned: Mapping[str, frozenset[str]]  # site -> all its variables, for sites with more than one; others own their name
    quorum_size: int
    colluders: int


def find_determined(question: Question) -> Finding | None:
    """The first finding, or None. Raises `TooManySums` if the quorum allows more sets than can be searched."""
    coins = Coins.system()
    # Fewer sites are among these, unless the others would bring the whole sum among them, which does not count.
    least = question.colluders if question.quorum_size > question.colluders + 1 else 0
    for prime, colluders in itertools.product(_primes(coins), range(question.colluders, least - 1, -1)):
        found = _search(replace(question, colluders=colluders), prime, coins)
        if found is not None:
            return found
    return None


def _search(question: Question, prime: int, coins: Coins) -> Finding | None:
    sites = sorted(
        {*question.contributors, *question.owned}
        | ({name for row in question.equations for name in row} - {v for own in question.owned.values() for v in own})
    )
    owned = {site: sorted(question.owned.get(site, {site}) | question.contributors.get(site, frozenset())) for site in sites}
    variables = [name for site in sites for name in owned[site]]
    column = {name: at for at, name in enumerate(variables)}
    space = _Space(len(variables), prime)
    for equation in set(question.equations):
        row = np.zeros(len(variables), dtype=np.int64)
        row[[column[name] for name in equation]] = 1
        space.add(row)
    widest = sum(sorted((len(owned[site]) for site in sites), reverse=True)[: question.colluders + 1])
    images = space.images(widest + _SPARE, coins)
    groups = {site: images[[column[name] for name in owned[site]]] for site in sites}
    adds = {site: images[[column[name] for name in own]].sum(axis=0) % prime for site, own in question.contributors.items()}
    return _Search(question, sites, groups, adds, prime).run()


class _Search:
    """The search in the quotient: images of sites, and of what each contributor adds."""

    def __init__(
        self, question: Question, sites: Sequence[str], groups: Mapping[str, Numbers], adds: Mapping[str, Numbers], prime: int
    ) -> None:
        self._question, self._sites, self._groups, self._adds, self._prime = question, sites, groups, adds, prime
        self._all = question.quorum_size >= len(question.contributors)
        patterns: dict[tuple[object, ...], list[str]] = {}
        for site in sites:
            if site in question.owned or self._all:
                pattern: tuple[object, ...] = (site,)
            else:
                member = tuple(site in equation for equation in question.equations)
                pattern = (site in question.contributors, *member)
            patterns.setdefault(pattern, []).append(site)
        self._classes = list(patterns.values())
        self._class_of = {site: at for at, members in enumerate(self._classes) for site in members}
        self._inside = [at for at, members in enumerate(self._classes) if members[0] in question.contributors]

    def run(self) -> Finding | None:
        taken, sums, sizes = self._candidates()
        if not len(sums):
            return None
        flat = [site for site in self._sites if len(self._groups[site]) == 1]
        for outer in self._outer():
            last = [site for site in self._distinct(outer, flat) if site not in outer]
            left, right = self._reduced(outer, sums, [self._groups[site][0] for site in last])
            alone = ~left.any(axis=1)
            for which in np.flatnonzero(alone):
                found = self._toggled((*outer,), taken[which], sums[which], int(sizes[which]))
                if found is not None:
                    return found
            if self._all:
                last, right = self._hit(left[0], last, right)
            for at, site in enumerate(last):
                for which in np.flatnonzero(_parallel(left, right[at], self._prime) | (alone if not self._all else False)):
                    found = self._toggled((*outer, site), taken[which], sums[which], int(sizes[which]))
                    if found is not None:
                        return found
        return None

    def _hit(self, total: Numbers, last: Sequence[str], right: Numbers) -> tuple[list[str], Numbers]:
        """The sites whose image is a multiple of the one sum in question."""
        hit = np.flatnonzero(_parallel(right, total, self._prime))
        return [last[int(at)] for at in hit], right[hit]

    def _outer(self) -> Iterator[tuple[str, ...]]:
        """All but the last site of every combination that matters; sites of one class stand for each other."""
        size = min(self._question.colluders, len(self._sites))
        for chosen in itertools.combinations_with_replacement(range(len(self._classes)), size):
            if all(chosen.count(at) <= len(self._classes[at]) for at in set(chosen)):
                yield tuple(self._classes[at][chosen[:number].count(at)] for number, at in enumerate(chosen))
        if size == 0:
            yield from ((site,) for site in self._sites if len(self._groups[site]) > 1)

    def _distinct(self, outer: tuple[str, ...], flat: Sequence[str]) -> list[str]:
        """One site per class that is not in `outer` yet, of those with one variable."""
        seen: dict[int, str] = {}
        for site in flat:
            if site not in outer:
                seen.setdefault(self._class_of[site], site)
        return list(seen.values())

    def _candidates(self) -> tuple[Numbers, Numbers, Numbers]:
        """Which classes, the image of their sum, and how many sites: for every set of classes that can matter."""
        question, prime = self._question, self._prime
        inside = self._inside
        if self._all:
            taken = np.ones((1, len(inside)), dtype=np.int64)
        else:
            if (1 << len(inside)) * len(self._classes) ** (question.colluders + 1) > MAX_SEARCH:
                raise TooManySums
            numbers = np.arange(1 << len(inside), dtype=np.int64)
            taken = (numbers[:, None] >> np.arange(len(inside))) & 1
        images = np.array(
            [np.sum([self._adds[site] for site in self._classes[at]], axis=0) % prime for at in inside], dtype=np.int64
        )
        sizes = taken @ np.array([len(self._classes[at]) for at in inside], dtype=np.int64)
        keep = sizes + (0 if self._all else question.colluders + 1) >= question.quorum_size
        taken, sizes = taken[keep], sizes[keep]
        return taken, (taken @ images) % prime, sizes

    def _toggled(self, sites: tuple[str, ...], taken: Numbers, total: Numbers, size: int) -> Finding | None:
        """The sites in question may or may not be among the survivors themselves."""
        question, prime = self._question, self._prime
        mine = [site for site in sites if site in question.contributors]
        classes = {at: bool(bit) for at, bit in zip(self._inside, taken, strict=True)}
        patterns = itertools.product((False, True), repeat=len(mine)) if not self._all else iter([(True,) * len(mine)])
        for pattern in patterns:
            image, count = total.copy(), size
            for site, is_in in zip(mine, pattern, strict=True):
                step = int(is_in) - int(classes[self._class_of[site]])
                image, count = (image + step * self._adds[site]) % prime, count + step
            if count < question.quorum_size or not image.any():
                continue
            base = {site for at, bit in classes.items() if bit for site in self._classes[at]}
            chosen = dict(zip(mine, pattern, strict=True))
            included = frozenset(site for site in question.contributors if chosen.get(site, site in base))
            if not included.issubset(sites):
                return self._named(sites, included)
        return None

    def _named(self, sites: tuple[str, ...], included: frozenset[str]) -> Finding:
        """Say it of the site that did not join yet, or left: the one that people will ask about."""
        ranked = sorted(sites, key=lambda site: (site in included, site))
        return Finding(ranked[0], tuple(sorted(ranked[1:])), included)

    def _reduced(self, outer: tuple[str, ...], sums: Numbers, others: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
        """Sums and images of the others modulo the images of `outer`."""
        prime, width = self._prime, sums.shape[1]
        basis = _Space(width, prime)
        for site in outer:
            for row in self._groups[site]:
                basis.add(row)
        right = np.array(others, dtype=np.int64).reshape(len(others), width)
        return basis.reduce(sums), basis.reduce(right)


class _Space:
    """A row space modulo a prime, in reduced echelon form; grows by one vector at a time."""

    def __init__(self, width: int, prime: int) -> None:
        self._width, self._prime = width, prime
        self._rows = np.zeros((0, width), dtype=np.int64)
        self._pivots: list[int] = []

    def reduce(self, vectors: Numbers) -> Numbers:
        """Representatives modulo the space: zero at its pivots."""
        found = vectors % self._prime
        for at, pivot in enumerate(self._pivots):
            found = (found - found[:, pivot, None] * self._rows[at]) % self._prime
        return found

    def add(self, vector: Numbers) -> bool:
        """Take one more vector in; whether it was new."""
        prime = self._prime
        rest = self.reduce(vector[None, :])[0]
        nonzero = np.flatnonzero(rest)
        if not len(nonzero):
            return False
        pivot = int(nonzero[0])
        rest = rest * pow(int(rest[pivot]), -1, prime) % prime
        self._rows = (self._rows - self._rows[:, pivot, None] * rest) % prime
        self._rows = np.vstack([self._rows, rest])
        self._pivots.append(pivot)
        return True

    def images(self, dimensions: int, coins: Coins) -> Numbers:
        """The image of every unit vector in the quotient, projected to a few random dimensions."""
        prime, free = self._prime, [at for at in range(self._width) if at not in set(self._pivots)]
        raw = np.frombuffer(coins.bytes(8 * max(1, len(free)) * dimensions), dtype="<u8")
        matrix = (raw % np.uint64(prime)).astype(np.int64).reshape(max(1, len(free)), dimensions)
        found = np.zeros((self._width, dimensions), dtype=np.int64)
        found[free] = matrix[: len(free)]
        for row, pivot in zip(self._rows, self._pivots, strict=True):
            image = np.zeros(dimensions, dtype=np.int64)
            for at, place in enumerate(free):
                if row[place]:
                    image = (image - int(row[place]) * matrix[at]) % prime
            found[pivot] = image
        return found


def _parallel(vectors: Numbers, other: Numbers, prime: int) -> npt.NDArray[np.bool_]:
    """Which vectors are multiples, not zero, of another one."""
    nonzero = np.flatnonzero(other)
    if not len(nonzero):
        return np.zeros(len(vectors), dtype=bool)
    pivot = int(nonzero[0])
    scale = vectors[:, pivot] * pow(int(other[pivot]), -1, prime) % prime
    result: npt.NDArray[np.bool_] = (scale != 0) & ~((vectors - scale[:, None] * other) % prime).any(axis=1)
    return result


def _primes(coins: Coins) -> tuple[int, int]:
    """Two random primes of 31 bits."""
    found: list[int] = []
    while len(found) < 2:
        number = 2**30 + coins.bits(30) | 1
        if number not in found and _is_prime(number):
            found.append(number)
    return found[0], found[1]


def _is_prime(number: int) -> bool:
    """Miller-Rabin; these bases decide every odd number below 3,215,031,751."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7):
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True
