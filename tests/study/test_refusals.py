"""A study refuses nonsense, and what does not apply to it, when it is made: whoever signs must know what a setting does."""

from __future__ import annotations

from typing import Any

import pytest

from blindbayes import Study
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols.secure_sum.params import MaskedSumParams
from blindbayes.study import ColumnStudy, JoinStudy, RowStudy
from blindbayes.study.fields import Model, Privacy, Thresholds
from blindbayes.study.tasks.aligned import ClassSumsParams
from blindbayes.study.tasks.joined import JoinedSumsParams
from support.sites import BOOK

COLUMNS = {"partition": "columns"}
JOIN = {"partition": "columns", "aligned": False, "key": "id"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"partition": "diagonal"}, "partition"),
        ({"protocol": "nonsense"}, "no protocol 'nonsense'"),
        ({**COLUMNS, "protocol": "nonsense"}, "no protocol 'nonsense'"),
        ({"protocol": "class_sums"}, "no rows protocol"),
        ({**COLUMNS, "protocol": "masked_sum"}, "no columns protocol"),
        ({"epsilon": 1.0, "unit": "Party"}, "unit is 'record' or 'party'"),
        ({"epsilon": 1.0, "unit": "persons"}, "unit"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"epsilon": 1.0, "gamma": 5}, "gamma"),
        ({"epsilon": 1.0, "gamma": 0.0}, "gamma"),
        ({"epsilon": 1.0, "delta": -0.1}, "delta"),
        ({"epsilon": 1.0, "party_rows": 10}, "party_rows is for unit"),
        ({"epsilon": 1.0, "expected_rows": 0}, "expected_rows is a whole number"),
        ({"delta": 1e-9}, "without epsilon"),
        ({"gamma": 0.9}, "without epsilon"),
        ({"expected_rows": 100}, "without epsilon"),
        ({"unit": "party"}, "without epsilon"),
        ({"gamma": 0.5}, "without epsilon"),
        ({"min_cell": 5}, "exact sum"),
        ({"quorum": -3}, "quorum is a whole number"),
        ({"quorum": 2.5}, "quorum is a whole number"),
        ({"min_parties": 1}, "min_parties"),
        ({"min_rows": -1}, "min_rows"),
        ({"alpha": -1}, "alpha"),
        ({"alpha": 0}, "alpha"),
        ({"var_smoothing": -1.0}, "var_smoothing"),
        ({"key": "id"}, "key does not apply"),
        ({"aligned": False}, "aligned does not apply"),
        ({"reveal_to": "nobody"}, "reveal_to does not apply"),
        ({"duplicates": "zzz"}, "duplicates are"),
        ({"duplicates": "first"}, "duplicates does not apply"),
        ({"options": {"neighbours": 3}}, "unknown protocol option 'neighbours'"),
        ({"options": {"publish": "many"}}, "the option publish is true or false"),
        ({"protocol": MaskedSumParams(publish=True), "options": {"publish": False}}, "once"),
        ({**COLUMNS, "quorum": 2}, "quorum does not apply"),
        ({**COLUMNS, "duplicates": "first"}, "duplicates does not apply"),
        ({**COLUMNS, "epsilon": 1.0, "unit": "party", "party_rows": 9}, "one record"),
        ({**COLUMNS, "options": {"queries": 0}}, "queries"),
        ({**COLUMNS, "options": {"compare_all": 1}}, "the option compare_all is true or false"),
        ({**COLUMNS, "aligned": False, "protocol": "class_sums"}, "line up"),
        ({**JOIN, "options": {"join": "outer"}}, "the option join is one of inner, left"),
        ({**JOIN, "options": {"overlap_epsilon": -1.0}}, "overlap_epsilon"),
        ({**COLUMNS, "protocol": "noisy_histograms"}, "needs epsilon"),
        ({"protocol": "private_ratio", "quorum": 3}, "needs every party"),
        ({"protocol": "opened_ratio", "options": {"opening": "wide"}}, "opening is one of"),
        ({"protocol": "scalar_product", "options": {"queries": 3}}, "unknown protocol option"),
    ],
)
def test_nonsense_and_what_does_not_apply_is_refused_when_the_study_is_made(given: dict[str, Any], told: str) -> None:
    with pytest.raises((ConfigError, PrivacyError), match=told):
        Study(BOOK, **given)


def test_a_study_is_of_the_kind_that_its_settings_describe() -> None:
    assert type(Study(BOOK)) is RowStudy
    assert type(Study(BOOK, **COLUMNS)) is ColumnStudy
    assert type(Study(BOOK, **JOIN)) is JoinStudy
    assert type(Study(BOOK, partition="columns", protocol="joined_sums", key="id")) is JoinStudy
    with pytest.raises(ConfigError, match="RowStudy is over rows"):
        RowStudy(BOOK, partition="columns")


def test_options_may_be_typed_and_mean_the_same() -> None:
    for typed, plain in (
        (Study(BOOK, protocol=MaskedSumParams(publish=False)), Study(BOOK, options={"publish": False})),
        (ColumnStudy(BOOK, protocol=ClassSumsParams(queries=7)), Study(BOOK, **COLUMNS, options={"queries": 7})),
        (JoinStudy(BOOK, key="id", protocol=JoinedSumsParams(min_overlap=9)), Study(BOOK, **JOIN, options={"min_overlap": 9})),
    ):
        assert typed.to_dict() == plain.to_dict()
        assert typed.sha256 == plain.sha256
        assert typed.params == plain.params


def test_a_study_does_not_change_once_it_is_made() -> None:
    study = Study(BOOK, epsilon=1.0)
    with pytest.raises(AttributeError, match="replace"):
        study.epsilon = 9.0
    assert study.replace(epsilon=9.0).epsilon == 9.0
    assert study.epsilon == 1.0


def test_settings_in_groups_are_those_by_name() -> None:
    typed = RowStudy(
        BOOK, privacy=Privacy(epsilon=1.0, delta=1e-9), thresholds=Thresholds(min_parties=4), model=Model(alpha=2.0)
    )
    flat = Study(BOOK, epsilon=1.0, delta=1e-9, min_parties=4, alpha=2.0)
    assert typed.sha256 == flat.sha256
    assert (typed.privacy, typed.thresholds, typed.model) == (flat.privacy, flat.thresholds, flat.model)
    assert flat.privacy == Privacy(epsilon=1.0, delta=1e-9)
    with pytest.raises(ConfigError, match="epsilon is given twice"):
        RowStudy(BOOK, epsilon=1.0, privacy=Privacy(epsilon=1.0))
    with pytest.raises(ConfigError, match="quorum does not apply"):
        ColumnStudy(BOOK, thresholds=Thresholds(quorum=2))
