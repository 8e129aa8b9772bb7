"""History of a site's earlier runs, from its audit log: when they began, what they revealed to whom, which sums they opened."""

from __future__ import annotations

import calendar
import functools
import itertools
import time
from dataclasses import dataclass
from typing import Any

from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.one_set import Binding, ExactSum
from blindbayes.errors import PrivacyError

_COMPUTES = ("computing", "classifying")
_NAMES_SITES = ("settled", "survivors confirmed", "opened")  # events that name the sites in a sum, the surest first
_NEWEST = 64  # heads of one site that are compared: more than runs and roles can be under way at once
_NAME = 32  # digits of a run's own name


@dataclass(frozen=True, slots=True)
class History:
    """Questions about the audit log. Writes nothing."""

    audit: AuditLog

    def entries(self) -> list[dict[str, Any]]:
        """Return the whole log, verified."""
        return self.audit.entries()

    def entries_of(self, run_id: str) -> list[dict[str, Any]]:
        return self.audit.where("run", run_id)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def starts(self, study: str | None = None) -> list[float]:
        """Return when runs (of a study) began to compute. Classifications have a budget of their own."""
        return [_when(entry) for entry in (self.audit.where("event", "computing") if study is None else self._computed(study))]

    def count_starts(self, study: str) -> int:
        """Return how many runs of a study began to compute."""
        return len(self._computed(study))

    def has_computed(self, run_id: str) -> bool:
        """Return True if this site authorised a run, and charged for it."""
        return any(entry["event"] in _COMPUTES for entry in self.entries_of(run_id))

    def computed(self, study: str, run_id: str | None) -> dict[str, Any] | None:
        """Return the entry with which a run of a study began to compute: with digests of this site's rows and statistics."""
        return next((entry for entry in self._computed(study) if entry["run"] == run_id), None)

    def _computed(self, study: str) -> list[dict[str, Any]]:
        return self.audit.where("study", study, "computing")

    def idle_joins(self, site: str, after: float) -> list[float]:
        """Return when, later than `after`, another site began runs here that never came to compute."""
        recent = [entry for entry in self.audit.where("event", "joined") if _when(entry) > after]
        return [_when(entry) for entry in recent if entry["proposed_by"] == site and not self.has_computed(entry["run"])]

    def named(self, study: str, name: str) -> str | None:
        """Return the run of a study that has this name, of those that this site joined."""
        joined = {e["run"] for e in self.audit.where("study", study, "joined") if e["run"][-_NAME:] == name}
        if len(joined) > 1:
            raise PrivacyError("two runs of this study have that name: run it without a base")
        return next(iter(joined), None)

    def runs(self, *, study: str | None = None, last: int | None = None) -> list[dict[str, Any]]:
        """Return the runs that this site joined, newest first: who asked, when it computed, how it ended."""
        joined = self.audit.where("event", "joined") if study is None else self.audit.where("study", study, "joined")
        named = itertools.islice(dict.fromkeys(entry["run"] for entry in reversed(joined)), last)
        return [_summary(entries) for entries in self.audit.where_each("run", named).values()]

    def run(self, run_id: str) -> dict[str, Any] | None:
        """Return one run as `runs` shows it."""
        entries = self.entries_of(run_id)
        return _summary(entries) if any(entry["event"] == "joined" for entry in entries) else None

    def end_of(self, run_id: str) -> dict[str, Any] | None:
        """Return the entry that ends a run."""
        return _end(self.entries_of(run_id))

    def unended(self, *, at: int | None = None) -> list[str]:
        """Return the runs that this site joined and that have no end in the log (before its entry `at`)."""
        joined = dict.fromkeys(
            entry["run"] for entry in self.audit.where("event", "joined") if at is None or entry["number"] < at
        )
        ends = {run: _end(entries) for run, entries in self.audit.where_each("run", joined).items()}
        return [run for run, end in ends.items() if end is None or (at is not None and end["number"] > at)]

    def stopped_runs(self) -> list[str]:
        """Return the runs that staff stopped and that have no end in the log, because the agent ended first."""
        return [entry["run"] for entry in self.audit.where("event", "stopped") if self.end_of(entry["run"]) is None]

    # -- what runs revealed --------------------------------------------------------------------------------------------

    def overlap_bits(self) -> list[tuple[float, str]]:
        """Return when a bit about the overlap with another site was revealed, and that site's identity."""
        return [
            (_when(entry), partner)
            for entry in self.audit.where("event", "computing")
            for partner in entry.get("overlap_bits_with") or ()
        ]

    def classified(self, study: str, *, but: str = "") -> int:
        """Return the answers charged to the query budget of a study, without those of the run `but`.

        Counts instances classified with any model of the study, and references that its trainings opened for audits.
        """
        charged = {"classifying": "instances", "computing": "answers"}
        entries = ((entry, name) for event, name in charged.items() for entry in self.audit.where("event", event))
        return sum(entry.get(name, 0) for entry, name in entries if entry["study"] == study and entry["run"] != but)

    def has_evaluated(self, model: str, labelled: str, *, but: str) -> bool:
        """Return True if others learned totals of this model, or of other labelled instances, in a run other than `but`."""
        opened = (each for each in self.audit.where("event", "classifying") if each["run"] != but and "labelled" in each)
        return any(each["model"] == model or each["labelled"] != labelled for each in opened)

    def was_destroyed(self, run_id: str) -> bool:
        """Return True if staff destroyed this site's share of a model."""
        return any(entry["event"] == "destroyed" for entry in self.entries_of(run_id))

    def exact_sums(self) -> list[ExactSum]:
        """Return the exact sums that this site put a vector into, or may have, oldest first.

        A model in shares counts as one: answers reveal it. A run that ended before anything of the vector left opened nothing,
        nor did a model whose share was destroyed here before it was asked: no answer comes without this site. A run whose
        survivors were confirmed opened those, or nothing. For any other run whose end is not known the set is not known
        either, unless its quorum was all contributors; staff can settle it.
        """
        begun = [entry["run"] for entry in self.audit.where("event", "computing") if entry.get("exact")]
        asked = {entry["model"] for entry in self.audit.where("event", "classifying")}
        destroyed = {entry.get("run") for entry in self.audit.where("event", "destroyed")} - asked
        runs = self.audit.where_each("run", [run for run in begun if run not in destroyed])
        sums = (self._exact_sum(run, runs[run]) for run in begun if run in runs)
        return [each for each in sums if each is not None]

    def _exact_sum(self, run: str, entries: list[dict[str, Any]]) -> ExactSum | None:
        last: str = entries[-1]["hash"]
        known = self.audit.derived.get(run)
        if known is None or known[0] != last:
            known = self.audit.derived[run] = (last, _exact_sum({entry["event"]: entry for entry in entries}))
        exact_sum: ExactSum | None = known[1]
        return exact_sum

    def binding(self) -> Binding:
        """Return what this site's tables are bound to."""
        lost = [entry["number"] for entry in self.audit.where("event", "acknowledged") if not entry["exact_sums"]]
        return Binding(self.exact_sums(), self._same_site(), max(lost, default=-1))

    def _same_site(self) -> dict[str, str]:
        """Map identities to sites: a card pinned in place of another, and one that `site init --succeeds` made, are one."""
        pinned = {entry["identity"]: entry["site"] for entry in self.audit.where("event", "pinned")}
        own = {entry.get(name) for entry in self.audit.where("event", "site made") for name in ("identity", "succeeds")}
        return {**pinned, **{identity: "this site" for identity in own if identity is not None}}

    def included(self, run_id: str) -> frozenset[str] | None:
        """Return the identities whose vectors were opened in a run that this site took part in; None: not known."""
        events = {entry["event"]: entry for entry in self.entries_of(run_id)}
        for event in _NAMES_SITES:
            if event in events:
                return frozenset(events[event]["included"])
        first, ended = events["computing"], events.get("ended")
        if ended is not None and "vector left" not in events:
            return frozenset()
        needs_all = first["quorum"] == len(first["contributors"])
        return frozenset(first["contributors"]) if needs_all and ended and ended["state"] == "done" else None

    def unsettled(self) -> list[tuple[dict[str, Any], ExactSum]]:
        """Return ended runs that may have opened one of several sets or nothing, each with its start entry."""
        runs = []
        for each in self.exact_sums():
            events, end = {entry["event"]: entry for entry in self.entries_of(each.run)}, self.end_of(each.run)
            is_known = end is None or (end["state"] == "done" and each.quorum_size is None)
            if not is_known and events.keys().isdisjoint(_NAMES_SITES):
                runs.append((events["computing"], each))
        return runs

    # -- incremental runs ----------------------------------------------------------------------------------------------

    def releases(self, study: str, identity: str) -> list[dict[str, Any]]:
        """Return the start entries of all runs that revealed, or may have revealed, this site's data."""
        begun = ((entry, self.included(entry["run"])) for entry in self._computed(study) if "quorum" in entry)
        return [entry for entry, included in begun if included is None or identity in included]

    def previous(self, releases: list[dict[str, Any]]) -> list[int | None]:
        """Return, for each release, the index of the earlier one that it adds to, as `charges.max_moved` takes it."""
        places = {entry["run"]: index for index, entry in enumerate(releases)}
        return [None if entry.get("since") is None else places.get(entry["since"], -1) for entry in releases]

    def since(self, study: str, base: str, identity: str, *, but: str) -> str | None:
        """Return the run whose statistics this site subtracts in run `but`, which adds to the run named `base`.

        None: it sends everything. Raises `PrivacyError` if this site is in the total before `base` and not, or not for
        certain, in `base`.
        """
        if (begun := self.computed(study, but)) is not None:  # a resumed run reveals what it revealed
            previous: str | None = begun.get("since")
            return previous
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

    def has_withdrawn(self, study: str) -> bool:
        """Return True if staff took this site's rows back from a study, and did not bring them again."""
        decisions = self.audit.where("study", study, "withdrew", "returned")
        return bool(decisions) and decisions[-1]["event"] == "withdrew"

    # -- backups and peers ---------------------------------------------------------------------------------------------

    def behind(self) -> dict[str, Any] | None:
        """Return the entry of a restore from a backup, unless staff have acknowledged it since."""
        restored, acknowledged = self.audit.where("event", "restored"), self.audit.where("event", "acknowledged")
        last = restored[-1] if restored else None
        return None if last is None or any(entry["number"] > last["number"] for entry in acknowledged) else last

    def witnessed(self, site: str) -> list[tuple[dict[str, Any], bool]]:
        """Return what another site showed of its logs, and whether the run in which it did is over.

        Only since staff forgot the site, or pinned another card under its name.
        """
        start = max((entry["number"] for entry in self.audit.where("site", site, "forgot")), default=-1)
        pins = self.audit.where("site", site, "pinned")
        for before, entry in itertools.pairwise(pins):
            if entry["identity"] != before["identity"]:  # a new certificate is no new site
                start = max(start, entry["number"])
        shown = [entry for entry in self.audit.where("site", site, "witnessed")[-_NEWEST:] if entry["number"] > start]
        runs = self.audit.where_each("run", {entry["run"] for entry in shown})
        return [(entry, _end(runs[entry["run"]]) is not None) for entry in shown]


def _summary(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarise one run for people. A run without an end is `open`: under way, or interrupted."""
    events = {entry["event"]: entry for entry in entries}
    first = next(entry for entry in entries if entry["event"] == "joined")
    computing = next((events[name] for name in _COMPUTES if name in events), None)
    end = events.get("ended")
    facts = {name: first.get(name) for name in ("run", "study", "roster", "title", "kind", "proposed_by")}
    return {
        **facts,
        "joined": first["time"],
        "computing": None if computing is None else computing["time"],
        "ended": None if end is None else end["time"],
        "state": "open" if end is None else end["state"],
        "why": None if end is None else end.get("why"),
        "stopped_by": events["stopped"]["who"] if "stopped" in events else None,
        "resumed": sum(entry["event"] == "joined" for entry in entries) - 1,
    }


def _end(entries: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((entry for entry in entries if entry["event"] == "ended"), None)


def _when(entry: dict[str, Any]) -> float:
    return _seconds(entry["time"])


@functools.lru_cache(1 << 17)
def _seconds(text: str) -> float:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _exact_sum(events: dict[str, dict[str, Any]]) -> ExactSum | None:
    """Return what a run that began to compute counts as; None: it opened nothing."""
    first = events["computing"]
    facts = (first["run"], first["number"], first.get("table", "rows"), first.get("rows"))
    more = {
        "counted": (first.get("codebook"), first.get("data")),
        "min_cell": first.get("min_cell", 0),
        "selection": first.get("selection", ""),
        "folds": first.get("folds", ""),
    }
    for event in _NAMES_SITES:
        if event in events:
            included = frozenset(events[event]["included"])
            return ExactSum(*facts, included, **more) if included else None
    end = events.get("ended")
    has_failed = end is not None and end["state"] != "done"
    if has_failed and ("vector left" not in events or first.get("waits_for_all")):
        return None
    contributors, quorum_size = frozenset(first["contributors"]), first["quorum"]
    is_done = end is not None and not has_failed
    return ExactSum(*facts, contributors, None if quorum_size == len(contributors) else quorum_size, is_done, **more)
