"""Decisions of a site's staff about studies: approved for a number of runs and days, refused with a reason, or revoked.

An approval may take several stewards (`approvers` in the policy): the log records each, and the last one completes it. The
audit log also names the roster that was approved and the last day: a file with another roster, such as one from a backup,
counts as not approved. Parties of a study receive its refusal or revocation at once (`agent.notices`) and when they ask for a
run of it, signed; the reason goes with it unless the person who decides keeps it, and nothing goes if the policy keeps
decisions private (`announce_decisions`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from blindbayes.agent.approvals.people import People, require_reason
from blindbayes.agent.approvals.summary import require_study
from blindbayes.agent.config import SiteConfig
from blindbayes.disclosure.audit_log import AuditLog, origin_of
from blindbayes.disclosure.checks import ApprovedRuns, require_in_time
from blindbayes.errors import BlindbayesError, ConfigError, PrivacyError
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.net.notices import Standing, State
from blindbayes.study.file import StudyFile


def today() -> date:
    """Return the day in UTC: an approval counts to the end of its last day."""
    return datetime.now(UTC).date()


@dataclass(slots=True)
class Approvals:
    """Approvals of studies, stored in the folder `approved/`."""

    folder: Path
    audit: AuditLog
    _read: dict[str, tuple[int, StudyFile | None]] = field(default_factory=dict, repr=False)  # by hash, with mtime

    def approve(
        self,
        study: StudyFile,
        *,
        runs: int | None = None,
        until: date | None = None,
        who: str | None = None,
        **origin: str | list[str],
    ) -> None:
        """Approve a study with its newest roster, for a number of runs from now on, to the end of a day.

        The defaults are one run more and no last day; if only the roster is new, the runs and the day that were left. `origin`
        identifies stewards who signed in by the organisation.
        """
        self.require_next(study)
        folder, path = make_private_folder(self.folder), self.folder / f"{study.sha256}.runs"
        if runs is not None or self.roster_of(study.sha256) in (None, study.roster.sha256) or not path.exists():
            write_whole(path, str(self.used(study.sha256) + (1 if runs is None else runs)).encode())
        elif until is None:
            until = self.until(study.sha256)
        write_whole(folder / f"{study.sha256}.toml", study.to_toml().encode())
        now, day = study.roster, None if until is None else until.isoformat()
        facts = {"roster": now.sha256, "change": now.number, "who": who, **origin}
        self.audit.append("approved", study=study.sha256, runs=runs, until=day, **facts)

    def runs_left(self, sha256: str) -> int:
        """Return how many more runs of a study are approved."""
        approved = self.find(sha256)
        return 0 if approved is None or self.is_over(sha256) else max(0, approved[1] - self.used(sha256))

    def used(self, sha256: str) -> int:
        """Return how many runs of a study began to compute here."""
        return len(self.audit.where("study", sha256, "computing"))

    def _runs(self, sha256: str) -> int | None:
        try:
            return int((self.folder / f"{sha256}.runs").read_text())
        except (OSError, ValueError):
            return None

    def _last(self, study: str) -> dict[str, Any] | None:
        return next((entry for entry in reversed(self.audit.where("event", "approved")) if entry["study"] == study), None)

    def roster_of(self, study: str) -> str | None:
        """Return the hash of the roster of a study that was approved last, by the audit log."""
        last = self._last(study)
        return None if last is None else str(last.get("roster", study))

    def until(self, study: str) -> date | None:
        """Return the last day of a study's approval, or None."""
        day = (self._last(study) or {}).get("until")
        return None if day is None else date.fromisoformat(day)

    def is_over(self, study: str) -> bool:
        last = self.until(study)
        return last is not None and today() > last

    def require_in_time(self, study: str) -> None:
        """Raise if the last day of the approval is over."""
        require_in_time(self.until(study), today())

    def require_standing(self, study: str) -> None:
        """Raise unless a study is approved; no run need be left to classify with its model."""
        if self.find(study) is None:
            raise PrivacyError("the study's approval was taken back")
        self.require_in_time(study)

    def approved_runs(self, study: StudyFile) -> ApprovedRuns | None:
        """Return the approval of a study; None if it was revoked, or is for a roster that does not contain this one."""
        approved = self.find(study.sha256)
        if approved is None or approved[0].at(study.roster.sha256) is None:
            return None
        return ApprovedRuns(approved[1], self.until(study.sha256))

    def require_next(self, study: StudyFile) -> None:
        """Raise if the roster is not signed, or does not extend the one that was approved last."""
        study.require_changes()
        last = self.roster_of(study.sha256)
        if last is None or study.at(last) is not None:
            return
        known = self.stored(study.sha256)
        if known is None or len(study.changes) < len(known.changes):
            raise ConfigError(
                "this file has an older roster than the one approved here, or another one: ask the others for the file with "
                "all changes"
            )
        number = next(n for n, roster in enumerate(known.rosters) if study.rosters[n].sha256 != roster.sha256)
        both = sorted(set(known.changes[number - 1].signatures) & set(study.changes[number - 1].signatures))
        raise ConfigError(
            f"change {number} of the roster in this file is another one than the change {number} that is approved here: the "
            f"roster has two futures, and {', '.join(both) or 'nobody'} signed both. Nothing was approved; talk to the others"
        )

    def revoke(
        self, sha256: str, *, who: str | None = None, why: str | None = None, roster: str | None = None, shared: bool = False
    ) -> None:
        """Revoke an approval. With `roster`, parties that ask for a run of it get an answer; with `shared`, the reason too."""
        path = self.folder / f"{sha256}.toml"
        if not _is_hash(sha256) or not path.exists():
            raise ConfigError("no study of that hash is approved here")
        path.unlink()
        (self.folder / f"{sha256}.runs").unlink(missing_ok=True)
        self.audit.append("revoked", study=sha256, roster=roster, who=who, why=why, shared=shared and bool(why))

    def find(self, sha256: str) -> tuple[StudyFile, int] | None:
        """Return an approved study and its number of runs in all; None for unknown and for unapproved studies alike."""
        study, runs = self.stored(sha256), self._runs(sha256)
        if study is None or runs is None or study.roster.sha256 != self.roster_of(sha256):
            return None
        return study, runs

    def find_roster(self, roster: str) -> tuple[StudyFile, int] | None:
        """Return the approved study whose newest roster has this hash, as `find` does."""
        return next((each for each in self._all() if each[0].roster.sha256 == roster), None)

    def stored(self, sha256: str) -> StudyFile | None:
        """Return the study in the folder, whether or not its roster is the approved one."""
        if not _is_hash(sha256):
            return None
        path = self.folder / f"{sha256}.toml"
        try:
            if path.name not in os.listdir(path.parent):  # on some file systems a removed name is still cached
                return None
            changed = path.stat().st_mtime_ns
            if self._read.get(sha256, (None,))[0] != changed:
                self._read[sha256] = (changed, _parse(path))
        except OSError:
            return None
        study = self._read[sha256][1]
        return study if study is not None and study.sha256 == sha256 else None

    def has_unread(self) -> bool:
        """Return True if a file was added or changed since it was read: parsing a long one takes seconds."""
        files = (path for path in self.folder.glob("*.toml") if _is_hash(path.stem))
        try:
            return any(self._read.get(path.stem, (None,))[0] != path.stat().st_mtime_ns for path in files)
        except OSError:  # just removed
            return True

    def all(self) -> list[StudyFile]:
        return [study for study, _ in self._all()]

    def _all(self) -> list[tuple[StudyFile, int]]:
        approved = (self.find(path.stem) for path in sorted(self.folder.glob("*.toml")))
        return [each for each in approved if each is not None]


def _parse(path: Path) -> StudyFile | None:
    """Return the study of a file, or None for one that is damaged."""
    try:
        study = StudyFile.from_toml(path)
        study.require_changes()
    except (BlindbayesError, ValueError):
        return None
    return study


def _is_hash(text: str) -> bool:
    # A hash becomes the name of a file.
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


_STATES: dict[str, State] = {"approved": "approved", "revoked": "revoked", "study refused": "refused"}
_ANSWERS = tuple(_STATES)
_DECLINED = ("revoked", "study refused")
MAX_SHARED_REASON = 300


def sentence_of(standing: Standing) -> str:
    """Return a refusal or revocation as a sentence for the people of another site."""
    if standing.state == "refused" and standing.reason:
        return standing.reason
    what = "it revoked its approval" if standing.state == "revoked" else "it refused the study"
    return f"{what}: {standing.reason}" if standing.reason else f"{what} and gave no reason"


def _asked(study: StudyFile, runs: int | None, until: date | None) -> dict[str, str | int | None]:
    return {"roster": study.roster.sha256, "runs": runs, "until": None if until is None else until.isoformat()}


def _key(who: str, origin: Mapping[str, Any]) -> str:
    """Return the identifier of a steward among those who sign in the same way."""
    return str(origin.get("subject", who))


@dataclass(frozen=True, slots=True)
class Decided:
    """The state of an approval: runs from now on, who approved, and how many more must."""

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
        """Approve a study with its newest roster. The policy is checked now and before every run."""
        by = self.people.require("approve", who)
        eyes, issuer = self.config.policy.approvers, origin_of(by).get("issuer")
        if issuer is None:
            self.people.require_eyes(eyes)
        if runs is not None and not 1 <= runs <= 1_000_000:
            raise ConfigError("approve one run or more")
        if until is not None and until < today():
            raise ConfigError(f"{until} is over: name today or a later day until which the approval counts")
        study.require_signatures()
        require_study(self.config.policy, study)
        study.task.require_runnable()
        self.approvals.require_next(study)
        stewards = self._half(study, runs, until, issuer) | {_key(by, origin_of(by)): str(by)}
        names = tuple(stewards.values())
        if len(names) < eyes:
            self.audit.append("approval asked", study=study.sha256, **_asked(study, runs, until), who=by)
            return Decided(self.approvals.runs_left(study.sha256), names, eyes - len(names))
        origin: dict[str, Any] = {} if issuer is None else {"issuer": issuer, "subjects": list(stewards)}
        self.approvals.approve(study, runs=runs, until=until, who=", ".join(names), **origin)
        (self.folder / f"{study.sha256}.toml").unlink(missing_ok=True)
        return Decided(self.approvals.runs_left(study.sha256), names)

    def _half(self, study: StudyFile, runs: int | None, until: date | None, issuer: str | None) -> dict[str, str]:
        """Return the stewards who approved the same roster, runs and day since the last decision, and came the same way.

        A person may have both a name in people.toml and a subject at the provider, so the two never make up one approval.
        """
        stewards, same = dict[str, str](), _asked(study, runs, until)
        for entry in self.audit.where("study", study.sha256):
            if entry["event"] in _ANSWERS:
                stewards = {}
            elif entry["event"] != "approval asked" or {name: entry.get(name) for name in same} != same:
                continue
            elif entry.get("issuer") == issuer and (issuer is None or self._is_recent(entry)):
                stewards[_key(entry["who"], entry)] = entry["who"]
        if issuer is not None:
            return {subject: name for subject, name in stewards.items() if self._was_steward(issuer, subject)}
        now = {each.name for each in self.people.all() if each.role == "steward"}
        return {key: name for key, name in stewards.items() if name in now}

    def _is_recent(self, entry: dict[str, Any]) -> bool:
        settings = self.config.sign_in
        age = datetime.now(UTC) - datetime.fromisoformat(entry["time"])
        return settings is not None and age < timedelta(hours=settings.first_approval_hours)

    def _was_steward(self, issuer: str, subject: str) -> bool:
        """Return True if the subject's last attempt to sign in gave the role of a steward."""
        tries = [
            entry
            for event in ("signed in", "sign-in refused")
            for entry in self.audit.where("event", event)
            if (entry.get("issuer"), entry.get("subject")) == (issuer, subject)
        ]
        last = max(tries, key=lambda entry: int(entry["number"]), default={})
        return "steward" in (last.get("roles") or ())

    def waiting(self) -> list[dict[str, Any]]:
        """Return the log entries of approvals that wait for another steward."""
        last: dict[str, dict[str, Any]] = {}
        for event in ("approval asked", *_ANSWERS):
            for entry in self.audit.where("event", event):
                if entry["number"] > last.get(entry["study"], {"number": -1})["number"]:
                    last[entry["study"]] = entry
        return [entry for entry in last.values() if entry["event"] == "approval asked"]

    def revoke(self, sha256: str, *, why: str | None = None, who: str | None = None, share: bool = True) -> None:
        """Revoke an approval. Parties of the study learn it, with the reason unless `share` is False."""
        by = self.people.require("revoke", who)
        study = self.approvals.stored(sha256)
        reason = None if why is None else require_reason(why)[:MAX_SHARED_REASON]
        roster = None if study is None else study.roster.sha256
        self.approvals.revoke(sha256, who=by, why=reason, roster=roster, shared=share)
        if study is not None:
            self._store(study)

    def withdraw(self, study: StudyFile, why: str) -> None:
        """Revoke an approval in no person's name: a restored site does not know how many runs are left."""
        self.approvals.revoke(study.sha256, why=why, roster=study.roster.sha256, shared=True)
        self._store(study)

    def refuse(self, study: StudyFile, why: str, *, who: str | None = None, share: bool = True) -> None:
        """Refuse a study. An approval ends, and parties of it learn that, with the reason unless `share` is False."""
        by, reason = self.people.require("refuse", who), require_reason(why)[:MAX_SHARED_REASON]
        study.require_signatures()
        study.require_changes()
        if self.approvals.stored(study.sha256) is not None:
            self.approvals.revoke(study.sha256, who=by, why=reason, shared=share)
        self._store(study)
        self.audit.append("study refused", study=study.sha256, roster=study.roster.sha256, who=by, why=reason, shared=share)

    def _store(self, study: StudyFile) -> None:
        """Store a study that was refused or revoked, so that parties that ask for a run of it get an answer."""
        write_whole(make_private_folder(self.folder) / f"{study.sha256}.toml", study.to_toml().encode())

    def declined(self, roster: str) -> tuple[StudyFile, Standing] | None:
        """Return the refused or revoked study whose roster has this hash, and the decision."""
        entries = [each for event in _DECLINED for each in self.audit.where("event", event) if each.get("roster") == roster]
        entry = max(entries, key=lambda each: int(each["number"]), default=None)
        path = None if entry is None else self.folder / f"{entry['study']}.toml"
        if entry is None or path is None or not path.exists():
            return None
        changed = path.stat().st_mtime_ns
        if self._read.get(roster, (None,))[0] != changed:
            self._read = {roster: (changed, StudyFile.from_toml(path))}  # repeated requests cost no parsing
        study = self._read[roster][1]
        return (study, self.standing(study)) if study.roster.sha256 == roster else None

    def standing(self, study: StudyFile) -> Standing:
        """Return this site's decision about a study, as its parties may learn it."""
        entries = self.audit.where("study", study.sha256, *_STATES)
        last: dict[str, Any] = entries[-1] if entries else {}
        reason = str(last.get("why") or "")[:MAX_SHARED_REASON] if last.get("shared") else ""
        state = _STATES[last["event"]] if entries else "waiting"
        roster = str(last.get("roster") or study.sha256) if state == "approved" else study.roster.sha256
        used = self.approvals.used(study.sha256)
        if state == "approved" and used and not self.approvals.runs_left(study.sha256):
            state = "used up"
        restored = self.audit.where("event", "restored")  # the numbers after the backup are lost: count on from its time
        base = int(datetime.fromisoformat(restored[-1]["time"]).timestamp()) if restored else 0
        return Standing(study.sha256, roster, state, reason, base + len(entries) + used)
