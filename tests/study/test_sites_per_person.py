"""Epsilon of a person with rows at several sites: charged once, by more noise, where a study declares how many sites."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
import pytest

from blindbayes import Estimation, Limits, Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.tasks.sum_plan import Sum

BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (Categorical("smoker", ("no", "yes")), Categorical("drug", ("a", "b", "c"))),
    max_rows=10_000,
    identifier=IdRecipe((IdPart("patient", "exact"),)),
)


def study(**privacy: int) -> RowStudy:
    return RowStudy(BOOK, privacy=Privacy(epsilon=1.0, **privacy), limits=Limits(min_parties=2))


@pytest.mark.parametrize(("parties", "kind"), [(2, WholeNoise), (40, DistributedNoise)])
def test_epsilon_covers_a_person_at_every_declared_site(parties: int, kind: type) -> None:
    """The exact loss of a person with every row that may count, at each of the declared sites, is epsilon."""
    noise = Sum.make(study(rows_per_person=2, sites_per_person=3), [f"p{at}" for at in range(parties)]).noise
    assert isinstance(noise, kind)
    assert noise.price.epsilon == 1.0
    assert noise.protects == "one person with at most 6 records"
    if isinstance(noise, WholeNoise):
        loss = 3 * sum(2 * group.step * group.rate for group in noise.law_of_one.groups)  # sites, rows, groups of tables
    else:
        assert isinstance(noise, DistributedNoise)
        loss = 3 * 2 * noise.touched * noise.rate()
    assert loss == Fraction(1)


def test_a_result_says_at_how_many_sites_a_person_is_protected() -> None:
    rows = pd.DataFrame(
        {
            "patient": [f"p{at}" for at in range(60)],
            "smoker": ["no", "yes"] * 30,
            "drug": ["a", "b", "c"] * 20,
            "ill": ["no", "yes"] * 30,
        }
    )
    sites = {name: rows.iloc[at:] for at, name in enumerate(("north", "south", "west"))}  # nearly everybody is at all three
    every = study(rows_per_person=1, sites_per_person=3).simulate(sites).statement
    assert "up to 3 sites together" in every
    assert "declared, not checked" in every
    assert "one person with at most 3 records" in every
    two = study(rows_per_person=1, sites_per_person=2).simulate({name: sites[name] for name in ("north", "south")}).statement
    assert "their own site alone" in two
    assert "For a person with rows at several sites it relies on each of these sites" in two
    each = study(rows_per_person=1).simulate(sites).statement
    assert "at k sites the loss is up to k times epsilon" in each


def test_sites_of_a_person_need_a_bound_on_rows_and_noise() -> None:
    with pytest.raises(ConfigError, match="rows_per_person"):
        study(sites_per_person=2)
    with pytest.raises(PrivacyError, match="sites_per_person"):
        Privacy(rows_per_person=1, sites_per_person=2)
    with pytest.raises(ConfigError, match="sites_per_person"):
        study(rows_per_person=1, sites_per_person=0)


def test_an_evaluation_says_at_how_many_sites_a_person_is_protected() -> None:
    rows = pd.DataFrame({"patient": [f"p{at}" for at in range(90)], "smoker": ["no", "yes"] * 45, "drug": ["a", "b", "c"] * 30})
    sites = dict.fromkeys(("north", "south", "west"), rows.assign(ill=["no", "yes"] * 45))
    noisy = study(rows_per_person=1, sites_per_person=3).replace(estimation=Estimation(held_out=0.3))
    statement = noisy.evaluate(noisy.simulate(sites), sites).statement
    assert "one person with at most 3 records" in statement
    assert "up to 3 sites together" in statement
    assert "declared, not checked" in statement
