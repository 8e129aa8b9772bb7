"""A study over columns in which every party knows the class and releases noisy histograms of its own columns.

`NoisyColumns` is what is public, and what one party and the miner do with it; `simulate` does it for all of them here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.estimators import NaiveBayes
from blindbayes.ledger import Ledger
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.intervals import record_of_histograms
from blindbayes.privacy.mechanisms import DiscreteLaplace
from blindbayes.privacy.sensitivity import Query
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.noisy_histograms import Histograms, contributor, miner
from blindbayes.report import About, LeakReport, leak_report
from blindbayes.scheme.result import Result, leakage_of
from blindbayes.statistics import Layout, Statistics, count_block
from blindbayes.statistics.layout import is_histogram
from blindbayes.study.study import Study
from blindbayes.transport.memory import Outcome, local_runs, run_in_memory

MINER = "miner"
OPENED = "noisy_histograms"


def require_settings(study: Study) -> None:
    """What the protocol asks of a study, whoever holds what."""
    if study.epsilon is None:
        raise PrivacyError("noisy_histograms needs epsilon: without noise each party would open its counts")
    if study.delta:
        raise PrivacyError("noisy_histograms is purely epsilon-private; leave delta at 0")
    if study.options:
        raise ConfigError(f"unknown protocol option {min(study.options)!r}; known: none")
    if wide := [feature.name for feature in study.codebook.features if not is_histogram(feature)]:
        raise ConfigError(f"feature {wide[0]!r} is Gaussian; noisy_histograms releases histograms: give it bins")


@dataclass(frozen=True)
class NoisyColumns:
    """What is public: who holds which columns, and what each party's release costs."""

    study: Study
    owners: Mapping[str, tuple[str, ...]]  # party -> its features, in the codebook's order

    def __post_init__(self) -> None:
        book = self.study.codebook
        require_settings(self.study)
        if MINER in self.owners:
            raise ConfigError(f"a party may not be called {MINER!r}: the protocol keeps that name")
        held: dict[str, str] = {}
        for party, names in self.owners.items():
            for name in names:
                if name in held:
                    raise ConfigError(f"feature {name!r} is held by {held[name]} and by {party}; one must drop it")
                held[name] = party
        if missing := [name for name in book.names if name not in held]:
            raise ConfigError(f"feature {missing[0]!r} of the codebook is held by no party")

    @property
    def names(self) -> tuple[str, ...]:
        """Who releases."""
        return tuple(name for name, held in self.owners.items() if held)

    @cached_property
    def books(self) -> dict[str, Codebook]:
        """The codebook of each party's columns."""
        book = self.study.codebook
        return {name: book.with_features(tuple(book.feature(each) for each in self.owners[name])) for name in self.names}

    @cached_property
    def queries(self) -> dict[str, Query]:
        """What each party releases."""
        return {name: Query(book) for name, book in self.books.items()}

    @cached_property
    def mechanisms(self) -> dict[str, DiscreteLaplace]:
        """Step 1: a record has a row in every table, so a party spends its share of the attributes, and the shares add up."""
        book = self.study.codebook
        found = {}
        for name, own in self.books.items():
            share = Fraction(str(self.study.epsilon)) * len(own.features) / len(book.features)
            found[name] = DiscreteLaplace(self.queries[name].sensitivity, share)
        return found

    @cached_property
    def facts(self) -> Histograms:
        """The protocol's own view."""
        sizes = {name: query.sensitivity.size for name, query in self.queries.items()}
        return Histograms(MINER, sizes, {name: own.sha256 for name, own in self.books.items()})

    def count(self, name: str, source: ColumnSource) -> Statistics:
        """A party's exact counts; they stay with it."""
        if not source.labelled:
            raise ConfigError(f"{name} does not have the class column; noisy_histograms is for parties that all know the class")
        total, layout = Statistics.zero(self.books[name]), Layout(self.books[name])
        for block in source.blocks(total=True):
            total = total + count_block(layout, block)
        if int(total.class_counts.sum()) < self.study.min_rows:
            raise PrivacyError(f"the study asks for at least {self.study.min_rows} rows per party")
        return total

    def role(self, run: Run, statistics: Statistics | None, coins: Coins) -> Role[Any]:
        """The miner's role, or that of a party with its counts."""
        if run.me == MINER:
            return miner(run, self.facts)
        if statistics is None:
            raise LocalProtocolError("a party that releases has counted")
        noisy = self.mechanisms[run.me].release(self.queries[run.me].apply(statistics.vector), coins)
        return contributor(run, self.facts, noisy.astype(np.int64))

    def result(self, released: Mapping[str, Any], outcome: Outcome, sha256: str) -> Result:
        """What the miner makes of it."""
        study = self.study
        statistics = _join(study, self.queries, released)
        model = NaiveBayes.from_statistics(statistics, alpha=study.alpha, var_smoothing=study.var_smoothing)
        total = sum((mechanism.epsilon for mechanism in self.mechanisms.values()), Fraction(0))
        spent = float(total)
        record = record_of_histograms(study.codebook, total, self._tables(released))
        model.privacy_ = {"mechanism": "discrete_laplace", "epsilon": spent, "delta": 0.0, "released": record}
        known = {"study": sha256, "protocol": study.protocol, "opened": OPENED}
        return Result(
            model,
            statistics,
            leakage_of(outcome),
            outcome.cost,
            self.statement(sha256),
            self.names,
            (spent, 0.0),
            report=self.report(outcome),
            facts=known,
        )

    def _tables(self, released: Mapping[str, Any]) -> dict[str, Any]:
        """The histograms as they were released, by feature: (classes, cells)."""
        found: dict[str, Any] = {}
        for name, own in self.books.items():
            blocks = self.queries[name].sensitivity.blocks
            pieces = np.split(np.asarray(released[name]), np.cumsum([block.size for block in blocks])[:-1])
            found |= {block.name: piece.reshape(len(own.classes), -1) for block, piece in zip(blocks, pieces, strict=True)}
        return found

    def report(self, outcome: Outcome, about: About | None = None) -> LeakReport:
        """Who received what."""
        seen = outcome.transcript
        return leak_report(
            ("noisy_histograms",), len(self.names), seen.received, outcome.opened, seen.entries, (), seen.traffic, about
        )

    def statement(self, sha256: str) -> str:
        """What is promised, in words."""
        study, attributes = self.study, len(self.study.codebook.features)
        parts = ", ".join(f"{name} {float(each.epsilon):g}" for name, each in self.mechanisms.items())
        return "\n\n".join(
            [
                f"Study {sha256}",
                f"Codebook {study.codebook.sha256}",
                f"Protocol noisy_histograms; {len(self.names)} contributors. Opened: noisy_histograms, to the miner.",
                f"Differential privacy of one record (add or remove) over all parties' tables: epsilon = {study.epsilon:g}. "
                f"It has a row in every table, so the parties' budgets add up: {parts}. Discrete Laplace noise of scale "
                f"{attributes} / {study.epsilon:g} on every count, drawn exactly.",
            ]
        )


def simulate(
    study: Study,
    sources: Mapping[str, Any],
    *,
    coins: Coins,
    ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Result:
    """Every party counts, adds its noise and releases; the miner builds the model. `ledgers` pay before that."""
    require_settings(study)
    keys = (study.key,) if isinstance(study.key, str) else tuple(study.key or ())
    opened = {name: open_columns(source, study.codebook, ignore=keys) for name, source in sources.items()}
    noisy = NoisyColumns(study, {name: tuple(each.name for each in source.features) for name, source in opened.items()})
    if len({source.rows for source in opened.values()}) != 1:
        raise DataError("the parties' tables have different numbers of rows; line them up by key first")
    seats = (*noisy.names, MINER)
    runs = local_runs(seats, study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    counted = {name: noisy.count(name, opened[name]) for name in noisy.names}
    for name, path in (ledgers or {}).items():
        if name in noisy.mechanisms:
            mechanism = noisy.mechanisms[name]
            Ledger(path).charge(mechanism, purpose=f"study {study.protocol}", study=study.sha256)
    parts = {name: noisy.role(runs[name], counted.get(name), coins.derive(f"noise of {name}")) for name in seats}
    outcome = run_in_memory(parts)
    return noisy.result(outcome.outputs[MINER], outcome, study.sha256)


def _join(study: Study, queries: Mapping[str, Query], released: Mapping[str, Any]) -> Statistics:
    """The parties' noisy counts as one statistics vector; negative counts become 0. Post-processing."""
    layout = Layout(study.codebook)
    vector = np.zeros(layout.size, dtype=np.int64)
    margins = []
    for name, query in queries.items():
        own = Statistics(query.layout, query.restore(released[name]))
        margins.append((len(own.counts), own.class_counts.astype(np.float64)))
        for feature, table in own.counts.items():
            vector[layout.slice(layout.require("count", feature))] = np.maximum(table, 0).reshape(-1)
    # Every histogram estimates the class counts: their mean, by number of histograms.
    mean = sum(weight * counts for weight, counts in margins) / sum(weight for weight, _ in margins)
    vector[layout.slice(layout.require("class_count"))] = np.maximum(np.rint(mean), 1).astype(np.int64)
    return Statistics(layout, vector)
