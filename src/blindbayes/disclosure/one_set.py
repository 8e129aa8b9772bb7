"""One table, one set: a table takes part in exact sums over one fixed set of sites only. SPEC.md has the argument.

The rule itself is the checks of scope `exact_sum` in `checks`; here are the facts that they compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExactSum:
    """An exact sum that contains, or may contain, this site's rows."""

    run: str
    number: int  # of its entry in the audit log
    table: str
    rows: str | None  # the digest of the rows that were counted; None: an older version did not store it
    sites: frozenset[str]  # identities whose vectors were opened together; with `quorum_size`, that may have been
    quorum_size: int | None = None  # if set, `quorum_size` or more of `sites`, or nothing, was opened
    is_final: bool = True  # False: it may yet turn out that nothing was opened
    counted: tuple[str | None, str | None] = (None, None)  # the codebook, and the digest of the statistics under it
    min_cell: int = 0  # cells below it were suppressed
    selection: str = ""  # hash of the study's rule on which rows of the table count; empty: all
    folds: str = ""  # of a cross-validation, whose parts were opened: their number, and by what; empty: none


@dataclass(frozen=True, slots=True)
class Binding:
    """The sets of sites that this site's tables are bound to, by the audit log."""

    sums: Sequence[ExactSum]  # of all tables, oldest first
    same_site: Mapping[str, str]  # identity -> a name that all identities of one site share
    lost_at: int = -1  # the audit log's number before which exact sums may be missing from it

    def sums_of(self, identity: str, table: str) -> list[ExactSum]:
        """Return the exact sums of a table that a site is, or may be, in; oldest first."""
        own = self.site(identity)
        return [each for each in self.sums if each.table == table and own in map(self.site, each.sites)]

    def site(self, identity: str) -> str:
        return self.same_site.get(identity, identity)
