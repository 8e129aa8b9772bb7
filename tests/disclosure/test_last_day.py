"""The check `last_day`: an approval counts to the end of its last day, UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from blindbayes.disclosure.checks import ApprovalOver, ApprovedRuns, last_day
from support.disclosure import exact_sum, records


def test_the_last_day_counts_and_the_next_does_not(tmp_path: Path) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    until = ApprovedRuns(3, noon.date())
    last_day.require(exact_sum(), records(tmp_path, approval=until, now=noon.timestamp()))
    with pytest.raises(ApprovalOver, match=r"is over \(2026-03-01, UTC\)"):
        last_day.require(exact_sum(), records(tmp_path, approval=until, now=noon.timestamp() + 43200))


def test_an_approval_without_a_day_does_not_end(tmp_path: Path) -> None:
    last_day.require(exact_sum(), records(tmp_path, now=4e9))
