"""The check `one_selection`: a study chooses the rows that count, and two choices may differ by one person."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import facts_of, one_selection
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import bound_by, exact_sum, past, records


def test_another_cohort_of_the_same_database_is_refused_whatever_the_codebook(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abc", counted=("c0", "s0"), selection="h0"))
    one_selection.require(exact_sum(codebook="c1", statistics="s1", selection="h0"), known)
    for selection in ("h1", ""):
        with pytest.raises(PrivacyError, match="may differ by one person"):
            one_selection.require(exact_sum(codebook="c1", selection=selection), known)
    one_selection.require(exact_sum(table="other", selection="h1"), known)
    consents = bound_by(tmp_path, past("abc", selection="h0"), policy=open_policy(changed_data=True))
    one_selection.require(exact_sum(selection="h1"), consents)
    one_selection.require(exact_sum(codebook="c1"), bound_by(tmp_path, past("abc")))  # tables have none


@pytest.mark.parametrize("end", ["opened", "open"])
def test_the_log_names_the_cohort(tmp_path: Path, end: str) -> None:
    known = records(tmp_path, open_policy())
    request = exact_sum(selection="h0")
    known.history.audit.append("computing", **facts_of(request))
    if end == "opened":
        known.history.audit.append("opened", run=request.run_id, study=request.study, included=list(request.names))
    assert [each.selection for each in known.history.binding().sums] == ["h0"]
    assert "selection" not in facts_of(exact_sum())


def test_folds_of_two_cross_validations_are_the_same(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abc", folds="5 h0"))
    for folds in ("", "5 h0"):
        one_selection.require(exact_sum(codebook="c1", folds=folds), known)
    for folds in ("6 h0", "5 h1"):
        with pytest.raises(PrivacyError, match="folds"):
            one_selection.require(exact_sum(codebook="c1", folds=folds), known)
