"""The check `changed_data`: the difference of two exact sums over the same sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import changed_data
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import begin, bound_by, exact_sum, past


def test_changed_rows_need_the_policys_consent(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abc", rows="d0"))
    changed_data.require(exact_sum(rows="d0"), known)
    with pytest.raises(PrivacyError, match="changed since its last exact sum:"):
        changed_data.require(exact_sum(rows="d1"), known)
    consents = bound_by(tmp_path, past("abc", rows="d0"), policy=open_policy(changed_data=True))
    changed_data.require(exact_sum(rows="d1"), consents)


@pytest.mark.parametrize(("before", "is_refused"), [("d7", True), ("d0", False)])
def test_changes_since_other_rows_are_changed_rows(tmp_path: Path, before: str, is_refused: bool) -> None:
    known, run = bound_by(tmp_path, past("abc", rows="d0")), "cd" * 16
    begin(known.history.audit, run, table="rows", rows=before)
    request = exact_sum(base=run, since=run)
    if not is_refused:
        changed_data.require(request, known)
        return
    with pytest.raises(PrivacyError, match="changed since"):
        changed_data.require(request, known)


def test_after_a_restore_bound_rows_count_as_changed(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="or that is not known"):
        changed_data.require(exact_sum(), bound_by(tmp_path, past("abc", number=5), lost_at=9))
    changed_data.require(exact_sum(), bound_by(tmp_path, past("abc", number=10), lost_at=9))
