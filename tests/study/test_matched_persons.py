"""`sites_per_person = "matched"`: a person at several sites counts at one of them, with noise for one site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Estimation, Limits, Privacy, RowStudy
from blindbayes.agent.approvals.summary import approval_of
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric, Text
from blindbayes.crypto.coins import Coins
from blindbayes.data.table import count_table
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.net.identity import Identity
from blindbayes.statistics import Statistics
from blindbayes.study.file import StudyFile
from blindbayes.study.form import fields_of
from blindbayes.study.roster import Party
from blindbayes.study.tasks.sum_plan import Sum

BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (
        Categorical("smoker", ("no", "yes")),
        Categorical("drug", ("a", "b", "c"), optional=True),
        Numeric("age", 0, 100),
    ),
    max_rows=10_000,
    identifier=IdRecipe((IdPart("patient", "text"),)),
)
SITES = ("north", "south", "west")


def study(book: Codebook = BOOK, **privacy: Any) -> RowStudy:
    given = {"epsilon": 1.0, "rows_per_person": 1, "sites_per_person": "matched", **privacy}
    return RowStudy(book, privacy=Privacy(**given), limits=Limits(min_parties=2))


def people(count: int = 90) -> pd.DataFrame:
    generator = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "patient": [f"Patient {at}" for at in range(count)],
            "smoker": generator.choice(["no", "yes"], count),
            "drug": generator.choice(["a", "b", "c", None], count),
            "age": generator.integers(0, 101, count),
            "ill": generator.choice(["no", "yes"], count),
        }
    )


def shared(count: int = 90) -> dict[str, pd.DataFrame]:
    """Everybody's one row, at one, two or all three sites; some sites spell the names in another way."""
    frame = people(count)
    spelled = frame.assign(patient=frame["patient"].str.upper() + " ")
    return {"north": frame[:60], "south": spelled[30:], "west": pd.concat([frame[:10], frame[40:70]])}


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all noise zero, to see exactly what is counted."""
    for law in (DistributedNoise, WholeNoise):
        drawn = law.share
        monkeypatch.setattr(law, "share", lambda self, coins, drawn=drawn: 0 * drawn(self, coins))


def vector_of(made: RowStudy, sites: dict[str, pd.DataFrame], seed: int = 0) -> Any:
    return made.simulate(sites, coins=Coins.seeded(bytes([seed]) * 32)).total


@pytest.mark.parametrize(("epsilon", "law"), [(1.0, WholeNoise), (1000.0, DistributedNoise)])
@pytest.mark.usefixtures("silent")
def test_the_sum_is_that_of_a_pooled_table_with_one_row_per_person(epsilon: float, law: type) -> None:
    made = study(epsilon=epsilon, expected_rows=5000)
    plan = Sum.make(made, SITES).plan
    assert plan is not None
    assert isinstance(plan.noise, law)
    expected = plan.vector(count_table(people(), plan.codebook, lenient=True, extra_columns="ignore"))
    assert vector_of(made, shared()).tolist() == expected.tolist()


@pytest.mark.usefixtures("silent")
def test_one_person_at_all_sites_moves_the_sum_by_one_row() -> None:
    """With the same draws for all others: the rows of one person, at one site or at three, are one record of the sum."""
    made, row = study(rows_per_person=2), people(91)[90:]
    plan = Sum.make(made, SITES).plan
    assert plan is not None
    assert plan.noise.protects == "one person with at most 2 records"  # not of 2 at each of three sites
    before = vector_of(made, shared())
    for times in (1, 2, 5):
        rows = pd.concat([row] * times)
        everywhere = {name: pd.concat([frame, rows]) for name, frame in shared().items()}
        moved = vector_of(made, everywhere) - before
        one = plan.vector(count_table(row, plan.codebook, lenient=True, extra_columns="ignore"))
        assert moved.tolist() == (min(times, 2) * one).tolist()


@pytest.mark.usefixtures("silent")
def test_sites_with_other_rows_of_a_person_count_at_one_of_them() -> None:
    """A person with another class at each site counts in the class of one of them."""
    sites = {name: people()[at * 30 : at * 30 + 30] for at, name in enumerate(SITES)}
    ann = people(91)[90:].drop(columns="ill")
    sites["north"] = pd.concat([sites["north"], ann.assign(ill="no")])
    sites["south"] = pd.concat([sites["south"], ann.assign(ill="yes")])
    plan = Sum.make(study(), SITES).plan
    assert plan is not None
    with_ann = {
        label: plan.vector(
            count_table(pd.concat([people(), ann.assign(ill=label)]), plan.codebook, lenient=True, extra_columns="ignore")
        ).tolist()
        for label in ("no", "yes")
    }
    totals = [vector_of(study(), sites, seed).tolist() for seed in range(6)]
    seen = [label for total in totals for label, vector in with_ann.items() if vector == total]
    assert len(seen) == 6
    assert set(seen) == {"no", "yes"}  # with other coins not so once in 32 times


def test_noise_is_that_of_a_study_whose_persons_are_at_one_site() -> None:
    for parties in (2, 3, 40):
        names = [f"p{at}" for at in range(parties)]
        one = Sum.make(study(sites_per_person=1).replace(limits=Limits(min_parties=2, quorum=parties)), names)
        assert Sum.make(study(), names).noise == one.noise


# -- documents -------------------------------------------------------------------------------------------------------------


def parties(*, host: bool = True) -> tuple[Party, ...]:
    names = (*SITES, *(("office",) if host else ()))
    return tuple(Party(name, Identity.generate(name).card.identity.hex(), name != "office") for name in names)


def test_documents_say_what_bounds_a_person_and_who_learns_what(tmp_path: Path) -> None:
    result = study().simulate(shared())
    assert "epsilon protects the rows of a person at all sites of the study together" in result.statement
    assert "is one person at each" not in result.statement
    assert "loses epsilon once relies on server" in result.statement
    report = result.files()["leakage.json"].decode()
    assert "persons_by_sites" in report
    assert "deduplicated_sum" in report
    checked = json.loads(result.files()["disclosure.json"])
    by_name = {each["name"]: each for each in checked["outputs"]}
    assert [list(each["to"]) for name, each in by_name.items() if "persons_by_sites" in name] == [["server"]]
    assert [name for name in by_name if "persons_by_sites" not in name] == ["noisy_sum"]

    file = StudyFile.make(study(), "Persons", parties())
    assert file.hosts == {"server": "office"}
    path = tmp_path / "study.toml"
    path.write_text(file.to_toml())
    assert StudyFile.from_toml(path).study == study()
    approval = approval_of(file)
    assert "one of the sites that they are at" in str(approval.promise["unit"])
    assert any("office learns how many people each site has" in risk for risk in approval.risks)
    plain = [*approval.plain.leaves, *approval.plain.learns, *approval.plain.cheating]
    assert any("leave scrambled" in line for line in plain)
    assert not any("No row, name or record number leaves" in line for line in plain)
    assert any("office" in line and "how many are at several" in line for line in plain)
    assert any("pseudonym" in line for line in file.task.disclosure.messages)


def test_a_study_without_matching_says_k() -> None:
    statement = study(sites_per_person=None).simulate(shared()).statement
    assert "at k sites the loss is up to k times epsilon" in statement


def test_the_form_takes_a_number_or_the_word() -> None:
    field = fields_of("rows")["privacy__sites_per_person"]
    assert (field.read("3"), field.read("matched")) == (3, "matched")
    units = [Privacy(epsilon=1.0, rows_per_person=2, sites_per_person=sites).person_rows for sites in (None, 3, "matched")]
    assert units == [2, 6, 2]


# -- refusals --------------------------------------------------------------------------------------------------------------

WORDS = Codebook("ill", ("no", "yes"), (Text("note", words=("a", "b"), max_words=3),), max_rows=100, identifier=BOOK.identifier)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Privacy(epsilon=1.0, rows_per_person=1, sites_per_person="all"), 'a number of sites, or "matched"'),
        (lambda: study(rows_per_person=None), "rows_per_person"),
        (lambda: Privacy(rows_per_person=1, sites_per_person="matched"), "without epsilon"),
        (lambda: study(WORDS), "leave texts out"),
        (lambda: study().replace(protocol="ring_sum"), "masked_sum only"),
        (lambda: study().replace(estimation=Estimation(held_out=0.2)), "held_out"),
        (lambda: study().replace(estimation=Estimation(folds=3)), "folds"),
        (lambda: StudyFile.make(study(), "Persons", parties(host=False)).task, "a party that brings no rows"),
        (lambda: study().replace(limits=Limits(quorum=3)).simulate({**shared(), "east": people()}), "every site"),
        (lambda: study().simulate(shared(), base=study(sites_per_person=1).simulate(shared())), "takes no base"),
    ],
)
def test_what_does_not_apply_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(BlindbayesError, match=problem):
        make()


def test_a_site_with_statistics_alone_is_refused() -> None:
    made = study()
    counting = Sum.make(made, SITES).counting
    with pytest.raises((ConfigError, BlindbayesError)):
        made.simulate({**shared(), "west": Statistics.zero(counting)})
