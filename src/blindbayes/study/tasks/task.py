"""A task: what one party does in one run of a study.

`StudyTask(agreement)` knows everything public about the runs of a study: roles, disclosure, privacy cost. `at` returns the
task of one site in one run. A driver, which is a site's agent or `simulate`, calls `read`, opens a journal per role under the
input's digest, and drives the roles. Once everybody has joined, `authorise_and_charge` is the last check before anything
depends on this site's rows: what it charges or refuses is on disk before the first step. `store` makes what the roles returned
durable; after a crash it may be called again with the same outputs and does no more.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.data.contribution_bound import ContributionBound
from blindbayes.data.persons import PersonRows
from blindbayes.data.split import Reading, Split
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure
from blindbayes.errors import BlindbayesError, ConfigError, LocalProtocolError
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.shares import KeptShare, ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.statistics import Statistics
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.feasible import require_feasible
from blindbayes.statistics.parameters import Parameters
from blindbayes.study.agreement import Agreement
from blindbayes.study.tasks.traits import ModelForm, NoParams, Partition, Support

if TYPE_CHECKING:
    from blindbayes.study.study import Study
    from blindbayes.study.tasks.prediction import PredictionTask, Request
    from blindbayes.study.tasks.result import PreviousTotal, RunResult

UNIT = "one record"  # what noise in a training over columns protects


@dataclass(frozen=True, slots=True)
class State:
    """The state of a site's data, as keyed digests in hexadecimal."""

    statistics: str  # of what was counted
    rows: str | None = None  # of the rows themselves; None: not taken, since what is opened is noisy
    table: str = ""  # what the site calls these rows
    counted: str = ""  # hash of what they were counted for; empty: the study's codebook


@dataclass(frozen=True, slots=True)
class Computation:
    """A pending computation on a site's data, for the site to authorise and charge."""

    agreement: Agreement
    run_id: str
    charge: Charge | None
    state: State | None = None  # of the rows that a sum counts
    quorum_size: int | None = None  # minimum number of vectors that are opened together
    exact: bool = False  # the sum is opened without noise
    overlap_with: Sequence[str] = ()  # parties that learn whether a record is shared
    answers: int = 0  # of the model, which training opens for audits
    discloses: Disclosure | None = None  # None: what a training of the study does


@dataclass(frozen=True, slots=True)
class DryRun:
    """The outcome of a dry run: what would leave the site."""

    facts: Mapping[str, Json]
    lines: tuple[str, ...]  # the same for people
    refused_because: tuple[str, ...] = ()


class Vector(Protocol):
    """The vector that a site counted for a sum."""

    @property
    def words(self) -> npt.NDArray[np.uint64]: ...


class Site(Protocol):
    """A site as its tasks see it: a folder with an agent, or an object in memory."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> bytes:
        """The site's own key, for digests that mean nothing to others."""

    @property
    def split_key(self) -> bytes:
        """The key that decides which rows are held out: the same in all runs."""

    def count(self, reading: Reading) -> Statistics:
        """Return the exact statistics of this site's rows."""

    def persons(self, reading: Reading) -> PersonRows:
        """Return this site's rows by person."""

    def evaluate(self, reading: Reading, models: Sequence[Parameters], bins: int) -> list[Evaluation]:
        """Return the evaluation of each model on this site's rows."""

    def removed(self, reading: Reading) -> Statistics | None:
        """Return the statistics of rows that this site takes back, or None."""

    def previous_total(self, codebook: Codebook) -> tuple[PreviousTotal | None, bool]:
        """Return the total that the run adds to, or None, and whether the run adds to one that this site lacks."""

    def keep_total(self, result: PreviousTotal) -> None:
        """Store what this site learned, for runs that add to it."""

    def columns(self, agreement: Agreement) -> ColumnSource:
        """Open this site's columns of a study; `close` releases them."""

    def require_rows(self, agreement: Agreement, rows: int) -> None:
        """Raise if this site has fewer rows than the study or its own policy asks for."""

    def require_cost(self, charge: Charge | None) -> None:
        """Raise if one run would cost more than the site's policy allows."""

    def state(self, counted: Vector) -> State:
        """Return the state of this site's data."""

    def authorise_and_charge(self, asked: Computation) -> None:
        """Check approval, rate and what earlier runs revealed, charge the ledger, and log it. Once per run."""

    def opened(self, agreement: Agreement, run_id: str, included: Sequence[str]) -> None:
        """Log whose vectors were opened together."""

    def keep_share(self, run_id: str, share: KeptShare) -> None:
        """Store what training left here."""

    def close(self) -> None:
        """Release the sources."""


class BatchColumns(Protocol):
    """The columns of a classification's instances, and who brings which."""

    @property
    def codebook(self) -> Codebook: ...

    @property
    def owners(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def class_holder(self) -> str:
        """The party that brings the class of each instance to an evaluation; empty: none."""


class AnsweringSite(Protocol):
    """A site as classifications see it: its share, its instances, its query budget."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> bytes:
        """The site's own key, for digests that mean nothing to others."""

    def share_of(self, model: str) -> KeptShare:
        """Return its share of the model of a training run."""

    def instances(self, request: Request, columns: BatchColumns) -> ColumnSource | int:
        """Return its own columns of the instances, or their number if it holds none."""

    def beside(self, names: Sequence[str], rows: int) -> dict[str, Any]:
        """Return the columns that its release shows next to the classes."""

    def require_matches_revealed(self) -> None:
        """Raise unless its policy lets another site learn whom they share."""

    def require_queries(self, share: KeptShare, run_id: str, count: int) -> None:
        """Raise what `charge_queries` would raise."""

    def require_totals(self, model: str, run_id: str, rows: int, labelled: str) -> None:
        """Raise unless the site allows others to learn totals of its labelled instances, whose digest is given."""

    def charge_queries(self, study: str, model: str, run_id: str, count: int, labelled: str = "") -> None:
        """Check the approval, charge the query budget, and log it. Once per run.

        `labelled` is the digest of instances whose totals by true class others learn.
        """


class LocalSite(Protocol):
    """A party of `simulate`, whose table says what it holds."""

    def table(self, study: Study) -> ColumnSource:
        """Open its columns."""


class Task(ABC):
    """One party's work in one run. `read` and `store` run in a thread."""

    kind: str  # for people: "sum", "training", "prediction", "release"

    @property
    @abstractmethod
    def disclosure(self) -> Disclosure:
        """Everything that a run discloses."""

    @property
    @abstractmethod
    def required(self) -> int:
        """The number of roles that must have joined before anything is computed."""

    @abstractmethod
    def read(self) -> None:
        """Read what this site brings. Raises what policy raises."""

    @abstractmethod
    def digest(self, name: str) -> bytes:
        """Return the keyed digest of a role's input; a run that is resumed must find the same."""

    @abstractmethod
    def role(self, name: str, run: Run, coins: Coins) -> Role[object]:
        """Return the role of that name, which this site hosts."""

    @abstractmethod
    def authorise_and_charge(self, name: str) -> None:
        """Authorise and pay for a role once everybody has joined. Called again when a run is resumed after a crash."""

    @abstractmethod
    def store(self, outputs: Mapping[str, object]) -> None:
        """Make durable what the roles of this site returned."""

    @abstractmethod
    def result(self, outcome: Outcome) -> RunResult:
        """Return what this site learned, with the files of its release."""

    def max_bytes(self) -> int | None:
        """Return how many bytes one party may send another in the whole run; None: the journal's quota applies."""
        return None


class StudyTask(Task):
    """The task that a study's protocol defines. What has a body here holds where everybody brings rows and is needed."""

    # -- the protocol: known before the parties are --------------------------------------------------------------------

    name: ClassVar[str]
    description: ClassVar[str]  # who learns what, in one line, for people who choose
    params: ClassVar[type[msgspec.Struct]] = NoParams  # the protocol's options
    partitions: ClassVar[tuple[Partition, ...]]
    aligned: ClassVar[bool] = True  # columns: row i of every party is the same entity
    model: ClassVar[ModelForm] = ModelForm.OPENED
    restricted: ClassVar[bool] = False  # protects less than others do: a site's policy must allow it by name
    supports: ClassVar[frozenset[Support]] = frozenset()
    messages: ClassVar[tuple[str, ...]] = ()  # the form in which data leaves a site, line by line
    hub: ClassVar[str] = ""  # the one role that all others talk to; empty: others talk to each other
    apart: ClassVar[tuple[tuple[str, ...], ...]] = ()  # roles that no one site may fill together
    share_class: ClassVar[type[KeptShare]] = ModelShare  # how share files of its models are read

    @classmethod
    def variant(cls, study: Study) -> type[StudyTask]:
        """Return the class that runs this study, where a protocol has more than one."""
        return cls

    @classmethod
    def check(cls, study: Study) -> None:
        """Raise for settings that no set of parties could run."""

    @classmethod
    def default_quorum(cls, parties: int) -> int | None:
        """Return the minimum number of contributors whose result may be opened; None: all of them."""
        return None

    @classmethod
    def agree_locally(cls, study: Study, sites: Mapping[str, LocalSite]) -> Agreement:
        """Return what parties in one process agree on, from their tables."""
        return Agreement(study, study.sha256, tuple(sites), tuple(sites))

    # -- the agreement: known before people sign -----------------------------------------------------------------------

    def __init__(self, agreement: Agreement) -> None:
        """Derive the public facts of the runs. Raise if the settings contradict each other."""
        self.agreement, self.study = agreement, agreement.study
        self.roles = agreement.contributors  # the contributors under their own names, then the others
        self.learners = agreement.contributors  # roles that learn the result of a run, or keep a share of it each
        self.setting: SumSetup | None = None  # of the sum over rows that the rule on exact sums is about
        self.run_id = ""
        self._site: Site | None = None

    def require_runnable(self) -> None:
        """Raise, before people approve, what the roles would raise in their first step."""

    @abstractmethod
    def cost(self, party: str) -> Charge | None:
        """Return what a party's ledger pays for a run; None: nothing that a ledger can express."""

    @abstractmethod
    def facts(self) -> dict[str, Json]:
        """Return what the study says, fact by fact, for people and machines."""

    @abstractmethod
    def summary(self) -> list[str]:
        """Return what follows from the study, in a few lines for its author."""

    # -- one party, one run --------------------------------------------------------------------------------------------

    def at(self, site: Site, run_id: str) -> Self:
        """Return the task of one site in one run."""
        bound = copy(self)
        bound._site, bound.run_id = site, run_id
        return bound

    @property
    def site(self) -> Site:
        if self._site is None:
            raise LocalProtocolError("a task is run at a site")
        return self._site

    @property
    def required(self) -> int:
        return len(self.roles)

    def dry_run(self) -> DryRun:
        """Return what would leave the site. Reads the rows to see that they fit."""
        opens = self.disclosure
        facts = {"leaves_as": self.messages[0], "opened": list(opens.opened), "opened_to": list(opens.learners)}
        lines = (self.messages[0], *opens.conclusions[:1], "Nothing has left.")
        return DryRun(facts, lines, self.refused_reading())

    def refused_reading(self) -> tuple[str, ...]:
        """Return why the task cannot read what it needs, for a dry run: empty, or one sentence."""
        try:
            self.read()
        except BlindbayesError as error:
            return (str(error),)
        return ()

    def local_result(self, outcome: Outcome, shares: Mapping[str, KeptShare]) -> RunResult:
        """Return the result of a run whose parties are all in this process."""
        return self.result(outcome)

    def prediction(self, site: AnsweringSite, run_id: str, request: Request) -> PredictionTask:
        """Return the task of a classification with the model of a run."""
        raise ConfigError("this study opens its result; it has no model in shares to ask")


class CountingTask(StudyTask):
    """A task whose input is the statistics of this site's table: of all its rows, or of its columns."""

    kind = "sum"

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.statistics: Statistics | None = None
        self.state: State | None = None

    @property
    def contribution_bound(self) -> ContributionBound | None:
        """The bound on rows per person; None without one."""
        # Seeded by the site's key and the run: a run that is resumed samples the same rows per person.
        seed = hashlib.blake2b(self.run_id.encode(), key=self.site.key[:64], digest_size=32, person=b"bb persons")
        return self.study.contribution_bound(Coins.seeded(seed.digest()))

    def count(self, codebook: Codebook) -> Statistics:
        """Return this site's statistics, as the study counts them."""
        counted = self.site.count(self.reading(codebook, self.split(held_out=False)))
        return require_feasible(counted, complete=not self.study.is_private)

    def reading(self, codebook: Codebook, split: Split | None) -> Reading:
        """Return how the study reads one part of this site's rows."""
        return Reading(codebook, self.study.is_private, self.contribution_bound, split)

    def split(self, *, held_out: bool) -> Split | None:
        """Return one part of this site's rows; None if the study holds out none."""
        fraction = self.study.estimation.held_out
        return Split(fraction, held_out, self.site.split_key) if fraction else None

    def bring(self, statistics: Statistics) -> None:
        """Store the input after checking it against the requirements of the study and the site."""
        self.site.require_rows(self.agreement, int(statistics.class_counts.sum()))
        self.statistics, self.state = statistics, self.site.state(statistics)

    def digest(self, name: str) -> bytes:
        return b"" if self.state is None else bytes.fromhex(self.state.statistics) + (self.state.rows or "").encode()

    def store(self, outputs: Mapping[str, object]) -> None:
        """Store nothing: the release holds the result."""
