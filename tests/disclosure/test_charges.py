"""The charge: on the ledger before anything is computed, once per run."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.checks import charge
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import EXACT
from blindbayes.errors import PrivacyError
from support.disclosure import RUN, columns, exact_sum, records

PRICE = Charge(Spend(1, 0), "one record")


def test_a_run_is_paid_once_and_refused_when_the_budget_is_spent(tmp_path: Path) -> None:
    known = records(tmp_path, epsilon=1)
    for _ in range(2):  # the second time it is resumed after a crash between charge and log entry
        charge(columns(charge=PRICE), known)
        assert known.ledger.balance().charges == 1
    with pytest.raises(PrivacyError, match="budget exceeded"):
        charge(columns(charge=PRICE, run_id="ef" * 16), known)
    assert known.ledger.balance().charges == 1


def test_an_exact_sum_costs_nothing_and_stands_in_the_ledger_once(tmp_path: Path) -> None:
    known = records(tmp_path)
    charge(exact_sum(), known)
    charge(exact_sum(), known)
    assert [entry.fields["run"] for entry in known.ledger.entries() if entry.kind == EXACT] == [RUN]
    assert known.ledger.balance().charges == 0


def test_an_increment_is_charged_only_where_a_stay_of_a_record_costs_more(tmp_path: Path) -> None:
    """Two charges cover a line of changes, however long; without a previous run each costs one."""
    known = records(tmp_path)
    first, runs = "11" * 16, ["22" * 16, "33" * 16, "44" * 16]
    facts = {"quorum": 3, "contributors": list(exact_sum().exact_sum.contributors)}
    for run, since in zip([first, *runs], [None, first, *runs[:2]], strict=True):
        charge(columns(run_id=run, charge=PRICE, since=since), known)
        known.history.audit.append("computing", run=run, study=exact_sum().study, exact=False, since=since, **facts)
    assert known.ledger.balance().charges == 2


def test_only_the_same_draw_of_labels_is_paid_once(tmp_path: Path) -> None:
    known = records(tmp_path)
    for number, draw in enumerate(["first table", "first table", "changed table"]):
        run = f"{number:032x}"
        charge(columns(run_id=run, charge=Charge(Spend(1, 0), "one record", draw=draw)), known)
    assert known.ledger.balance().charges == 2
