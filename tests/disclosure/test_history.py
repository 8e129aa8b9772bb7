"""Questions about the audit log: what a long history answers, and how much of it is read for an answer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.history import History
from blindbayes.io.chain import rehearsal


def joined(audit: AuditLog, run: str, site: str = "north") -> None:
    audit.append("joined", run=run, study="5" * 64, proposed_by=site, title="t", kind="rows")


def test_entries_of_several_events_come_in_their_order_with_those_of_a_rehearsal(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.log")
    for event, study in (("withdrew", "a"), ("joined", "a"), ("returned", "a"), ("returned", "b"), ("withdrew", "a")):
        audit.append(event, study=study)
    assert [each["event"] for each in audit.where("study", "a", "returned", "withdrew")] == ["withdrew", "returned", "withdrew"]
    assert [each["number"] for each in audit.where("study", "a", "joined")] == [1]
    assert len(audit.where("study", "a")) == 4
    assert History(audit).has_withdrawn("a")
    assert not History(audit).has_withdrawn("b")
    with rehearsal():
        audit.append("returned", study="a")
        assert not History(audit).has_withdrawn("a")
    assert History(audit).has_withdrawn("a")


def test_runs_that_others_began_long_ago_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each offer looked every run of the site's life up: half a second at 10,000 runs."""
    audit = AuditLog(tmp_path / "audit.log")
    for number in range(30):
        joined(audit, f"{number:032x}")
    asked: list[str] = []
    monkeypatch.setattr(History, "has_computed", lambda _, run: bool(asked.append(run)))
    history = History(audit)
    assert history.idle_joins("north", time.time() + 86400) == []
    assert asked == []
    assert len(history.idle_joins("north", time.time() - 86400)) == len(asked) == 30
    assert history.idle_joins("south", 0) == []


def test_what_a_site_showed_counts_since_it_was_forgotten_or_its_card_replaced(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.log")
    history = History(audit)

    def shown() -> list[tuple[str, bool]]:
        return [(entry["head"], is_over) for entry, is_over in history.witnessed("north")]

    audit.append("pinned", site="north", identity="1" * 64)
    audit.append("witnessed", site="north", run="r1", head="a")
    audit.append("witnessed", site="south", run="r1", head="b")
    audit.append("ended", run="r1", state="done")
    audit.append("pinned", site="north", identity="1" * 64)  # a new certificate
    audit.append("witnessed", site="north", run="r2", head="c")
    assert shown() == [("a", True), ("c", False)]
    audit.append("pinned", site="north", identity="2" * 64)
    assert shown() == []
    audit.append("witnessed", site="north", run="r3", head="d")
    assert shown() == [("d", False)]
    audit.append("forgot", site="south", why="w")
    assert shown() == [("d", False)]
    audit.append("forgot", site="north", why="w")
    assert shown() == []
    for number in range(70):
        audit.append("witnessed", site="north", run=f"r{number}", head=str(number))
    assert [head for head, _ in shown()] == [str(number) for number in range(6, 70)]
