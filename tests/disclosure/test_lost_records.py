"""The check `lost_records`: tables whose exact sums may be missing from a restored log."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import lost_records
from blindbayes.errors import PrivacyError
from support.disclosure import bound_by, exact_sum, past


def test_after_a_restore_only_tables_that_are_bound_for_certain_are_summed(tmp_path: Path) -> None:
    lost_records.require(exact_sum(), bound_by(tmp_path))
    for sums in ((), (past("abc", is_final=False),)):
        with pytest.raises(PrivacyError, match="came back from a backup"):
            lost_records.require(exact_sum(), bound_by(tmp_path, *sums, lost_at=9))
    lost_records.require(exact_sum(), bound_by(tmp_path, past("abc"), lost_at=9))
