"""A study over columns in which every party knows the class and releases noisy histograms of its own columns.

`NoisyColumns` is what is public, and what one party and the miner do with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from blindbayes._lazy import lazy
from blindbayes.codebook import Feature, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure, Output
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.statement import NOT_PROTECTED, tuning_words
from blindbayes.dp.distributed.noisy_sum import REFUSALS, SEVERAL_RECORDS
from blindbayes.dp.noise.mechanisms import DiscreteLaplace
from blindbayes.dp.release.intervals import record_of
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.planner import plan_release, require_signal
from blindbayes.dp.release.release_plan import FeatureEncoding, NoisyStatistics, ReleasePlan
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.naive_bayes.model_file import ModelRecord, ModelSettings
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.shared_training.columns import require_holders
from blindbayes.report.leakage import About, LeakReport
from blindbayes.statistics import Layout, Statistics, count_block
from blindbayes.statistics.parameters import estimate
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study, learner_of
from blindbayes.study.tasks.columns import describe_holdings, dry_run_columns, line_up, require_record
from blindbayes.study.tasks.result import ContributorResult, Result, about_run, leakage_of, report_run
from blindbayes.study.tasks.task import Computation, CountingTask, DryRun, LocalSite
from blindbayes.study.tasks.traits import Support
from blindbayes_papers.huai2015.noisy_histograms import NoisyHistogramsSetup, contributor, miner
from blindbayes_papers.huai2015.noisy_histograms.roles import Integers

if TYPE_CHECKING:
    from blindbayes.naive_bayes import load as estimators
else:
    estimators = lazy("blindbayes.naive_bayes.load")

MINER = "miner"
OPENED = "noisy_histograms"
_FALSE_ALARM = 2.0**-40
_MAX_MOMENT_POINTS = 1 << 15  # grid points beyond which sums of squares do not fit 64-bit words with 10^9 rows
_WIDE_BINS = 48


def require_settings(study: Study) -> None:
    """Refuse a study without epsilon or with delta."""
    if study.privacy.epsilon is None:
        raise PrivacyError("noisy_histograms needs epsilon: without noise each party would open its counts")
    if study.privacy.delta:
        raise PrivacyError("noisy_histograms is purely epsilon-private; leave delta at 0")


@dataclass(frozen=True)
class _Together(ReleasePlan):
    """The parties' releases as one: every party's tables, with the noise that they have."""

    parts: tuple[ReleasePlan, ...] = ()

    @cached_property
    def items(self) -> tuple[Any, ...]:
        """Party by party."""
        return tuple(item for part in self.parts for item in part.items)

    @cached_property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of the noise in a cell of each item."""
        return tuple(deviation for part in self.parts for deviation in part.deviations)


@dataclass(frozen=True)
class NoisyColumns:
    """The public facts of a study: who holds which columns, and what each party's release costs."""

    study: Study
    owners: Mapping[str, tuple[str, ...]]  # party -> its features, in the codebook's order

    def __post_init__(self) -> None:
        require_settings(self.study)
        if MINER in self.owners:
            raise ConfigError(f"a party may not be called {MINER!r}: the protocol keeps that name")
        require_holders(self.owners, self.study.codebook)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties that release."""
        return tuple(name for name, features in self.owners.items() if features)

    @cached_property
    def plan(self) -> ReleasePlan:
        """Plan of the release from public facts: a feature's values or bins; cells or moments of a Gaussian one."""
        study, book = self.study, self.study.codebook
        epsilon = Fraction(str(study.privacy.epsilon))
        if all(feature.counted for feature in book.features):
            cuts = [FeatureEncoding(each.name, "cells", tuple(range(each.size + 1)), each.optional) for each in book.features]
            return ReleasePlan(
                book, book, tuple(cuts), "discrete_laplace", epsilon, 0.0, study.privacy.expected_rows, 1, 0.0, ()
            )
        counted = book.with_features(_narrow(feature) for feature in book.features)
        rows = study.privacy.expected_rows
        plan = plan_release(counted, epsilon=epsilon, mechanism="discrete_laplace", rows=rows)
        if rows is not None:
            require_signal(plan, rows, float(epsilon))
        return plan

    @cached_property
    def parts(self) -> dict[str, ReleasePlan]:
        """Step 1. A record has a row in every table: parties spend shares that add up to epsilon.  [by-party]"""
        whole = self.plan

        def part(name: str, epsilon: Fraction) -> ReleasePlan:
            own = self.owners[name]
            cuts = tuple(cut for cut in whole.encodings if cut.feature in own)
            books = [
                book.with_features(each for each in book.features if each.name in own)
                for book in (whole.declared, whole.codebook)
            ]
            return replace(whole, declared=books[0], codebook=books[1], encodings=cuts, epsilon=epsilon)

        sizes = {name: len(part(name, whole.epsilon).items) for name in self.names}
        return {name: part(name, whole.epsilon * size / sum(sizes.values())) for name, size in sizes.items()}

    @property
    def mechanisms(self) -> dict[str, DiscreteLaplace]:
        """Each party's noise, with its price."""
        return {name: cast(DiscreteLaplace, part.noise) for name, part in self.parts.items()}

    @cached_property
    def facts(self) -> NoisyHistogramsSetup:
        """The protocol's own view."""
        sizes = {name: mechanism.sensitivity.size for name, mechanism in self.mechanisms.items()}
        books = {name: part.codebook.sha256 for name, part in self.parts.items()}
        return NoisyHistogramsSetup(MINER, sizes, books, {name: self._ranges(name) for name in self.parts})

    def _ranges(self, name: str) -> tuple[Integers, Integers]:
        """Return the lowest and highest number that a table of max_rows rows can give a party in each place, noise included.

        An honest party is refused with chance `_FALSE_ALARM` at most: twice e^(-t / scale) for noise beyond t, per place.
        """
        part, mechanism, rows = self.parts[name], self.mechanisms[name], self.study.codebook.max_rows
        far = math.log(2 * mechanism.sensitivity.size / _FALSE_ALARM)
        low, high = [], []
        for item, block, scale in zip(part.items, mechanism.sensitivity.blocks, mechanism.scales, strict=True):
            noise = math.ceil(far * float(scale) * block.bound / mechanism.step) + 1
            minimum = -rows * block.bound if item.kind in ("sum", "square") else 0
            low += [minimum - noise] * block.size
            high += [noise + rows * block.bound] * block.size
        return _in_64_bits(low), _in_64_bits(high)

    def count(self, name: str, source: ColumnSource) -> Statistics:
        """A party's exact counts; they stay with it."""
        if not source.labelled:
            raise ConfigError(f"{name} does not have the class column; noisy_histograms is for parties that all know the class")
        book = self.parts[name].codebook
        total, layout = Statistics.zero(book), Layout(book)
        for block in replace(source, codebook=book, features=book.features).blocks(lenient=True):
            total = total + count_block(layout, block)
        return total

    def role(self, run: Run, statistics: Statistics | None, coins: Coins) -> Role[Any]:
        """The miner's role, or that of a party with its counts."""
        if run.me == MINER:
            return miner(run, self.facts)
        if statistics is None:
            raise LocalProtocolError("a party that releases has counted")
        exact = np.concatenate([table.ravel() for table in self.parts[run.me].tables(statistics)]).astype(np.int64)
        return contributor(run, self.facts, self.mechanisms[run.me].release(exact, coins).astype(np.int64))

    def noisy(self, released: Mapping[str, Any]) -> NoisyStatistics:
        """Return what was released, as tables."""
        together = _Together(**{each.name: getattr(self.plan, each.name) for each in fields(ReleasePlan)}, parts=self._parts)
        tables, classes = [], len(self.study.codebook.classes)
        for name, part in self.parts.items():
            cuts = np.cumsum([classes * item.cells for item in part.items])[:-1]
            pieces = np.split(np.asarray(released[name], dtype=np.float64), cuts)
            tables += [piece.reshape(classes, -1) / item.bound for item, piece in zip(part.items, pieces, strict=True)]
        return NoisyStatistics(together, tuple(tables))

    @property
    def _parts(self) -> tuple[ReleasePlan, ...]:
        return tuple(self.parts.values())

    def result(self, released: Mapping[str, Any], outcome: Outcome, sha256: str, report: LeakReport) -> Result:
        """Return what the miner makes of it."""
        study, noisy, plain = self.study, self.noisy(released), all(each.counted for each in self.study.codebook.features)
        statistics = _margins(noisy) if plain else noisy.statistics
        settings = ModelSettings(alpha=study.estimation.alpha, var_smoothing=study.estimation.var_smoothing)
        parameters = (
            estimate(statistics, alpha=study.estimation.alpha, var_smoothing=study.estimation.var_smoothing)
            if plain
            else fit_parameters(noisy, alpha=study.estimation.alpha)
        )
        spent = float(self.plan.epsilon)
        privacy = {"mechanism": "discrete_laplace", "epsilon": spent, "delta": 0.0, "released": self._record(noisy)}
        model = estimators.from_record(ModelRecord(parameters, statistics, "text", settings, privacy))
        known = {"study": sha256, "protocol": study.protocol, "opened": OPENED}
        return Result(
            model.with_priors(class_weight=study.estimation.class_weight) if study.weights else model,
            statistics,
            leakage_of(outcome),
            outcome.cost,
            self.statement(sha256),
            self.names,
            (spent, 0.0),
            report,
            facts=known,
        )

    def _record(self, noisy: NoisyStatistics) -> dict[str, Any] | None:
        """The tables in the order of one release of all, at the epsilon that gives them the noise that they have. A party
        without a histogram released class counts of its own, which are left out."""
        by_item = {(item.name, item.kind): table for item, table in zip(noisy.plan.items, noisy.tables, strict=True)}
        epsilon = self.plan.epsilon * len(self.plan.items) / len(noisy.plan.items)
        whole = replace(self.plan, epsilon=epsilon)
        return record_of(NoisyStatistics(whole, tuple(by_item[item.name, item.kind] for item in whole.items)))

    def report(self, outcome: Outcome, about: About | None = None) -> LeakReport:
        """Return the leak report of a run."""
        return report_run(("noisy_histograms",), len(self.names), outcome, about=about)

    def statement(self, sha256: str) -> str:
        """Return what is promised, in words."""
        study, tables = self.study, sum(len(part.items) for part in self._parts)
        epsilon = f"{study.privacy.epsilon:g}"
        parts = ", ".join(f"{name} {float(each.epsilon):g}" for name, each in self.mechanisms.items())
        return "\n\n".join(
            [
                f"Study {sha256}",
                f"Codebook {study.codebook.sha256}",
                f"Protocol noisy_histograms; {len(self.names)} contributors. Opened: noisy_histograms, to the miner.",
                f"Differential privacy of one record (add or remove) over all parties' tables: epsilon = {epsilon}. "
                f"It has a row in every table, so the parties' budgets add up: {parts}. Discrete Laplace noise of scale "
                f"{tables} / {epsilon} on every count, drawn exactly, since one record stands in {tables} tables.",
                *self._gaussian_words(),
                "Trust. Each party adds all the noise of its own tables: no other party, and not the miner, is relied on.",
                f"Not protected. {NOT_PROTECTED} {REFUSALS} {SEVERAL_RECORDS}",
                f"Tuning. {tuning_words(study.privacy.tuning_note)}",
            ]
        )

    def _gaussian_words(self) -> list[str]:
        """Return how numbers without bins were released."""
        names = [each.name for each in self.study.codebook.features if not each.counted]
        phrases = {
            "cells": "{} in {} cells of equal width",
            "moments": "{} as sum and sum of squares, with noise of that scale times the largest that one record adds",
            "nothing": "{} not at all",
        }
        lines = [phrases[cut.kind].format(cut.feature, cut.cells) for cut in self.plan.encodings if cut.feature in names]
        return [f"Numbers without bins: {'; '.join(lines)}."] if lines else []


class HistogramTask(CountingTask):
    """Each site releases noisy counts of its own columns to the miner."""

    kind = "release"
    name = "noisy_histograms"
    description = "each site releases noisy counts of its own columns, all know the class. The miner alone gets the model."
    partitions = ("columns",)
    supports = frozenset({Support.CLASS_WEIGHT})
    messages = ("counts of this site's columns by class, each with noise of its own; the ledger pays before they leave",)

    @classmethod
    def check(cls, study: Study) -> None:
        require_settings(study)
        require_record(study)
        if learner_of(study) != "all":
            raise ConfigError("noisy_histograms takes no reveal_to: the miner gets a model of its own")

    @classmethod
    def agree_locally(cls, study: Study, sites: Mapping[str, LocalSite]) -> Agreement:
        holdings = line_up({name: site.table(study) for name, site in sites.items()}, known=False)
        return Agreement(study, study.sha256, tuple(sites), tuple(sites), columns=holdings)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        holdings = agreement.holdings
        if unlabelled := [name for name in agreement.names if holdings.holds.get(name) and name not in holdings.labelled]:
            raise ConfigError(
                f"{unlabelled[0]} does not know the class: it has no class column; noisy_histograms is for parties that all do"
            )
        if holdings.n_rows is not None:
            raise ConfigError("noisy_histograms takes no rows: the miner gets a model of its own")
        self.noisy = NoisyColumns(self.study, agreement.owners)
        self.roles, self.learners = (*self.noisy.names, MINER), (MINER,)

    def cost(self, party: str) -> Charge | None:
        mechanism = self.noisy.mechanisms[party]
        return Charge(Spend.for_release(mechanism), mechanism.price.unit, mechanism=mechanism.name)

    def read(self) -> None:
        if self.site.name in self.noisy.names:
            self.bring(self.noisy.count(self.site.name, self.site.columns(self.agreement)))

    def role(self, name: str, run: Run, coins: Coins) -> Role[Any]:
        """Noise comes from the run's coins: a replay adds the same."""
        return self.noisy.role(run, self.statistics if name == self.site.name else None, coins.derive("noise"))

    def authorise_and_charge(self, name: str) -> None:
        if name == self.site.name and self.statistics is not None:
            self.site.authorise_and_charge(Computation(self.agreement, self.run_id, self.cost(name)))

    def result(self, outcome: Outcome) -> Result | ContributorResult:
        """Return the miner's model; at a site that released, the report of it."""
        noisy, sha256, released = self.noisy, self.agreement.sha256, outcome.outputs.get(MINER)
        report, known = noisy.report(outcome, about_run(self.agreement, self.run_id)), {"included": list(noisy.names)}
        if released is None:
            return ContributorResult(leakage_of(outcome), outcome.cost, noisy.statement(sha256), report, known)
        return noisy.result(released, outcome, sha256, report)

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        miner = (self.agreement.host(MINER),)
        return Disclosure(
            protocol=self.name,
            summary=self.description,
            messages=self.messages,
            outputs=(Output(OPENED, miner),),
            learners=miner,
            epsilon=self.study.privacy.epsilon or 0.0,
            delta=self.study.privacy.delta,
        )

    def facts(self) -> dict[str, Any]:
        holdings = self.agreement.holdings
        return {
            "partition": "columns, all parties know the class",
            "holds": [f"{name}: {', '.join(holdings.holds[name]) or 'nothing'}" for name in self.agreement.names],
            "hosts": dict(self.agreement.hosts),
            "opened": list(self.disclosure.opened),
            "learners": list(self.disclosure.learners),
            "epsilon": self.study.privacy.epsilon,
            "each_ledger_pays": [f"{name}: {float(each.epsilon):g}" for name, each in self.noisy.mechanisms.items()],
        }

    def summary(self) -> list[str]:
        epsilon, to = self.study.privacy.epsilon or 0.0, self.agreement.host(MINER)
        return [*describe_holdings(self.agreement), f"  Opened, with noise, epsilon {epsilon:g}: each site's counts, to {to}."]

    def dry_run(self) -> DryRun:
        return dry_run_columns(self, [f"Opened: {OPENED}, to {self.agreement.host(MINER)}."])


TASK = HistogramTask


def _narrow(feature: Feature) -> Feature:
    """Return a numeric feature with bins if its moments would not fit 64 bits."""
    if isinstance(feature, Numeric) and feature.bins is None and feature.width > _MAX_MOMENT_POINTS:
        return msgspec.structs.replace(feature, bins=_WIDE_BINS)
    return feature


def _in_64_bits(numbers: list[int]) -> Integers:
    """Return integers in 64 bits; those beyond are held to them."""
    return np.array([max(-(1 << 63), min((1 << 63) - 1, number)) for number in numbers], dtype=np.int64)


def _margins(noisy: NoisyStatistics) -> Statistics:
    """Noisy histograms as one statistics vector; negative counts become 0. Post-processing."""
    layout = Layout(noisy.plan.codebook)
    vector = np.zeros(layout.size, dtype=np.int64)
    for item, table in zip(noisy.plan.items, noisy.tables, strict=True):
        group = layout.require("count", item.name)
        vector[layout.slice(group)] = np.maximum(table[:, : group.columns], 0).reshape(-1)
    # Every histogram estimates the class counts: their mean.
    mean = np.mean([table.sum(axis=1) for table in noisy.tables], axis=0)
    vector[layout.slice(layout.require("class_count"))] = np.maximum(np.rint(mean), 1).astype(np.int64)
    return Statistics(layout, vector)
