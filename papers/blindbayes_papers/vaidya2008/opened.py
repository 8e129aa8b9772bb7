"""Probabilities from rows that several parties hold, opened without the counts behind them: opened_ratio.

Coarse, or of noisy counts; or so fine that the counts follow, as the paper opens them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.codebook import Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Exposure
from blindbayes.dp.accounting.statement import NOT_PROTECTED, PrivacyStatement
from blindbayes.dp.distributed.noise_shares import DistributedNoise, honest_survivors
from blindbayes.dp.distributed.noisy_sum import REFUSALS, SEVERAL_RECORDS, SEVERAL_SITES
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.dp.noise.mechanisms import Price
from blindbayes.dp.release.private_fit import data_domain
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.naive_bayes.model_file import ModelRecord
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.statistics import Statistics
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts
from blindbayes.study.study import Study
from blindbayes.study.tasks.job import Site
from blindbayes.study.tasks.ratio import RatioJob, RatioScheme
from blindbayes.study.tasks.result import Result, about_run, leakage_of, report_run
from blindbayes.wire import U64Array
from blindbayes_papers.vaidya2008.opened_ratio.roles import (
    FINE_BITS,
    PrivateRatioSetup,
    coarse_bits,
    contributor,
    first_party,
    second_party,
)

if TYPE_CHECKING:
    from blindbayes.naive_bayes import load as estimators
    from blindbayes.naive_bayes.base import BaseNaiveBayes
else:
    estimators = lazy("blindbayes.naive_bayes.load")


class OpenedRatioParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of opened_ratio."""

    # coarse: as many bits as `minimum` allows; noisy: takes epsilon; fine: all. By default noisy with an epsilon, else coarse.
    opening: Literal["coarse", "noisy", "fine"] | None = None
    minimum: int = 0  # public: every class has at least so many rows, or one bit says that it has not
    fraction: int | None = None  # bits after the point; by default as many as the opening allows


@dataclass(frozen=True)
class _Noise:
    """The parties' noise on the counts behind a noisy opening."""

    law: DistributedNoise

    @classmethod
    def make(cls, study: Study, ratios: PrivateRatioSetup, parties: int) -> _Noise:
        """One record touches its class count, one count per feature, and of a Gaussian one its sum and square too. A reader
        knows its own share of the noise."""
        if study.privacy.epsilon is None:
            raise PrivacyError("noise needs epsilon")
        honest = min(honest_survivors(parties, parties, study.privacy.honest_fraction), parties - 1)
        return cls(
            DistributedNoise.plan(
                touched=len(ratios.layout.groups),
                bounds=ratios.bounds,
                epsilon=budget_floor(study.privacy.epsilon),
                delta=study.privacy.delta,
                honest=honest,
                unit=study.privacy.unit,
                party_rows=study.privacy.party_rows,
                rows_per_person=study.privacy.rows_per_person,
            )
        )

    @property
    def name(self) -> str:
        return self.law.mechanism

    @property
    def sampler(self) -> str:
        return f"exact integer shares, one per party; the shares of {self.law.honest} add up to: {self.law.law}"

    @property
    def price(self) -> Price:
        return Price(self.law.price.epsilon, self.law.price.delta, self.law.protects)

    def statement(self, study: Study) -> PrivacyStatement:
        persons = (
            SEVERAL_RECORDS
            if study.privacy.rows_per_person is None
            else SEVERAL_SITES.format(most=study.privacy.rows_per_person)
        )
        return PrivacyStatement.of(
            self,
            sensitivity=f"One record moves at most {self.law.touched} numbers, each by at most its bound: its class count and "
            "one count of each feature by 1; of a Gaussian feature the sum by the width of the grid, the square by its square. "
            "Probabilities, means, deviations and the bit about the minimum are computed from noisy numbers",
            codebook=study.codebook.sha256,
            data_domain=data_domain(study.codebook),
            tuning=study.privacy.tuning_note,
            trust_model=f"At least {study.privacy.honest_fraction:.0%} of the parties follow the protocol, add their noise and "
            f"keep it to themselves: calibrated to {self.law.honest} honest shares; a party that takes its own share off what "
            "is opened counts among the others. The others may bring what they like; the two computing parties follow the "
            "protocol and do not collude. That nothing but noisy numbers is seen is computational: it rests on the protocol's "
            "cryptography",
            not_protected=f"{NOT_PROTECTED} {REFUSALS} {persons}",
            model="Federated",
        )


@dataclass(frozen=True)
class Opened:
    """What is public about one run: the ratios that are opened, and the noise on the counts behind them."""

    study: Study
    names: tuple[str, ...]
    ratios: PrivateRatioSetup
    noise: _Noise | None

    @property
    def setting(self) -> SumSetup:
        """For the rule on exact sums: what is opened depends on everybody's counts."""
        return SumSetup(self.names, self.ratios.lanes, noisy=self.noise is not None)

    @property
    def computing(self) -> tuple[str, str]:
        """The two parties that compute, who must not collude."""
        return self.names[0], self.names[-1]


class OpenedScheme(RatioScheme):
    """See `study.schemes.Scheme`."""

    name = "opened_ratio"
    params = OpenedRatioParams
    facts = Facts(
        partitions=("rows",),
        line="probabilities without counts, opened coarsely or with noise, to every site. All must answer.",
        offered=False,
        leaves=RatioScheme.facts.leaves,
    )

    def check(self, study: Study) -> None:
        """The opening and epsilon fit."""
        if study.limits.quorum is not None:
            raise ConfigError("opened_ratio needs every party; leave quorum unset")
        ratios_of(study)

    def agree(self, agreement: Agreement) -> Opened:  # type: ignore[override]
        """Which probabilities, opened how."""
        study, names, ratios = agreement.study, agreement.contributors, ratios_of(agreement.study)
        self.require_parties(study, names)
        if ratios.opening != "noisy" and len(names) < 3:
            raise PrivacyError("opened probabilities of two parties tell each about the other's counts; take a third party")
        noise = None
        if study.privacy.epsilon is not None:
            noise = _Noise.make(study, ratios, len(names))
            tails = (noise.law.tail(2.0**-40 / ratios.cells, len(names), each) / each for each in set(ratios.bounds))
            ratios = replace(ratios, noise_bound=math.ceil(max(tails)))
        return Opened(study, names, ratios, noise)

    def job(self, agreement: Agreement, site: Site, run_id: str) -> OpenedJob:
        return OpenedJob(agreement, site, run_id)

    def price(self, public: Opened) -> Charge | None:  # type: ignore[override]
        """What a party pays for a noisy opening."""
        return None if public.noise is None else Charge.of(public.noise.price)

    def result(self, agreement: Agreement, outcome: Outcome, *, run: str = "", **_: Any) -> Result:
        """The opened probabilities."""
        public: Opened = agreement.public
        ratios, (first, second) = public.ratios, public.computing
        leakage = leakage_of(outcome)
        follows = (
            self.follows(agreement),
            f"{first} and {second} together have the sums of all counts; they must not collude.",
        )
        report = report_run(("transfer", self.name), len(public.names), outcome, follows, about_run(agreement, run))
        promise = None if public.noise is None else public.noise.statement(public.study)
        statement = self.statement(agreement)
        found = next(tuple(found) for found in (outcome.outputs.get(name) for name in public.names) if found is not None)
        model, spent = _model(ratios, found, promise), (0.0, 0.0) if promise is None else (promise.epsilon, promise.delta)
        facts = {"protocol": self.name, "opened": ratios.label, "bits": ratios.fraction}
        integers = np.array(found, dtype=np.int64)
        return Result(
            model, None, leakage, outcome.cost, statement, public.names, spent, total=integers, report=report, facts=facts
        )

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        """Probabilities that fix counts are an exact sum; noisy ones are paid for."""
        study, everybody = agreement.study, len(agreement.contributors)
        exact = study.privacy.epsilon is None
        return Exposure(exact=exact, quorum_size=everybody, epsilon=study.privacy.epsilon or 0.0, delta=study.privacy.delta)

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        public: Opened = agreement.public
        said: dict[str, Any] = {"contributors": list(agreement.contributors), "compute": list(public.computing)}
        labels = ["minimum_reached", public.ratios.label]
        return {**said, "opened": labels, "learners": list(agreement.contributors), "epsilon": agreement.study.privacy.epsilon}

    def follows(self, agreement: Agreement) -> str:
        """Return what the run reveals, in a sentence or two."""
        ratios: PrivateRatioSetup = agreement.public.ratios
        bits = f"probabilities at {ratios.fraction} bits"
        if ratios.opening == "fine":
            return (
                f"Opened: {bits}. **This opens the counts**: at this width a probability fixes the size of its class, and so "
                "every count."
            )
        if ratios.opening == "noisy":
            return f"Opened: {bits}, of counts with noise. What follows from them is bounded by the privacy statement."
        return (
            f"Opened: {bits}, two fewer than a class of {ratios.minimum} rows has. "
            "Many counts fit them; they are not differentially private, and a party that makes up its table, and so passes "
            "the minimum alone, reads from them on which side of steps of its choice the others' counts lie."
        )

    def statement_lines(self, agreement: Agreement) -> list[str]:
        """Return what the statement says of the opening, and the promise of its noise."""
        public: Opened = agreement.public
        least = f"minimum_reached (of {public.ratios.minimum} rows per class)"
        lines = [f"Labels opened, to every party: {least}, {public.ratios.label}."]
        return lines if public.noise is None else [*lines, public.noise.statement(public.study).text]


class OpenedJob(RatioJob):
    """See `job.Job`."""

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        public: Opened = self.agreement.public
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=seat)
        own, (first, second) = coins.derive("role"), public.computing
        vector = self.contribution(public, self.statistics, coins.derive("contribution"))
        if seat == first:
            return first_party(run, public.ratios, vector, second, own)
        if seat == second:
            return second_party(run, public.ratios, vector, first, own)
        return contributor(run, public.ratios, vector, first, second, own)

    def contribution(self, public: Opened, statistics: Statistics, coins: Coins) -> U64Array:
        """This party's vector: its counts, with its share of the noise."""
        exact = public.ratios.vector(statistics)
        if public.noise is None:
            return exact
        noisy: U64Array = exact + public.noise.law.share(coins).view(np.uint64)
        return noisy

    def authorise_and_charge(self, seat: str) -> None:
        """Approval, rate, one table one set, ledger; once per run."""
        public: Opened = self.agreement.public
        exact, size = public.noise is None, len(public.names)
        charge = SCHEME.price(public)
        self.site.authorise_and_charge(self.agreement, self.run_id, charge, state=self.state, quorum_size=size, exact=exact)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Write down whose counts are in what was opened."""
        self.site.opened(self.agreement, self.run_id, self.agreement.public.names)


SCHEME = OpenedScheme()


def ratios_of(study: Study) -> PrivateRatioSetup:
    """The study's options, as the protocol knows them."""
    params = cast(OpenedRatioParams, study.params)
    opening = params.opening or ("coarse" if study.privacy.epsilon is None else "noisy")
    if (opening == "noisy") != (study.privacy.epsilon is not None):
        raise PrivacyError("opened_ratio adds noise to what is opened: epsilon and opening='noisy' go together")
    usual = max(1, coarse_bits(params.minimum)) if opening == "coarse" else FINE_BITS
    fraction = usual if params.fraction is None else params.fraction
    return PrivateRatioSetup(study.codebook, opening, fraction, params.minimum, study.estimation.alpha)


def _model(ratios: PrivateRatioSetup, opened: tuple[int, ...], promise: PrivacyStatement | None) -> BaseNaiveBayes:
    """The model of the opened probabilities, in units of 2^-fraction. Its counts are not known."""
    alpha, privacy = ratios.alpha, None
    if promise is not None:
        privacy = {"mechanism": promise.mechanism, "epsilon": promise.epsilon, "delta": promise.delta}
        privacy["statement"] = promise.to_dict()
    settings = {"alpha": alpha, "var_smoothing": 0.0, "named": False}
    record = ModelRecord(_parameters(ratios, opened), None, "text", settings, privacy)
    return estimators.from_record(record)


def _parameters(ratios: PrivateRatioSetup, values: tuple[int, ...]) -> Parameters:
    """Log-probabilities, means and variances; a cut number stands for the middle of its interval, so that none is 0."""
    classes, at = len(ratios.codebook.classes), 0
    found: npt.NDArray[np.float64] = (np.array(values, dtype=np.float64) + 0.5) / 2.0**ratios.fraction
    terms: dict[str, Term] = {}
    prior, mean = np.zeros(classes), np.zeros(classes)
    for group in ratios.layout.groups:
        if group.kind == "n":
            continue
        part = found[at : at + classes * group.columns].reshape(classes, group.columns)
        at += classes * group.columns
        if group.feature is None:
            prior = np.log(part[:, 0])
        elif not isinstance(group.feature, Numeric) or group.kind == "count":
            terms[group.feature.name] = Histogram(np.log(part))
        else:
            low, width = group.feature.low, group.feature.high - group.feature.low
            if group.kind == "sum":
                mean = low + part[:, 0] * width
            else:
                least = ratios.codebook.variance_floor or 0.0
                terms[group.feature.name] = Gaussian(mean, np.maximum((part[:, 0] * width / 2) ** 2, least))
    return Parameters(ratios.codebook, prior, terms)
