"""The approval page states the checks before every run."""

from __future__ import annotations

from blindbayes.agent.approvals.summary import approval_of
from blindbayes.disclosure.checks import one_set
from blindbayes.study.file import Privacy
from support.study_files import study


def test_the_approval_page_states_the_checks_before_every_run() -> None:
    shown = approval_of(study()).to_dict()["checks"]
    assert one_set.sentence in shown
    assert one_set.sentence not in approval_of(study(privacy=Privacy(epsilon=1.0))).to_dict()["checks"]
