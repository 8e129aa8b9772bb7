"""A model of rows in shares tells the sums behind it, answer by answer; two of them tell what two exact sums tell.

Before, the rule on exact sums did not look at shares: {a,b,c} and then {a,b} by private_ratio gave c's table to a, within 30
answers per number. And a study that was trained twice had its whole budget of queries twice.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, RowStudy
from blindbayes.agent.approvals.summary import require_study
from blindbayes.codebook import Categorical
from blindbayes.crypto import limbs
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.file import Deadlines, Limits, StudyFile
from blindbayes.testing.loopback import open_policy
from support.consortium import BOOK, EVERYBODY, done, edit, office
from support.sites import Office, bounded, paper_policy
from support.two_party import coins

NORTH, SOUTH, WEST, EAST, _ = EVERYBODY
LIMITS = Deadlines(step=20, join=20, run=40)
SMALL = Codebook("ill", ("no", "yes"), (Categorical("smoker", ("no", "yes"), optional=True),), max_rows=300)
VALUES = (None, "no", "yes")


def differences(model: Any, liar: str, other: str) -> list[float]:
    """Score of "yes" less score of "no", of a row with each value: bisected, by a share that is moved before every answer."""
    plan, table = model.rows.plan, model.shares[liar].tables["model"]["smoker"]
    table.setflags(write=True)
    kept, rows = table.copy(), pd.DataFrame({"smoker": list(VALUES)})
    low = np.full(len(VALUES), -(1 << (plan.fraction + 3)))
    high = -low
    while (high - low).max() > 1 << 6:
        middle = (low + high) // 2
        for at, moved in enumerate(middle):
            away = limbs.from_integers([-int(moved)], plan.limbs)[0]
            table[0, at, 0] = limbs.cut(limbs.add(kept[0, at, 0], away), plan.bits)
        is_above = model.predict(rows, to=liar) == "yes"
        low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
    return [float(each) / 2**plan.fraction for each in low]


def tables_of(found: list[float], most: int) -> list[tuple[int, ...]]:
    """All counts (no and yes of "no", then of "yes") that fit these differences, with alpha 1."""
    fits = []
    for size in itertools.product(range(1, most), repeat=2):
        if abs(math.log(size[1] / size[0]) - found[0]) > 1e-4:
            continue
        for yes in itertools.product(range(size[0] + 1), range(size[1] + 1)):
            shares = [[math.log((n + 1) / (m + 2)) for n in (m - k, k)] for m, k in zip(size, yes, strict=True)]
            if all(abs(shares[1][at] - shares[0][at] + found[0] - found[1 + at]) < 1e-4 for at in (0, 1)):
                fits.append((size[0] - yes[0], yes[0], size[1] - yes[1], yes[1]))
    return fits


@pytest.mark.slow
def test_answers_tell_every_count_and_two_models_the_table_of_whoever_left() -> None:
    """What the page says, and why the rule looks at shares: no more than 3 x 22 answers per model."""
    made = {"a": (7, 3, 2, 5), "c": (4, 2, 1, 3), "b": (6, 1, 3, 4)}
    cells = list(itertools.product(("no", "yes"), ("no", "yes")))
    frames = {
        name: pd.DataFrame(
            [row for cell, count in zip(cells, counts, strict=True) for row in [cell] * count], columns=["ill", "smoker"]
        )
        for name, counts in made.items()
    }
    read = []
    for names in ("acb", "ab"):
        study = RowStudy(SMALL, protocol="private_ratio", options={"queries": 66}, limits=Limits(min_parties=2))
        model: Any = study.simulate({name: frames[name] for name in names}, coins=coins(names)).model
        read.append(tables_of(differences(model, "a", "b"), 40))
    assert [len(each) for each in read] == [1, 1]
    assert tuple(with_c - without for with_c, without in zip(read[0][0], read[1][0], strict=True)) == made["c"]


def study_of(here: Office, names: tuple[str, ...], protocol: str = "private_ratio", **fields: Any) -> StudyFile:
    parties = tuple(party for party in here.net.make_study(BOOK).parties if party.name in names)
    options = {"queries": 100} if protocol == "private_ratio" else {}
    given: dict[str, Any] = {"protocol": protocol, "options": options, "hosts": {}, "deadlines": LIMITS}
    study = here.net.make_study(BOOK, parties=parties, title=f"{protocol} of {', '.join(names)}", **{**given, **fields})
    for name in names:
        here.net.sites[name].home.approvals.approve(study, runs=4)
    return study


async def predict(here: Office, study: StudyFile, model: str, brings: dict[str, Path | int]) -> list[Any]:
    """North's instances, at the sites whose people ask for it."""
    told = {name: {"count": own} if isinstance(own, int) else {"rows": str(own)} for name, own in brings.items()}
    asked = {name: {"model": model, "batch": "one", "to": NORTH, **own} for name, own in told.items()}
    runs = [here.agents[name].predict(study.sha256, fields) for name, fields in asked.items()]
    for run in runs:
        await run.done.wait()
    return runs


def refusals(runs: dict[str, Any]) -> str:
    assert {run.state for run in runs.values()} == {"failed"}
    return "; ".join(str(run.error) for run in runs.values() if isinstance(run.error, PrivacyError))


@pytest.mark.parametrize(
    ("first", "then"), [("private_ratio", "private_ratio"), ("private_ratio", "ring_sum"), ("ring_sum", "private_ratio")]
)
def test_a_model_in_shares_counts_as_the_sum_behind_it(tmp_path: Path, first: str, then: str) -> None:
    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:4], paper_policy(min_colluders=0)) as here:
            done(await here.run(study_of(here, (NORTH, SOUTH, WEST), first)))
            runs = await here.run(study_of(here, (NORTH, SOUTH, EAST), then))
            assert "over north, south, west only" in refusals(runs)

    bounded(test, 60)


def test_a_model_trained_again_on_one_row_more_is_refused_unless_the_first_was_destroyed_unasked(tmp_path: Path) -> None:
    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            study = study_of(here, EVERYBODY[:3])
            done(await here.run(study))
            again = done(await here.run(study))  # the same rows: nothing new is told
            edit(tmp_path, SOUTH, 5, add=1)
            assert "changed since its last exact sum" in refusals(await here.run(study))
            home = here.net.sites[SOUTH].home
            for share in home.shares.all():
                home.shares.destroy(share["run"])
            # What failed may have left shares; people who know better can say so.
            for begun, _ in home.history.unsettled():
                home.audit.append("settled", run=begun["run"], study=study.sha256, included=[])
            third = done(await here.run(study))
            assert third != again

    bounded(test, 60)


@pytest.mark.slow
def test_no_answer_comes_without_a_site_that_destroyed_its_share(tmp_path: Path) -> None:
    """South holds no share of a table; north and west, who do, answer nobody without it."""

    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            study = study_of(here, EVERYBODY[:3], deadlines=Deadlines(step=3, join=3, run=20))
            model = done(await here.run(study))
            here.net.sites[SOUTH].home.shares.destroy(model)
            pd.DataFrame({"colour": ["red"]}).to_csv(tmp_path / "new.csv", index=False)
            runs = await predict(here, study, model, {NORTH: tmp_path / "new.csv", WEST: 1})
            assert {run.state for run in runs} == {"failed"}
            assert here.net.sites[WEST].home.history.classified(study.sha256) == 0
            with pytest.raises(ConfigError, match="holds no share"):
                here.agents[SOUTH].predict(study.sha256, {"model": model, "batch": "without", "count": 1, "to": NORTH})

    bounded(test, 60)


def test_two_sites_refuse_a_model_in_shares_as_they_refuse_a_sum(tmp_path: Path) -> None:
    """The one would read the other's table off its answers."""
    here = office(tmp_path, EVERYBODY[:2])
    study = here.net.make_study(
        BOOK, protocol="private_ratio", options={"queries": 100}, hosts={}, limits=Limits(min_parties=2)
    )
    with pytest.raises(PrivacyError, match="at least 3 sites"):
        require_study(open_policy(), study)
    require_study(open_policy(min_parties=2), study)
    with pytest.raises(PrivacyError, match="no exact sum"):
        require_study(open_policy(min_parties=2, exact_sums=False), study)


def test_training_again_brings_no_new_budget_of_queries(tmp_path: Path) -> None:
    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            study = study_of(here, EVERYBODY[:3], options={"queries": 4})
            first, second = done(await here.run(study)), done(await here.run(study))
            pd.DataFrame({"colour": ["red", "blue", "green"]}).to_csv(tmp_path / "new.csv", index=False)
            for model in (first, second):
                runs = await predict(here, study, model, {NORTH: tmp_path / "new.csv", SOUTH: 3, WEST: 3})
                errors = [str(run.error) for run in runs]
                assert all(("query budget" in each) == (model == second) for each in errors), errors
            assert {share["spent"] for share in here.net.sites[WEST].home.shares.all()} == {3}

    bounded(test, 60)


def test_a_site_that_only_stands_by_charges_for_what_is_answered(tmp_path: Path) -> None:
    """Before, south's people were told of one instance, the others of three, and nobody noticed."""

    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3]) as here:
            study = study_of(here, EVERYBODY[:3])
            model = done(await here.run(study))
            pd.DataFrame({"colour": ["red", "blue", "green"]}).to_csv(tmp_path / "new.csv", index=False)
            runs = await predict(here, study, model, {NORTH: tmp_path / "new.csv", SOUTH: 1, WEST: 3})
            assert {run.state for run in runs} == {"failed"}
            assert any("do not agree on the public facts" in str(run.error) for run in runs)

    bounded(test, 60)
