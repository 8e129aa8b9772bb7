"""A study over columns by the paper's own route (`scalar_product`), in one process: for researchers and for comparison.

    study = ColumnStudy(codebook, protocol="scalar_product", options={"key_bits": 3072, "degree": 20})
    result = study.simulate({"hospital": a, "insurer": b})
    result.model.predict({"hospital": xa, "insurer": xb})
    result.save("release/")                     # the leak report, and one share file per party
    PrintedModel.load({"hospital": "release/hospital.share", "insurer": "release/insurer.share"})

Two parties, one of which has the class; complete data. Options: key_bits, toy_keys, degree, divisor, queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Feature, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure
from blindbayes.errors import ConfigError, DataError, LocalProtocolError
from blindbayes.naive_bayes.shares import KeptShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.parameters import estimate
from blindbayes.study.agreement import Agreement
from blindbayes.study.simulation.models import JointModel
from blindbayes.study.study import Study
from blindbayes.study.tasks.aligned import AlignedTask
from blindbayes.study.tasks.classify import Scoring
from blindbayes.study.tasks.columns import count_local, require_held, whole_block
from blindbayes.study.tasks.prediction import PredictionTask, PredictionTerms, Request
from blindbayes.study.tasks.public import columns_of, public_of
from blindbayes.study.tasks.result import SHARES_TOGETHER
from blindbayes.study.tasks.shared import ShareTask
from blindbayes.study.tasks.task import AnsweringSite, LocalSite
from blindbayes_papers.primitives import unsafe_keys
from blindbayes_papers.vaidya2008 import scalar_product as route
from blindbayes_papers.vaidya2008.params import DESCRIPTION, ScalarProductParams, require_printed
from blindbayes_papers.vaidya2008.scalar_product import Attribute, Channel, HeldShare, Measured, Nominal, ScalarProductSetup
from blindbayes_papers.vaidya2008.share import PrintedShare

_TERMS = ("key_bits", "toy_keys", "degree", "divisor")


def attribute_of(feature: Feature, variance_floor: float) -> Attribute:
    """A feature as the protocol sees it: codes of values or bins, or whole numbers from 0."""
    if not isinstance(feature, Numeric) or feature.bins is not None:
        return Nominal(feature.name, feature.size)
    floor = Fraction(variance_floor) * Fraction(feature.scale) ** 2
    return Measured(feature.name, feature.code_high - feature.code_low, floor)


def attributes_of(columns: ColumnsSetup) -> tuple[Attribute, ...]:
    """The attribute holder's features, as the protocol sees them."""
    features, floor = columns.features(columns.holders[0]), columns.codebook.variance_floor
    if floor is None and any(isinstance(each, Numeric) and each.bins is None for each in features):
        raise ConfigError("a study over columns needs a variance_floor in its codebook")
    return tuple(attribute_of(feature, floor or 0.0) for feature in features)


def _column(feature: Feature, block: CodedRows) -> list[int]:
    codes = block.columns[feature.name]
    lowest = feature.code_low if isinstance(feature, Numeric) and feature.bins is None else 0
    if (codes < lowest).any():
        raise DataError(f"column {feature.name!r}: scalar_product takes complete data; a value is missing")
    return [int(code) for code in codes - lowest]


CONCLUSIONS = (
    "A share alone is an integer within 2^-64 of independence from what it shares: a party that holds one, and the messages "
    "above, learns nothing of the other's columns beyond what was opened.",
    SHARES_TOGETHER,
)


DEVIATES = (
    "A party that deviates reads the other's rows one by one, and nothing catches it: the class holder by the columns of "
    "categories and bins, the attribute holder which class a row has by a column of numbers."
)


class PrintedScoring(Scoring):
    """One party's side of a classification, in a session of its own under the keys of the training."""

    protocols = ("scalar_product",)

    def __init__(self, share: PrintedShare, source: ColumnSource | int) -> None:
        share.require_alive()
        self.share, self.party, self.columns = share, share.party, columns_of(share.public)
        self.count = source if isinstance(source, int) else source.rows
        if self.count < 1:
            raise DataError("a batch has at least one instance")
        block = CodedRows(None, {}, self.count)
        if not isinstance(source, int):
            require_held(self.columns, self.party, source)
            block = whole_block(source)
        holder = self.party == self.columns.class_holder
        self._scores = [[2 * float(value) for value in row] for row in self._local(block)] if holder else []
        features = () if holder else self.columns.features(self.party)
        self._values = {feature.name: _column(feature, block) for feature in features}

    def digest(self, key: bytes) -> bytes:
        return blake2b(repr((self._scores, self._values)).encode(), key=key[:64], digest_size=32).digest()

    def role(self, run: Run, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        """Both learn the class."""
        share, attributes = self.share, attributes_of(self.columns)
        holder, other = self.columns.class_holder, self.columns.holders[0]
        if self.party == holder:
            channel = yield from route.connect(run, other, share.terms, coins, share.own_key, share.other_key)
            classes = yield from route.classify_class_holder(channel, attributes, share.parameters, self._scores)
        else:
            channel = yield from route.connect(run, holder, share.terms, coins, share.own_key, share.other_key)
            classes = yield from route.classify_attribute_holder(
                channel, attributes, share.parameters, self._values, self.count
            )
        return np.array(classes, dtype=np.int64)

    def conclusions(self) -> tuple[str, ...]:
        return CONCLUSIONS

    def _local(self, block: CodedRows) -> npt.NDArray[np.float64]:
        """Return the scores of the class holder's own columns, which it computes alone, with the divisor of the terms."""
        scores = np.zeros((block.rows, len(self.columns.codebook.classes)))
        holder = self.columns.class_holder
        if self.columns.owners[holder]:
            book = self.columns.codebook.with_features(self.columns.features(holder))
            named, divisor = (self.share.local or {})["statistics"], self.share.terms.divisor
            parameters = estimate(Statistics.from_names(book, named), alpha=self.columns.alpha, divisor=divisor)
            for name, term in parameters.terms.items():
                scores += parameters.score(name, term, block.columns[name])
        return scores


class PrintedPrediction(PredictionTask):
    """A classification by the paper's route."""

    def scoring(self, share: KeptShare, rows: ColumnSource | int) -> PrintedScoring:
        if not isinstance(share, PrintedShare):
            raise LocalProtocolError("the share is of another protocol than the study")
        return PrintedScoring(share, rows)


class PrintedModel(JointModel):
    """Shares of scaled probabilities, means and variances, one per party."""

    task, share_class = PrintedPrediction, PrintedShare

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attribute holder's features, as the protocol sees them."""
        return attributes_of(self.columns)

    @property
    def terms(self) -> ScalarProductSetup:
        """Return what the parties agreed on."""
        terms: ScalarProductSetup = self.shares[self.columns.class_holder].terms
        return terms

    def moments(self) -> dict[str, tuple[list[Fraction], list[Fraction]]]:
        """Simulation only: means and variances that the shares stand for, in codes from 0, per class."""
        const = self.terms.const
        first, second = (self._share(name).numeric for name in self.columns.owners)
        moments = {}
        for name in first:
            means = [Fraction(a + b, const) for a, b in zip(first[name].means, second[name].means, strict=True)]
            pairs = zip(first[name].variances, second[name].variances, strict=True)
            moments[name] = (means, [Fraction(a + b, const**3) for a, b in pairs])
        return moments

    def probabilities(self) -> dict[str, list[list[Fraction]]]:
        """Simulation only: P(value | class) that the shares stand for, per class and value."""
        first, second = (self._share(name).nominal for name in self.columns.owners)
        return {
            name: [
                [Fraction(a + b, self.terms.const) for a, b in zip(left, right, strict=True)]
                for left, right in zip(first[name], second[name], strict=True)
            ]
            for name in first
        }

    def _share(self, party: str) -> HeldShare:
        self.shares[party].require_alive()
        share: HeldShare = self.shares[party].parameters
        return share


def terms_of(study: Study, rows: int) -> ScalarProductSetup:
    """The study's options, as the protocol knows them."""
    given = {name: study.options[name] for name in _TERMS if name in study.options}
    return ScalarProductSetup(rows, len(study.codebook.classes), alpha=study.estimation.alpha, **given)


class PrintedColumnsTask(ShareTask[tuple[Channel, HeldShare]]):
    """scalar_product over columns: one party's side of training."""

    name = "scalar_product"
    description = DESCRIPTION
    params = ScalarProductParams
    restricted = True
    protocols = ("scalar_product",)
    share_class = PrintedShare
    setup: ColumnsSetup

    @classmethod
    def check(cls, study: Study) -> None:
        require_printed(study)

    @classmethod
    def agree_locally(cls, study: Study, sites: Mapping[str, LocalSite]) -> Agreement:
        return AlignedTask.agree_locally(study, sites)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        holdings, study = agreement.holdings, self.study
        self.setup = ColumnsSetup(
            study.codebook, holdings.n_rows or 0, agreement.owners, holdings.labelled, study.estimation.alpha
        )
        if len(agreement.names) != 2 or len(self.setup.labelled) != 1:
            raise ConfigError("scalar_product is for two parties of which one has the class; use class_sums")
        self.terms = terms_of(study, self.setup.rows)
        self._party = ""
        self._local: dict[str, Any] | None = None
        self._labels: list[int] = []
        self._values: dict[str, list[int]] = {}

    def cost(self, party: str) -> Charge | None:
        return None

    def bring(self, party: str, source: ColumnSource) -> None:
        columns = self.setup
        require_held(columns, party, source)
        self._party = party
        self._local = count_local(columns, party, source) if party == columns.class_holder else None
        self._labels = []
        self._values = {feature.name: [] for feature in columns.features(columns.holders[0])}
        for block in source.blocks():  # as training data: a value outside the codebook is an error, not clamped
            if party == columns.class_holder:
                self._labels += [int(label) for label in block.known_labels]
            else:
                for feature in columns.features(party):
                    self._values[feature.name] += _column(feature, block)

    def input_digest(self, key: bytes) -> bytes:
        return blake2b(repr((self._labels, self._values)).encode(), key=key[:64], digest_size=32).digest()

    def role(self, name: str, run: Run, coins: Coins) -> Role[tuple[Channel, HeldShare]]:
        holder, other, attributes = self.setup.class_holder, self.setup.holders[0], attributes_of(self.setup)
        channel = yield from route.connect(run, other if self._party == holder else holder, self.terms, coins)
        if self._party == holder:
            return channel, (yield from route.train_class_holder(channel, attributes, self._labels))
        return channel, (yield from route.train_attribute_holder(channel, attributes, self._values))

    def share(self, trained: tuple[Channel, HeldShare]) -> PrintedShare:
        (channel, parameters), facts = trained, public_of(self.setup)
        keys, queries = (channel.private, channel.public), self.study.options.get("queries")
        return PrintedShare(self.agreement.sha256, self._party, facts, self.terms, parameters, *keys, self._local, queries)

    def joint_model(self, shares: Mapping[str, KeptShare]) -> PrintedModel:
        return PrintedModel(shares, agreement=self.agreement)

    def prediction(self, site: AnsweringSite, run_id: str, request: Request) -> PrintedPrediction:
        return PrintedPrediction(PredictionTerms.from_agreement(self.agreement, run_id), site, run_id, request)

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        return replace(super().disclosure, unsafe=unsafe_keys(self.study.options))

    def conclusions(self) -> tuple[str, ...]:
        return CONCLUSIONS

    def security(self) -> tuple[str, str]:
        return (
            "Security: parties that follow the protocol and look at what they received (semi-honest), computational; shares "
            f"are within 2^-64 of independence from what they share. {DEVIATES}",
            "",
        )

    def statement(self, overlaps: Mapping[str, int]) -> str:
        study, columns, terms = self.study, self.setup, terms_of(self.study, 1)
        queries = study.options.get("queries")
        lines = [
            f"Study {self.agreement.sha256}",
            "Protocol scalar_product (Vaidya, Kantarcioglu and Clifton 2008), for comparison. "
            f"Class holder: {columns.class_holder}.",
            "Training opened nothing: each party holds shares of probabilities, means and variances. A classification opens "
            "the class to both.",
            f"Paillier keys of {terms.key_bits} bits" + (" (TOY KEYS: no security)." if terms.key_bits < 2048 else "."),
            self.security()[0],
            f"The variance is divided by {terms.divisor}. "
            + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited.")
            + " Repeated queries let the model be read off; limit them.",
        ]
        return "\n\n".join(lines)


TASK = PrintedColumnsTask
