"""The check `rate`: runs of all studies in a day."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from blindbayes.disclosure.checks import rate
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import PrivacyError
from support.disclosure import begin, exact_sum, records


def test_runs_of_any_study_count_for_a_day(tmp_path: Path) -> None:
    known = records(tmp_path, Policy(max_runs_per_day=1))
    rate.require(exact_sum(), known)
    begin(known.history.audit)
    with pytest.raises(PrivacyError, match="at most 1 runs a day"):
        rate.require(exact_sum(study="6" * 64), known)
    rate.require(exact_sum(), replace(known, now=known.now + 86401))


def test_a_clock_set_back_does_not_free_runs(tmp_path: Path) -> None:
    known = records(tmp_path, Policy(max_runs_per_day=1))
    begin(known.history.audit)
    with pytest.raises(PrivacyError, match="runs a day"):
        rate.require(exact_sum(), replace(known, now=known.now - 10 * 86400))
