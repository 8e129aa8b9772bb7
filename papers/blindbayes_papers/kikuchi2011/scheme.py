"""distorted_intersection: Kikuchi's own classifier as a way to run a study, with the leak that it has. See its SPEC.md.

Training thins one intersection per value of each feature and class, between the class holder (Bob) and the feature's holder
(Alice). What each keeps are factors whose product estimates a count; their logarithms add up, so that they are score tables,
and `shared_argmax` classifies with them as with any model in shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.data.columns import ColumnSource
from blindbayes.data.keys import read_digests, recipe_of, rows_at
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.private_join.sums.inputs import merge
from blindbayes.protocols.shared_training.columns import ColumnsSetup, training_name
from blindbayes.statistics.parameters import Histogram, Parameters
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts
from blindbayes.study.study import Study, join_study, learner_of
from blindbayes.study.tasks.aligned import count_local, require_held
from blindbayes.study.tasks.columns import holdings_of, require_learner
from blindbayes.study.tasks.joined import keyed_digest
from blindbayes.study.tasks.scoring import whole_tables
from blindbayes.study.tasks.shared import ShareScheme
from blindbayes_papers.kikuchi2011.distorted_intersection.roles import alice, bob

LEAK = (
    "For each value of its columns and each class an attribute holder learned a thinned size: so many, or more, of its people "
    "with that value have that class at {holder}. It shifts what the number is likely to be, by 0.8 bits on average of the 6.7 "
    "bits of a number up to 100 (SPEC of distorted_intersection, `posterior`), once per value and class, and again in every "
    "training. {holder} learned how many people have each value, the others how many have each class. joined_sums tells "
    "nothing of this."
)
"""What training tells, in words."""


class DistortedParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of distorted_intersection."""

    queries: int | None = None  # how many instances may be classified, ever; None: no limit
    compare_all: bool = False  # all parties compare the scores together, so that no two of them can see a third's part

    def __post_init__(self) -> None:
        if self.queries is not None and self.queries < 1:
            raise ConfigError("the option queries is the number of instances that may be classified")


@dataclass(frozen=True, slots=True)
class Factors:
    """What training leaves with one party."""

    tables: dict[str, dict[str, Limbs]] = field(repr=False)  # per other party: logarithms of its factors, as score tables
    training: str


@dataclass(frozen=True, slots=True)
class DistortedTraining:
    """One party's part of training. See `scheme.part.Training`."""

    party: str
    rows: int
    columns: ColumnsSetup = field(repr=False)
    items: list[bytes] = field(repr=False)  # identifiers, one per person
    codes: Mapping[str, npt.NDArray[np.int64]] = field(repr=False)  # of an attribute holder: per person its values
    labels: npt.NDArray[np.int64] | None = field(repr=False)  # of the class holder: per person the class
    local: Mapping[str, Any] | None = field(repr=False)
    queries: int | None = None

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of identifiers and codes."""
        arrays: list[npt.NDArray[Any]] = [np.frombuffer(b"".join(self.items), dtype=np.uint8)]
        arrays += [self.codes[name] for name in sorted(self.codes)]
        arrays += [] if self.labels is None else [self.labels]
        return keyed_digest(key, repr((sorted(self.codes), self.columns.to_dict())).encode(), arrays)

    def role(self, run: Run, coins: Coins) -> Role[Factors]:
        """With every attribute holder in turn, or with the class holder."""
        tables = {}
        others = self.columns.holders if self.labels is not None else (self.columns.class_holder,)
        for other in others:
            holder = other if self.labels is not None else self.party
            tables[other] = yield from self._factors(run, other, self.columns.owners[holder], coins.derive(f"with {other}"))
        return Factors(tables, training_name(run))

    def _factors(self, run: Run, other: str, names: tuple[str, ...], coins: Coins) -> Role[dict[str, Limbs]]:
        """ln(s_A + 1), or -ln(s_B), of every value of these features and class."""
        columns, book = self.columns, self.columns.codebook
        terms = {}
        for name in names:
            found = np.zeros((len(book.classes), book.feature(name).size))
            for value in range(found.shape[1]):
                for label in range(len(book.classes)):
                    own = coins.derive(f"{name} {value} {label}")
                    if self.labels is None:
                        thinned = yield from alice(run, other, self._where(self.codes[name] == value), own)
                        found[label, value] = np.log(thinned + 1)
                    else:
                        kept = yield from bob(run, other, self._where(self.labels == label), own)
                        found[label, value] = -np.log(kept.kept)
            terms[name] = Histogram(found)
        return whole_tables(Parameters(book, np.zeros(len(book.classes)), terms), columns.plan)

    def _where(self, chosen: npt.NDArray[np.bool_]) -> list[bytes]:
        return [self.items[at] for at in np.flatnonzero(chosen)]

    def share(self, trained: Factors, study: str) -> ModelShare:
        """What the party keeps: no uniform share, but what it learned."""
        public = replace(self.columns, training=trained.training).to_dict()
        return ModelShare(study, self.party, public, trained.tables, {}, self.local, self.queries)


class DistortedScheme(ShareScheme):
    """See `study.schemes.Scheme`."""

    name = "distorted_intersection"
    params = DistortedParams
    protocols = ("transfer", "distorted_intersection")
    facts = Facts(
        partitions=("columns",),
        aligned=False,
        line="Kikuchi's own classifier, for comparison: estimates, and attribute holders learn bounds on every count.",
        shares=True,
        allowed=False,  # joined_sums does the same without the leak
        offered=False,
        leaves=(
            "keyed digests of identifiers, locked by a secret power, value by value and class by class: their numbers show",
        ),
    )

    def check(self, study: Study) -> None:
        """Distinct people, values that can be counted, and no noise but the thinning, which is no differential privacy."""
        if study.privacy.epsilon is not None or study.limits.min_cell:
            raise PrivacyError("distorted_intersection takes neither epsilon nor min_cell: joined_sums does")
        if join_study(study).duplicates == "join":
            raise ConfigError("distorted_intersection counts people: set duplicates = 'first' or 'reject'")
        if wide := [feature.name for feature in study.codebook.features if not feature.counted]:
            raise ConfigError(f"feature {wide[0]!r} is Gaussian; distorted_intersection counts values: give it bins")
        if study.estimation.alpha != 1.0:
            raise ConfigError("distorted_intersection adds one to every thinned size; leave alpha at 1")

    def agree(self, agreement: Agreement) -> ColumnsSetup:
        """Who holds what."""
        held, study = agreement.holdings, agreement.study
        if held.n_rows is not None:
            raise ConfigError("rows that do not line up have no common number; leave [columns] rows out")
        if len(held.labelled) != 1:
            raise ConfigError(f"one party, and only one, must have the class column {study.codebook.target!r}")
        require_learner(learner_of(study), agreement.names)
        return ColumnsSetup(study.codebook, study.codebook.max_rows, agreement.owners, held.labelled)

    def meet(self, study: Study, sites: Mapping[str, Any]) -> Agreement:
        """Tables with identifiers."""
        held = holdings_of({name: site.table(study) for name, site in sites.items()})
        return Agreement(study, study.sha256, tuple(sites), tuple(sites), held=held)

    def columns(self, agreement: Agreement) -> ColumnsSetup:
        """The public facts themselves."""
        found: ColumnsSetup = agreement.public
        return found

    def training(self, agreement: Agreement, party: str, source: ColumnSource) -> DistortedTraining:
        """A party's part: one row per person."""
        study, columns = join_study(agreement.study), self.columns(agreement)
        require_held(columns, party, source)
        digests = read_digests(source, recipe_of(study.codebook, study.key or None), bytes.fromhex(agreement.sha256))
        entries = merge(digests, np.arange(source.rows, dtype=np.uint64)[:, None], join_study(study).duplicates, 1)
        places = entries.words[:, 0].astype(np.int64)
        people = rows_at(source, places, study.codebook)
        blocks = list(people.blocks())
        codes = {name: np.concatenate([block.columns[name] for block in blocks]) for name in columns.owners[party]}
        items = [digest for digest in (digests[at] for at in places) if digest is not None]
        queries = study.options.get("queries")
        if party != columns.class_holder:
            return DistortedTraining(party, source.rows, columns, items, codes, None, None, queries)
        labels = np.concatenate([block.known_labels for block in blocks])
        if np.bincount(labels, minlength=len(study.codebook.classes)).min() < 2:
            raise DataError(f"{party}: a class of fewer than two people cannot be thinned")
        local = count_local(columns, party, people)
        return DistortedTraining(party, source.rows, columns, items, codes, labels, local, queries)

    def follows(self, agreement: Agreement) -> tuple[str, ...]:
        """The leak."""
        return (LEAK.format(holder=self.columns(agreement).class_holder),)

    def opened(self, agreement: Agreement) -> list[str]:
        """To the attribute holders."""
        return ["thinned_size of every value and class, to the holder of the value"]

    def sizes(self, agreement: Agreement) -> dict[str, Any]:
        """Not padded."""
        return {"sizes": "how many people have each value and each class is seen by the other party of each pair"}

    def statement(self, agreement: Agreement, overlaps: Mapping[str, int]) -> str:
        """What training promises, which is little."""
        study, columns = agreement.study, self.columns(agreement)
        queries = study.options.get("queries")
        return "\n\n".join(
            [
                f"Study {agreement.sha256}",
                f"Codebook {study.codebook.sha256}",
                f"Protocols distorted_intersection, shared_argmax, as in Kikuchi et al. 2011. Class holder: "
                f"{columns.class_holder}.",
                LEAK.format(holder=columns.class_holder),
                "Every count is an estimate: thinning adds a binomial error, so that classes differ from those of exact "
                "counts, and from run to run. There is no differential privacy.",
                f"A classification opens the class, to {learner_of(study)}. "
                + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited."),
                "Security: parties that follow the protocol and look at what they received (semi-honest); decisional "
                "Diffie-Hellman. joined_sums gives exact shares of the same counts and opens none of this.",
            ]
        )


SCHEME = DistortedScheme()
