"""The check `exact_changes`: an exact sum of changes is not all of a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import exact_changes
from blindbayes.errors import PrivacyError
from support.disclosure import begin, exact_sum, records


def test_changes_need_the_same_table_in_the_run_before(tmp_path: Path) -> None:
    known, run = records(tmp_path), "cd" * 16
    begin(known.history.audit, run, table="rows", rows="d0")
    exact_changes.require(exact_sum(), known)  # no changes
    exact_changes.require(exact_sum(base=run, since=run), known)
    with pytest.raises(PrivacyError, match="new in it, or has another table"):
        exact_changes.require(exact_sum(base=run, since=run, table="others"), known)
    with pytest.raises(PrivacyError, match="new in it, or has another table"):
        exact_changes.require(exact_sum(base=run, since=None), known)
