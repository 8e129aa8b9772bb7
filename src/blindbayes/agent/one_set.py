"""One table, one set: a table takes part in exact sums over one fixed set of sites only. SPEC.md has the argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blindbayes.disclosure.policy import Policy
from blindbayes.errors import PrivacyError
from blindbayes.study.file import StudyFile

NOISE = (
    'noise: an epsilon. With unit = "record" it hides a row and not a site, whose statistics others can then read up to the '
    'noise, often a few rows a cell; unit = "party" hides a whole site'
)


@dataclass(frozen=True, slots=True)
class ExactSum:
    """An exact sum that this site's rows are in, or may be in."""

    run: str
    number: int  # of its entry in the audit log
    table: str
    rows: str | None  # the digest of the rows that were counted; None: an older version did not keep it
    sites: frozenset[str]  # whose vectors were opened together, by identity; with `quorum_size`, whose may have been
    quorum_size: int | None = None  # if set: some `quorum_size` or more of `sites`, or nothing, was opened
    is_final: bool = True  # False: it may yet turn out that nothing was opened
    counted: tuple[str | None, str | None] = (None, None)  # the codebook, and the digest of the statistics under it


@dataclass(frozen=True, slots=True)
class Bound:
    """What this site's table is bound to by the audit log."""

    sums: Sequence[ExactSum]  # of all tables, oldest first
    same_site: Mapping[str, str]  # identities of one site, under one name
    lost_at: int = -1  # the audit log's number where exact sums before may be missing from it
    names: Mapping[str, str] = field(default_factory=dict)  # of pinned sites by identity, for people

    def require(
        self,
        policy: Policy,
        study: StudyFile,
        identity: str,
        table: str,
        rows: str | None,
        *,
        statistics: str | None = None,
        since: Sequence[str | None] = (),
    ) -> None:
        """Refuse an exact sum that the rule does not allow. `since`: digests of earlier rows that it is the difference to."""
        self.require_set(study, identity, table)
        if names := {each.table for each in self.sums if each.rows == rows} - {table}:
            raise PrivacyError(
                f"the rows of the table {table!r} are those of the table {min(names)!r}, which has its own set of sites: "
                "restore the old name in [rows] of site.toml"
            )
        own = self._sums(identity, table)
        if not policy.changed_data and any(
            each.counted[0] == study.book.sha256 and each.rows == rows and each.counted[1] != statistics for each in own
        ):
            raise PrivacyError(
                f"the rows of the table {table!r} are those of an earlier exact sum of this codebook, and are read otherwise "
                "now: the difference would show this site's statistics alone. Restore [rows] of site.toml, allow it with "
                f"changed_data under [policy], or take {NOISE}"
            )
        before = own[-1:]
        unseen = bool(before) and before[0].number < self.lost_at
        earlier = {*(each.rows for each in before), *since}
        if not policy.changed_data and (unseen or earlier - {rows}):
            raise PrivacyError(
                f"the rows of the table {table!r} changed since its last exact sum{' (or that is not known)' * unseen}: the "
                "difference of two exact sums over the same sites shows how. Allow it with changed_data under [policy] in "
                f"site.toml, bring back the rows as they were, or take {NOISE}"
            )

    def require_set(self, study: StudyFile, identity: str, table: str) -> None:
        """Refuse a study over other sites than those that the table is bound to. Needs no rows."""
        sums = self._sums(identity, table)
        for each in sums:
            if each.quorum_size is not None:
                raise PrivacyError(
                    f"run {each.run[:16]} opened, or may yet open, an exact sum over some of its sites, and which is not "
                    "known: no other exact sum until it ends or is settled (`blindbayes site unsettled`). Meanwhile take "
                    f"{NOISE}"
                )
        if self.lost_at >= 0 and not any(each.is_final for each in sums):
            raise PrivacyError(
                "this site came back from a backup, and whether the table took part in exact sums that are lost is not "
                f"known: none is made any more. What is left is {NOISE}"
            )
        if not sums:
            return
        bound = frozenset(map(self._one, sums[0].sites))
        asked = frozenset(self._one(study.party(name).identity) for name in study.contributors)
        if asked == bound and len(study.contributors) == study.setting.quorum_size == len(bound):
            return
        names = {**self.names, **{party.identity: party.name for party in study.parties}}
        shown = ", ".join(sorted(names.get(site, f"a site ({site[:8]})") for site in sums[0].sites))
        raise PrivacyError(
            f"the table {table!r} takes part in exact sums over {shown} only, by run {sums[0].run[:16]} (if that failed, see "
            "`blindbayes site unsettled`): one over other sites, or over fewer, would show the difference, which may be one "
            f"site's statistics. Ways out: a study of exactly these sites with a quorum of all {len(bound)}; {NOISE}; or "
            "another table, of other rows, with a name of its own in [rows] of site.toml"
        )

    def _sums(self, identity: str, table: str) -> list[ExactSum]:
        own = self._one(identity)
        return [each for each in self.sums if each.table == table and own in map(self._one, each.sites)]

    def _one(self, identity: str) -> str:
        return self.same_site.get(identity, identity)
