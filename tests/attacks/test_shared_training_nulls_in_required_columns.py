"""A null in a required column must not show a person through noise in shares.

All tables of a party's noise share one level, so their cells must add up to the class count whatever a table holds. Before,
a null or unlisted value of a required column stood in no cell: the class of that person came out at any epsilon.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from audits.columns import attack_columns
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.dp.audit.empirical import Claim
from blindbayes.dp.audit.lower_bounds import epsilon_lower
from blindbayes.dp.distributed.column_noise import ColumnNoise, draws
from blindbayes.statistics import MISSING, Layout, count_block
from support.columns import without_missing_cells
from support.studies import make_columns_study

WAYS = ("aligned", "left", "inner")
NAMES = tuple(f"x{at}" for at in range(8))


def coins(name: str) -> Coins:
    return Coins.seeded(bytes(32)).derive(name)


def binary(classes: int, values: int = 2) -> Codebook:
    features = tuple(Categorical(name, tuple(map(str, range(values)))) for name in NAMES)
    return Codebook("y", tuple(map(str, range(classes))), features)


def owners_of(kind: str) -> dict[str, tuple[str, ...]]:
    return {
        "class holder without columns": {"clinic": (), "gym": NAMES},
        "columns on both sides": {"clinic": NAMES[:4], "gym": NAMES[4:]},
        "class holder comes last": {"gym": NAMES, "clinic": ()},
        "three parties": {"clinic": NAMES[:2], "gym": NAMES[2:5], "shop": NAMES[5:]},
    }[kind]


OWNERS = ["class holder without columns", "columns on both sides", "class holder comes last", "three parties"]


def victims(kind: str, way: str) -> Iterator[tuple[str, str]]:
    """Whose noise another party's table could defeat: the class holder's, and over an inner join either's."""
    if way != "left":  # where the old plan had the cell of the class holder's
        yield "clinic", "gym"
    if way == "inner" and kind == "columns on both sides":
        yield "gym", "clinic"


CASES = [
    (kind, way, victim, other)
    for kind, way in itertools.product(OWNERS, WAYS)
    if not (kind == "three parties" and way == "inner")
    for victim, other in victims(kind, way)
]


@pytest.mark.parametrize(("classes", "values", "epsilon"), [(2, 2, 0.3), (5, 3, 1.0)])
@pytest.mark.parametrize(("kind", "way", "victim", "other"), CASES)
def test_a_person_without_values_in_half_of_anothers_columns_stays_within_epsilon(
    kind: str, way: Any, victim: str, other: str, classes: int, values: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, owners = binary(classes, values), owners_of(kind)
    missing = owners[other][: max(1, len(owners[other]) // 2)]
    claim = Claim(epsilon, 0.0)

    def bound() -> float:
        plan = ColumnNoise.make(book, owners, "clinic", epsilon=epsilon, rows=20_000, join=way).plan_of(victim)
        return attack_columns(plan, claim, coins("level"), 600, missing=missing).epsilon

    assert bound() <= epsilon
    without_missing_cells(monkeypatch)
    assert bound() > 1.5 * epsilon  # the planted fault is refuted, by the level


def test_no_party_may_leave_out_its_own_required_value_either() -> None:
    """The reader gives every row a cell, since an attribute holder's noise on its own tables has no cell for missing ones."""
    plan = ColumnNoise.make(binary(2), owners_of("columns on both sides"), "clinic", epsilon=0.5, rows=20_000).plan_of("gym")
    assert attack_columns(plan, Claim(0.5, 0.0), coins("own"), 600, missing=NAMES[4:6]).epsilon > 1.0


def test_a_missing_number_that_is_kept_as_sums_does_not_show_by_the_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Codebook(
        "y", ("a", "b"), (Numeric("u", 0, 90_000), Numeric("v", 0, 90_000), Categorical("w", ("p", "q"))), max_rows=10**6
    )

    def bound() -> float:
        owners = {"bank": (), "shop": ("u", "v", "w")}
        noise = ColumnNoise.make(book, owners, "bank", epsilon=1.0, rows=400_000)
        plan = noise.plan_of("bank")
        assert [cut.kind for cut in plan.encodings] == ["moments", "moments", "cells"]
        counts, tables = draws(plan, coins("sums"), 1200)
        without = np.column_stack([tables["u"][:, 0, 0] - tables["v"][:, 0, 0], tables["u"][:, 0, 0] - counts[:, 0]])
        return epsilon_lower(without.astype(float), without.astype(float) - 1, learn=False).epsilon  # a person null in u

    assert bound() <= 1.0
    without_missing_cells(monkeypatch)
    assert bound() > 2.0


# -- what our own reader makes of a table ------------------------------------------------------------------------------------

READ = Codebook(
    "y",
    ("a", "b"),
    (
        Categorical("city", ("p", "q", "r")),
        Categorical("shape", ("s", "t", "rest"), other="rest"),
        Categorical("maybe", ("s", "t"), optional=True),
        Numeric("age", 0, 50, bins=3),
        Numeric("hours", -40, 50, precision=0.5),
    ),
)
ODD: dict[str, Any] = {
    "null": None,
    "unlisted": "zz",
    "not a number": float("nan"),
    "infinite": float("inf"),
    "minus infinite": float("-inf"),
    "far outside": 1e300,
    "truth value": True,
}


def table(odd: str, rows: int = 6) -> pd.DataFrame:
    plain = {"city": "q", "shape": "t", "maybe": "s", "age": 30, "hours": 8.5, "y": "b"}
    if odd == "empty":
        return pd.DataFrame({name: pd.Series([], dtype=object) for name in plain})
    columns = {name: np.array([value] * rows, dtype=object) for name, value in plain.items()}
    if odd == "all missing":
        return pd.DataFrame({name: [None] * rows for name in plain})
    for column in columns.values():
        column[2] = ODD[odd]
    return pd.DataFrame(columns)


@pytest.mark.parametrize("odd", [*ODD, "all missing", "empty"])
def test_every_row_has_a_class_and_a_cell_of_every_required_column_wherever_noise_is_added(odd: str) -> None:
    frame = table(odd)
    source = dataclasses.replace(open_columns(frame, READ), lenient=True)
    blocks = list(source.blocks())
    assert sum(block.rows for block in blocks) == len(frame)
    for block in blocks:
        statistics = count_block(Layout(READ), block)
        for name in ("city", "shape", "age"):
            assert (statistics.counts[name].sum(axis=1) == statistics.class_counts).all(), name
        assert not (block.columns["hours"] == MISSING).any()
        assert (np.abs(block.columns["hours"] * 2) <= READ.numeric("hours").width - 1).all()


def test_a_missing_value_of_an_instance_to_classify_stays_missing() -> None:
    source = dataclasses.replace(open_columns(table("null"), READ), lenient=True)
    (block,) = source.blocks(training=False)
    assert block.columns["city"].tolist() == [1, 1, -1, 1, 1, 1]
    assert block.columns["hours"][2] == MISSING


STUDIES = {
    "aligned": {"min_rows": 5},
    "matched": {"kind": "join", "key": "id", "duplicates": "first", "options": {"reveal": "matching", "min_overlap": 5}},
    "left": {"kind": "join", "key": "id", "duplicates": "first", "options": {"join": "left", "min_overlap": 5}},
    "inner": {"kind": "join", "key": "id", "duplicates": "first", "options": {"join": "inner", "min_overlap": 5}},
}


@pytest.mark.parametrize("holder", ["first", "last"])
@pytest.mark.parametrize("way", STUDIES)
def test_a_study_with_epsilon_enters_a_cell_for_every_null(way: str, holder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a whole: what each party reads for a training has a cell in every required column."""
    book = Codebook("y", ("a", "b", "c"), tuple(Categorical(name, ("0", "1")) for name in NAMES[:4]))
    seen: set[str] = set()
    read = ColumnSource.blocks

    def watched(source: ColumnSource, **more: Any) -> Any:
        for block in read(source, **more):
            seen.update(block.columns)
            assert all((codes >= 0).all() for codes in block.columns.values())
            yield block

    monkeypatch.setattr(ColumnSource, "blocks", watched)
    rng, rows = np.random.default_rng(3), 400
    tables: dict[str, Any] = {}
    for party, names in {"clinic": NAMES[:2], "gym": NAMES[2:4]}.items():
        frame = pd.DataFrame({name: rng.choice(["0", "1"], rows).astype(object) for name in names})
        frame.loc[7, names[0]] = None
        frame.loc[8, names[1]] = "unlisted"
        if party == "clinic":
            frame["y"] = rng.choice(["a", "b", "c"], rows).astype(object)
            frame.loc[9, "y"] = None
        if way != "aligned":
            frame["id"] = [f"p{at}" for at in range(rows)]
        tables[party] = frame
    parties = tables if holder == "first" else dict(reversed(tables.items()))
    make_columns_study(book, **STUDIES[way], epsilon=5.0).simulate(parties)
    assert seen == set(NAMES[:4])
