"""Algorithms 2 and 3 as studies: two parties and three, counts and estimates that classify, leaks that every page states."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from blindbayes import Codebook, ColumnStudy, JoinStudy, NaiveBayes
from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.study import Study
from blindbayes.study.tasks.registry import task_class
from blindbayes.testing.loopback import open_policy
from blindbayes_papers.kikuchi2011.distorted_intersection import entropy, posterior
from support.studies import make_study
from support.two_party import coins

BOOK = Codebook(
    "y", ("a", "b"), (Categorical("v", ("0", "1")), Categorical("w", ("0", "1")), Numeric("u", 0, 9, bins=3)), max_rows=10_000
)


def people(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    b = rng.random(rows) < 0.5
    v, w = (np.where(rng.random(rows) < right, b, ~b).astype(int).astype(str) for right in (0.9, 0.85))
    known = {"id": [f"p{at}" for at in range(rows)], "v": v, "w": w, "u": rng.integers(0, 10, rows)}
    return pd.DataFrame({**known, "y": np.where(b, "b", "a")})


FRAME = people()
X = FRAME[["v", "w", "u"]]
POOLED = NaiveBayes(BOOK).fit(X, FRAME["y"]).predict(X)
SPLITS = {2: {"bank": ["u", "y"], "shop": ["v", "w"]}, 3: {"bank": ["u", "y"], "shop": ["v"], "web": ["w"]}}


def study(**fields: Any) -> Study:
    settings: dict[str, Any] = {"duplicates": "first", "key": "id", "options": {"queries": 10_000}}
    return make_study(BOOK, kind="join", **{"protocol": "distorted_intersection", **settings, **fields})


@pytest.mark.parametrize(("parties", "compare_all"), [(2, False), (3, False), (3, True)])
def test_its_estimates_classify_nearly_as_pooled_training(parties: int, compare_all: bool) -> None:
    tables = {
        name: FRAME[["id", *held]].sample(frac=1, random_state=at) for at, (name, held) in enumerate(SPLITS[parties].items())
    }
    options = {"queries": 10_000, **({"compare_all": True} if compare_all else {})}
    result = study(options=options).simulate(tables, coins=coins("kikuchi"))
    asked = {name: X[[column for column in held if column != "y"]][:100] for name, held in SPLITS[parties].items()}
    found = result.model.predict(asked, coins=coins("ask"))
    assert (found == POOLED[:100]).mean() > 0.8
    holders = [name for name in tables if name != "bank"]
    assert result.leakage["bank"].opened == ()
    for name in holders:  # one thinned size per value and class of its own columns
        assert set(result.leakage[name].opened) == {"thinned_size"}
        assert len(result.leakage[name].opened) == 2 * sum(BOOK.feature(each).size for each in SPLITS[parties][name])
    assert "learned a thinned size" in result.statement
    assert any("learned a thinned size" in line for line in result.report.follows)
    assert result.report.unforeseen == ()


@pytest.mark.parametrize("parties", [2, 3])
def test_exact_intersections_classify_as_training_on_the_joined_table(parties: int) -> None:
    """A person whom a holder lacks is a missing value; alpha is the study's."""
    rng, absent = np.random.default_rng(5), FRAME.astype({"v": object, "w": object})
    tables = {"bank": FRAME[["id", *SPLITS[parties]["bank"]]]}
    for name in [name for name in SPLITS[parties] if name != "bank"]:
        lost = rng.random(len(FRAME)) < 0.3
        tables[name] = FRAME[~lost][["id", *SPLITS[parties][name]]]
        absent.loc[lost, SPLITS[parties][name]] = None
    optional = BOOK.with_features(
        (Categorical("v", ("0", "1"), optional=True), Categorical("w", ("0", "1"), optional=True), BOOK.features[2])
    )
    joined = NaiveBayes(optional, alpha=0.5).fit(absent[["v", "w", "u"]], FRAME["y"])
    result = study(protocol="set_intersection", alpha=0.5).simulate(tables, coins=coins("exact"))
    asked = {name: X[[column for column in held if column != "y"]] for name, held in SPLITS[parties].items()}
    assert (result.model.predict(asked, coins=coins("ask")) == joined.predict(X)).all()
    assert result.leakage["bank"].opened == ()
    for name in set(tables) - {"bank"}:
        sizes = sum(BOOK.feature(each).size for each in SPLITS[parties][name])
        assert result.leakage[name].opened == ("intersection_size",) * 2 * sizes
    assert "learned the exact number of persons" in result.statement
    assert any("outside the query budget" in line for line in result.report.follows)
    assert result.report.unforeseen == ()


@pytest.mark.parametrize(
    ("protocol", "uniform"),
    [("set_intersection", False), ("distorted_intersection", False), ("scalar_product", False), ("joined_sums", True)],
)
def test_reports_call_a_share_uniform_only_where_it_is(protocol: str, uniform: bool) -> None:
    """Check the leak reports of training and of a classification."""
    tables = {name: FRAME[["id", *names]] for name, names in SPLITS[2].items()}
    if protocol == "scalar_product":
        options = {"key_bits": 512, "toy_keys": True, "degree": 10}
        agreed = ColumnStudy(BOOK, protocol=protocol, options=options)
        tables = {name: table.drop(columns="id")[:20] for name, table in tables.items()}
    else:
        agreed = study(protocol=protocol)
    result = agreed.simulate(tables, coins=coins("uniform"))
    asked = {name: X[[column for column in names if column != "y"]][:2] for name, names in SPLITS[2].items()}
    answer = result.model.classify(asked, coins=coins("ask"))
    for report in (result.report, answer.report):
        assert any(line.startswith("A share alone is uniform") for line in report.follows) is uniform
        assert any("shares of all parties together are the model" in line for line in report.follows)
        if protocol.endswith("_intersection"):
            assert report.follows[0].startswith("A share is not uniform")


def test_the_leak_is_as_large_as_the_page_says() -> None:
    """0.8 bits on average of the 6.7 of a number up to 100, over uniform numbers and thinnings of a list of 200."""
    most, items = 100, 200
    left = np.array([entropy(posterior(thinned, most, bob_items=items)) for thinned in range(most + 1)])
    chances = np.zeros(most + 1)
    for rate in np.arange(1, items, 7) / items:
        chances += binom.pmf(np.arange(most + 1)[:, None], np.arange(most + 1)[None], rate).sum(axis=1)
    told = math.log2(most + 1) - float((chances / chances.sum() * left).sum())
    assert (round(told, 1), round(math.log2(most + 1), 1)) == (0.8, 6.7)


@pytest.mark.parametrize("protocol", ["set_intersection", "distorted_intersection"])
def test_what_is_refused_and_that_no_new_site_allows_it(protocol: str) -> None:
    with pytest.raises(PrivacyError, match="joined_sums does"):
        study(protocol=protocol, epsilon=1.0)
    with pytest.raises(ConfigError, match="counts people"):
        study(protocol=protocol, duplicates="join")
    wide = BOOK.with_features((Numeric("u", 0, 9, 1),))
    with pytest.raises(ConfigError, match="give it bins"):
        JoinStudy(wide, protocol=protocol, key="id", duplicates="first")
    assert task_class(protocol).restricted
    tables = {"bank": FRAME[["id", "u", "y"]], "shop": FRAME[["id", "v", "w"]]}
    with pytest.raises(PrivacyError, match="does not allow the protocol"):
        study(protocol=protocol).simulate(tables, policies={"bank": open_policy()})


def test_thinning_needs_two_people_of_a_class_and_its_own_smoothing() -> None:
    with pytest.raises(ConfigError, match="leave alpha at 1"):
        study(alpha=0.5)
    few = FRAME[FRAME["y"] == "a"][:50]
    with pytest.raises(DataError, match="fewer than two people"):
        study().simulate({"bank": few[["id", "u", "y"]], "shop": few[["id", "v", "w"]]})


def test_a_study_with_proofs_gives_the_same_model_and_states_what_they_hold_against() -> None:
    small = FRAME[:40]
    tables = {"bank": small[["id", "u", "y"]], "shop": small[["id", "v", "w"]]}
    results = {}
    for proofs in (False, True):
        options = {"queries": 100, "proofs": proofs}
        results[proofs] = study(protocol="set_intersection", options=options).simulate(tables, coins=coins("proofs"))
    asked = {"bank": X[["u"]][:30], "shop": X[["v", "w"]][:30]}
    plain, proved = (results[proofs].model.predict(asked, coins=coins("ask")) for proofs in (False, True))
    assert (plain == proved).all()
    assert "class holder that deviates in training is caught" in results[True].statement
    assert "class holder that deviates" not in results[False].statement
    for result in results.values():
        for document in (result.statement, str(result.report)):
            assert "attribute holder that deviates can learn which of its persons have which class" in document
    assert results[True].cost.messages == results[False].cost.messages + 2 * 4  # a proof per value and class
    with pytest.raises(ConfigError, match="proofs"):
        study(protocol="distorted_intersection", options={"queries": 100, "proofs": True})
