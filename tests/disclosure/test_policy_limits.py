"""Site policy fails closed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.approvals.summary import require_study
from blindbayes.disclosure.checks import require_all
from blindbayes.disclosure.policy import DEFAULT_PROTOCOLS, Policy, require_allowed, require_rate, require_rows
from blindbayes.disclosure.value import Answers, Disclosure, RowSum, SumForm
from blindbayes.errors import PrivacyError
from blindbayes.study.file import Limits, Privacy
from blindbayes.study.tasks import registry as tasks
from blindbayes.testing.loopback import open_policy
from support.disclosure import exact_sum, opens, records
from support.sites import paper_policy
from support.study_files import study


@pytest.mark.parametrize(
    ("policy", "change", "message"),
    [
        (open_policy(protocols=("ring_sum",)), {}, "does not allow"),
        (open_policy(), {"protocol": "reference", "hosts": {"collector": "north"}}, "does not allow"),
        (
            paper_policy(),
            {"protocol": "chain_sum", "hosts": {"builder": "north"}, "options": {"toy_keys": True, "key_bits": 256}},
            "toy keys",
        ),
        (open_policy(exact_sums=False), {}, "no exact sum"),
        (open_policy(min_parties=4), {}, "at least 4"),
        (open_policy(max_epsilon_per_run=0.5), {"privacy": Privacy(epsilon=1.0)}, "at most 0.5"),
        (open_policy(require_all_signatures=True), {}, "signatures"),
        (open_policy(), {"privacy": Privacy(epsilon=1.0, delta=1e-3)}, "delta"),
    ],
)
def test_what_no_rule_allows_is_refused(policy: Policy, change: dict[str, Any], message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        require_study(policy, study(**change))


def test_the_strict_defaults_allow_the_default_study() -> None:
    require_study(open_policy(), study())
    require_rows(open_policy(), study().study.limits.min_rows, 10)


def test_too_few_rows_and_too_many_runs_are_refused() -> None:
    with pytest.raises(PrivacyError, match="fewer rows") as caught:
        require_rows(open_policy(), study().study.limits.min_rows, 7)
    assert "7" not in str(caught.value)
    with pytest.raises(PrivacyError, match="fewer rows"):
        require_rows(open_policy(), study(limits=Limits(min_rows=100)).study.limits.min_rows, 50)
    require_rate(open_policy(max_runs_per_day=2), [0.0, 99_000.0], 100_000.0)
    with pytest.raises(PrivacyError, match="runs a day"):
        require_rate(open_policy(max_runs_per_day=2), [99_000.0, 99_001.0], 100_000.0)
    with pytest.raises(PrivacyError, match="runs a day"):
        require_rate(open_policy(max_runs_per_day=2), [99_000.0, 900_000.0], 100_000.0)  # a clock that was set back


def test_a_new_site_allows_the_protocols_of_the_core_that_protect_and_run_between_sites() -> None:
    assert tuple(name for name in tasks.own_names() if not tasks.task_class(name).restricted) == DEFAULT_PROTOCOLS


def test_an_exact_sum_of_two_sites_is_refused_whatever_the_policy_asks_for() -> None:
    policy, shown = open_policy(min_parties=2), Disclosure(protocol="masked_sum", summary="", messages=())
    with pytest.raises(PrivacyError, match="an exact sum of two sites"):
        require_allowed(policy, replace(shown, row_sum=RowSum(SumForm.EXACT, 2)))
    require_allowed(policy, replace(shown, row_sum=RowSum(SumForm.NOISY, 2), epsilon=1.0))
    require_allowed(policy, replace(shown, row_sum=RowSum(SumForm.EXACT, 3)))


def test_limits_are_checked_again_when_a_run_computes(tmp_path: Path) -> None:
    """A policy that became stricter after the approval holds for the next run."""
    request = exact_sum(disclosure=opens(row_sum=RowSum(SumForm.EXACT, 3)))
    require_all(request, records(tmp_path, open_policy()))
    with pytest.raises(PrivacyError, match="no exact sum"):
        require_all(request, records(tmp_path, open_policy(exact_sums=False)))


def test_delta_per_run_is_limited() -> None:
    noisy = opens(row_sum=RowSum(SumForm.NOISY, 3), epsilon=1.0, delta=1e-6)
    require_allowed(open_policy(max_delta_per_run=1e-6), noisy)
    with pytest.raises(PrivacyError, match="a delta of at most 1e-07"):
        require_allowed(open_policy(max_delta_per_run=1e-7), noisy)


@pytest.mark.parametrize(("queries", "message"), [(None, "does not limit"), (11, "at most 10 instances")])
def test_answers_of_a_model_in_shares_are_limited(queries: int | None, message: str) -> None:
    policy = open_policy(protocols=("class_sums",), max_queries=10)
    require_allowed(policy, opens("class_sums", answers=Answers(10, (), min_cell=10)))
    with pytest.raises(PrivacyError, match=message):
        require_allowed(policy, opens("class_sums", answers=Answers(queries, (), min_cell=10)))
