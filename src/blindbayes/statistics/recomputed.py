"""Bounds of suppressed cells by linear programming over everything that was released.

This checks the rule of `floor` from outside: it knows the opened values, the totals, that a small cell is below the floor and a
cell that protects it is not, and nothing of how cells were chosen. Features meet in the class counts only, so that there is one
program per feature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from scipy import optimize, sparse

from blindbayes.errors import LocalProtocolError
from blindbayes.statistics.floor import FlooredTable, Margin

_SLACK = 1e-6  # of a solver that works in floating point, on whole numbers
Name: TypeAlias = tuple[int, int]  # class, and value; value -1: the class count


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The values that a suppressed cell, or several joined ones, may have."""

    feature: str  # empty: a class count
    cells: tuple[Name, ...]
    low: int
    high: int

    @property
    def is_determined(self) -> bool:
        return self.low >= self.high


@dataclass
class _Program:
    names: dict[Name, int] = field(default_factory=dict)
    rows: list[tuple[list[Name], list[Name], float, float]] = field(default_factory=list)  # low <= plus - minus <= high

    def add(self, plus: Sequence[Name], low: float, high: float, minus: Sequence[Name] = ()) -> None:
        for name in (*plus, *minus):
            self.names.setdefault(name, len(self.names))
        self.rows.append((list(plus), list(minus), low, high))

    def add_margin(self, margin: Margin, cells_of: Sequence[Sequence[Name]], floor: int) -> list[list[Name]]:
        """Add the known cells of a margin as constraints; return its suppressed blocks."""
        blocks = [[name for at in block for name in cells_of[at]] for block in margin.cells]
        for at, value in margin.values.items():
            self.add(blocks[at], value, value)
        self.add([name for block in blocks for name in block], margin.total, margin.total)
        for at in margin.pool:
            self.add(blocks[at], *((0, floor - 1) if at in margin.small else (floor, math.inf)))
        if margin.small:
            self.add([name for at in margin.small for name in blocks[at]], 1, math.inf)
        return [blocks[at] for at in margin.pool]

    def bounds(self, block: Sequence[Name]) -> tuple[int, int]:
        """Return the least and the largest sum of a block, as whole numbers."""
        matrix = sparse.lil_array((len(self.rows), len(self.names)))
        for at, (plus, minus, *_) in enumerate(self.rows):
            for sign, part in ((1, plus), (-1, minus)):
                for name in part:
                    matrix[at, self.names[name]] = sign
        known = optimize.LinearConstraint(matrix.tocsr(), [row[2] for row in self.rows], [row[3] for row in self.rows])
        limits = []
        for sign in (1, -1):
            cost = [0.0] * len(self.names)
            for name in block:
                cost[self.names[name]] = sign
            solved = optimize.milp(cost, constraints=known)  # without integrality: a linear program
            if solved.status not in (0, 3):  # 3: without a bound
                raise LocalProtocolError("what was opened of a table fits no table")
            limits.append(math.inf if solved.fun is None else sign * solved.fun)
        return math.ceil(limits[0] - _SLACK), math.floor(min(limits[1], 2.0**53) + _SLACK)


def recompute(table: FlooredTable) -> Iterator[Recomputed]:
    """Yield the bounds of every suppressed cell. A cell whose bounds meet can be recomputed by anybody."""
    book, floor = table.layout.codebook, table.floor
    labels = range(len(book.classes))
    classes = _Program()
    for block in classes.add_margin(table.classes, [[(label, -1)] for label in labels], floor):
        yield Recomputed("", tuple(block), *classes.bounds(block))
    for feature in book.features:
        program, hidden = _Program(), []
        program.add_margin(table.classes, [[(label, -1)] for label in labels], floor)
        for (at, name), margin in table.margins.items():
            if name == feature.name:
                size = sum(len(block) for block in margin.cells)
                for label in table.groups[at]:
                    program.add([(label, value) for value in range(size)], 0, 0, [(label, -1)])
                cells_of = [[(label, value) for label in table.groups[at]] for value in range(size)]
                hidden += program.add_margin(margin, cells_of, floor)
        for block in hidden:
            yield Recomputed(feature.name, tuple(block), *program.bounds(block))
