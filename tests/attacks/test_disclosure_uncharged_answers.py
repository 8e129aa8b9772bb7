"""Audits open classes of instances that the asking party names: the query budget pays for each of them.

Before, 64 references per party and training were free, and a party that deviated read 64 people's classes with `queries = 1`;
so were dummies, in place of which it asked about others.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes.codebook import Categorical, Codebook
from blindbayes.errors import PrivacyError
from blindbayes.protocols.shared_inference import references
from support.column_sites import errors, office_of, pair, predict, small, train
from support.sites import bounded
from support.studies import make_columns_study
from support.two_party import coins

ROWS = 300
NAMES = ("u", "v", "w")
STUDIES: dict[str, tuple[dict[str, tuple[str, ...]], dict[str, Any], int]] = {  # who holds what, how rows meet, who asks
    "aligned": ({"clinic": ("w",), "gym": ("u", "v")}, {}, 1),
    "class holder last": ({"gym": ("u", "v", "w"), "clinic": ()}, {}, 1),
    "three parties": ({"clinic": (), "gym": ("u",), "shop": ("v", "w")}, {}, 2),
    "left": ({"clinic": ("w",), "gym": ("u", "v")}, {"join": "left"}, 1),
    "inner": ({"clinic": ("w",), "gym": ("u", "v")}, {"join": "inner"}, 2),
    "inner, class alone": ({"clinic": (), "gym": ("u", "v", "w")}, {"join": "inner"}, 1),
}


def simulate(kind: str, queries: int, rate: float, classes: int = 3, **fields: Any) -> Any:
    holds, options, _ = STUDIES[kind]
    rng = np.random.default_rng(4)
    book = Codebook("y", tuple("abcdefg"[:classes]), tuple(Categorical(name, ("0", "1")) for name in NAMES))
    label = rng.choice(list(book.classes), ROWS)
    tables = {party: pd.DataFrame({name: rng.choice(["0", "1"], ROWS) for name in held}) for party, held in holds.items()}
    tables["clinic"]["y"] = label
    if options:
        fields |= {"kind": "join", "key": "id", "duplicates": "first"}
        tables = {party: frame.assign(id=[f"p{at}" for at in range(ROWS)]) for party, frame in tables.items()}
    study = make_columns_study(book, options={"queries": queries, "audit_rate": rate, **options}, **fields)
    return study.simulate(tables, coins=coins(f"{kind} {rate}"))


@pytest.mark.parametrize("kind", STUDIES)
def test_references_are_charged_in_training_to_every_share(kind: str) -> None:
    opened = references.COUNT * STUDIES[kind][2]
    with pytest.raises(PrivacyError, match=f"classes of {opened} reference instances"):
        simulate(kind, opened - 1, 0.1)
    model = simulate(kind, opened, 0.1).model
    assert {share.spent for share in model.shares.values()} == {opened}


@pytest.mark.parametrize(("kind", "classes", "rate"), [("aligned", 2, 0.5), ("three parties", 3, 0.25), ("inner", 5, 0.2)])
def test_a_batch_is_charged_for_what_could_be_asked_in_place_of_dummies(kind: str, classes: int, rate: float) -> None:
    holds, _, askers = STUDIES[kind]
    model, count = simulate(kind, 10_000, rate, classes).model, 20
    before = model.shares["clinic"].spent
    model.predict(
        {party: pd.DataFrame({name: ["0", "1"] * 10 for name in held}, index=range(count)) for party, held in holds.items()}
    )
    charged = {share.spent - before for share in model.shares.values()}
    assert len(charged) == 1
    dummies = math.ceil(count * rate / (1 - rate))
    assert charged.pop() >= count + askers * dummies


def test_with_noise_in_the_shares_references_are_charged_alike() -> None:
    with pytest.raises(PrivacyError, match=f"classes of {references.COUNT} reference instances"):
        simulate("aligned", references.COUNT - 1, 0.2, epsilon=8.0)
    model = simulate("aligned", 500, 0.2, epsilon=8.0).model
    model.predict({"clinic": pd.DataFrame({"w": ["0"] * 25}), "gym": pd.DataFrame({"u": ["0"] * 25, "v": ["1"] * 25})})
    charged = {share.spent for share in model.shares.values()}
    assert len(charged) == 1
    assert charged.pop() >= references.COUNT + 25 + math.ceil(25 * 0.2 / 0.8)


def test_trainings_of_a_study_share_one_budget(tmp_path: Path) -> None:
    """Each training would open another 64 classes: once the study's queries are used up, no other begins."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, options={"queries": 2 * references.COUNT + 30, "audit_rate": 0.2})
            first = await train(office, study, runs=3)
            second = await train(office, study, runs=3)
            ended = await office.run(study)
            assert {type(run.error).__name__ for run in ended.values()} <= {"PrivacyError", "PeerLost"}
            assert any("reference instances" in str(run.error) for run in ended.values())
            home = office.net.sites["insurer"].home
            assert home.history.classified(study.sha256) == 2 * references.COUNT
            asked = split.ask(tmp_path, small(31, seed=3))
            assert PrivacyError in errors(await predict(office, study, second, asked, "too many")).values()
            assert {each["spent"] for each in home.shares.all()} == {2 * references.COUNT}
            assert first != second

    bounded(test, 120)
