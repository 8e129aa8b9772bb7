"""A floor under the cells of an exact sum: which cells are opened, decided from tests that each reveal one bit.

The table is a tree of *margins*: the number of all rows is the sum of the class counts, and the count of a class is the sum of
each feature's cells in it, its missing values included. `open_table` is the rule as a generator. It asks whether linear
combinations of cells lie in public intervals (`Ask`) and reveals others (`Reveal`), so that a protocol on shares, a test in
clear and a reader of the published answers run the same code. `protocols/floored_sum/SPEC.md` has the proof.

A margin of m cells with a total of at least m k is opened so:

1. Each cell is asked whether it is *small*, below k. Without small cells everything is opened.
2. If the p small cells add up to 0, they are opened as zeros.
3. Otherwise they stay suppressed together with other cells, in the public order, until the pool of them adds up to more than
   p (k - 1) + q k, where q is the number of the others. Then every assignment of 0 to k - 1 to the small cells, but for all
   zeros, agrees with everything that was asked or revealed.

A margin whose total is smaller is first joined to blocks of neighbouring cells, as many as the total is multiples of k.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Feature, Numeric
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.statistics.layout import Layout
from blindbayes.statistics.statistics import Statistics

MIN_FLOOR = 3
"""Below 3, "suppressed and not 0" would mean 1."""

_SOLVED = 3
"""Cells of a number that its moments determine."""

SUPPRESSED = "suppressed"
U64Array = npt.NDArray[np.uint64]


class Combination(NamedTuple):
    """A sum of words of the vector, less others."""

    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()


class Ask(NamedTuple):
    """Is each combination between its low and its high? The answer is an array of truth values."""

    sums: list[Combination]
    low: list[int]
    high: list[int]


class Reveal(NamedTuple):
    """Open the values of combinations. The answer is an array of words."""

    sums: list[Combination]


Answer: TypeAlias = npt.NDArray[Any]
Rule: TypeAlias = Generator[Ask | Reveal, Answer, "FlooredTable"]


def values_of(sums: Sequence[Combination], words: U64Array) -> U64Array:
    """Return the combinations of a vector, modulo 2^64. Each adds at least one word."""
    plus, minus = ([part for each in sums for part in each[side]] for side in (0, 1))
    starts = list(itertools.accumulate([len(each.plus) for each in sums], initial=0))[:-1]
    values = np.add.reduceat(words[plus], starts)
    if minus:
        to = np.repeat(np.arange(len(sums)), [len(each.minus) for each in sums])
        np.subtract.at(values, to, words[minus])
    return values


def total_of(sums: Sequence[Combination]) -> Combination:
    return Combination(tuple(at for each in sums for at in each.plus), tuple(at for each in sums for at in each.minus))


# -- one margin ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Margin:
    """A public total and the blocks of cells that add up to it."""

    total: int
    cells: list[tuple[int, ...]]  # the positions in each block, in the margin's own order
    sums: list[Combination] = field(repr=False)  # of each block
    first: int | None = None  # the block that is taken first into a pool: missing values, which no model uses
    small: list[int] = field(default_factory=list)  # blocks below the floor
    pool: list[int] = field(default_factory=list)  # suppressed blocks: small ones, and others that protect them
    values: dict[int, int] = field(default_factory=dict)  # by block, of those that are opened

    @classmethod
    def make(cls, total: int, sums: Sequence[Combination], floor: int, *, missing: bool = False) -> Margin:
        """Join neighbouring cells so that the total is at least `floor` times the number of blocks."""
        size, count = len(sums), max(1, min(len(sums), total // floor))
        if count == size:
            return cls(total, [(at,) for at in range(size)], list(sums), size - 1 if missing else None)
        cells = [tuple(range(at * size // count, (at + 1) * size // count)) for at in range(count)]
        joined = [total_of([sums[at] for at in block]) for block in cells]
        return cls(total, cells, joined, len(cells) - 1 if missing else None)

    @property
    def complements(self) -> list[int]:
        """The blocks that are not small, in the order in which a pool takes them."""
        others = [at for at in range(len(self.cells)) if at not in self.small]
        return sorted(others, key=lambda at: (at != self.first, at))

    @property
    def pool_total(self) -> int:
        return self.total - sum(self.values.values())

    @property
    def is_open(self) -> bool:
        """True if the value of every cell is known."""
        return not self.pool and all(len(block) == 1 or self.values.get(at) == 0 for at, block in enumerate(self.cells))


def _open_margins(margins: Sequence[Margin], floor: int) -> Generator[Ask | Reveal, Answer, None]:
    """Decide which cells of the margins are opened, from their totals. Steps as in the module's docstring."""
    tested = [each for each in margins if len(each.cells) > 1]
    for each in margins:
        if len(each.cells) == 1:
            each.values[0] = each.total
    asked = [sum_ for each in tested for sum_ in each.sums]
    bits = iter((yield Ask(asked, [0] * len(asked), [floor - 1] * len(asked))) if asked else ())
    for each in tested:
        each.small = [at for at in range(len(each.cells)) if next(bits)]
    mixed = [each for each in tested if each.small]
    if mixed:
        zero = yield Ask([total_of([each.sums[at] for at in each.small]) for each in mixed], [0] * len(mixed), [0] * len(mixed))
        for each, is_zero in zip(mixed, zero, strict=True):
            if is_zero:
                each.values = dict.fromkeys(each.small, 0)
                each.small = []
            else:
                each.pool = list(each.small)
    yield from _add_complements([each for each in mixed if each.pool], floor)
    shown = [(each, at) for each in tested for at in range(len(each.cells)) if not (at in each.values or at in each.pool)]
    if shown:
        opened = yield Reveal([each.sums[at] for each, at in shown])
        for (each, at), value in zip(shown, opened.tolist(), strict=True):
            each.values[at] = value
    for each in tested:
        if min(each.values.values(), default=0) < 0 or each.pool_total < 0 or (each.pool_total and not each.pool):
            raise DataError("the opened cells do not add up to their total: a party sent an invalid vector")


def _add_complements(pending: list[Margin], floor: int) -> Generator[Ask | Reveal, Answer, None]:
    """Step 3. Asking stops for all margins at once, so that the number of rounds is that of the longest pool."""
    while pending:
        for each in pending:
            if len(each.pool) == len(each.cells):
                raise DataError("every cell is small, and their total is not: a party sent an invalid vector or answer")
            each.pool.append(each.complements[len(each.pool) - len(each.small)])
        # The whole margin is large enough by its total, which nobody needs to ask.
        pending = [each for each in pending if len(each.pool) < len(each.cells)]
        if not pending:
            return
        low = [(len(each.pool) - len(each.small)) * floor + 1 for each in pending]
        high = [at - 1 + len(each.small) * (floor - 1) for at, each in zip(low, pending, strict=True)]
        is_short = yield Ask([total_of([each.sums[at] for at in each.pool]) for each in pending], low, high)
        pending = [each for each, short in zip(pending, is_short, strict=True) if short]


# -- the table -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlooredTable:
    """A table as far as a floor lets it be opened."""

    layout: Layout
    floor: int
    classes: Margin
    groups: tuple[tuple[int, ...], ...]  # classes whose cells are opened together: one, or those of a block or pool
    rows: tuple[int, ...]  # of each group
    margins: dict[tuple[int, str], Margin]  # of each group and feature with cells or missing values
    moments: dict[tuple[int, str], tuple[int, int]]  # sum and sum of squares, where the number of values is opened

    @property
    def total(self) -> int:
        return self.classes.total

    def group_of(self, label: int) -> int:
        return next(at for at, group in enumerate(self.groups) if label in group)

    @cached_property
    def cells(self) -> list[dict[str, str | int]]:
        """Every cell of the table with its value, or `suppressed`; a joined cell names all its classes and values."""
        book, lines = self.layout.codebook, []
        for at, block in enumerate(self.classes.cells):
            value = self.classes.values.get(at, SUPPRESSED)
            lines.append(_line("class_count", "", "", [book.classes[each] for each in block], value))
        for (group, name), margin in self.margins.items():
            labels, feature = [book.classes[each] for each in self.groups[group]], book.feature(name)
            names = _cell_names(feature)
            kind = "n" if self.layout.find("count", name) is None else "count"
            for at, block in enumerate(margin.cells):
                text = " or ".join(names[each] for each in block)
                lines.append(_line(kind, name, text, labels, margin.values.get(at, SUPPRESSED)))
        for group, labels_of in enumerate(self.groups):
            labels = [book.classes[each] for each in labels_of]
            for name in _moment_names(self.layout):
                opened = self.moments.get((group, name))
                for place, kind in enumerate(("sum", "square")):
                    lines.append(_line(kind, name, "", labels, SUPPRESSED if opened is None else opened[place]))
        return lines

    @cached_property
    def suppressed(self) -> int:
        """The number of cells that are not opened."""
        return sum(line["count"] == SUPPRESSED for line in self.cells)


def _line(kind: str, feature: str, value: str, labels: Sequence[str], count: str | int) -> dict[str, str | int]:
    return {"kind": kind, "feature": feature, "value": value, "class": " or ".join(labels), "count": count}


def _cell_names(feature: Feature) -> list[str]:
    if isinstance(feature, Categorical):
        names = list(feature.values)
    else:
        bins = feature.bins if isinstance(feature, Numeric) else None
        names = ["present"] if bins is None else [str(at) for at in range(bins)]
    return [*names, "missing"] if feature.optional else names


def _moment_names(layout: Layout) -> list[str]:
    return [group.feature.name for group in layout.groups if group.kind == "sum" and group.feature is not None]


def require_floor(layout: Layout, floor: int) -> None:
    """Raise for a floor or a codebook that `open_table` does not protect."""
    if floor < MIN_FLOOR:
        raise ConfigError(
            f"min_cell of an exact sum is at least {MIN_FLOOR}: below, a suppressed count that is not 0 would be 1"
        )
    if layout.codebook.texts:
        raise ConfigError("an exact sum of word counts has no floor: nearly every word is rare; leave text out, or set epsilon")
    for each in layout.codebook.features:
        # Number, sum and sum of squares are three equations: with three unknown cells they have one solution.
        if isinstance(each, Numeric) and each.bins is None and each.width <= _SOLVED:
            raise ConfigError(
                f"feature {each.name!r} has {each.width} possible numbers, so that exact sums show how many rows have each: "
                "with min_cell make it categorical, or give it bins"
            )


def open_table(layout: Layout, floor: int) -> Rule:
    """Open what a floor allows of a vector of this layout: the rule, as a generator of questions."""
    require_floor(layout, floor)
    places = _places(layout)
    counts = [Combination((places.one("class_count", None, label, 0),)) for label in range(places.classes)]
    everybody = total_of(counts)
    if (yield Ask([everybody], [0], [2 * floor - 1]))[0]:
        raise PrivacyError(f"all sites together have fewer than {2 * floor} rows, twice min_cell: nothing is opened")
    (total,) = (yield Reveal([everybody])).tolist()
    if total > layout.codebook.max_rows:
        raise DataError("more rows than the codebook's max_rows: a party sent an invalid vector, or max_rows is too small")
    classes = Margin.make(total, counts, floor)
    yield from _open_margins([classes], floor)
    joined = [at for at in range(len(classes.cells)) if at not in classes.pool]
    groups = [classes.cells[at] for at in joined]
    rows = [classes.values[at] for at in joined]
    if classes.pool:
        groups.append(tuple(sorted(each for at in classes.pool for each in classes.cells[at])))
        rows.append(classes.pool_total)
    margins = {
        (at, feature.name): Margin.make(rows[at], places.margin(feature, group), floor, missing=feature.optional)
        for at, group in enumerate(groups)
        for feature in layout.codebook.features
        if len(_cell_names(feature)) > 1
    }
    yield from _open_margins(list(margins.values()), floor)
    shown = [
        (at, name)
        for at, _ in enumerate(groups)
        for name in _moment_names(layout)
        if (at, name) not in margins or margins[at, name].is_open
    ]
    moments: dict[tuple[int, str], tuple[int, int]] = {}
    if shown:
        wanted = [places.moment(kind, name, groups[at]) for at, name in shown for kind in ("sum", "square")]
        words = iter((yield Reveal([each for sums in wanted for each in sums])))
        numbers = iter([_number([next(words) for _ in sums]) for sums in wanted])
        moments = {each: (next(numbers), next(numbers)) for each in shown}
    return FlooredTable(layout, floor, classes, tuple(groups), tuple(rows), margins, moments)


class _Places:
    """The places of cells among the words of a vector."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.classes = layout, len(layout.codebook.classes)
        self.words = layout.places
        self._margins: dict[tuple[str, tuple[int, ...]], list[Combination]] = {}

    def one(self, kind: Any, name: str | None, label: int, column: int) -> int:
        group = self.layout.require(kind, name)
        return self.words[group.start + label * group.columns + column][0]

    def margin(self, feature: Feature, labels: tuple[int, ...]) -> list[Combination]:
        """Return the cells of a feature in some classes together, with the missing values at the end."""
        key = feature.name, labels
        if key not in self._margins:
            self._margins[key] = self._margin(feature, labels)
        return self._margins[key]

    def _margin(self, feature: Feature, labels: tuple[int, ...]) -> list[Combination]:
        kind = "count" if self.layout.find("count", feature.name) is not None else "n"
        group = self.layout.require(kind, feature.name)  # type: ignore[arg-type]
        starts = [group.start + each * group.columns for each in labels]
        present = [Combination(tuple([self.words[at + start][0] for start in starts])) for at in range(group.columns)]
        if not feature.optional:
            return present
        rows = tuple(self.one("class_count", None, each, 0) for each in labels)
        return [*present, Combination(rows, tuple(at for each in present for at in each.plus))]

    def moment(self, kind: Any, name: str, labels: Sequence[int]) -> list[Combination]:
        """Return the words of a sum over some classes."""
        group = self.layout.require(kind, name)
        words = [self.words[group.start + each * group.columns] for each in labels]
        return [Combination(limb) for limb in zip(*words, strict=True)]


@lru_cache(maxsize=4)
def _places(layout: Layout) -> _Places:
    return _Places(layout)


def _number(words: Sequence[np.uint64]) -> int:
    """Return the signed number of one word, or of limbs as `Layout.from_words` reads them."""
    signed = np.array(words, dtype=np.uint64).view(np.int64).tolist()
    if len(signed) == 1:
        return int(signed[0])
    size = 32 * len(signed)
    value = sum(limb << (32 * at) for at, limb in enumerate(signed)) % (1 << size)
    return int(value - (1 << size) if value >= 1 << (size - 1) else value)


# -- training ------------------------------------------------------------------------------------------------------------


def impute(table: FlooredTable) -> Statistics:
    """Return statistics for training, in which suppressed cells have values that the opened ones allow.

    A small cell counts half the floor, and the cells that share its pool divide the rest; cells of a block are alike. A feature
    of which nothing is opened in a group has the distribution of the other groups, so that it says nothing about the class.
    """
    layout, book = table.layout, table.layout.codebook
    vector = np.zeros(layout.size, dtype=object)
    labels = _imputed_cells(table.classes, table.floor)

    def put(kind: Any, name: str | None, label: int, numbers: Sequence[int]) -> None:
        group = layout.find(kind, name)
        if group is not None:
            start = group.start + label * group.columns
            vector[start : start + len(numbers)] = numbers

    for label, rows in enumerate(labels):
        put("class_count", None, label, [rows])
    for feature in book.features:
        own = {at: _imputed_cells(margin, table.floor) for (at, name), margin in table.margins.items() if name == feature.name}
        known = [cells for at, cells in own.items() if len(table.margins[at, feature.name].cells) > 1]
        sums = [sum(column) for column in zip(*known, strict=True)] if known else None
        opened = [(*table.moments[at, feature.name], own.get(at, [table.rows[at]])[0]) for at in _opened(table, feature.name)]
        for label, rows in enumerate(labels):
            at = table.group_of(label)
            cells = own.get(at, [table.rows[at]])
            if sums is not None and at in own and len(table.margins[at, feature.name].cells) == 1:
                cells = sums
            cells = _apportion(rows, cells)
            if layout.find("count", feature.name) is not None:
                put("count", feature.name, label, cells[: layout.require("count", feature.name).columns])
                continue
            put("n", feature.name, label, cells[:1])
            total, squares, values = _usual_moments(feature, opened)
            if (at, feature.name) in table.moments:
                total, squares = table.moments[at, feature.name]
                values = own.get(at, [table.rows[at]])[0]
            put("sum", feature.name, label, [total * cells[0] // max(values, 1)])
            put("square", feature.name, label, [-(-squares * cells[0] // max(values, 1))])
    return Statistics(layout, vector)


def _opened(table: FlooredTable, name: str) -> list[int]:
    return [at for at, _ in enumerate(table.groups) if (at, name) in table.moments]


def _usual_moments(feature: Feature, opened: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Return sum, sum of squares and number of values over the groups that are open, or of numbers spread over the range."""
    if sum(values for *_, values in opened):
        total, squares, values = (sum(column) for column in zip(*opened, strict=True))
        return total, squares, values
    reach = max(abs(feature.code_low), abs(feature.code_high)) if isinstance(feature, Numeric) else 0
    return 0, max(1, reach * reach // 3), 1


def _imputed_cells(margin: Margin, floor: int) -> list[int]:
    small = dict.fromkeys(margin.small, floor // 2)
    others = [at for at in margin.pool if at not in small]
    rest = _apportion(margin.pool_total - sum(small.values()), [1] * len(others)) if others else []
    blocks = {**margin.values, **small, **dict(zip(others, rest, strict=True))}
    cells: dict[int, int] = {}
    for at, block in enumerate(margin.cells):
        cells |= zip(block, _apportion(blocks[at], [1] * len(block)), strict=True)
    return [cells[at] for at in range(len(cells))]


def _apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole number in proportion to weights, by largest remainders."""
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    shares = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda at: -(total * weights[at] % whole))
    for at in order[: total - sum(shares)]:
        shares[at] += 1
    return shares
