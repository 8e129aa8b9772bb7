"""A study over columns in which every party knows the class and releases noisy histograms of its own columns."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from blindbayes.data.columns import open_columns
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.estimators import NaiveBayes
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.mechanisms import DiscreteLaplace
from blindbayes.privacy.sensitivity import Query
from blindbayes.protocol.noisy_histograms import Histograms, contributor, miner
from blindbayes.report import leak_report
from blindbayes.runtime.memory import local_runs, run_in_memory
from blindbayes.statistics import Layout, Statistics, count_block
from blindbayes.statistics.layout import is_histogram
from blindbayes.study.columns import leakage_of
from blindbayes.study.study import Result, Study

MINER = "miner"


def simulate(study: Study, sources: Mapping[str, Any], *, coins: Coins) -> Result:
    """Every party counts, adds its noise and releases; the miner builds the model."""
    if study.epsilon is None:
        raise PrivacyError("noisy_histograms needs epsilon: without noise each party would open its counts")
    if study.delta:
        raise PrivacyError("noisy_histograms is purely epsilon-private; leave delta at 0")
    if study.options:
        raise ConfigError(f"unknown protocol option {min(study.options)!r}; known: none")
    book = study.codebook
    if wide := [feature.name for feature in book.features if not is_histogram(feature)]:
        raise ConfigError(f"feature {wide[0]!r} is Gaussian; noisy_histograms releases histograms: give it bins")
    if MINER in sources:
        raise ConfigError(f"a party may not be called {MINER!r}: the protocol keeps that name")
    keys = (study.key,) if isinstance(study.key, str) else tuple(study.key or ())
    opened = {name: open_columns(source, book, ignore=keys) for name, source in sources.items()}
    owners: dict[str, str] = {}
    for name, source in opened.items():
        if not source.labelled:
            raise ConfigError(f"{name} does not have the class column; noisy_histograms is for parties that all know the class")
        for feature in source.features:
            if feature.name in owners:
                raise ConfigError(f"feature {feature.name!r} is held by {owners[feature.name]} and by {name}; one must drop it")
            owners[feature.name] = name
    if missing := [name for name in book.names if name not in owners]:
        raise ConfigError(f"feature {missing[0]!r} of the codebook is held by no party")
    if len({source.rows for source in opened.values()}) != 1:
        raise DataError("the parties' tables have different numbers of rows; line them up by key first")

    names = tuple(name for name, source in opened.items() if source.features)
    books = {name: book.with_features(opened[name].features) for name in names}
    queries = {name: Query(books[name]) for name in names}
    # Step 1: one person stands in every table, so a party spends its share of the attributes, and the shares add up.
    share = {name: Fraction(str(study.epsilon)) * len(books[name].features) / len(book.features) for name in names}
    mechanisms = {name: DiscreteLaplace(queries[name].sensitivity, share[name]) for name in names}
    facts = Histograms(
        MINER,
        {name: query.sensitivity.size for name, query in queries.items()},
        {name: own.sha256 for name, own in books.items()},
    )
    runs = local_runs((*names, MINER), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    parts: dict[str, Any] = {MINER: miner(runs[MINER], facts)}
    for name in names:
        layout = Layout(books[name])
        total = Statistics.zero(books[name])
        for block in opened[name].blocks():
            total = total + count_block(layout, block)
        if int(total.class_counts.sum()) < study.min_rows:
            raise PrivacyError(f"the study asks for at least {study.min_rows} rows per party")
        noisy = mechanisms[name].release(queries[name].apply(total.vector), coins.derive(f"noise of {name}"))
        parts[name] = contributor(runs[name], facts, noisy.astype(np.int64))
    outcome = run_in_memory(parts)
    statistics = _join(study, queries, outcome.outputs[MINER])
    model = NaiveBayes.from_statistics(statistics, alpha=study.alpha, var_smoothing=study.var_smoothing)
    spent = float(sum(mechanism.epsilon for mechanism in mechanisms.values()))
    transcript = outcome.transcript
    report = leak_report(("noisy_histograms",), len(names), transcript.received, outcome.opened, transcript.entries)
    known = {"study": study.sha256, "protocol": study.protocol, "opened": "noisy_histograms"}
    statement = _statement(study, share, len(book.features))
    return Result(
        model, statistics, leakage_of(outcome), outcome.cost, statement, names, (spent, 0.0), report=report, facts=known
    )


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


def _statement(study: Study, share: Mapping[str, Fraction], attributes: int) -> str:
    parts = ", ".join(f"{name} {float(part):g}" for name, part in share.items())
    return "\n\n".join(
        [
            f"Study {study.sha256}",
            f"Codebook {study.codebook.sha256}",
            f"Protocol noisy_histograms; {len(share)} contributors. Opened: noisy_histograms, to the miner.",
            f"Differential privacy of one record (add or remove) over all parties' tables: epsilon = {study.epsilon:g}. "
            f"One person stands in every table, so the parties' budgets add up: {parts}. Discrete Laplace noise of scale "
            f"{attributes} / {study.epsilon:g} on every count, drawn exactly.",
        ]
    )
