"""A study over columns by the paper's own route (`scalar_product`), in one process: for researchers and for comparison.

    study = Study(codebook, partition="columns", protocol="scalar_product", options={"key_bits": 3072, "degree": 20})
    result = study.simulate({"hospital": a, "insurer": b})
    result.model.predict({"hospital": xa, "insurer": xb})

Two parties, one of which has the class; complete data. Options: key_bits, toy_keys, degree, const_bits, divisor, queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Feature, Numeric
from blindbayes.data.columns import open_columns
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.primitives.coins import Coins
from blindbayes.protocol import scalar_product as route
from blindbayes.protocol.columns import Columns
from blindbayes.protocol.core import Role
from blindbayes.protocol.scalar_product import Attribute, Channel, HeldShare, Measured, Nominal, Terms
from blindbayes.runtime.memory import local_runs, run_in_memory
from blindbayes.runtime.transcript import Cost
from blindbayes.statistics import Block
from blindbayes.study.columns import Prediction, agree_columns, count_local, leakage_of, local_parameters, whole_block
from blindbayes.study.study import Leak, Study

_TERMS = ("key_bits", "toy_keys", "degree", "const_bits", "divisor")


def attribute_of(feature: Feature, variance_floor: float) -> Attribute:
    """A feature as the protocol sees it: codes of values or bins, or whole numbers from 0."""
    if isinstance(feature, Categorical) or feature.bins is not None:
        return Nominal(feature.name, feature.size)
    floor = Fraction(variance_floor) * Fraction(feature.scale) ** 2
    return Measured(feature.name, feature.code_high - feature.code_low, floor)


def _column(feature: Feature, block: Block) -> list[int]:
    codes = block.columns[feature.name]
    if isinstance(feature, Numeric) and feature.bins is None:
        if (codes < feature.code_low).any():
            raise DataError(f"column {feature.name!r}: scalar_product takes complete data; a value is missing")
        codes = codes - feature.code_low
    return [int(code) for code in codes]


@dataclass
class PrintedModel:
    """Shares of scaled probabilities, means and variances, one end per party, and the channel between them."""

    columns: Columns
    attributes: tuple[Attribute, ...]
    held: Mapping[str, HeldShare] = field(repr=False)
    channels: Mapping[str, Channel] = field(repr=False)
    local: Mapping[str, Any] = field(repr=False)
    queries: int | None = None

    @property
    def terms(self) -> Terms:
        """What the parties agreed on."""
        return self.channels[self.columns.class_holder].terms

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Class labels, in the codebook's order."""
        return np.array(self.columns.codebook.classes, dtype=str)

    def predict(self, frames: Mapping[str, Any]) -> npt.NDArray[Any]:
        """The class of each instance, whose attributes the parties bring in the same order. Opens the class only."""
        return self.classify(frames).labels

    def classify(self, frames: Mapping[str, Any]) -> Prediction:
        """`predict`, with the leak report and the cost of the run."""
        columns, book = self.columns, self.columns.codebook
        holder, other = columns.class_holder, columns.holders[0]
        if set(frames) != set(columns.owners):
            raise ConfigError("predict takes one frame per party: " + ", ".join(columns.owners))
        block = whole_block(open_columns(frames[other], book))
        count = block.rows
        own = whole_block(open_columns(frames[holder], book)) if columns.owners[holder] else Block(None, {}, count)
        if own.rows != count or not count:
            raise DataError("all parties must bring the same instances, at least one, in the same order")
        if self.queries is not None:
            if count > self.queries:
                raise PrivacyError("the query budget of this model is used up")
            self.queries -= count
        local = [[2 * float(value) for value in row] for row in self._local(own)]
        values = {feature.name: _column(feature, block) for feature in columns.features(other)}
        outcome = run_in_memory(
            {
                holder: route.classify_class_holder(self.channels[holder], self.attributes, self.held[holder], local),
                other: route.classify_attribute_holder(self.channels[other], self.attributes, self.held[other], values, count),
            }
        )
        return Prediction(self.classes_[outcome.outputs[holder]], leakage_of(outcome), outcome.cost)

    def moments(self) -> dict[str, tuple[list[Fraction], list[Fraction]]]:
        """Simulation only: means and variances that the shares stand for, in codes from 0, per class."""
        const = self.terms.const
        first, second = (self.held[name].numeric for name in self.columns.owners)
        found = {}
        for name in first:
            means = [Fraction(a + b, const) for a, b in zip(first[name].means, second[name].means, strict=True)]
            pairs = zip(first[name].variances, second[name].variances, strict=True)
            found[name] = (means, [Fraction(a + b, const**3) for a, b in pairs])
        return found

    def probabilities(self) -> dict[str, list[list[Fraction]]]:
        """Simulation only: P(value | class) that the shares stand for, per class and value."""
        first, second = (self.held[name].nominal for name in self.columns.owners)
        return {
            name: [
                [Fraction(a + b, self.terms.const) for a, b in zip(left, right, strict=True)]
                for left, right in zip(first[name], second[name], strict=True)
            ]
            for name in first
        }

    def _local(self, block: Block) -> npt.NDArray[np.float64]:
        scores = np.zeros((block.rows, len(self.columns.codebook.classes)))
        if self.columns.owners[self.columns.class_holder]:
            parameters = local_parameters(self.columns, self.columns.class_holder, self.local)
            for name, term in parameters.terms.items():
                scores += parameters.score(name, term, block.columns[name])
        return scores


@dataclass(frozen=True)
class PrintedResult:
    """How a study by the paper's route ended."""

    model: PrintedModel = field(repr=False)
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]


def simulate(study: Study, sources: Mapping[str, Any], *, coins: Coins) -> PrintedResult:
    """Train with both parties in this process."""
    if study.epsilon is not None:
        raise PrivacyError("scalar_product opens nothing, so there is nothing to add noise to; leave epsilon out")
    if study.reveal_to != "all":
        raise ConfigError("scalar_product tells the class to both parties; leave reveal_to at 'all', or use class_sums")
    if unknown := sorted(set(study.options) - {*_TERMS, "queries"}):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join((*_TERMS, 'queries'))}")
    keys = (study.key,) if isinstance(study.key, str) else tuple(study.key or ())
    opened = {name: open_columns(source, study.codebook, ignore=keys) for name, source in sources.items()}
    columns = agree_columns(study, opened)
    if len(opened) != 2 or len(columns.labelled) != 1:
        raise ConfigError("scalar_product is for two parties of which one has the class; use class_sums")
    if columns.rows < study.min_rows:
        raise PrivacyError(f"the study asks for at least {study.min_rows} rows per party")
    holder, other = columns.class_holder, columns.holders[0]
    floor = study.codebook.variance_floor
    features = columns.features(other)
    if floor is None and any(isinstance(each, Numeric) and each.bins is None for each in features):
        raise ConfigError("a study over columns needs a variance_floor in its codebook")
    attributes = tuple(attribute_of(feature, floor or 0.0) for feature in features)
    terms = Terms(
        columns.rows,
        len(study.codebook.classes),
        alpha=study.alpha,
        **{name: study.options[name] for name in _TERMS if name in study.options},
    )
    block = whole_block(opened[other])
    values = {feature.name: _column(feature, block) for feature in features}
    labels = [int(label) for each in opened[holder].blocks() for label in _labels(each)]
    runs = local_runs(tuple(sources), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)

    def class_holder() -> Role[tuple[Channel, HeldShare]]:
        channel = yield from route.connect(runs[holder], other, terms, coins.derive(f"training {holder}"))
        return channel, (yield from route.train_class_holder(channel, attributes, labels))

    def attribute_holder() -> Role[tuple[Channel, HeldShare]]:
        channel = yield from route.connect(runs[other], holder, terms, coins.derive(f"training {other}"))
        return channel, (yield from route.train_attribute_holder(channel, attributes, values))

    outcome = run_in_memory({holder: class_holder(), other: attribute_holder()})
    model = PrintedModel(
        columns,
        attributes,
        {name: outcome.outputs[name][1] for name in sources},
        {name: outcome.outputs[name][0] for name in sources},
        count_local(columns, holder, opened[holder]),
        study.options.get("queries"),
    )
    return PrintedResult(model, leakage_of(outcome), outcome.cost, _statement(study, columns, terms), tuple(sources))


def _labels(block: Block) -> Sequence[int]:
    if block.labels is None:
        raise DataError("the class holder has the class column")
    return [int(label) for label in block.labels]


def _statement(study: Study, columns: Columns, terms: Terms) -> str:
    lines = [
        f"Study {study.sha256}",
        "Protocol scalar_product (Vaidya, Kantarcioglu and Clifton 2008), for comparison. "
        f"Class holder: {columns.class_holder}.",
        "Training opened nothing: each party holds shares of probabilities, means and variances. A classification opens the "
        "class to both.",
        f"Paillier keys of {terms.key_bits} bits" + (" (TOY KEYS: no security)." if terms.key_bits < 2048 else "."),
        "Security: parties that follow the protocol and look at what they received (semi-honest), computational; shares are "
        "within 2^-64 of independence from what they share.",
    ]
    return "\n\n".join(lines)
