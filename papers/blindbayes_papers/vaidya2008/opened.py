"""Probabilities from rows that several parties hold, opened without the counts behind them: opened_ratio.

Coarse, or of noisy counts; or so fine that the counts follow, as the paper opens them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.codebook import Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure, Output, RowSum, SumForm
from blindbayes.dp.accounting.statement import NOT_PROTECTED, PrivacyStatement, Setting
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit, honest_survivors
from blindbayes.dp.distributed.noisy_sum import REFUSALS, persons_words
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.dp.release.private_fit import data_domain
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.model_file import ModelRecord, ModelSettings
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.statistics import Statistics
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.ratio import RatioTask
from blindbayes.study.tasks.result import Result
from blindbayes.study.tasks.task import Computation
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

    opening: Annotated[
        Literal["coarse", "noisy", "fine"] | None,
        "`coarse`: as many bits as the minimum allows (by default without epsilon); `noisy`: takes epsilon; `fine`: all",
    ] = None
    minimum: Annotated[int, "minimum number of rows of a class, which is public; one bit shows whether all reach it"] = 0
    fraction: Annotated[int | None, "bits after the point; by default as many as the opening allows"] = None


@dataclass(frozen=True)
class OpenedNoise:
    """The parties' noise on the counts behind a noisy opening."""

    law: DistributedNoise

    @classmethod
    def make(cls, study: Study, ratios: PrivateRatioSetup, parties: int) -> OpenedNoise:
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
                unit=PrivacyUnit.declared(study.privacy.unit, study.privacy.party_rows, study.privacy.person_rows),
            )
        )

    @property
    def name(self) -> str:
        return self.law.mechanism

    @property
    def sampler(self) -> str:
        return f"exact integer shares, one per party; the shares of {self.law.honest} add up to: {self.law.law}"

    @property
    def price(self) -> PrivacyCost:
        return self.law.price

    def statement(self, study: Study) -> PrivacyStatement:
        persons = persons_words(study.privacy.rows_per_person, study.privacy.sites_per_person)
        return PrivacyStatement.for_release(
            self,
            sensitivity="One person's record changes only a few numbers, each by no more than a bound that is fixed before any "
            f"table is read. The noise of the honest sites hides all of these changes at once. One record moves at most "
            f"{self.law.touched} numbers, each by at most its bound: its class count and one count of each feature by 1; of a "
            "Gaussian feature the sum by the width of the grid, the square by its square. Probabilities, means, deviations and "
            "the bit about the minimum are computed from noisy numbers",
            codebook=study.codebook.sha256,
            data_domain=data_domain(study.codebook),
            tuning=study.privacy.tuning_note,
            setting=Setting(
                trust_model=f"At least {study.privacy.honest_fraction:.0%} of the parties follow the protocol, add their noise "
                f"and keep it to themselves: calibrated to {self.law.honest} honest shares; a party that takes its own share "
                "off what is opened counts among the others. The others may bring what they like; the two computing "
                "parties follow the protocol and do not collude. That nothing but noisy numbers is seen is computational: it "
                "rests on the protocol's cryptography",
                not_protected=f"{NOT_PROTECTED} {REFUSALS} {persons}",
                model="Federated",
            ),
        )


class OpenedRatioTask(RatioTask):
    """Probabilities without counts, opened to every site."""

    name = "opened_ratio"
    description = "probabilities without counts, opened coarsely or with noise, to every site. All must answer."
    params = OpenedRatioParams
    protocols = ("transfer", "opened_ratio")

    @classmethod
    def check(cls, study: Study) -> None:
        if study.limits.quorum is not None:
            raise ConfigError("opened_ratio needs every party; leave quorum unset")
        ratios_of(study)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        study, size, ratios = self.study, len(self.names), ratios_of(self.study)
        if ratios.opening != "noisy" and size < 3:
            raise PrivacyError("opened probabilities of two parties tell each about the other's counts; take a third party")
        self.noise = None
        if study.privacy.epsilon is not None:
            self.noise = noise = OpenedNoise.make(study, ratios, size)
            tails = (noise.law.tail(2.0**-40 / ratios.cells, size, each) / each for each in set(ratios.bounds))
            ratios = replace(ratios, noise_bound=math.ceil(max(tails)))
        self.ratios = ratios
        self.setting = SumSetup(self.names, ratios.lanes, noisy=self.noise is not None)  # depends on everybody's counts

    def cost(self, party: str) -> Charge | None:
        return None if self.noise is None else Charge.from_cost(self.noise.price)

    def role(self, name: str, run: Run, coins: Coins) -> Role[Any]:
        own, (first, second) = coins.derive("role"), self.computing
        vector = self.contribution(self.counted(name), coins.derive("contribution"))
        if name == first:
            return first_party(run, self.ratios, vector, second, own)
        if name == second:
            return second_party(run, self.ratios, vector, first, own)
        return contributor(run, self.ratios, vector, first, second, own)

    def contribution(self, statistics: Statistics, coins: Coins) -> U64Array:
        """Return this party's vector: its counts, with its share of the noise."""
        exact = self.ratios.vector(statistics)
        if self.noise is None:
            return exact
        noisy: U64Array = exact + self.noise.law.share(coins).view(np.uint64)
        return noisy

    def authorise_and_charge(self, name: str) -> None:
        charge, size, exact = self.cost(name), len(self.names), self.noise is None
        self.site.authorise_and_charge(Computation(self.agreement, self.run_id, charge, self.state, size, exact))

    def store(self, outputs: Mapping[str, Any]) -> None:
        self.site.opened(self.agreement, self.run_id, self.names)

    def result(self, outcome: Outcome) -> Result:
        """Return the model of the opened probabilities."""
        ratios, plain = self.ratios, self.report(outcome)
        promise = None if self.noise is None else self.noise.statement(self.study)
        opened = next(tuple(each) for each in map(outcome.outputs.get, self.names) if each is not None)
        model, spent = _model(ratios, opened, promise), (0.0, 0.0) if promise is None else (promise.epsilon, promise.delta)
        facts: dict[str, Json] = {"protocol": self.name, "opened": ratios.label, "bits": ratios.fraction}
        integers = np.array(opened, dtype=np.int64)
        return Result(
            model,
            None,
            plain.leakage,
            plain.cost,
            plain.statement,
            self.names,
            spent,
            plain.report,
            total=integers,
            facts=facts,
        )

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        study, names = self.study, self.names
        labels = ("minimum_reached", self.ratios.label)
        return Disclosure(
            protocol=self.name,
            summary=self.description,
            messages=self.messages,
            outputs=tuple(Output(label, names) for label in labels),
            learners=names,
            row_sum=RowSum(SumForm.EXACT if study.privacy.epsilon is None else SumForm.NOISY, len(names)),
            epsilon=study.privacy.epsilon or 0.0,
            delta=study.privacy.delta,
            conclusions=self.conclusions(),
        )

    def facts(self) -> dict[str, Any]:
        return {
            "contributors": list(self.names),
            "compute": list(self.computing),
            "opened": list(self.disclosure.opened),
            "learners": list(self.disclosure.learners),
            "epsilon": self.study.privacy.epsilon,
        }

    def reveals(self) -> str:
        ratios = self.ratios
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

    def statement_lines(self) -> list[str]:
        """Return what the statement says of the opening, and the promise of its noise."""
        minimum = f"minimum_reached (of {self.ratios.minimum} rows per class)"
        lines = [f"Labels opened, to every party: {minimum}, {self.ratios.label}."]
        return lines if self.noise is None else [*lines, self.noise.statement(self.study).text]


TASK = OpenedRatioTask


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
    settings = ModelSettings(alpha=alpha)
    record = ModelRecord(_parameters(ratios, opened), None, "text", settings, privacy)
    return estimators.from_record(record)


def _parameters(ratios: PrivateRatioSetup, values: tuple[int, ...]) -> Parameters:
    """Log-probabilities, means and variances; a cut number stands for the middle of its interval, so that none is 0."""
    classes, at = len(ratios.codebook.classes), 0
    probabilities: npt.NDArray[np.float64] = (np.array(values, dtype=np.float64) + 0.5) / 2.0**ratios.fraction
    terms: dict[str, Term] = {}
    prior, mean = np.zeros(classes), np.zeros(classes)
    for group in ratios.layout.groups:
        if group.kind == "n":
            continue
        part = probabilities[at : at + classes * group.columns].reshape(classes, group.columns)
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
                floor = ratios.codebook.variance_floor or 0.0
                terms[group.feature.name] = Gaussian(mean, np.maximum((part[:, 0] * width / 2) ** 2, floor))
    return Parameters(ratios.codebook, prior, terms)
