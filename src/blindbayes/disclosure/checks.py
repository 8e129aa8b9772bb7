"""May this output leave, given what left before? An ordered list of named checks, each of which raises to refuse.

`require_all` runs the checks, and `charge` pays. Both are done, and on disk, before anything that depends on this site's rows
is sent. `checks_for` lists the sentences for the approval page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Literal

from blindbayes.disclosure.charges import Charge, RunLedger, max_moved
from blindbayes.disclosure.history import History
from blindbayes.disclosure.one_set import Binding, ExactSum
from blindbayes.disclosure.policy import Policy, require_allowed, require_overlap_bits, require_rate
from blindbayes.disclosure.value import Disclosure
from blindbayes.errors import LocalProtocolError, PrivacyError

NOISE = (
    'noise: an epsilon. With unit = "record" it hides a row and not a site, whose statistics others can then read up to the '
    'noise, often a few rows a cell; unit = "party" hides a whole site'
)

Scope = Literal["run", "exact_sum", "columns"]


# -- what checks are asked about ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A site's vector of a sum over sites."""

    exact: bool
    table: str
    rows: str | None  # keyed digest of the rows; None: not taken, since the sum is noisy
    statistics: str  # keyed digest of what was counted
    codebook: str
    contributors: tuple[str, ...]  # identities
    quorum_size: int
    waits_for_all: bool  # nothing is opened without the word of every site
    selection: str = ""  # hash of the study's rule on which rows of the table count; empty: all
    folds: str = ""  # of a cross-validation, whose parts are opened: their number, and by what; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run, with everything that it asks this site to reveal."""

    run_id: str
    study: str
    roster: str
    title: str
    disclosure: Disclosure
    identity: str  # of this site
    names: Mapping[str, str]  # of the study's parties, by identity
    unit: str
    queries: int | None = None  # the study's limit of classified instances
    base: str | None = None  # the name of the run that this one adds to
    since: str | None = None  # the run whose statistics this site subtracts
    withdrawn: bool = False  # this site had taken its rows back when they were counted
    vector: Contribution | None = None  # None: the run is over columns
    partners: tuple[str, ...] = ()  # identities that learn a bit about the overlap with this site
    answers: int = 0  # reference instances that training opens
    charge: Charge | None = None

    @property
    def scopes(self) -> set[Scope]:
        if self.vector is None:
            return {"run", "columns"}
        return {"run", "exact_sum"} if self.vector.exact else {"run"}

    @property
    def exact_sum(self) -> Contribution:
        if self.vector is None:
            raise RuntimeError("only checks of scope exact_sum ask for the vector")
        return self.vector


@dataclass(frozen=True, slots=True)
class ApprovedRuns:
    """A study's approval: the number of runs in all, and the last day."""

    runs: int
    last_day: date | None = None


@dataclass(frozen=True)
class Records:
    """A site's own records at the time it decides."""

    policy: Policy
    history: History
    ledger: RunLedger
    approval: ApprovedRuns | None  # None: the study, or this roster of it, is not approved
    now: float
    names: Mapping[str, str] = field(default_factory=dict)  # of pinned sites, by identity

    @property
    def today(self) -> date:
        return datetime.fromtimestamp(self.now, UTC).date()

    @cached_property
    def binding(self) -> Binding:
        return self.history.binding()


@dataclass(frozen=True, slots=True)
class Check:
    """A rule: its name, one sentence for the approval page, the runs that it concerns, and what refuses."""

    name: str
    sentence: str
    scope: Scope
    require: Callable[[RunRequest, Records], None]


def _check(sentence: str, scope: Scope = "run") -> Callable[[Callable[[RunRequest, Records], None]], Check]:
    def make(require: Callable[[RunRequest, Records], None]) -> Check:
        return Check(require.__name__, sentence, scope, require)

    return make


# -- every run ----------------------------------------------------------------------------------------------------------


@_check("Every run uses one of the approved runs; a revoked approval stops runs that have not begun to compute.")
def approval(request: RunRequest, records: Records) -> None:
    approved = records.approval
    if approved is None or records.history.count_starts(request.study) >= approved.runs:
        raise PrivacyError("the study's approval was taken back or used up")


APPROVAL_OVER = "the day until which this study was approved is over"


@_check("No run computes after the last day of the approval (UTC).")
def last_day(request: RunRequest, records: Records) -> None:
    if records.approval is not None:
        require_in_time(records.approval.last_day, records.today)


def require_in_time(last: date | None, today: date) -> None:
    """Raise if the last day of an approval is over."""
    if last is not None and today > last:
        raise ApprovalOver(f"{APPROVAL_OVER} ({last}, UTC): `blindbayes site approve` it once more")


class ApprovalOver(PrivacyError):
    """The last day of the approval is over."""


@_check("The number of runs per day is limited (max_runs_per_day).")
def rate(request: RunRequest, records: Records) -> None:
    require_rate(records.policy, records.history.starts(), records.now)


@_check("What the run opens must be within this site's policy, as site.toml has it when the run computes.")
def policy_limits(request: RunRequest, records: Records) -> None:
    require_allowed(records.policy, request.disclosure)


@_check("A site that took its rows back takes part only in runs that remove them from an earlier result.")
def withdrawal(request: RunRequest, records: Records) -> None:
    has_withdrawn = records.history.has_withdrawn(request.study)
    require_not_withdrawn(has_withdrawn, request.base)
    if has_withdrawn != request.withdrawn:
        raise PrivacyError("the site took its rows back, or brought them again, while the run began: ask again")


def require_not_withdrawn(has_withdrawn: bool, base: str | None) -> None:
    """Raise if a site that took its rows back would take part in a run without a base."""
    if has_withdrawn and base is None:
        raise PrivacyError("this site took its rows back: it takes part in runs with a base only, until it leaves")


# -- exact sums: one table, one set -------------------------------------------------------------------------------------


@_check("An exact sum records a keyed digest of the rows that are in it.", "exact_sum")
def rows_digest(request: RunRequest, records: Records) -> None:
    if request.exact_sum.rows is None and not request.withdrawn:
        raise LocalProtocolError("an exact sum needs the digest of the rows that are in it")


@_check("Rows are not taken back by an exact sum, which would show the whole table.", "exact_sum")
def exact_withdrawal(request: RunRequest, records: Records) -> None:
    if request.withdrawn:
        raise PrivacyError(
            "an exact sum of changes would show what this site takes back, its whole table. Run it with an epsilon, or "
            "leave the rows in earlier totals: `blindbayes site withdraw --undo`"
        )


@_check("An exact sum of changes needs the same table in the run that it adds to.", "exact_sum")
def exact_changes(request: RunRequest, records: Records) -> None:
    if request.base is None:
        return
    begun = records.history.computed(request.study, request.since)
    if begun is None or begun.get("table", "rows") != request.exact_sum.table:
        raise PrivacyError(
            "an exact sum of changes could be all statistics of a site that is new in it, or has another table now. "
            "Run it without a base, or with an epsilon"
        )


def _sums(request: RunRequest, records: Records) -> list[ExactSum]:
    return records.binding.sums_of(request.identity, request.exact_sum.table)


@_check("While it is unknown what an earlier run of the table opened, no other exact sum of it is made.", "exact_sum")
def unknown_end(request: RunRequest, records: Records) -> None:
    for each in _sums(request, records):
        if each.quorum_size is not None:
            raise PrivacyError(
                f"run {each.run[:16]} opened, or may yet open, an exact sum over some of its sites, and which is not "
                "known: no other exact sum until it ends or is settled (`blindbayes site unsettled`). Meanwhile take "
                f"{NOISE}"
            )


@_check("After a restore from a backup, tables whose exact sums may be lost take part in none.", "exact_sum")
def lost_records(request: RunRequest, records: Records) -> None:
    if records.binding.lost_at >= 0 and not any(each.is_final for each in _sums(request, records)):
        raise PrivacyError(
            "this site came back from a backup, and whether the table took part in exact sums that are lost is not "
            f"known: none is made any more. What is left is {NOISE}"
        )


@_check(
    "An exact sum binds this site's table to the sites that are in it, for good: later exact sums, of any codebook, "
    "are over exactly these sites, with a quorum of all of them. Sums over other sites need noise.",
    "exact_sum",
)
def one_set(request: RunRequest, records: Records) -> None:
    sums, vector, site = _sums(request, records), request.exact_sum, records.binding.site
    if not sums:
        return
    bound = frozenset(map(site, sums[0].sites))
    asked = frozenset(map(site, vector.contributors))
    if asked == bound and len(vector.contributors) == vector.quorum_size == len(bound):
        return
    names = {**records.names, **request.names}
    shown = ", ".join(sorted(names.get(each, f"a site ({each[:8]})") for each in sums[0].sites))
    raise PrivacyError(
        f"the table {vector.table!r} takes part in exact sums over {shown} only, by run {sums[0].run[:16]} (if that failed, "
        "see `blindbayes site unsettled`): one over other sites, or over fewer, would show the difference, which may be one "
        f"site's statistics. Ways out: a study of exactly these sites with a quorum of all {len(bound)}; {NOISE}; or "
        "another table, of other rows, with a name of its own in [rows] of site.toml"
    )


@_check("The same rows have one table name, so that the set of sites cannot be changed by renaming them.", "exact_sum")
def one_name(request: RunRequest, records: Records) -> None:
    vector = request.exact_sum
    if names := {each.table for each in records.binding.sums if each.rows == vector.rows} - {vector.table}:
        raise PrivacyError(
            f"the rows of the table {vector.table!r} are those of the table {min(names)!r}, which has its own set of sites: "
            "restore the old name in [rows] of site.toml"
        )


@_check(
    "Under min_cell, all exact sums of a table have one codebook and one floor: another table of the same rows would let "
    "suppressed cells be computed.",
    "exact_sum",
)
def one_floor(request: RunRequest, records: Records) -> None:
    vector, row_sum = request.exact_sum, request.disclosure.row_sum
    floor = 0 if row_sum is None else row_sum.min_cell
    for each in _sums(request, records):
        is_same = each.min_cell == floor and each.counted[0] == vector.codebook
        if (floor or each.min_cell) and not is_same:
            raise PrivacyError(
                f"the table {vector.table!r} is in an exact sum of another codebook or another min_cell (run {each.run[:16]}, "
                f"min_cell {each.min_cell}): together they could fix a cell that one of them suppresses. Run that study again, "
                f"name other rows in [rows] of site.toml, or take {NOISE}"
            )


@_check(
    "All exact sums of a table count the same rows, under any codebook: the study chooses them (held_out, folds, "
    "rows_per_person, the identifier and the columns by which they are split, the cohort of an OMOP database), and two choices "
    "may differ by one person.",
    "exact_sum",
)
def one_selection(request: RunRequest, records: Records) -> None:
    vector = request.exact_sum
    others = [
        each
        for each in _sums(request, records)
        if each.selection != vector.selection or (each.folds and vector.folds and each.folds != vector.folds)
    ]
    if others and not records.policy.changed_data:
        raise PrivacyError(
            f"the table {vector.table!r} is in an exact sum of other rows (run {others[0].run[:16]}): two choices of rows may "
            "differ by one person, whose values the difference of the sums would show. Take held_out, folds, rows_per_person, "
            "[identifier], the columns and [omop.cohort] of the earlier study, allow it with changed_data under [policy] in "
            f"site.toml, or take {NOISE}"
        )


@_check("The same rows are read in the same way in every exact sum of a codebook.", "exact_sum")
def same_reading(request: RunRequest, records: Records) -> None:
    vector = request.exact_sum
    counted = (vector.codebook, vector.statistics)
    earlier = [each.counted for each in _sums(request, records) if each.rows == vector.rows]
    if not records.policy.changed_data and any(each[0] == counted[0] and each[1] != counted[1] for each in earlier):
        raise PrivacyError(
            f"the rows of the table {vector.table!r} are those of an earlier exact sum of this codebook, and others of "
            "them count now: another [rows] in site.toml, or a study with another held_out. The difference could show this "
            "site's statistics alone. Take [rows] and held_out of the earlier sum, allow it with changed_data under [policy], "
            f"or take {NOISE}"
        )


@_check(
    "If the rows change in between, a further exact sum is refused here: the difference would show how. Give the "
    "study an epsilon, or set changed_data under [policy] in site.toml.",
    "exact_sum",
)
def changed_data(request: RunRequest, records: Records) -> None:
    if records.policy.changed_data:
        return
    last, vector = _sums(request, records)[-1:], request.exact_sum
    unknown = bool(last) and last[0].number < records.binding.lost_at
    earlier = {each.rows for each in last}
    if request.base is not None:
        begun = records.history.computed(request.study, request.since)
        earlier.add(None if begun is None else begun.get("rows"))
    if unknown or earlier - {vector.rows}:
        raise PrivacyError(
            f"the rows of the table {vector.table!r} changed since its last exact sum{' (or that is not known)' * unknown}: "
            "the difference of two exact sums over the same sites shows how. Allow it with changed_data under [policy] in "
            f"site.toml, bring back the rows as they were, or take {NOISE}"
        )


# -- runs over columns --------------------------------------------------------------------------------------------------


@_check("A partner learns whether enough identifiers match at most a few times a day (max_overlap_bits_per_day).", "columns")
def overlap_bits(request: RunRequest, records: Records) -> None:
    require_overlap_bits(records.policy, records.history.overlap_bits(), request.partners, records.now)


@_check("Answers that training opens count against the study's query limit.", "columns")
def query_limit(request: RunRequest, records: Records) -> None:
    require_answers(request.queries, request.answers, records.history.classified(request.study))


def require_answers(queries: int | None, count: int, charged: int = 0) -> None:
    """Raise if the reference answers of a training exceed the study's query limit, of which `charged` are used up."""
    if count and queries is not None and charged + count > queries:
        raise PrivacyError(
            f"with audit_rate this training opens the classes of {count} reference instances, which are charged like others, "
            f"and {max(queries - charged, 0)} of {queries} queries are left: agree on more queries"
        )


# -- the list -----------------------------------------------------------------------------------------------------------

KNOWN_SET = (unknown_end, lost_records, one_set, one_selection)
"""The checks of an exact sum that need no rows: they are run before people approve a study, too."""

CHECKS: tuple[Check, ...] = (
    approval,
    last_day,
    rate,
    policy_limits,
    withdrawal,
    rows_digest,
    exact_withdrawal,
    exact_changes,
    *KNOWN_SET,
    one_name,
    one_floor,
    same_reading,
    changed_data,
    overlap_bits,
    query_limit,
)


def require_all(request: RunRequest, records: Records, checks: Sequence[Check] = CHECKS) -> None:
    """Run the checks that concern a run, in order. Raises what the first refusal raises."""
    scopes = request.scopes
    for check in checks:
        if check.scope in scopes:
            check.require(request, records)


def checks_for(disclosure: Disclosure) -> list[Check]:
    """Return the checks that concern runs of a study."""
    scopes: set[Scope] = {"run"}
    if disclosure.row_sum is None:
        scopes.add("columns")
    elif not disclosure.epsilon:
        scopes.add("exact_sum")
    return [check for check in CHECKS if check.scope in scopes]


# -- the charge ---------------------------------------------------------------------------------------------------------


def charge(request: RunRequest, records: Records) -> None:
    """Charge the run to the ledger. Raises `PrivacyError` if the budget does not suffice."""
    purpose = f"study {request.title[:80]}"
    by_stays = request.since is not None and request.unit == "record"  # otherwise it pays in full
    if request.charge is not None and (not by_stays or _raises_cost(request, records)):
        records.ledger.pay(request.charge, purpose + ", for one stay of a record" * by_stays, request.study, request.run_id)
    if request.vector is not None and request.vector.exact:
        records.ledger.note_exact(purpose, request.study, request.run_id)


def _raises_cost(request: RunRequest, records: Records) -> bool:
    """Return True if this incremental run may raise a record's worst-case cost above what was charged for the study."""
    history, own = records.history, {"run": request.run_id, "since": request.since, "withdrawn": request.withdrawn}
    releases = [*history.releases(request.study, request.identity), own]
    moved = max_moved(history.previous(releases), [bool(entry.get("withdrawn")) for entry in releases])
    return moved > records.ledger.charges_of(request.study)


def facts_of(request: RunRequest) -> dict[str, str | int | bool | list[str] | None]:
    """Return what the audit log records when a run begins to compute: the history that later checks read."""
    facts: dict[str, str | int | bool | list[str] | None] = {
        "run": request.run_id,
        "study": request.study,
        "roster": request.roster,
        "exact": request.vector is not None and request.vector.exact,
    }
    if request.base is not None:
        facts |= {"base": request.base, "since": request.since}
    if (vector := request.vector) is None:
        return facts | {"partition": "columns", "overlap_bits_with": list(request.partners), "answers": request.answers}
    if vector.exact:
        facts |= {"table": vector.table, "rows": vector.rows}
        facts |= {name: value for name, value in (("selection", vector.selection), ("folds", vector.folds)) if value}
        if request.disclosure.row_sum is not None and request.disclosure.row_sum.min_cell:
            facts["min_cell"] = request.disclosure.row_sum.min_cell
    return facts | {
        "withdrawn": request.withdrawn,
        "codebook": vector.codebook,
        "data": vector.statistics,
        "quorum": vector.quorum_size,
        "waits_for_all": vector.waits_for_all,
        "contributors": list(vector.contributors),
    }
