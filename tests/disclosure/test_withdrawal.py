"""The check `withdrawal`: a site that took its rows back."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import withdrawal
from blindbayes.errors import PrivacyError
from support.disclosure import STUDY, exact_sum, records


def test_only_a_run_with_a_base_can_take_rows_back(tmp_path: Path) -> None:
    known = records(tmp_path)
    withdrawal.require(exact_sum(), known)
    known.history.audit.append("withdrew", study=STUDY)
    with pytest.raises(PrivacyError, match="with a base only"):
        withdrawal.require(exact_sum(withdrawn=True), known)
    withdrawal.require(exact_sum(withdrawn=True, base="cd" * 16), known)
    known.history.audit.append("returned", study=STUDY)
    withdrawal.require(exact_sum(), known)


def test_a_decision_between_reading_and_computing_is_noticed(tmp_path: Path) -> None:
    known = records(tmp_path)
    with pytest.raises(PrivacyError, match="while the run began"):
        withdrawal.require(exact_sum(withdrawn=True, base="cd" * 16), known)
    known.history.audit.append("withdrew", study=STUDY)
    with pytest.raises(PrivacyError, match="while the run began"):
        withdrawal.require(exact_sum(base="cd" * 16), known)
