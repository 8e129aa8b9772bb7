"""Requests and records for the checks of `disclosure`, without a study, a folder or an agent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.charges import RunLedger
from blindbayes.disclosure.checks import ApprovedRuns, Contribution, Records, RunRequest
from blindbayes.disclosure.history import History
from blindbayes.disclosure.one_set import Binding, ExactSum
from blindbayes.disclosure.policy import Policy
from blindbayes.disclosure.value import Answers, Disclosure, RowSum, SumForm
from blindbayes.testing.loopback import open_policy

STUDY, RUN = "5" * 64, "ab" * 16


def opens(protocol: str = "masked_sum", **fields: Any) -> Disclosure:
    return Disclosure(protocol=protocol, summary="", messages=(), **fields)


def identity(name: str) -> str:
    return name.encode().hex().rjust(64, "0")


def vector(names: Sequence[str] = "abc", *, quorum: int | None = None, **changes: Any) -> Contribution:
    fields: dict[str, Any] = {"exact": True, "table": "rows", "rows": "d0", "statistics": "s0", "codebook": "c0"}
    contributors, quorum_size = tuple(map(identity, names)), len(names) if quorum is None else quorum
    fields |= {"contributors": contributors, "quorum_size": quorum_size, "waits_for_all": False}
    return Contribution(**fields | changes)


def exact_sum(names: Sequence[str] = "abc", *, quorum: int | None = None, me: str = "a", **changes: Any) -> RunRequest:
    """A run that opens an exact sum over these sites, asked of the site `me`; `changes` of the request or its vector."""
    of_vector = {
        name: changes.pop(name) for name in ("table", "rows", "statistics", "codebook", "selection", "folds") if name in changes
    }
    return RunRequest(
        **{
            "run_id": RUN,
            "study": STUDY,
            "roster": STUDY,
            "title": "t",
            "disclosure": opens("masked_sum", row_sum=RowSum(SumForm.EXACT, len(names))),
            "identity": identity(me),
            "names": {identity(name): name for name in names},
            "unit": "record",
            "vector": vector(names, quorum=quorum, **of_vector),
            **changes,
        }
    )


def columns(**changes: Any) -> RunRequest:
    """A run over columns."""
    return replace(
        exact_sum(), **{"vector": None, "disclosure": opens("class_sums", answers=Answers(100, (), min_cell=10)), **changes}
    )


def past(names: Sequence[str], *, rows: str | None = "d0", table: str = "rows", number: int = 5, **more: Any) -> ExactSum:
    return ExactSum(RUN, number, table, rows, frozenset(map(identity, names)), **more)


def begin(log: AuditLog, run: str = "cd" * 16, **facts: Any) -> None:
    """Record that a run of the study began to compute."""
    log.append("computing", run=run, study=STUDY, **{"exact": False, **facts})


def records(folder: Path, policy: Policy | None = None, *, epsilon: float = 10, **changes: Any) -> Records:
    """The records of a site with an empty log, where the study is approved for three runs."""
    path = folder / "ledger.jsonl"
    if not path.exists():
        RunLedger.create(path, epsilon=epsilon)
    ledger = RunLedger(path)
    found = Records(
        policy or open_policy(),
        History(AuditLog(folder / "audit.log")),
        ledger,
        ApprovedRuns(3),
        time.time(),
    )
    return replace(found, **changes)


def bound_by(folder: Path, *sums: ExactSum, policy: Policy | None = None, **binding: Any) -> Records:
    """Records whose binding is given, whatever the log says."""
    found = records(folder, policy)
    found.__dict__["binding"] = Binding(sums, **{"same_site": {}, **binding})
    return found
