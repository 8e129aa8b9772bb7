"""What a site's people decide about a study: yes for so many runs and days, no with a reason, or no longer; all in the log.

A yes may take several stewards (`approvers` in the policy): the first is written down and waits, the last makes the approval.
A no is signed and told to those parties of the study that ask for a run of it; nobody else hears anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from blindbayes.agent.approval import require_study
from blindbayes.agent.approvals import Approvals, today
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.people import People, require_reason
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.errors import ConfigError
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.study.file import StudyFile

_ANSWERS = ("approved", "revoked", "study refused")


def _asked(study: StudyFile, runs: int | None, until: date | None) -> dict[str, str | int | None]:
    """What a yes is to, as the log says it."""
    return {"roster": study.roster.sha256, "runs": runs, "until": None if until is None else until.isoformat()}


@dataclass(frozen=True, slots=True)
class Decided:
    """How an approval stands: for how many runs from now on, who said yes, and how many more must."""

    runs_left: int
    by: tuple[str, ...]
    wanted: int = 0


@dataclass(slots=True)
class Decisions:
    """Decisions about studies; `refused/<hash>.toml` holds what was refused."""

    folder: Path
    config: SiteConfig
    audit: AuditLog
    approvals: Approvals
    people: People
    _read: dict[str, tuple[int, StudyFile]] = field(default_factory=dict, repr=False)

    def approve(
        self, study: StudyFile, *, runs: int | None = None, until: date | None = None, who: str | None = None
    ) -> Decided:
        """Say yes to a study with its newest roster, for so many runs from now on, to the end of a day (UTC).

        Policy is asked now and before every run.
        """
        by = self.people.require("approve", who)
        eyes = self.config.policy.approvers
        self.people.require_eyes(eyes)
        if runs is not None and not 1 <= runs <= 1_000_000:
            raise ConfigError("approve one run or more")
        if until is not None and until < today():
            raise ConfigError(f"{until} is over: name today or a later day until which the approval counts")
        study.require_signatures()
        require_study(self.config.policy, study)
        study.study.scheme.require_runnable(study.agreement)
        self.approvals.require_next(study)
        names = tuple(dict.fromkeys((*self._half(study, runs, until), by)))
        if len(names) < eyes:
            self.audit.append("approval asked", study=study.sha256, **_asked(study, runs, until), who=by)
            return Decided(self.approvals.runs_left(study.sha256), names, eyes - len(names))
        self.approvals.approve(study, runs=runs, until=until, who=", ".join(names))
        (self.folder / f"{study.sha256}.toml").unlink(missing_ok=True)
        return Decided(self.approvals.runs_left(study.sha256), names)

    def _half(self, study: StudyFile, runs: int | None, until: date | None) -> list[str]:
        """Who has said yes to the same roster for as many runs and as long since the last answer."""
        names, same = list[str](), _asked(study, runs, until)
        for entry in self.audit.of("study", study.sha256):
            if entry["event"] in _ANSWERS:
                names = []
            elif entry["event"] == "approval asked" and {name: entry.get(name) for name in same} == same:
                names.append(entry["who"])
        stewards = {each.name for each in self.people.all() if each.role == "steward"}
        return [name for name in names if name in stewards]

    def waiting(self) -> list[dict[str, Any]]:
        """Approvals that wait for another steward: study, roster, runs, who said yes first."""
        last: dict[str, dict[str, Any]] = {}
        for event in ("approval asked", *_ANSWERS):
            for entry in self.audit.of("event", event):
                if entry["number"] > last.get(entry["study"], {"number": -1})["number"]:
                    last[entry["study"]] = entry
        return [entry for entry in last.values() if entry["event"] == "approval asked"]

    def revoke(self, sha256: str, *, why: str | None = None, who: str | None = None) -> None:
        """Take an approval back."""
        by = self.people.require("revoke", who)
        self.approvals.revoke(sha256, who=by, why=None if why is None else require_reason(why))

    def refuse(self, study: StudyFile, why: str, *, who: str | None = None) -> None:
        """Say no to a study: an approval ends, and whichever party of it asks for a run is told why, signed by this site."""
        by, reason = self.people.require("refuse", who), require_reason(why)[:300]
        study.require_signatures()
        study.require_changes()
        if self.approvals.stored(study.sha256) is not None:
            self.approvals.revoke(study.sha256, who=by, why=reason)
        write_whole(make_private_folder(self.folder) / f"{study.sha256}.toml", study.to_toml().encode())
        self.audit.append("study refused", study=study.sha256, roster=study.roster.sha256, who=by, why=reason)

    def refusal(self, roster: str) -> tuple[StudyFile, str] | None:
        """The refused study whose roster has that hash, and why."""
        entry = next((e for e in reversed(self.audit.of("event", "study refused")) if e["roster"] == roster), None)
        path = None if entry is None else self.folder / f"{entry['study']}.toml"
        if entry is None or path is None or not path.exists():
            return None
        changed = path.stat().st_mtime_ns
        if self._read.get(roster, (None,))[0] != changed:
            self._read = {roster: (changed, StudyFile.from_toml(path))}  # whoever asks again costs no parsing
        study = self._read[roster][1]
        return (study, entry["why"]) if study.roster.sha256 == roster else None
