"""Plausibility of a noisy total: could any table, with the noise of these parties, have given it?

A contributor may send any vector, and noise hides a small lie. A large one shows: before noise a total obeys the rules of every
table, so after it no rule may be broken by more than the noise explains. The rules, for a table of at most `max_rows` rows:

    a count is at least 0; all counts of one released table together are at most max_rows (a row is counted once or not);
    class by class, a table holds at most as many rows as one that counts every row (class counts, or cells with one for
    missing values), and just as many if it counts every row too;
    a sum of m values within +-w lies within +-m w; the release of squares likewise, within +-m w^2;
    the words of m documents are at most m times what one may have, and no word is counted below 0.

Every rule is a linear inequality in cells with independent noise: the sum of r cells of one bound carries r times as many
shares as one cell, so `DistributedNoise.tail(p, r * shares, bound)` bounds its noise with chance 1 - p. With p =
`alarm` / rules, honest parties are refused with chance at most `alarm`, by the union bound, whatever their tables.

Of `WholeNoise` histograms are known up to a constant. No two cells of a class differ by more than its rows, which are at least
0, and at most max_rows over all classes; `WholeNoise.tail` bounds all words of a class at once.

The check is post-processing of what was opened: it costs no epsilon. It cannot say whose vector it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.release.release_plan import ReleasePlan
from blindbayes.errors import DataError

FALSE_ALARM = 2.0**-30
"""The chance that honest parties are refused, per release."""
_Noise = tuple[int, int, int]  # (factor, cells, of): a factor times the noise of `cells` cells of that bound, or in that table
_Rule = tuple[str, int, int, tuple[_Noise, ...]]  # words, left side, the most it may be, whose noise is in it


def require_possible(plan: NoisySum, total: npt.NDArray[np.int64], *, shares: int, alarm: float = FALSE_ALARM) -> None:
    """Raise `DataError` naming the table and rule if no table gives this total with `shares` parties' noise, up to `alarm`."""
    opened = [int(value) for value in total]
    if isinstance(plan.noise, WholeNoise):
        rules = list(_rules_of_whole(plan.noise, plan.tables, opened))
    else:
        rules = list(_rules(plan, opened))
    tail = cache(plan.noise.tail)
    for words, left, limit, noises in rules:
        chance = alarm / (len(rules) * len(noises))
        if left > limit and left > limit + sum(factor * tail(chance, cells * shares, bound) for factor, cells, bound in noises):
            raise DataError(words)


def _rules_of_whole(noise: WholeNoise, tables: ReleasePlan, total: list[int]) -> Iterator[_Rule]:
    """Yield the rules of tables whose first one counts the classes."""
    at, rows, step = 0, list[int](), noise.blocks[0].step
    for index, (item, block) in enumerate(zip(tables.items, noise.blocks, strict=True)):
        by_class = [total[at + each * block.columns : at + (each + 1) * block.columns] for each in range(noise.classes)]
        at += noise.classes * block.columns
        if item.kind == "classes":
            rows = [row[0] for row in by_class]
            for count in rows:
                yield "class counts: a count is further below 0 than noise explains", -count, 0, ((1, 1, index),)
            whole = noise.classes
            limit = step * tables.codebook.max_rows
            yield "class counts: more rows than the study's max_rows", sum(rows), limit, ((1, whole, index),)
            continue
        words = f"feature {item.name!r}: the rows of a class do not fit the class counts"
        for cells, count in zip(by_class, rows, strict=True):
            apart = max(0, *cells) - min(0, *cells)
            yield words, apart * step - count * block.step, 0, ((2 * step, 1, index), (block.step, 1, 0))


def _rules(plan: NoisySum, total: list[int]) -> Iterator[_Rule]:
    classes, rows = len(plan.tables.declared.classes), plan.codebook.max_rows
    margins: list[tuple[str, int, list[int], bool]] = []  # table, cells of a class, rows by class, whether it counts every row
    moments: list[tuple[str, int, list[int]]] = []
    at = 0
    for item in plan.tables.items:
        cells = [total[at + each * item.cells : at + (each + 1) * item.cells] for each in range(classes)]
        at += classes * item.cells
        if item.kind in ("sum", "square"):
            moments.append((item.name, item.bound, [row[0] for row in cells]))
            continue
        if item.kind == "words":
            where = f"feature {item.name!r}: its words"
            for cell in (value for row in cells for value in row):
                yield f"{where} are further below 0 than noise explains", -cell, 0, ((1, 1, item.bound),)
            together, noise = sum(sum(row) for row in cells), ((1, classes * item.cells, item.bound),)
            yield f"{where} are more than the study's max_rows documents have", together, rows * item.bound, noise
            continue
        where = "class counts" if item.kind == "classes" else f"feature {item.name!r}"
        for cell in (value for row in cells for value in row):
            yield f"{where}: a count is further below 0 than noise explains", -cell, 0, ((1, 1, 1),)
        whole = sum(sum(row) for row in cells)
        yield f"{where}: more rows than the study's max_rows", whole, rows, ((1, classes * item.cells, 1),)
        complete = item.kind == "classes" or (item.kind == "cells" and item.cut is not None and item.cut.missing)
        margins.append((where, item.cells, [sum(row) for row in cells], complete))
    full = next((each for each in margins if each[3]), None)
    if full is not None:
        for where, cells_of, by_class, complete in margins:
            if where == full[0]:
                continue
            for mine, every in zip(by_class, full[2], strict=True):
                noises = ((1, cells_of + full[1], 1),)
                words = f"{where}: the rows of a class do not fit those of {full[0]}"
                yield words, mine - every, 0, noises
                if complete:
                    yield words, every - mine, 0, noises
    for name, bound, values in moments:
        for place, value in enumerate(values):
            words = f"feature {name!r}: a sum lies further outside its bounds than noise explains"
            yield words, abs(value), rows * bound, ((1, 1, bound),)
            if full is not None:  # the rows of the class are known up to noise, which counts `bound` times
                yield words, abs(value) - bound * full[2][place], 0, ((1, 1, bound), (bound, full[1], 1))
