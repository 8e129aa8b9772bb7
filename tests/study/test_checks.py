"""A study refuses nonsense, and what does not apply to it, when it is made: whoever signs must know what a setting does."""

from __future__ import annotations

from typing import Any

import pytest

from blindbayes.errors import ConfigError, PrivacyError
from support.sites import BOOK
from support.studies import make_study

COLUMNS = {"kind": "columns"}
JOIN = {"kind": "join", "key": "id"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"protocol": "nonsense"}, "no protocol 'nonsense'"),
        ({**COLUMNS, "protocol": "nonsense"}, "no protocol 'nonsense'"),
        ({"protocol": "class_sums"}, "no rows protocol"),
        ({**COLUMNS, "protocol": "masked_sum"}, "no columns protocol"),
        ({"epsilon": 1.0, "unit": "Party"}, "unit is 'record' or 'party'"),
        ({"epsilon": 1.0, "unit": "persons"}, "unit"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"epsilon": 1.0, "honest_fraction": 5}, "honest_fraction"),
        ({"epsilon": 1.0, "honest_fraction": 0.0}, "honest_fraction"),
        ({"epsilon": 1.0, "delta": -0.1}, "delta"),
        ({"epsilon": 1.0, "party_rows": 10}, "party_rows is for unit"),
        ({"epsilon": 1.0, "expected_rows": 0}, "expected_rows is a whole number"),
        ({"delta": 1e-9}, "without epsilon"),
        ({"honest_fraction": 0.9}, "without epsilon"),
        ({"expected_rows": 100}, "without epsilon"),
        ({"unit": "party"}, "without epsilon"),
        ({"honest_fraction": 0.5}, "without epsilon"),
        ({"min_cell": 2}, "at least 3"),
        ({"quorum": -3}, "quorum is a whole number"),
        ({"quorum": 2.5}, "quorum is a whole number"),
        ({"min_parties": 1}, "min_parties"),
        ({"min_rows": -1}, "min_rows"),
        ({"alpha": -1}, "alpha"),
        ({"alpha": 0}, "alpha"),
        ({"var_smoothing": -1.0}, "var_smoothing"),
        ({**JOIN, "duplicates": "zzz"}, "duplicates are"),
        ({"options": {"neighbours": 3}}, "unknown protocol option 'neighbours'"),
        ({"options": {"publish": "many"}}, "the option publish is true or false"),
        ({**COLUMNS, "quorum": 2}, "quorum does not apply"),
        ({**COLUMNS, "epsilon": 1.0, "unit": "party", "party_rows": 9}, "one record"),
        ({**COLUMNS, "options": {"queries": 0}}, "queries"),
        ({**COLUMNS, "options": {"compare_all": 1}}, "the option compare_all is true or false"),
        ({**JOIN, "protocol": "class_sums"}, "line up"),
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
        make_study(BOOK, **given)
