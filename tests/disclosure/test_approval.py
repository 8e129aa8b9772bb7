"""The check `approval`: one approved run per run that computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from blindbayes.disclosure.checks import ApprovedRuns, approval
from blindbayes.errors import PrivacyError
from support.disclosure import begin, exact_sum, records


def test_a_run_is_allowed_while_approved_runs_are_left(tmp_path: Path) -> None:
    known = records(tmp_path, approval=ApprovedRuns(2))
    begin(known.history.audit)
    approval.require(exact_sum(), known)
    begin(known.history.audit, "ef" * 16)
    with pytest.raises(PrivacyError, match="taken back or used up"):
        approval.require(exact_sum(), known)
    approval.require(exact_sum(), replace(known, approval=ApprovedRuns(3)))


def test_a_study_without_an_approval_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="taken back or used up"):
        approval.require(exact_sum(), records(tmp_path, approval=None))
