"""What a run computes at one site, whoever drives it: an agent between sites, or `simulate` in one process.

A driver reads the site's input (`read`), opens a journal per role under the input's digest if it has one, and drives the
roles. Once everybody has joined, `authorise_and_charge` is the last look before anything depends on this site's rows: what it
charges or refuses is on disk before the first step. `keep` makes what the roles returned durable; after a crash it may be
called again with the same and does no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.data.contribution_bound import ContributionBound
from blindbayes.disclosure.charges import Charge
from blindbayes.errors import BlindbayesError, LocalProtocolError
from blindbayes.naive_bayes.shares import KeptShare, ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.statistics import Statistics
from blindbayes.statistics.feasible import require_feasible
from blindbayes.study.agreement import Agreement
from blindbayes.study.tasks.part import Scoring, Training

P = TypeVar("P", bound=Training | Scoring)


UNIT = "one record"  # what a training over columns protects


@dataclass(frozen=True, slots=True)
class State:
    """The state of a site's data by keyed digests, hexadecimal."""

    statistics: str  # of what was counted
    rows: str | None = None  # of the rows themselves; None: not taken, since what is opened is noisy
    table: str = ""  # what the site calls these rows


class Site(Protocol):
    """What a job may ask of the site that it runs at. A folder with an agent is one, an object in memory another."""

    @property
    def name(self) -> str:
        """Whose site it is."""

    @property
    def key(self) -> bytes:
        """The site's own key, for digests that mean nothing to others."""

    def count(self, codebook: Codebook, *, lenient: bool, bound: ContributionBound | None) -> Statistics:
        """The exact statistics of this site's rows; `lenient`: no row may be an error, since noise hides each; `bound`: so
        many rows of one person count."""

    def removed(self, codebook: Codebook, *, lenient: bool) -> Statistics | None:
        """The statistics of rows that this site takes back, if there are any."""

    def earlier(self, codebook: Codebook) -> tuple[Any, bool]:
        """The total that a run adds to, if it adds to one and this site holds it; whether it lacks it."""

    def keep_total(self, found: Any) -> None:
        """Keep what this site learned, for runs that add to it."""

    def columns(self, agreement: Agreement) -> ColumnSource:
        """This site's columns of a study. `close` lets go of them."""

    def require_rows(self, agreement: Agreement, rows: int) -> None:
        """Enough rows of this site, for the study and for its own policy."""

    def require_price(self, charge: Charge | None) -> None:
        """Not more than the site's policy lets one run cost."""

    def state(self, statistics: Statistics) -> State:
        """The state of this site's data."""

    def authorise_and_charge(
        self,
        agreement: Agreement,
        run_id: str,
        charge: Charge | None,
        *,
        state: State | None = None,
        quorum_size: int | None = None,
        exact: bool = False,
        overlap_with: Sequence[str] = (),
        answers: int = 0,
    ) -> None:
        """Approval, rate, rules on what earlier runs revealed, ledger; then it is written down. Once per run."""

    def opened(self, agreement: Agreement, run_id: str, included: Sequence[str]) -> None:
        """Write down whose vectors were opened together."""

    def keep_share(self, run_id: str, share: ModelShare) -> None:
        """Keep what training left here."""

    def close(self) -> None:
        """Let go of sources."""


class AnsweringSite(Protocol):
    """What a classification asks of a site: its share, its instances, its budget of queries."""

    @property
    def name(self) -> str:
        """Whose site it is."""

    @property
    def key(self) -> bytes:
        """The site's own key, for digests that mean nothing to others."""

    def share_of(self, model: str) -> KeptShare:
        """Its share of the model of a training run."""

    def instances(self, request: Any, columns: ColumnsSetup) -> ColumnSource | int:
        """Its own columns of the instances, or their number if it holds none."""

    def beside(self, names: Sequence[str], rows: int) -> dict[str, Any]:
        """Columns that stand beside the classes in its release."""

    def require_matches_revealed(self) -> None:
        """Its policy lets another site learn whom of that one's people it has too."""

    def require_queries(self, share: KeptShare, model: str, run_id: str, count: int) -> None:
        """Refuse what `charge_queries` would refuse."""

    def charge_queries(self, study: str, model: str, run_id: str, count: int) -> None:
        """Approval and query budget; then it is written down. Once per run."""


@runtime_checkable
class Bounded(Protocol):
    """A job, or a part of one, that knows what one party may send another in the whole run."""

    def max_bytes(self) -> int | None:
        """Bytes; None: the journal's quota holds."""


class Job(Protocol):
    """One run's work at this site. `read` and `keep` run in a thread."""

    kind: str  # for people: "sum", "training", "prediction", "release"

    @property
    def required(self) -> int:
        """The fewest roles that must have joined before anything is computed."""

    def read(self) -> None:
        """Read what this site brings. Raises what policy raises."""

    def digest(self, seat: str) -> bytes:
        """Keyed digest of the input of a role; a run that is taken up again must find the same."""

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """The role in a seat that this site hosts."""

    def authorise_and_charge(self, seat: str) -> None:
        """Everybody has joined. Called again when a run is taken up after a crash."""

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Make durable what the roles of this site returned."""

    def result(self, outcome: Any) -> Any:
        """What this site learned, with `files()` for its release and `known` facts for its run.json."""


def refused_reading(job: Job) -> list[str]:
    """Why the job could not read what it needs, for a dry run: empty, or one sentence."""
    try:
        job.read()
    except BlindbayesError as error:
        return [str(error)]
    return []


class PartJob(Generic[P]):
    """A job that does one party's part of training or of a classification, once it has read what the part needs."""

    _unread = "the rows were not read"

    def __init__(self) -> None:
        self._held: P | None = None
        self._digest = b""

    def digest(self, seat: str) -> bytes:
        """Of the coded rows or instances."""
        return self._digest

    def _part(self) -> P:
        if self._held is None:
            raise LocalProtocolError(self._unread)
        return self._held

    def max_bytes(self) -> int | None:
        """By the part's public facts."""
        part = self._part()
        return part.max_bytes() if isinstance(part, Bounded) else None

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """This party's role."""
        return self._part().role(run, coins)


class CountingJob:
    """A job whose input is the statistics of this site's table: of all its rows, or of its columns."""

    kind = "sum"

    def __init__(self, agreement: Agreement, site: Site, run_id: str) -> None:
        self.agreement, self.site, self.run_id = agreement, site, run_id
        self.statistics: Statistics | None = None
        self.state: State | None = None

    @property
    def required(self) -> int:
        """Everybody."""
        return len(self.agreement.seats)

    def count(self, codebook: Codebook) -> Statistics:
        """This site's statistics, as the study counts them."""
        study = self.agreement.study
        # Drawn by the site's key and the run: a run that is taken up again counts the same rows.
        seed = hashlib.blake2b(self.run_id.encode(), key=self.site.key[:64], digest_size=32, person=b"bb persons")
        bound = study.contribution_bound(Coins.seeded(seed.digest()))
        found = self.site.count(codebook, lenient=study.is_private, bound=bound)
        return require_feasible(found, complete=not study.is_private)

    def bring(self, statistics: Statistics) -> None:
        """The input, checked against what the study and the site ask for."""
        self.site.require_rows(self.agreement, int(statistics.class_counts.sum()))
        self.statistics, self.state = statistics, self.site.state(statistics)

    def digest(self, seat: str) -> bytes:
        """Of the statistics."""
        return b"" if self.state is None else bytes.fromhex(self.state.statistics)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Nothing but the release."""

    def result(self, outcome: Any) -> Any:
        """What this site learned."""
        return self.agreement.study.scheme.result(self.agreement, outcome, run=self.run_id)
