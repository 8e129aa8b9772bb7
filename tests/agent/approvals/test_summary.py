"""The approval page states the checks before every run."""

from __future__ import annotations

from typing import Any

from blindbayes.agent.approvals.summary import approval_of
from blindbayes.codebook import Categorical, Codebook
from blindbayes.disclosure.checks import one_set
from blindbayes.study.file import Party, Privacy, StudyFile
from blindbayes.testing.loopback import make_study_file

BOOK = Codebook("class", ("a", "b"), (Categorical("colour", ("red", "blue")),))


IDS = {name: f"{number:064x}" for number, name in enumerate(("north", "south", "west", "east"), 1)}


def study(names: tuple[str, ...] = ("north", "south", "west"), **changes: Any) -> StudyFile:
    fields: dict[str, Any] = {
        "title": "t",
        "parties": tuple(Party(name, IDS[name]) for name in names),
        "codebook": BOOK,
        "hosts": {"server": names[0]},
    }
    return make_study_file(**{**fields, **changes})


def test_the_approval_page_states_the_checks_before_every_run() -> None:
    shown = approval_of(study()).to_dict()["checks"]
    assert one_set.sentence in shown
    assert one_set.sentence not in approval_of(study(privacy=Privacy(epsilon=1.0))).to_dict()["checks"]
