"""A study over columns by the paper's own route (`scalar_product`), in one process: for researchers and for comparison.

    study = Study(codebook, partition="columns", protocol="scalar_product", options={"key_bits": 3072, "degree": 20})
    result = study.simulate({"hospital": a, "insurer": b})
    result.model.predict({"hospital": xa, "insurer": xb})
    result.save("release/")                     # the leak report, and one share file per party
    PrintedModel.load({"hospital": "release/hospital.share", "insurer": "release/insurer.share"})

Two parties, one of which has the class; complete data. Options: key_bits, toy_keys, degree, const_bits, divisor, queries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Feature, Numeric
from blindbayes.data.columns import open_columns
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.model.parameters import estimate
from blindbayes.papers.vaidya2008 import scalar_product as route
from blindbayes.papers.vaidya2008.scalar_product import Attribute, Channel, HeldShare, Measured, Nominal, ScalarProductSetup
from blindbayes.papers.vaidya2008.share import PrintedShare
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.columns import ColumnsSetup
from blindbayes.protocol.core import Role, Run
from blindbayes.report import LeakReport, run_files, seal_files
from blindbayes.scheme.aligned import columns_of, count_local, require_held, whole_block
from blindbayes.scheme.columns import keys_of, line_up
from blindbayes.scheme.result import Leak, Prediction, about_columns, column_report, leakage_of
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.storage.folder import write_folder
from blindbayes.study.study import Study
from blindbayes.transport.memory import local_runs, run_in_memory
from blindbayes.wire.transcript import Cost

_TERMS = ("key_bits", "toy_keys", "degree", "const_bits", "divisor")


def attribute_of(feature: Feature, variance_floor: float) -> Attribute:
    """A feature as the protocol sees it: codes of values or bins, or whole numbers from 0."""
    if isinstance(feature, Categorical) or feature.bins is not None:
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
    least = feature.code_low if isinstance(feature, Numeric) and feature.bins is None else 0
    if (codes < least).any():
        raise DataError(f"column {feature.name!r}: scalar_product takes complete data; a value is missing")
    return [int(code) for code in codes - least]


class PrintedModel:
    """Shares of scaled probabilities, means and variances, one per party."""

    def __init__(self, columns: ColumnsSetup, shares: Mapping[str, PrintedShare]) -> None:
        self.columns = columns
        self.shares = dict(shares)
        self.attributes = attributes_of(columns)

    def __repr__(self) -> str:
        return f"PrintedModel({', '.join(self.shares)})"

    @classmethod
    def load(cls, files: Mapping[str, str | os.PathLike[str]]) -> PrintedModel:
        """From both parties' share files, in one process: for simulation."""
        shares = {name: PrintedShare.load(path) for name, path in files.items()}
        facts = {(share.study, json.dumps(share.public, sort_keys=True), share.terms.facts()) for share in shares.values()}
        if len(facts) != 1:
            raise ConfigError("the share files are not of one study")
        if any(share.party != name for name, share in shares.items()):
            raise ConfigError("a share file belongs to another party")
        columns = columns_of(next(iter(shares.values())).public)
        if set(columns.owners) != set(shares):
            raise ConfigError("every party of the study must bring its share file")
        return cls(columns, shares)

    @property
    def terms(self) -> ScalarProductSetup:
        """What the parties agreed on."""
        return self.shares[self.columns.class_holder].terms

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Class labels, in the codebook's order."""
        return np.array(self.columns.codebook.classes, dtype=str)

    def predict(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> npt.NDArray[Any]:
        """The class of each instance, whose attributes the parties bring in the same order. Opens the class only."""
        return self.classify(frames, coins=coins).labels

    def classify(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> Prediction:
        """`predict`, with the leak report and the cost of the run."""
        coins = Coins.system() if coins is None else coins
        holder, other = self.columns.class_holder, self.columns.holders[0]
        for share in self.shares.values():
            share.require_alive()
        own, asked = self._blocks(frames)
        count = asked.rows
        local = [[2 * float(value) for value in row] for row in self._local(own)]
        values = {feature.name: _column(feature, asked) for feature in self.columns.features(other)}
        for share in self.shares.values():  # each party for itself, before it sends anything
            share.charge(count)
        mine, theirs, run_id = self.shares[holder], self.shares[other], coins.bytes(16).hex()
        runs = local_runs(tuple(self.columns.owners), study=mine.study, run_id=run_id, coins=coins, signed=False)

        def class_holder() -> Role[list[int]]:
            channel = yield from self._connect(runs[holder], mine, other, coins)
            return (yield from route.classify_class_holder(channel, self.attributes, mine.held, local))

        def attribute_holder() -> Role[list[int]]:
            channel = yield from self._connect(runs[other], theirs, holder, coins)
            return (yield from route.classify_attribute_holder(channel, self.attributes, theirs.held, values, count))

        outcome = run_in_memory({holder: class_holder(), other: attribute_holder()})
        report = column_report(("scalar_product",), outcome, about=about_columns(self.columns, mine.study))
        statement = f"Study {mine.study}\n\n{count} instances. The class of each was opened, to both parties, and nothing else."
        return Prediction(self.classes_[outcome.outputs[holder]], leakage_of(outcome), outcome.cost, report, statement)

    def _connect(self, run: Run, share: PrintedShare, other: str, coins: Coins) -> Role[Channel]:
        """A session of its own for every batch, under the keys of the training."""
        own = coins.derive(f"prediction {run.run_id} {run.me}")
        return (yield from route.connect(run, other, share.terms, own, share.own_key, share.other_key))

    def destroy(self, party: str) -> None:
        """One party erases its share. Nobody can classify any more."""
        if party not in self.shares:
            raise ConfigError(f"{party!r} holds no share of this model")
        self.shares[party].destroy()

    def moments(self) -> dict[str, tuple[list[Fraction], list[Fraction]]]:
        """Simulation only: means and variances that the shares stand for, in codes from 0, per class."""
        const = self.terms.const
        first, second = (self._held(name).numeric for name in self.columns.owners)
        found = {}
        for name in first:
            means = [Fraction(a + b, const) for a, b in zip(first[name].means, second[name].means, strict=True)]
            pairs = zip(first[name].variances, second[name].variances, strict=True)
            found[name] = (means, [Fraction(a + b, const**3) for a, b in pairs])
        return found

    def probabilities(self) -> dict[str, list[list[Fraction]]]:
        """Simulation only: P(value | class) that the shares stand for, per class and value."""
        first, second = (self._held(name).nominal for name in self.columns.owners)
        return {
            name: [
                [Fraction(a + b, self.terms.const) for a, b in zip(left, right, strict=True)]
                for left, right in zip(first[name], second[name], strict=True)
            ]
            for name in first
        }

    def _held(self, party: str) -> HeldShare:
        self.shares[party].require_alive()
        return self.shares[party].held

    def _blocks(self, frames: Mapping[str, Any]) -> tuple[CodedRows, CodedRows]:
        """The instances' codes: the class holder's own, and the attribute holder's."""
        if set(frames) != set(self.columns.owners):
            raise ConfigError("predict takes one frame per party: " + ", ".join(self.columns.owners))
        blocks = {}
        for party, names in self.columns.owners.items():
            if names:
                source = open_columns(frames[party], self.columns.codebook)
                require_held(self.columns, party, source)
                blocks[party] = whole_block(source)
        asked = blocks[self.columns.holders[0]]
        own = blocks.get(self.columns.class_holder, CodedRows(None, {}, asked.rows))
        if own.rows != asked.rows or not asked.rows:
            raise DataError("all parties must bring the same instances, at least one, in the same order")
        return own, asked

    def _local(self, block: CodedRows) -> npt.NDArray[np.float64]:
        """What the class holder's own columns add to the scores; it computes them alone, with the divisor of the terms."""
        scores = np.zeros((block.rows, len(self.columns.codebook.classes)))
        holder = self.columns.class_holder
        if self.columns.owners[holder]:
            book = self.columns.codebook.with_features(self.columns.features(holder))
            named = (self.shares[holder].local or {})["statistics"]
            parameters = estimate(Statistics.from_names(book, named), alpha=self.columns.alpha, divisor=self.terms.divisor)
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
    report: LeakReport = field(repr=False)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the release: the leak report, cost, statement, checksums; and beside them one share file per party.

        The checksums leave the shares out: each goes to its party alone. The folder must be new or empty.
        """
        where = write_folder(folder, seal_files(run_files(self.report, self.cost, self.statement)))
        for name, share in self.model.shares.items():
            share.save(where / f"{name}.share")
        return where


def simulate(study: Study, sources: Mapping[str, Any], *, coins: Coins, **_: Any) -> PrintedResult:
    """Train with both parties in this process."""
    queries = study.options.get("queries")
    opened = {name: open_columns(source, study.codebook, ignore=keys_of(study)) for name, source in sources.items()}
    held = line_up({name: opened[name] for name in sources})
    owners = {name: tuple(each for each in study.codebook.names if each in held.holds[name]) for name in sources}
    columns = ColumnsSetup(study.codebook, held.n_rows or 0, owners, held.labelled, study.alpha)
    if len(opened) != 2 or len(columns.labelled) != 1:
        raise ConfigError("scalar_product is for two parties of which one has the class; use class_sums")
    if columns.rows < study.min_rows:
        raise PrivacyError(f"the study asks for at least {study.min_rows} rows per party")
    holder, other = columns.class_holder, columns.holders[0]
    attributes = attributes_of(columns)
    terms = ScalarProductSetup(
        columns.rows,
        len(study.codebook.classes),
        alpha=study.alpha,
        **{name: study.options[name] for name in _TERMS if name in study.options},
    )
    blocks = list(opened[other].blocks())  # as training data: a value outside the codebook is an error, not clamped
    values = {each.name: [code for block in blocks for code in _column(each, block)] for each in columns.features(other)}
    labels = [int(label) for each in opened[holder].blocks() for label in each.known_labels]
    run_id = coins.bytes(16).hex()
    runs = local_runs(tuple(sources), study=study.sha256, run_id=run_id, coins=coins, signed=False)

    def class_holder() -> Role[tuple[Channel, HeldShare]]:
        channel = yield from route.connect(runs[holder], other, terms, coins.derive(f"training {run_id} {holder}"))
        return channel, (yield from route.train_class_holder(channel, attributes, labels))

    def attribute_holder() -> Role[tuple[Channel, HeldShare]]:
        channel = yield from route.connect(runs[other], holder, terms, coins.derive(f"training {run_id} {other}"))
        return channel, (yield from route.train_attribute_holder(channel, attributes, values))

    outcome = run_in_memory({holder: class_holder(), other: attribute_holder()})
    shares = {}
    for name in sources:
        channel, held = outcome.outputs[name]
        local = count_local(columns, name, opened[name]) if name == holder else None
        shares[name] = PrintedShare(
            study.sha256, name, columns.to_dict(), terms, held, channel.private, channel.public, local, queries
        )
    report = column_report(("scalar_product",), outcome, about=about_columns(columns, study.sha256))
    model = PrintedModel(columns, shares)
    return PrintedResult(
        model, leakage_of(outcome), outcome.cost, _statement(study, columns, terms, queries), tuple(sources), report
    )


def _statement(study: Study, columns: ColumnsSetup, terms: ScalarProductSetup, queries: int | None) -> str:
    lines = [
        f"Study {study.sha256}",
        "Protocol scalar_product (Vaidya, Kantarcioglu and Clifton 2008), for comparison. "
        f"Class holder: {columns.class_holder}.",
        "Training opened nothing: each party holds shares of probabilities, means and variances. A classification opens the "
        "class to both.",
        f"Paillier keys of {terms.key_bits} bits" + (" (TOY KEYS: no security)." if terms.key_bits < 2048 else "."),
        "Security: parties that follow the protocol and look at what they received (semi-honest), computational; shares are "
        "within 2^-64 of independence from what they share.",
        f"The variance is divided by {terms.divisor}. "
        + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited.")
        + " Repeated queries let the model be read off; limit them.",
    ]
    return "\n\n".join(lines)
