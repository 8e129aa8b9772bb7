"""set_intersection and distorted_intersection (Algorithms 2 and 3) as studies, with the leaks that they have.

Training runs one intersection per value of each feature and class, between the class holder (Bob) and the feature's holder
(Alice). With set_intersection Alice learns the counts and keeps ln P(value | class). With distorted_intersection each keeps a
factor, and their product estimates a count. Logarithms add up, so both are score tables, and `shared_argmax` classifies with
them as with any model in shares.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.data.columns import ColumnSource
from blindbayes.data.identifiers import read_digests, recipe_of, rows_at
from blindbayes.disclosure.value import Disclosure
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.naive_bayes.shares import KeptShare, ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.private_join.sums.inputs import merge
from blindbayes.protocols.shared_training.columns import ColumnsSetup, training_name
from blindbayes.statistics.parameters import Histogram, Parameters
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study, join_study, learner_of
from blindbayes.study.tasks.columns import count_local, holdings_of, keyed_digest, require_held, require_learner
from blindbayes.study.tasks.prediction import PredictionTask, PredictionTerms, Request
from blindbayes.study.tasks.public import public_of
from blindbayes.study.tasks.result import SHARES_TOGETHER
from blindbayes.study.tasks.scoring import whole_tables
from blindbayes.study.tasks.shared import ShareTask
from blindbayes.study.tasks.task import AnsweringSite, LocalSite
from blindbayes.study.tasks.traits import CompareAll, Queries
from blindbayes_papers.kikuchi2011.distorted_intersection import roles as distorted
from blindbayes_papers.kikuchi2011.set_intersection import roles as exact

if TYPE_CHECKING:
    from blindbayes.study.simulation.models import JointModel

SIZES_SEEN = "{holder} learned how many persons have each value, the others how many have each class."


NOT_UNIFORM = (
    "A share is not uniform: it is a table of logarithms of the sizes that its holder learned, and reveals to another reader "
    "what they revealed to the holder."
)
DEVIATES = (
    "An attribute holder that deviates can learn which of its persons have which class, all of them in one training, and "
    "nothing catches it."
)
FloatArray = npt.NDArray[np.float64]


class IntersectionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of both protocols."""

    queries: Queries = None  # no limit
    compare_all: CompareAll = False


class ExactParams(IntersectionParams, frozen=True, forbid_unknown_fields=True):
    """Options of set_intersection."""

    proofs: Annotated[bool, "the class holder proves that it raised all elements to one power of its own"] = False


@dataclass(frozen=True, slots=True)
class LogTables:
    """The tables that training leaves with one party."""

    tables: dict[str, dict[str, Limbs]] = field(repr=False)  # per other party: logarithms, as score tables
    training: str


class IntersectionPrediction(PredictionTask):
    """A classification by shares that are not uniform."""

    @property
    def disclosure(self) -> Disclosure:
        return replace(super().disclosure, conclusions=(NOT_UNIFORM, SHARES_TOGETHER))


class IntersectionTask(ShareTask[LogTables]):
    """Training by intersections, value by value and class by class."""

    params = IntersectionParams
    aligned = False
    restricted = True  # joined_sums does the same without the leak
    messages = (
        "keyed digests of identifiers, locked by a secret power, value by value and class by class: their numbers show",
    )
    setup: ColumnsSetup
    leak: ClassVar[str]  # what training reveals, for statements and leak reports
    accuracy: ClassVar[str]
    opened: ClassVar[str]
    min_class = 0  # persons of a class that an intersection needs

    @classmethod
    def check(cls, study: Study) -> None:
        """Ask for distinct people and values that can be counted; refuse what needs noise or suppression."""
        if study.privacy.epsilon is not None or study.limits.min_cell:
            raise PrivacyError(f"{cls.name} takes neither epsilon nor min_cell: joined_sums does")
        if join_study(study).duplicates == "join":
            raise ConfigError(f"{cls.name} counts people: set duplicates = 'first' or 'reject'")
        if wide := [feature.name for feature in study.codebook.features if not feature.counted]:
            raise ConfigError(f"feature {wide[0]!r} is Gaussian; {cls.name} counts values: give it bins")

    @abstractmethod
    def ask(self, run: Run, other: str, name: str, coins: Coins) -> Role[FloatArray]:
        """Run a feature's intersections as Alice and return her table of logarithms, shaped (classes, values)."""

    @abstractmethod
    def answer(self, run: Run, other: str, name: str, coins: Coins) -> Role[FloatArray]:
        """Run a feature's intersections as Bob and return his table of logarithms, shaped (classes, values)."""

    @classmethod
    def agree_locally(cls, study: Study, sites: Mapping[str, LocalSite]) -> Agreement:
        holdings = holdings_of({name: site.table(study) for name, site in sites.items()})
        return Agreement(study, study.sha256, tuple(sites), tuple(sites), columns=holdings)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        holdings, study = agreement.holdings, self.study
        if holdings.n_rows is not None:
            raise ConfigError("rows that do not line up have no common number; leave [columns] rows out")
        if len(holdings.labelled) != 1:
            raise ConfigError(f"one party, and only one, must have the class column {study.codebook.target!r}")
        require_learner(learner_of(study), agreement.names)
        self.setup = ColumnsSetup(study.codebook, study.codebook.max_rows, agreement.owners, holdings.labelled)
        self.party = ""
        self.items: list[bytes] = []  # identifiers, one per person
        self.codes: Mapping[str, npt.NDArray[np.int64]] = {}  # of an attribute holder: per person its values
        self.labels: npt.NDArray[np.int64] | None = None  # of the class holder: per person the class
        self.local: Mapping[str, Any] | None = None

    def bring(self, party: str, source: ColumnSource) -> None:
        """Take one row per person."""
        study, columns = join_study(self.study), self.setup
        require_held(columns, party, source)
        digests = read_digests(source, recipe_of(study.codebook, study.key or None), bytes.fromhex(self.agreement.sha256))
        entries = merge(digests, np.arange(source.rows, dtype=np.uint64)[:, None], study.duplicates, 1)
        places = entries.words[:, 0].astype(np.int64)
        people = rows_at(source, places, study.codebook)
        blocks = list(people.blocks())
        codes = {name: np.concatenate([block.columns[name] for block in blocks]) for name in columns.owners[party]}
        items = [digest for digest in (digests[at] for at in places) if digest is not None]
        self.party, self.items, self.codes = party, items, codes
        if party != columns.class_holder:
            return
        labels = np.concatenate([block.known_labels for block in blocks])
        if np.bincount(labels, minlength=len(study.codebook.classes)).min() < self.min_class:
            raise DataError(f"{party}: a class of fewer than two people cannot be thinned")
        self.labels, self.local = labels, count_local(columns, party, people)

    def input_digest(self, key: bytes) -> bytes:
        arrays: list[npt.NDArray[Any]] = [np.frombuffer(b"".join(self.items), dtype=np.uint8)]
        arrays += [self.codes[name] for name in sorted(self.codes)]
        arrays += [] if self.labels is None else [self.labels]
        return keyed_digest(key, repr((sorted(self.codes), public_of(self.setup))).encode(), arrays)

    def role(self, name: str, run: Run, coins: Coins) -> Role[LogTables]:
        """Run with every attribute holder in turn, or with the class holder."""
        tables = {}
        others = self.setup.holders if self.labels is not None else (self.setup.class_holder,)
        for other in others:
            holder = other if self.labels is not None else self.party
            tables[other] = yield from self._tables(run, other, self.setup.owners[holder], coins.derive(f"with {other}"))
        return LogTables(tables, training_name(run))

    def _tables(self, run: Run, other: str, names: tuple[str, ...], coins: Coins) -> Role[dict[str, Limbs]]:
        book, side = self.setup.codebook, self.ask if self.labels is None else self.answer
        terms = {}
        for name in names:
            terms[name] = Histogram((yield from side(run, other, name, coins.derive(name))))
        return whole_tables(Parameters(book, np.zeros(len(book.classes)), terms), self.setup.plan)

    def persons(self, name: str) -> Iterator[tuple[int, int, list[bytes]]]:
        """Yield every class and value of a feature with this party's side of the intersection."""
        book = self.setup.codebook
        for value in range(book.feature(name).size):
            for label in range(len(book.classes)):
                chosen = self.codes[name] == value if self.labels is None else self.labels == label
                yield label, value, [self.items[at] for at in np.flatnonzero(chosen)]

    def no_logs(self, name: str) -> FloatArray:
        """Return a table of zeros."""
        return np.zeros((len(self.setup.codebook.classes), self.setup.codebook.feature(name).size))

    def share(self, trained: LogTables) -> ModelShare:
        """Return the logarithms that follow from what the party learned; they are not uniform."""
        public, queries = public_of(replace(self.setup, training=trained.training)), self.study.options.get("queries")
        return ModelShare(self.agreement.sha256, self.party, public, trained.tables, {}, self.local, queries)

    def joint_model(self, shares: Mapping[str, KeptShare]) -> JointModel:
        from blindbayes_papers.kikuchi2011.model import IntersectionModel  # loads what only a simulation needs

        compare_all = bool(self.study.options.get("compare_all", False))
        return IntersectionModel(shares, learner_of(self.study), compare_all=compare_all, agreement=self.agreement)

    def prediction(self, site: AnsweringSite, run_id: str, request: Request) -> IntersectionPrediction:
        return IntersectionPrediction(PredictionTerms.from_agreement(self.agreement, run_id), site, run_id, request)

    # -- for people ----------------------------------------------------------------------------------------------------

    def conclusions(self) -> tuple[str, ...]:
        return NOT_UNIFORM, SHARES_TOGETHER, self.leak.format(holder=self.setup.class_holder), DEVIATES

    def outputs(self) -> list[str]:
        return [self.opened]

    def sizes(self) -> dict[str, Any]:
        return {"sizes": "how many people have each value and each class is seen by the other party of each pair"}

    def security(self) -> tuple[str, str]:
        return (
            f"Security: parties that follow the protocol and look at what they received (semi-honest); decisional "
            f"Diffie-Hellman. {DEVIATES}",
            "",
        )

    def statement(self, overlaps: Mapping[str, int]) -> str:
        study, columns = self.study, self.setup
        queries = study.options.get("queries")
        return "\n\n".join(
            [
                f"Study {self.agreement.sha256}",
                f"Codebook {study.codebook.sha256}",
                f"Protocols {self.name}, shared_argmax, as in Kikuchi et al. 2011. Class holder: {columns.class_holder}.",
                self.leak.format(holder=columns.class_holder),
                f"{self.accuracy} There is no differential privacy.",
                f"A classification opens the class, to {learner_of(study)}. "
                + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited."),
                f"{self.security()[0]} joined_sums gives exact shares of the same counts and opens none of this.",
            ]
        )


class ExactTask(IntersectionTask):
    """Training by Algorithm 2: attribute holders learn every count of their values by class."""

    name = "set_intersection"
    params = ExactParams
    description = "Kikuchi's Algorithm 2, for comparison: exact, and attribute holders learn every count by value and class."
    protocols = ("transfer", "set_intersection")
    leak = (
        "For each value of its columns and each class an attribute holder learned the exact number of persons with the value "
        f"who have the class at {{holder}}, small numbers too. {SIZES_SEEN} An attribute holder thus classifies by its own "
        "columns as often as it likes, outside the query budget. The counts of two trainings over changed tables reveal the "
        "class of who joined or left. joined_sums reveals nothing of this."
    )
    accuracy = "Counts are exact: classes are those of training on the joined table."
    opened = "intersection_size of every value and class, to the holder of the value"

    @property
    def proofs(self) -> bool:
        return bool(self.study.options.get("proofs", False))

    def security(self) -> tuple[str, str]:
        if not self.proofs:
            return super().security()
        return (
            "Security: attribute holders that follow the protocol (semi-honest). A class holder that deviates in training is "
            "caught (zero-knowledge proofs): a count is that of the holder's set and of one set of the class holder, which "
            "nothing checks. Decisional Diffie-Hellman, random oracle. Classification: parties that follow the protocol. "
            f"{DEVIATES}",
            "",
        )

    def ask(self, run: Run, other: str, name: str, coins: Coins) -> Role[FloatArray]:
        counts = self.no_logs(name)
        for label, value, persons in self.persons(name):
            learned = yield from exact.alice(run, other, persons, coins.derive(f"{value} {label}"), proofs=self.proofs)
            counts[label, value] = learned.size
        counts += self.study.estimation.alpha
        logs: FloatArray = np.log(counts) - np.log(counts.sum(axis=1, keepdims=True))
        return logs

    def answer(self, run: Run, other: str, name: str, coins: Coins) -> Role[FloatArray]:
        for label, value, persons in self.persons(name):
            yield from exact.bob(run, other, persons, coins.derive(f"{value} {label}"), proofs=self.proofs)
        return self.no_logs(name)


class DistortedTask(IntersectionTask):
    """Training by Algorithm 3: thinned sizes of intersections."""

    name = "distorted_intersection"
    description = "Kikuchi's own classifier, for comparison: estimates, and attribute holders learn bounds on every count."
    protocols = ("transfer", "distorted_intersection")
    leak = (
        "For each value of its columns and each class an attribute holder learned a thinned size: at least that number of "
        "persons with the value have the class at {holder}. It reveals 0.8 bits on average of the 6.7 bits of a number up to "
        "100 (SPEC of distorted_intersection, `posterior`), once per value and class, and again in every training. "
        f"{SIZES_SEEN} joined_sums reveals nothing of this."
    )
    accuracy = (
        "Every count is an estimate: thinning adds a binomial error, so that classes differ from those of exact counts, and "
        "from run to run."
    )
    opened = "thinned_size of every value and class, to the holder of the value"
    min_class = 2

    @classmethod
    def check(cls, study: Study) -> None:
        super().check(study)
        if study.estimation.alpha != 1.0:
            raise ConfigError("distorted_intersection adds one to every thinned size; leave alpha at 1")

    def ask(self, run: Run, other: str, name: str, coins: Coins) -> Role[FloatArray]:
        logs = self.no_logs(name)
        for label, value, persons in self.persons(name):
            thinned = yield from distorted.alice(run, other, persons, coins.derive(f"{value} {label}"))
            logs[label, value] = np.log(thinned + 1)
        return logs

    def answer(self, run: Run, other: str, name: str, coins: Coins) -> Role[FloatArray]:
        logs = self.no_logs(name)
        for label, value, persons in self.persons(name):
            thinned = yield from distorted.bob(run, other, persons, coins.derive(f"{value} {label}"))
            logs[label, value] = -np.log(thinned.sample_size)
        return logs


def task_class(name: str) -> type[IntersectionTask]:
    """Return the task of one of the two protocols."""
    return ExactTask if name == ExactTask.name else DistortedTask
