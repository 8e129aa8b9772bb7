"""What a site's audit log says of earlier runs: when they began, whom they told what, which sums they opened."""

from __future__ import annotations

import calendar
import itertools
import time
from dataclasses import dataclass
from typing import Any

from blindbayes.agent.audit_log import AuditLog
from blindbayes.agent.one_set import Bound, ExactSum
from blindbayes.agent.runs import NAME
from blindbayes.errors import PrivacyError

_COMPUTES, _ENDS = ("computing", "classifying"), ("ended", "burned")
_SAY_WHOM = ("settled", "survivors confirmed", "opened")  # who is in the sum of a run, the surest first
_NEWEST = 64  # heads of one site that are compared: more than runs and roles can be under way at once


@dataclass(frozen=True, slots=True)
class History:
    """Reads the log; writes nothing."""

    audit: AuditLog

    def entries(self) -> list[dict[str, Any]]:
        """The audit log, verified."""
        return self.audit.entries()

    def starts(self, study: str | None = None) -> list[float]:
        """When runs (of a study) began to compute, by the calendar. Classifications have a budget of their own."""
        return [_when(entry) for entry in self.audit.of("event", "computing") if study in (None, entry["study"])]

    def has_computed(self, run_id: str) -> bool:
        """Whether a run came so far that this site looked at it, and charged for it."""
        return any(entry["event"] in _COMPUTES for entry in self.of_run(run_id))

    def idle_joins(self, site: str) -> list[float]:
        """When another site began runs here that never came to compute."""
        joined = (entry for entry in self.audit.of("event", "joined") if entry["proposed_by"] == site)
        idle = (entry for entry in joined if not self.has_computed(entry["run"]))
        return [_when(entry) for entry in idle]

    def overlap_bits(self) -> list[tuple[float, str]]:
        """When a bit about the overlap with another site was told, and which (identity)."""
        return [
            (_when(entry), partner)
            for entry in self.audit.of("event", "computing")
            for partner in entry.get("overlap_bits_with") or ()
        ]

    def of_run(self, run_id: str) -> list[dict[str, Any]]:
        """What the log says of one run."""
        return self.audit.of("run", run_id)

    def exact_sums(self) -> list[ExactSum]:
        """Exact sums that this site put a vector into, or may have, oldest first.

        A model in shares counts as one: answers reveal it. A run that ended before anything of the vector left opened nothing,
        nor did a model whose share was destroyed here before anybody asked it: no answer comes without this site. A run whose
        survivors were confirmed opened those, or nothing. Of any other run whose end is not known the set is not known either,
        unless its quorum was all; people can settle it.
        """
        begun = [entry["run"] for entry in self.audit.of("event", "computing") if entry.get("exact")]
        asked = {entry["model"] for entry in self.audit.of("event", "classifying")}
        runs = [run for run in begun if run in asked or not self.was_destroyed(run)]
        found = (_exact_sum({entry["event"]: entry for entry in self.of_run(run)}) for run in runs)
        return [each for each in found if each is not None]

    def bound(self) -> Bound:
        """What exact sums this site may still take part in."""
        lost = [entry["number"] for entry in self.audit.of("event", "acknowledged") if not entry["exact_sums"]]
        return Bound(self.exact_sums(), self._same_site(), max(lost, default=-1))

    def _same_site(self) -> dict[str, str]:
        """Identities by site: a card pinned in place of another, and one that `site init --succeeds` made, are the same."""
        pinned = {entry["identity"]: entry["site"] for entry in self.audit.of("event", "pinned") if "identity" in entry}
        own = {entry.get(name) for entry in self.audit.of("event", "site made") for name in ("identity", "succeeds")}
        return {**pinned, **{identity: "this site" for identity in own if identity is not None}}

    def included(self, run_id: str) -> frozenset[str] | None:
        """Whose vectors were opened in a run that this site took part in, by identity; None: not known."""
        events = {entry["event"]: entry for entry in self.of_run(run_id)}
        for event in _SAY_WHOM:
            if event in events:
                return frozenset(events[event]["included"])
        first, ended = events["computing"], events.get("ended") or events.get("burned")
        if ended is not None and first.get("moments") and "vector left" not in events:
            return frozenset()
        everybody = first["fewest"] == len(first["contributors"])
        return frozenset(first["contributors"]) if everybody and ended and ended.get("state") == "done" else None

    def named(self, study: str, name: str) -> str | None:
        """The run of a study that has that name, of those that this site joined."""
        joined = {e["run"] for e in self.audit.of("study", study) if e["event"] == "joined" and e["run"][-NAME:] == name}
        if len(joined) > 1:
            raise PrivacyError("two runs of this study have that name: run it without a base")
        return next(iter(joined), None)

    def releases(self, study: str, identity: str) -> list[dict[str, Any]]:
        """How runs of a study that told of this site's data, or may have, began to compute."""
        told = ((entry, self.included(entry["run"])) for entry in self._computed(study) if "fewest" in entry)
        return [entry for entry, included in told if included is None or identity in included]

    def lines(self, releases: list[dict[str, Any]]) -> list[int | None]:
        """Since which of these releases each told changes, as `bases.most_moved` has it."""
        places = {entry["run"]: at for at, entry in enumerate(releases)}
        return [None if entry.get("since") is None else places.get(entry["since"], -1) for entry in releases]

    def since(self, study: str, base: str, identity: str, *, but: str) -> str | None:
        """The run since which this site tells changes in the run `but`, which goes on from that of the name `base`; None: all.

        Raises `PrivacyError` if this site is in the total before `base` and not, or not for certain, in `base`.
        """
        if (begun := self.computed(study, but)) is not None:  # taken up again: it tells what it told
            found: str | None = begun.get("since")
            return found
        run = self.named(study, base)
        if run is not None and self.computed(study, run) is not None and identity in (self.included(run) or ()):
            return run
        last = self.releases(study, identity)[-1:]
        if last and not (last[0].get("withdrawn") and identity in (self.included(last[0]["run"]) or ())):
            raise PrivacyError(
                "this site is in an earlier total and not, or not for certain, in the run that this one goes on from: what it "
                "would add to is not known. Run the study without a base"
            )
        return None

    def computed(self, study: str, run_id: str | None) -> dict[str, Any] | None:
        """How a run of a study began to compute: with the digests of this site's rows and statistics."""
        return next((entry for entry in self._computed(study) if entry["run"] == run_id), None)

    def has_withdrawn(self, study: str) -> bool:
        """Whether this site's people took its rows back from a study, and did not bring them again."""
        said = [entry["event"] for entry in self.audit.of("study", study)]
        return next((each == "withdrew" for each in reversed(said) if each in ("withdrew", "returned")), False)

    def runs(self, *, study: str | None = None, last: int | None = None) -> list[dict[str, Any]]:
        """Runs that this site joined, newest first, by the log: who asked, when it computed, how it ended."""
        joined = reversed(self.audit.of("event", "joined") if study is None else self.audit.of("study", study))
        named = dict.fromkeys(entry["run"] for entry in joined if entry["event"] == "joined")
        return [_summary(self.of_run(run)) for run in itertools.islice(named, last)]

    def run(self, run_id: str) -> dict[str, Any] | None:
        """One run, as `runs` shows it."""
        entries = self.of_run(run_id)
        return _summary(entries) if any(entry["event"] == "joined" for entry in entries) else None

    def behind(self) -> dict[str, Any] | None:
        """The entry that says that this site came back from a backup, unless people have said since what that means."""
        restored, said = self.audit.of("event", "restored"), self.audit.of("event", "acknowledged")
        last = restored[-1] if restored else None
        return None if last is None or any(entry["number"] > last["number"] for entry in said) else last

    def unended(self) -> list[str]:
        """Runs that this site joined and that have no end in the log."""
        joined = dict.fromkeys(entry["run"] for entry in self.audit.of("event", "joined"))
        return [run for run in joined if self.end_of(run) is None]

    def stopped_runs(self) -> list[str]:
        """Runs that people stopped and that have no end in the log: the agent ended first."""
        return [entry["run"] for entry in self.audit.of("event", "stopped") if self.end_of(entry["run"]) is None]

    def open_runs(self) -> list[str]:
        """Runs that began to compute and have no end in the log."""
        begun = dict.fromkeys(entry["run"] for event in _COMPUTES for entry in self.audit.of("event", event))
        return [run for run in begun if self.end_of(run) is None]

    def end_of(self, run_id: str) -> dict[str, Any] | None:
        """What the log says of a run's end."""
        return next((entry for entry in self.of_run(run_id) if entry["event"] in _ENDS), None)

    def _computed(self, study: str) -> list[dict[str, Any]]:
        """How runs of a study began to compute."""
        return [entry for entry in self.audit.of("event", "computing") if entry["study"] == study]

    def unsettled(self) -> list[tuple[dict[str, Any], ExactSum]]:
        """Ended runs that may have opened one of several sets, or nothing: how they began, and what they count as."""
        found = []
        for each in self.exact_sums():
            events, end = {entry["event"]: entry for entry in self.of_run(each.run)}, self.end_of(each.run)
            is_known = end is None or (end.get("state") == "done" and each.quorum_size is None)
            if not is_known and events.keys().isdisjoint(_SAY_WHOM):
                found.append((events["computing"], each))
        return found

    def witnessed(self, site: str) -> list[tuple[dict[str, Any], bool]]:
        """What another site showed of its logs, and whether the run in which it did is over.

        Since people said to forget it, or pinned another card under its name.
        """
        entries, start, card = self.audit.of("site", site), 0, None
        for at, entry in enumerate(entries):
            if entry["event"] in ("forgot", "pinned"):
                is_pin = entry["event"] == "pinned"
                key = "identity" if card is not None and "identity" in card and "identity" in entry else "fingerprint"
                is_other = is_pin and card is not None and entry[key] != card[key]  # a new certificate is no new site
                card = entry if is_pin else card
                start = at + 1 if is_other or entry["event"] == "forgot" else start
        shown = [entry for entry in entries[start:] if entry["event"] == "witnessed"]
        return [(entry, self.end_of(entry["run"]) is not None) for entry in shown[-_NEWEST:]]

    def was_destroyed(self, run_id: str) -> bool:
        """Whether this site's people said that its share of a model shall be no more."""
        return any(entry["event"] == "destroyed" for entry in self.of_run(run_id))

    def classified(self, study: str, *, but: str = "") -> int:
        """Answers charged to the query budget of a study, by the audit log; without the run `but`.

        Instances classified with any model of it, and references that its trainings opened for audits.
        """
        charged = {"classifying": "instances", "computing": "answers"}
        entries = ((entry, name) for event, name in charged.items() for entry in self.audit.of("event", event))
        return sum(entry.get(name, 0) for entry, name in entries if entry["study"] == study and entry["run"] != but)


def _summary(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """What the log says of one run, for people. A run without an end is `open`: under way, or interrupted."""
    events = {entry["event"]: entry for entry in entries}
    first = next(entry for entry in entries if entry["event"] == "joined")
    computing = next((events[name] for name in _COMPUTES if name in events), None)
    end = events.get("ended") or events.get("burned")
    facts = {name: first.get(name) for name in ("run", "study", "roster", "title", "kind", "proposed_by")}
    return {
        **facts,
        "joined": first["time"],
        "computing": None if computing is None else computing["time"],
        "ended": None if end is None else end["time"],
        "state": "open" if end is None else end.get("state", end["event"]),
        "why": None if end is None else end.get("why"),
        "stopped_by": events["stopped"]["who"] if "stopped" in events else None,
        "resumed": sum(entry["event"] == "joined" for entry in entries) - 1,
    }


def _when(entry: dict[str, Any]) -> float:
    return calendar.timegm(time.strptime(entry["time"], "%Y-%m-%dT%H:%M:%SZ"))


def _exact_sum(events: dict[str, dict[str, Any]]) -> ExactSum | None:
    """What a run that began to compute counts as; None: it opened nothing."""
    first = events["computing"]
    facts = (first["run"], first["number"], first.get("table", "rows"), first.get("rows"))
    counted = (first.get("codebook"), first.get("data"))
    for event in _SAY_WHOM:
        if event in events:
            included = frozenset(events[event]["included"])
            return ExactSum(*facts, included, counted=counted) if included else None
    end = events.get("ended") or events.get("burned")
    has_failed = end is not None and end.get("state") != "done"
    if has_failed and first.get("moments") and ("vector left" not in events or first.get("waits_for_all")):
        return None
    contributors, quorum_size = frozenset(first["contributors"]), first["fewest"]
    is_done = end is not None and not has_failed
    return ExactSum(*facts, contributors, None if quorum_size == len(contributors) else quorum_size, is_done, counted)
