"""A study over rows by the paper's own route: Protocol 3 of Vaidya 2008, for researchers and for comparison.

    study = RowStudy(codebook, protocol="scalar_product", options={"opening": "printed"})
    result = study.simulate({"north": a, "south": b, "west": c})
    result.parameters()

Three parties or more: the counts go round the collusion-resistant ring until its last step, two parties take ln of every sum
by a garbled circuit and a polynomial under Paillier, and the differences give the ratios. With `opening="printed"` all learn
them, **which opens the counts**, as the paper's Protocol 3 does; with "shares" (default) exp too is taken in a circuit and
two parties hold shares. `opened_ratio` does the same a hundred times faster, exactly, and opens no finer than the counts
stay hidden. Options: opening, rings, key_bits, toy_keys, degree, divisor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure, Output, RowSum, SumForm
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.naive_bayes.estimator import NaiveBayes
from blindbayes.naive_bayes.model_file import ModelRecord, ModelSettings, dump_model
from blindbayes.naive_bayes.release import model_files, run_files
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.report.leakage import LeakReport, leak_report
from blindbayes.statistics import Statistics
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.result import Leak, RunResult, leakage_of
from blindbayes.study.tasks.sum_plan import MIN_EXACT_PARTIES
from blindbayes.study.tasks.task import Computation, CountingTask
from blindbayes.wire import U64Array
from blindbayes.wire.transcript import Cost
from blindbayes_papers.primitives import unsafe_keys
from blindbayes_papers.vaidya2008.params import DESCRIPTION, ScalarProductParams, require_printed
from blindbayes_papers.vaidya2008.scalar_product import ScalarProductSetup, ratio
from blindbayes_papers.vaidya2008.scalar_product.logarithm import FRACTION

_TERMS = ("key_bits", "toy_keys", "degree", "divisor")
Divisor = Literal["n", "n-1"]


class RatioLayout:
    """The sums that are taken, and what their ratios mean: priors, then feature by feature, class by class."""

    def __init__(self, codebook: Codebook, alpha: float, divisor: Divisor, opening: str, rings: int | None) -> None:
        if opening not in ("shares", "printed"):
            raise ConfigError("opening is one of shares, printed")
        if codebook.variance_floor is None and any(not feature.counted for feature in codebook.features):
            raise ConfigError("a study by scalar_product needs a variance_floor in its codebook")
        self.codebook, self.divisor = codebook, divisor
        self.alpha = Fraction(str(alpha))
        rows, classes = codebook.max_rows, len(codebook.classes)
        prior = ratio.RatioSetup(tuple((at, classes) for at in range(classes)), (0,) * (classes + 1), rows.bit_length())
        pieces, self.factor = [prior], self.alpha.denominator
        for feature in codebook.features:
            if isinstance(feature, Numeric) and not feature.counted:
                span = feature.code_high - feature.code_low
                if span > ratio.MAX_SPAN:
                    raise ConfigError(
                        f"feature {feature.name!r} has {span + 1:,} grid points; scalar_product takes up to "
                        f"{ratio.MAX_SPAN + 1:,}, since mean squares stay below 2^32: declare a coarser precision, or bins"
                    )
                one = ratio.numeric_ratios(rows, span, divisor)
            else:
                one, self.factor = ratio.nominal_ratios(feature.size, self.alpha, rows)
            pieces += [one] * classes
        self.ratios = ratio.side_by_side(pieces, "printed" if opening == "printed" else "shares", rings)

    def vector(self, statistics: Statistics) -> U64Array:
        """A party's sums, in the order of the ratios."""
        counts = [int(value) for value in statistics.class_counts]
        vector = [*counts, sum(counts)]
        for feature in self.codebook.features:
            for at in range(len(counts)):
                if feature.name in statistics.counts:
                    row = [self.factor * int(value) for value in statistics.counts[feature.name][at]]
                    vector += [*row, sum(row)]
                elif isinstance(feature, Numeric):
                    vector += self._moments(statistics, feature, at)
        return np.array(vector, dtype=np.uint64)

    def _moments(self, statistics: Statistics, feature: Numeric, at: int) -> list[int]:
        """Moments of codes from 0: n, sum + n, sum of squares + n (`ratio.numeric_ratios`)."""
        name, low = feature.name, feature.code_low
        n, total, square = (int(part[name][at]) for part in (statistics.n, statistics.sums, statistics.squares))
        moments = [n, total - n * low + n, square - 2 * low * total + n * low * low + n]
        return moments if self.divisor == "n" else [*moments, n]

    def parameters(self, ratios: Sequence[float]) -> Parameters:
        """The model that the ratios say."""
        rest, classes = iter(ratios), range(len(self.codebook.classes))
        prior = np.log([next(rest) for _ in classes])
        terms: dict[str, Term] = {}
        for feature in self.codebook.features:
            if isinstance(feature, Numeric) and not feature.counted:
                each = 2 if self.divisor == "n" else 3
                pairs = [ratio.mean_and_variance([next(rest) for _ in range(each)]) for _ in classes]
                low, floor = feature.code_low + feature.centre, self.codebook.variance_floor or 0.0
                means = np.array([(mean + low) / feature.scale for mean, _ in pairs])
                terms[feature.name] = Gaussian(means, np.array([max(floor, v / feature.scale**2) for _, v in pairs]))
            else:
                table = [[next(rest) for _ in range(feature.size)] for _ in classes]
                terms[feature.name] = Histogram(np.log(table))
        return Parameters(self.codebook, prior, terms)


@dataclass(frozen=True)
class PrintedRows(RunResult):
    """The outcome of a run. `opened`: the announced ratios in units of 2^-32, or None if all stayed in shares."""

    plan: RatioLayout = field(repr=False)
    terms: ScalarProductSetup
    opened: tuple[int, ...] | None = field(repr=False)
    shares: Mapping[str, tuple[int, ...]] = field(repr=False)  # of the two computing parties, modulo 2^SHARE_BITS
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]
    report: LeakReport = field(repr=False)

    @property
    def relative_error(self) -> float:
        """Bound on the relative error of a ratio, besides one unit of 2^-32."""
        return ratio.relative_error(self.terms.degree)

    @property
    def model(self) -> NaiveBayes:
        """The model of the announced ratios. Its counts are not in it, though they follow."""
        settings = ModelSettings(alpha=float(self.plan.alpha))
        record = ModelRecord(self.parameters(), None, "text", settings, None)
        return NaiveBayes(self.plan.codebook, alpha=float(self.plan.alpha))._restore(record)

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Every file of the release but the checksums: the model too, if it was opened."""
        made = run_files(self.report, self.cost, self.statement)
        if self.opened is None:
            return made
        facts = {"protocol": "scalar_product", "opened": "ratios", "included": ", ".join(self.included)}
        model = {"model.json": dump_model(self.model._record()).encode()}
        return made | model | model_files(self.parameters(), facts, None, deployment)

    @property
    def known(self) -> dict[str, Any]:
        """Public facts for the run.json of a site."""
        return {"included": list(self.included)}

    def parameters(self) -> Parameters:
        """The model of the announced ratios."""
        if self.opened is None:
            raise PrivacyError("nothing was opened: the ratios are in shares; combine them, for simulation")
        return self.plan.parameters([value / 2**FRACTION for value in self.opened])

    def combine(self) -> Parameters:
        """Simulation only: the model that the shares stand for."""
        if not self.shares:
            return self.parameters()
        first, second = self.shares.values()
        whole = [(a + b) % (1 << ratio.SHARE_BITS) for a, b in zip(first, second, strict=True)]
        return self.plan.parameters([value / 2**FRACTION for value in whole])


class PrintedRowsTask(CountingTask):
    """Protocol 3: this site's sums go into ratios, which are announced or stay in shares."""

    name = "scalar_product"
    description = DESCRIPTION
    params = ScalarProductParams
    partitions = ("rows",)
    restricted = True
    messages = ("shares of this site's sums",)

    @classmethod
    def check(cls, study: Study) -> None:
        require_printed(study)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        study, minimum = self.study, max(MIN_EXACT_PARTIES, self.study.limits.min_parties)
        if len(agreement.names) < minimum:
            raise PrivacyError(f"Protocol 3 takes at least {minimum} parties: two would read each other")
        given = {name: study.options[name] for name in _TERMS if name in study.options}
        self.terms = ScalarProductSetup(1, len(study.codebook.classes), alpha=study.estimation.alpha, **given)
        opening, rings = study.options.get("opening", "shares"), study.options.get("rings")
        if agreement.identities and opening != "printed":
            raise ConfigError("shares of ratios by the paper's route serve nothing; private_ratio has shares that classify")
        self.plan = RatioLayout(study.codebook, study.estimation.alpha, self.terms.divisor, opening, rings)
        self.setting = SumSetup(agreement.names, 1)  # what is opened depends on everybody's counts
        self.learners = agreement.names

    @property
    def is_printed(self) -> bool:
        """Return whether the ratios are announced."""
        return self.plan.ratios.opening == "printed"

    def cost(self, party: str) -> Charge | None:
        return None

    def read(self) -> None:
        self.bring(self.count(self.study.codebook))

    def role(self, name: str, run: Run, coins: Coins) -> Role[Any]:
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=name)
        return ratio.party(run, self.plan.ratios, self.terms, self.plan.vector(self.statistics), coins)

    def authorise_and_charge(self, name: str) -> None:
        size = len(self.agreement.names)
        self.site.authorise_and_charge(Computation(self.agreement, self.run_id, None, self.state, size, self.is_printed))

    def store(self, outputs: Mapping[str, Any]) -> None:
        if self.is_printed:
            self.site.opened(self.agreement, self.run_id, self.agreement.names)

    def result(self, outcome: Outcome) -> PrintedRows:
        """Return the announced ratios, or the shares."""
        plan, names = self.plan, self.agreement.names
        learned = {name: tuple(each) for name, each in outcome.outputs.items() if each is not None}
        opened = next(iter(learned.values()), ()) if self.is_printed else None
        seen, shares = outcome.transcript, {} if self.is_printed else learned
        report = leak_report(("scalar_product",), len(names), seen.received, outcome.opened, seen.entries, (_follows(plan),))
        statement = _statement(self.agreement, plan, self.terms)
        return PrintedRows(plan, self.terms, opened, shares, leakage_of(outcome), outcome.cost, statement, names, report)

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        names = self.agreement.names
        return Disclosure(
            protocol=self.name,
            summary=self.description,
            messages=self.messages,
            outputs=(Output("ratios, and by them the counts", names),),
            learners=names,
            row_sum=RowSum(SumForm.EXACT, len(names)),
            conclusions=(_follows(self.plan),),
            unsafe=unsafe_keys(self.study.options),
        )

    def facts(self) -> dict[str, Any]:
        names = list(self.agreement.names)
        return {"contributors": names, "opened": list(self.disclosure.opened), "learners": names}

    def summary(self) -> list[str]:
        return [f"{self.agreement.title}: rows of {', '.join(self.agreement.names)}.", f"  {_follows(self.plan)}"]


TASK = PrintedRowsTask


def _follows(plan: RatioLayout) -> str:
    if plan.ratios.opening == "printed":
        return "Opened: every probability, mean and variance, as printed. **This opens the counts** behind them."
    return "Nothing was opened: every ratio is in shares of two parties, who together have the sums; they must not collude."


def _statement(agreement: Agreement, plan: RatioLayout, terms: ScalarProductSetup) -> str:
    error = ratio.relative_error(terms.degree)
    lines = [
        f"Study {agreement.sha256}",
        f"Codebook {agreement.book.sha256}",
        "Protocol scalar_product (Vaidya, Kantarcioglu and Clifton 2008, Protocol 3), for comparison.",
        _follows(plan),
        f"Paillier keys of {terms.key_bits} bits" + (" (TOY KEYS: no security)." if terms.key_bits < 2048 else "."),
        f"A ratio is off by at most {error:.2g} of itself (about {-math.log2(error):.0f} bits); the variance is divided by "
        f"{terms.divisor}. A class without rows counts as one row in the prior.",
    ]
    return "\n\n".join(lines)
