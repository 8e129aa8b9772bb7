"""The check `one_floor`: under min_cell a table has one codebook and one floor."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import RunRequest, facts_of, one_floor
from blindbayes.disclosure.policy import require_allowed
from blindbayes.disclosure.value import RowSum, SumForm
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import begin, bound_by, exact_sum, identity, opens, past, records


def with_floor(floor: int, **changes: str) -> RunRequest:
    return exact_sum(disclosure=opens(row_sum=RowSum(SumForm.EXACT, 3, floor)), **changes)


def test_another_codebook_or_floor_beside_a_floored_sum_is_refused(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abc", counted=("c0", "s0"), min_cell=10))
    one_floor.require(with_floor(10), known)
    for request in (with_floor(0), with_floor(5), with_floor(10, codebook="c1"), with_floor(0, codebook="c1")):
        with pytest.raises(PrivacyError, match="could fix a cell"):
            one_floor.require(request, known)
    one_floor.require(with_floor(5, table="other"), known)


def test_a_floor_after_a_sum_without_one_is_refused(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abc", counted=("c0", "s0")))
    one_floor.require(with_floor(0, codebook="c1"), known)
    with pytest.raises(PrivacyError, match="min_cell 0"):
        one_floor.require(with_floor(10), known)


def test_the_log_keeps_the_floor_for_later_checks(tmp_path: Path) -> None:
    known = records(tmp_path)
    facts = {name: fact for name, fact in facts_of(with_floor(10)).items() if name not in ("run", "study")}
    begin(known.history.audit, **facts)
    (last,) = known.history.exact_sums()
    assert (last.min_cell, last.sites) == (10, frozenset(map(identity, "abc")))


def test_the_strictest_policy_holds() -> None:
    for floor in (0, 5):
        with pytest.raises(PrivacyError, match="min_cell_of_sums"):
            require_allowed(open_policy(min_cell_of_sums=10), opens(row_sum=RowSum(SumForm.EXACT, 3, floor)))
    require_allowed(open_policy(min_cell_of_sums=10), opens(row_sum=RowSum(SumForm.EXACT, 3, 10)))
    require_allowed(open_policy(min_cell_of_sums=10), opens(row_sum=RowSum(SumForm.NOISY, 3), epsilon=1.0))
