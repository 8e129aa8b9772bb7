"""Studies with protocol="private_ratio": a model in shares of two parties, which classify for any party."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes import Result, RowStudy
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.report.spec import read_spec
from blindbayes.study import Study
from blindbayes.study.simulation.models import RowModel
from support.oracles import near_tie
from support.smokers import BOOK, POOLED, TABLES, X
from support.studies import make_study
from support.two_party import coins

SPEC = read_spec("private_ratio").table


def opened(result: Result) -> set[tuple[str, ...]]:
    return {leak.opened for leak in result.leakage.values()}


def test_the_model_stays_in_shares_that_classify_as_pooled_training_does(tmp_path: Path) -> None:
    result = RowStudy(BOOK, protocol="private_ratio", options={"queries": 1000}).simulate(TABLES, coins=coins("study"))
    assert set(result.leakage) == set(TABLES)
    assert opened(result) == {tuple(SPEC["opened"])} == {()}
    assert "Nothing is opened" in result.statement
    assert "At most 1000 instances may be classified" in result.statement
    # Two parties hold shares; together they are the exact statistics of all rows.
    model = result.model
    assert {name for name, share in model.shares.items() if share.tables} == {"north", "west"}
    assert model.statistics() == POOLED.statistics_
    assert np.array_equal(model.combine().predict(X), POOLED.predict(X))
    near = near_tie(model.rows.plan, POOLED.predict_joint_log_proba(X))
    for asker in TABLES:  # two that compute, and one that does not
        asked = model.classify(X[:200], to=asker, coins=coins(f"ask {asker}"))
        assert (asked.labels == POOLED.predict(X[:200]))[~near[:200]].all()
        assert {name: leak.opened for name, leak in asked.leakage.items()} == {
            name: ("class",) if name == asker else () for name in TABLES
        }
        assert f"opened, to {asker}," in asked.statement
        assert asked.report.unforeseen == ()
    assert {share.spent for share in model.shares.values()} == {600}
    with pytest.raises(PrivacyError, match="query budget"):
        model.predict(X[:500], to="south")
    with pytest.raises(ConfigError, match="no party"):
        model.predict(X[:5], to="east")
    folder = Path(result.save(tmp_path / "release"))
    assert not (folder / "model.json").exists()
    assert "Nothing was opened to it." in (folder / "leakage.json").read_text()
    again = RowModel.load({name: folder / f"{name}.share" for name in TABLES})
    assert np.array_equal(again.predict(X[:50], to="south"), POOLED.predict(X[:50]))
    again.destroy("north")
    with pytest.raises(ConfigError, match="destroyed"):
        again.predict(X[:5], to="south")


def test_no_pair_is_named_where_all_parties_compute() -> None:
    options = {"queries": 1000, "computing": 3}
    result = RowStudy(BOOK, protocol="private_ratio", options=options).simulate(TABLES, coins=coins("study"))
    model = result.model
    assert all(share.tables for share in model.shares.values())
    assert model.statistics() == POOLED.statistics_
    assert "safe while one of them is honest" in result.statement
    assert "must not collude" not in result.statement
    assert result.report.unforeseen == ()
    near = near_tie(model.rows.plan, POOLED.predict_joint_log_proba(X))[:100]
    asked = model.classify(X[:100], to="south", coins=coins("ask"))
    assert (asked.labels == POOLED.predict(X[:100]))[~near].all()
    for computing, match in ((1, "at least 2"), (4, "2 to 3 can compute")):
        with pytest.raises(ConfigError, match=match):
            RowStudy(BOOK, protocol="private_ratio", options={"computing": computing}).simulate(TABLES)


def test_a_table_above_its_part_of_max_rows_is_refused() -> None:
    """Nobody sees the total, so nobody could see that it overflowed."""
    book = msgspec.structs.replace(BOOK, max_rows=1400)  # 466 rows each, and west has 500
    with pytest.raises(DataError, match="at most max_rows / 3 = 466 rows"):
        RowStudy(book, protocol="private_ratio").simulate(TABLES)


def test_what_is_refused() -> None:
    def study(**fields: Any) -> Study:
        return make_study(BOOK, protocol="private_ratio", **fields)

    with pytest.raises(PrivacyError, match="adds no noise"):
        study(epsilon=1.0)
    with pytest.raises(ConfigError, match="unknown protocol option 'opening'"):
        study(options={"opening": "coarse"})
    with pytest.raises(ConfigError, match="queries is a whole number, at least 1"):
        study(options={"queries": 0})
    with pytest.raises(PrivacyError, match="at least 400 rows"):
        study(min_rows=400).simulate(TABLES)
    with pytest.raises(ConfigError, match="every party"):
        study(quorum=2)
    two = {name: TABLES[name] for name in ("north", "south")}
    with pytest.raises(PrivacyError, match="at least 3 parties"):
        study().simulate(two)
    assert opened(study(min_parties=2).simulate(two)) == {()}
    with pytest.raises(ConfigError, match=r"known: .*private_ratio"):
        RowStudy(BOOK, protocol="private_sum")
