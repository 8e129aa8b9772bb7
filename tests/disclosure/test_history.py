"""Questions about the audit log: what a long history answers, and how much of it is read for an answer."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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


class WalkedLog:
    """The log as `History` reads it, without an index: every answer is a walk over the lines of the file."""

    def __init__(self, path: Path, rehearsed: Sequence[dict[str, Any]] = ()) -> None:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        self.all = [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]
        self.all.extend(rehearsed)

    @property
    def derived(self) -> dict[str, Any]:
        return {}

    def where(self, field: str, value: str, *events: str) -> list[dict[str, Any]]:
        return [e for e in self.all if e.get(field) == value and (not events or e["event"] in events)]

    def where_each(self, field: str, values: Iterable[str], *events: str) -> dict[str, list[dict[str, Any]]]:
        return {value: self.where(field, value, *events) for value in values}


RUNS, STUDIES, SITES = [f"{at:032x}" for at in range(9)], ["5" * 64, "6" * 64], ["north", "south"]
IDENTITIES = ["a" * 64, "b" * 64, "c" * 64]


def random_event(draw: random.Random) -> tuple[str, dict[str, Any]]:
    at = draw.randrange(len(RUNS))
    run = {"run": RUNS[at], "study": STUDIES[at % 2]}
    some = draw.sample(IDENTITIES, draw.randint(1, 3))
    exact = {
        "exact": draw.random() < 0.8,
        "rows": f"r{draw.randrange(2)}",
        "contributors": some,
        "quorum": draw.randint(1, len(some)),
    }
    choices: list[tuple[str, dict[str, Any]]] = [
        ("joined", {**run, "proposed_by": draw.choice(SITES), "title": "t", "kind": "rows"}),
        ("computing", {**run, **exact, "overlap_bits_with": some[:1], "answers": 2, "waits_for_all": draw.random() < 0.5}),
        ("vector left", run),
        ("survivors confirmed", {**run, "included": some}),
        ("opened", {**run, "included": some}),
        ("settled", {**run, "included": some[:-1]}),
        ("ended", {**run, "state": draw.choice(["done", "failed", "stopped", "burned"])}),
        ("stopped", {**run, "who": "Ada"}),
        ("classifying", {**run, "model": draw.choice(RUNS), "instances": 3}),
        ("destroyed", {"run": RUNS[at]}),
        ("withdrew", {"study": STUDIES[at % 2]}),
        ("returned", {"study": STUDIES[at % 2]}),
        ("restored", {"of": "a day"}),
        ("acknowledged", {"exact_sums": draw.random() < 0.5}),
        ("witnessed", {**run, "site": draw.choice(SITES), "head": "h"}),
        ("pinned", {"site": draw.choice(SITES), "identity": draw.choice(IDENTITIES)}),
        ("forgot", {"site": draw.choice(SITES)}),
    ]
    return draw.choices(choices, [3, 6, 3, 2, 2, 1, 4, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1])[0]


def answers(history: History) -> dict[str, Any]:
    binding = history.binding()
    first = [run for run in RUNS if history.has_computed(run)]
    return {
        "binding": (list(binding.sums), dict(binding.same_site), binding.lost_at),
        "starts": history.starts(),
        "counts": [(history.starts(study), history.count_starts(study), history.classified(study)) for study in STUDIES],
        "withdrawn": [history.has_withdrawn(study) for study in STUDIES],
        "releases": [history.releases(study, IDENTITIES[0]) for study in STUDIES],
        "computed": first,
        "idle": [history.idle_joins(site, 0) for site in SITES],
        "runs": [history.runs(), history.runs(study=STUDIES[0], last=2)],
        "unended": [history.unended(), history.unended(at=7), history.stopped_runs()],
        "overlap": history.overlap_bits(),
        "unsettled": history.unsettled(),
        "witnessed": [history.witnessed(site) for site in SITES],
        "behind": history.behind(),
        "destroyed": [history.was_destroyed(run) for run in RUNS],
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_index_answers_as_a_walk_over_the_whole_log_does(tmp_path: Path, seed: int) -> None:
    """With entries of other processes, torn lines and rehearsals in between: a wrong answer could allow other sites."""
    draw, path = random.Random(seed), tmp_path / "audit.log"
    audits = AuditLog(path), AuditLog(path)  # the second is another process
    for _ in range(80):
        event, facts = random_event(draw)
        if draw.random() < 0.1 and path.exists():
            with path.open("ab") as file:
                file.write(b'{"event": "computing", "run"')  # a writer that was killed
        draw.choice(audits).append(event, **facts)
        if draw.random() < 0.4:
            reader = History(draw.choice(audits))
            assert answers(reader) == answers(History(WalkedLog(path)))  # type: ignore[arg-type]
            with rehearsal():
                event, facts = random_event(draw)
                reader.audit.append(event, **facts)
                pending = reader.entries()[-1:]
                assert answers(reader) == answers(History(WalkedLog(path, pending)))  # type: ignore[arg-type]
    for audit in audits:
        assert answers(History(audit)) == answers(History(WalkedLog(path)))  # type: ignore[arg-type]


def test_threads_that_ask_one_log_while_others_write_miss_no_entry(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.log")
    history = History(audit)

    def work(thread: int) -> list[bool]:
        seen = []
        for number in range(8):
            run = f"{thread * 100 + number:032x}"
            audit.append("computing", run=run, study="s", exact=True, contributors=["a"], quorum=1)
            seen.append(history.has_computed(run) and run in {each.run for each in history.exact_sums()})
        return seen

    with ThreadPoolExecutor(4) as pool:
        assert all(all(seen) for seen in pool.map(work, range(4)))
    assert history.count_starts("s") == len(history.exact_sums()) == len(audit.entries()) == 32
    assert [each.number for each in history.exact_sums()] == list(range(32))


def test_an_index_that_could_not_grow_leaves_no_entry_out(tmp_path: Path) -> None:
    """An agent that runs out of memory goes on: a start that it forgot would be one run more than approved."""
    audit = AuditLog(tmp_path / "audit.log")
    for run in RUNS:
        audit.append("computing", run=run, study="s")

    class Full(defaultdict[Any, Any]):
        def __missing__(self, key: Any) -> Any:
            if RUNS[4] in key:
                raise MemoryError
            return super().__missing__(key)

    audit._index = Full(list)
    with pytest.raises(MemoryError):
        History(audit).count_starts("s")
    audit._index = defaultdict(list, audit._index)
    assert History(audit).count_starts("s") >= len(RUNS)
    assert all(History(audit).has_computed(run) for run in RUNS)
