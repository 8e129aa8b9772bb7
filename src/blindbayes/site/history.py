"""What a site's audit log says of earlier runs: when they began, whom they told what, which sums they opened."""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass
from typing import Any

from blindbayes.site.audit_log import AuditLog
from blindbayes.site.difference import Data, PastSum


@dataclass(frozen=True, slots=True)
class History:
    """Reads the log; writes nothing."""

    audit: AuditLog

    def entries(self) -> list[dict[str, Any]]:
        """The audit log, verified."""
        return self.audit.entries()

    def starts(self, study: str | None = None) -> list[float]:
        """When runs (of a study) began to compute, by the calendar. Classifications have a budget of their own."""
        return [_when(entry) for entry in self.entries() if entry["event"] == "computing" and study in (None, entry["study"])]

    def has_computed(self, run_id: str) -> bool:
        """Whether a run came so far that this site looked at it, and charged for it."""
        return any(entry["event"] in ("computing", "classifying") and entry["run"] == run_id for entry in self.entries())

    def idle_joins(self, site: str) -> list[float]:
        """When another site began runs here that never came to compute."""
        computed = {entry["run"] for entry in self.entries() if entry["event"] in ("computing", "classifying")}
        joined = [entry for entry in self.entries() if entry["event"] == "joined" and entry["proposed_by"] == site]
        return [_when(entry) for entry in joined if entry["run"] not in computed]

    def overlap_bits(self) -> list[tuple[float, str]]:
        """When a bit about the overlap with another site was told, and which (identity)."""
        return [
            (_when(entry), partner)
            for entry in self.entries()
            if entry["event"] == "computing"
            for partner in entry.get("overlap_bits_with") or ()
        ]

    def past_sums(self) -> list[PastSum]:
        """Exact sums this site put a vector into. A run that began to compute and has no known end counts as uncertain."""
        begun: dict[str, dict[str, Any]] = {}
        ended: dict[str, PastSum] = {}
        for entry in self.entries():
            if entry["event"] == "computing" and entry.get("exact"):
                begun[entry["run"]] = entry
            elif entry["event"] == "opened" and entry["run"] in begun:
                first = begun.pop(entry["run"])
                ended[entry["run"]] = PastSum(frozenset(entry["included"]), _data_of(first), run=entry["run"])
        for run, first in begun.items():
            everybody = first["fewest"] == len(first["contributors"])
            unsure = None if everybody else first["fewest"]
            ended[run] = PastSum(frozenset(first["contributors"]), _data_of(first), unsure, run)
        return list(ended.values())

    def was_destroyed(self, run_id: str) -> bool:
        """Whether this site's people said that its share of a model shall be no more."""
        return any(entry["event"] == "destroyed" and entry["run"] == run_id for entry in self.entries())

    def classified(self, model: str, *, but: str = "") -> int:
        """Instances classified with a model, by the audit log; without the run `but`."""
        return sum(
            entry["instances"]
            for entry in self.entries()
            if entry["event"] == "classifying" and entry["model"] == model and entry["run"] != but
        )


def _when(entry: dict[str, Any]) -> float:
    return calendar.timegm(time.strptime(entry["time"], "%Y-%m-%dT%H:%M:%SZ"))


def _data_of(entry: dict[str, Any]) -> Data:
    tables = dict(line.split(" ", 1)[::-1] for line in entry.get("tables", ()))
    return Data(entry["codebook"], frozenset(entry["columns"]), entry["data"], entry["class_data"], tables)
