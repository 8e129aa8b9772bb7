"""A noisy total that no table can have given is refused; honest ones are not, up to the stated rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Limits, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data.table import count_table
from blindbayes.dp.distributed.plausibility import FALSE_ALARM, require_possible
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import DataError, PeerProtocolError
from blindbayes.protocols.memory import Replace
from blindbayes.protocols.secure_sum.messages import MaskedVectorSent
from blindbayes.study import Study
from blindbayes.study.tasks.sum_plan import Sum

BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (
        Categorical("smoker", ("no", "yes"), optional=True),
        Categorical("drug", ("a", "b", "c")),
        Categorical("sex", ("f", "m"), optional=True),
        Numeric("age", 0, 30_000, 1.0),
    ),
    max_rows=100_000,
)
SITES = ("north", "south", "west", "east")


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "smoker": rng.choice(["no", "yes", None], rows),
            "drug": rng.choice(["a", "b", "c"], rows),
            "sex": rng.choice(["f", "m"], rows),
            "age": rng.integers(0, 30_000, rows).astype(float),
            "ill": rng.choice(["no", "yes"], rows),
        }
    )


def opened(study: Study, seed: int, rows: int = 500) -> tuple[Any, np.ndarray]:
    """The plan, and an honest total of four sites."""
    planned = Sum.make(study, SITES)
    plan = planned.plan
    assert plan is not None
    coins = Coins.seeded(seed.to_bytes(32, "big"))
    parts = [
        planned.contribution(count_table(table(rows, 10 * seed + at), plan.codebook, lenient=True), coins.derive(name))
        for at, name in enumerate(SITES)
    ]
    return plan, np.sum([part.view(np.int64) for part in parts], axis=0)


STUDIES = {
    "pure": RowStudy(BOOK, privacy=Privacy(epsilon=1.0, expected_rows=2000)),
    "in shares": RowStudy(BOOK, privacy=Privacy(epsilon=1.0, expected_rows=2000), limits=Limits(min_cell=5)),
    "little noise": RowStudy(BOOK, privacy=Privacy(epsilon=8.0, expected_rows=2000)),
    "with delta": RowStudy(BOOK, privacy=Privacy(epsilon=1.0, delta=1e-6, expected_rows=2000)),
    "moments": RowStudy(BOOK, privacy=Privacy(epsilon=8.0, expected_rows=100_000)),
}


@pytest.mark.parametrize("name", STUDIES)
def test_honest_totals_pass_also_empty_ones(name: str) -> None:
    for seed in range(6):
        for rows in (0, 1, 400):
            plan, total = opened(STUDIES[name], seed, rows)
            require_possible(plan, total, shares=len(SITES))


@pytest.mark.parametrize(("name", "tries"), [("in shares", 400), ("pure", 100)])
def test_the_rate_of_false_alarms_is_at_most_the_stated_one(name: str, tries: int) -> None:
    """On empty tables, where every rule is as tight as it gets, with an alarm that can be counted."""
    plan, _ = opened(STUDIES[name], 0, 0)
    coins, refused = Coins.seeded(bytes(32)), 0
    often = plan.noise.repeated(tries)  # drawn at once: a draw costs little beside its set-up
    totals = np.sum([often.share(coins) for _ in SITES], axis=0).reshape(tries, -1)
    for total in totals:
        try:
            require_possible(plan, total, shares=len(SITES), alarm=0.2)
        except DataError:
            refused += 1
    assert refused <= 0.2 * tries
    assert FALSE_ALARM < 1e-9


def places(plan: Any, kind: str) -> slice:
    """Where the first table of that kind stands in the vector."""
    at, classes = 0, len(BOOK.classes)
    whole = isinstance(plan.noise, WholeNoise)
    for index, item in enumerate(plan.tables.items):
        words = plan.noise.blocks[index].columns if whole else item.cells
        if item.kind == kind:
            return slice(at, at + classes * words)
        at += classes * words
    raise AssertionError(kind)


def spoiled(plan: Any, total: np.ndarray, how: str) -> np.ndarray:
    changed, counts = total.copy(), "cells"
    if isinstance(plan.noise, WholeNoise):
        counts, grid = "classes", max(block.step for block in plan.noise.blocks)
        reach = max(plan.noise.tail(2.0**-60, 400, at) for at in range(len(plan.noise.blocks)))
    else:
        grid, reach = 1, plan.noise.tail(2.0**-60, 400, 1)
    if how == "random words":
        return np.random.default_rng(4).integers(-(2**62), 2**62, len(total))
    if how == "a negative count":
        changed[places(plan, counts)][0:1] = -reach
    elif how == "too many rows":
        changed[places(plan, counts)] += grid * BOOK.max_rows + reach
    elif how == "one table only":
        changed[places(plan, "cells")] += 2 * reach + grid * len(total) * 2000
    elif how == "a sum out of bounds":
        changed[places(plan, "sum")] += 30_000 * (BOOK.max_rows + reach)
    return changed


@pytest.mark.parametrize("how", ["random words", "a negative count", "too many rows", "one table only", "a sum out of bounds"])
@pytest.mark.parametrize("name", STUDIES)
def test_what_no_table_gives_is_refused(name: str, how: str) -> None:
    plan, total = opened(STUDIES[name], 1)
    if how == "a sum out of bounds" and not any(item.kind == "sum" for item in plan.tables.items):
        pytest.skip("this plan releases no sums")
    with pytest.raises(DataError) as caught:
        require_possible(plan, spoiled(plan, total, how), shares=len(SITES))
    assert not any(digit in str(caught.value).replace("0 than", "") for digit in "123456789")


def test_a_polluted_study_ends_before_a_model_and_lists_who_was_in_the_sum() -> None:
    """One site puts a million into every cell of its masked vector."""
    study = STUDIES["in shares"]
    lie = Replace(
        lambda entry: entry.kind is MaskedVectorSent and entry.sender == "west",
        lambda message: MaskedVectorSent(message.vector_masked + np.uint64(10**6)),
    )
    parts = {name: table(300, at) for at, name in enumerate(SITES)}
    assert study.simulate(parts).included == SITES
    with pytest.raises(PeerProtocolError, match="no table") as caught:
        study.simulate(parts, faults=[lie])
    assert caught.value.suspects == SITES
