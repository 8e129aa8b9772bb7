"""The list of checks: its order, its sentences, a test for each, and what comes first when several refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.checks import CHECKS, checks_for, facts_of, require_all
from blindbayes.disclosure.value import Answers, RowSum, SumForm
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import columns, exact_sum, opens, records

ORDER = """approval last_day rate policy_limits withdrawal rows_digest exact_withdrawal exact_changes unknown_end lost_records
one_set one_selection one_name one_floor same_reading changed_data overlap_bits query_limit"""


def test_the_order_is_fixed_and_every_check_has_a_sentence_and_a_test_file() -> None:
    assert [check.name for check in CHECKS] == ORDER.split()
    for check in CHECKS:
        assert check.sentence.endswith(".")
        assert (Path(__file__).parent / f"test_{check.name}.py").exists(), check.name


def test_what_all_checks_allow_passes_and_the_first_refusal_is_raised(tmp_path: Path) -> None:
    known = records(tmp_path, open_policy(min_overlap=0, max_runs_per_day=1))
    require_all(exact_sum(), known)
    require_all(columns(), known)
    known.history.audit.append("computing", run="cd" * 16, study=exact_sum().study, exact=False)
    with pytest.raises(PrivacyError, match="runs a day"):
        require_all(exact_sum(), known)
    with pytest.raises(PrivacyError, match="taken back or used up"):
        require_all(exact_sum(), replace(known, approval=None))


def test_a_policy_that_changed_since_the_run_began_is_the_one_that_counts(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="no exact sum"):
        require_all(exact_sum(), records(tmp_path, open_policy(exact_sums=False)))


def test_the_approval_page_lists_the_checks_that_concern_a_study() -> None:
    names = {
        kind: {check.name for check in checks_for(disclosure)}
        for kind, disclosure in {
            "exact": opens(row_sum=RowSum(SumForm.EXACT, 3)),
            "noisy": opens(row_sum=RowSum(SumForm.NOISY, 3), epsilon=1.0),
            "columns": opens("class_sums", answers=Answers(None, ())),
        }.items()
    }
    assert "one_set" in names["exact"]
    assert "overlap_bits" not in names["exact"]
    assert names["noisy"] == {check.name for check in CHECKS if check.scope == "run"}
    assert names["columns"] - names["noisy"] == {"overlap_bits", "query_limit"}


def test_a_refused_run_is_neither_charged_nor_written_down(tmp_path: Path) -> None:
    known = records(tmp_path, approval=None)
    request = columns(charge=Charge(Spend(1, 0), "one record"))
    before = known.ledger.path.read_bytes()
    with pytest.raises(PrivacyError):
        require_all(request, known)
    assert known.ledger.path.read_bytes() == before
    assert not known.history.has_computed(request.run_id)


def test_the_log_records_what_later_checks_read() -> None:
    assert facts_of(columns(answers=3))["answers"] == 3
    exact = facts_of(exact_sum(base="cd" * 16, since="ef" * 16))
    assert {"table", "rows", "data", "codebook", "contributors", "quorum", "since", "base"} <= exact.keys()
    assert "rows" not in facts_of(replace(exact_sum(), vector=replace(exact_sum().exact_sum, exact=False)))
