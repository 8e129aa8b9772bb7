"""Probabilities from rows that several parties hold, without the counts behind them: private_ratio.

By default nothing is opened: two of the parties hold shares of the model, and a classification is a run of its own. Opened
probabilities, coarse or of noisy counts, are a model in the open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Numeric
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.lazy import lazy
from blindbayes.model.file import ModelRecord
from blindbayes.model.parameters import Gaussian, Histogram, Parameters, Term
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.distributed import DistributedNoise, honest_survivors
from blindbayes.privacy.exact_events import budget_floor
from blindbayes.privacy.fitting import data_domain
from blindbayes.privacy.mechanisms import Price
from blindbayes.privacy.noisy_sum import REFUSALS, SEVERAL_RECORDS, SEVERAL_SITES
from blindbayes.privacy.statement import NOT_PROTECTED, PrivacyStatement
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.private_ratio.roles import (
    FINE_BITS,
    Opening,
    PrivateRatioSetup,
    coarse_bits,
    contributor,
    first_party,
    second_party,
)
from blindbayes.protocol.private_ratio.shares import SharedRowsSetup, train
from blindbayes.protocol.registry import SumSetup
from blindbayes.scheme.job import Charge, CountingJob, Site, refused_reading
from blindbayes.scheme.result import JointResult, Learned, Result, about_run, leakage_of, report_run
from blindbayes.statistics import Statistics
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Exposure, Facts, Scheme
from blindbayes.study.study import Study
from blindbayes.transport.memory import Outcome
from blindbayes.wire import U64Array

if TYPE_CHECKING:
    from blindbayes import estimators
else:
    estimators = lazy("blindbayes.estimators")


class PrivateRatioParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of private_ratio."""

    # shares: nothing, and the model stays in shares; coarse: as many bits as `minimum` allows; noisy: takes epsilon; fine: all.
    # By default noisy where the study has an epsilon, else shares.
    opening: Literal["shares", "coarse", "noisy", "fine"] | None = None
    minimum: int = 0  # public: every class has at least so many rows, or one bit says that it has not
    fraction: int | None = None  # bits after the point; by default as many as the opening allows
    queries: int | None = None  # with shares: how many instances may be classified, ever; None: no limit

    def __post_init__(self) -> None:
        if self.opening == "shares" and (self.minimum or self.fraction is not None):
            raise ConfigError("minimum and fraction are about opened probabilities, and with shares none is opened")
        if self.opening not in (None, "shares") and self.queries is not None:
            raise ConfigError("queries are about a model in shares; opened probabilities are a model of your own")
        if self.queries is not None and self.queries < 1:
            raise ConfigError("the option queries is the number of instances that may be classified")


def _require_parties(ratios: PrivateRatioSetup | None, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        raise ConfigError("private_ratio needs at least two parties")
    if ratios is not None and ratios.opening != "noisy" and len(names) < 3:
        raise PrivacyError("opened probabilities of two parties tell each about the other's counts; take a third party")


@dataclass(frozen=True)
class _Noise:
    """The parties' noise on the counts behind a noisy opening."""

    law: DistributedNoise

    @classmethod
    def make(cls, study: Study, ratios: PrivateRatioSetup, parties: int) -> _Noise:
        """One record touches its class count, one count per feature, and of a Gaussian one its sum and square too. A reader
        knows its own share of the noise."""
        if study.epsilon is None:
            raise PrivacyError("noise needs epsilon")
        honest = min(honest_survivors(parties, parties, study.gamma), parties - 1)
        return cls(
            DistributedNoise.plan(
                touched=len(ratios.layout.groups),
                bounds=ratios.bounds,
                epsilon=budget_floor(study.epsilon),
                delta=study.delta,
                honest=honest,
                unit=study.unit,
                party_rows=study.party_rows,
                rows_per_person=study.rows_per_person,
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
        persons = SEVERAL_RECORDS if study.rows_per_person is None else SEVERAL_SITES.format(most=study.rows_per_person)
        return PrivacyStatement.of(
            self,
            sensitivity=f"One record moves at most {self.law.touched} numbers, each by at most its bound: its class count and "
            "one count of each feature by 1; of a Gaussian feature the sum by the width of the grid, the square by its square. "
            "Probabilities, means, deviations and the bit about the minimum are computed from noisy numbers",
            codebook=study.codebook.sha256,
            data_domain=data_domain(study.codebook),
            tuning=study.tuning,
            trust_model=f"At least {study.gamma:.0%} of the parties follow the protocol, add their noise and keep it to "
            f"themselves: calibrated to {self.law.honest} honest shares; a party that takes its own share off what is opened "
            "counts among the others. The others may bring what they like; the two computing parties follow the protocol and "
            "do not collude. That nothing but noisy numbers is seen is computational: it rests on the protocol's cryptography",
            not_protected=f"{NOT_PROTECTED} {REFUSALS} {persons}",
            model="Federated",
        )


@dataclass(frozen=True)
class Ratio:
    """What is public about one run: the ratios that are opened, and the noise on the counts behind them, or the model that
    stays in shares."""

    study: Study
    names: tuple[str, ...]
    ratios: PrivateRatioSetup | None
    noise: _Noise | None
    rows: SharedRowsSetup | None

    @property
    def setting(self) -> SumSetup:
        """For the rule on exact sums: what is opened depends on everybody's counts."""
        return SumSetup(self.names, 1 if self.ratios is None else self.ratios.lanes, noisy=self.noise is not None)

    @property
    def computing(self) -> tuple[str, str]:
        """The two parties that compute, who must not collude."""
        return self.names[0], self.names[-1]

    @property
    def opened(self) -> PrivateRatioSetup:
        """Of a run that opens probabilities."""
        if self.ratios is None:
            raise LocalProtocolError("nothing is opened: the model stays in shares")
        return self.ratios


class RatioScheme(Scheme):
    """See `study.schemes.Scheme`."""

    name = "private_ratio"
    params = PrivateRatioParams
    facts = Facts(
        partitions=("rows",),
        line="probabilities without counts: in shares that classify, or opened coarsely or with noise. All must answer.",
        shares=True,  # unless they are opened: see `variant`
        leaves=("shares of this site's counts, one to each of the two sites that compute",),
    )

    def check(self, study: Study) -> None:
        """The opening and epsilon fit."""
        if study.quorum is not None:
            raise ConfigError("private_ratio needs every party; leave quorum unset")
        ratios_of(study)

    def variant(self, study: Study) -> RatioScheme:
        """Opened probabilities leave no shares."""
        return SCHEME if opening_of(study) == "shares" else OPENED

    def agree(self, agreement: Agreement) -> Ratio:
        """Which probabilities, opened how."""
        study, names = agreement.study, agreement.contributors
        ratios = ratios_of(study)
        if len(names) < study.min_parties:
            raise PrivacyError(f"the study asks for at least {study.min_parties} parties; {len(names)} take part")
        _require_parties(ratios, names)
        if ratios is None:
            rows = SharedRowsSetup(study.codebook, names, study.alpha)
            rows.plan  # noqa: B018 - whether scores fit, and have a least variance, is known now
            return Ratio(study, names, None, None, rows)
        noise = None
        if study.epsilon is not None:
            noise = _Noise.make(study, ratios, len(names))
            tails = (noise.law.tail(2.0**-40 / ratios.cells, len(names), each) / each for each in set(ratios.bounds))
            ratios = replace(ratios, noise_bound=math.ceil(max(tails)))
        return Ratio(study, names, ratios, noise, None)

    def job(self, agreement: Agreement, site: Site, run_id: str) -> RatioJob:
        return RatioJob(agreement, site, run_id)

    def price(self, public: Ratio) -> Charge | None:
        """What a party pays for a noisy opening."""
        return None if public.noise is None else Charge.of(public.noise.price)

    def result(
        self, agreement: Agreement, outcome: Outcome, *, run: str = "", model: Any = None, **_: Any
    ) -> Result | JointResult | Learned:
        """The opened probabilities, or the report of a model in shares."""
        public: Ratio = agreement.public
        ratios, (first, second) = public.ratios, public.computing
        leakage = leakage_of(outcome)
        protocols = ("transfer", "private_ratio", *(() if ratios is not None else ("shared_model", "joined_sums")))
        follows = (_follows(public), f"{first} and {second} together have the sums of all counts; they must not collude.")
        report = report_run(protocols, len(public.names), outcome, follows, about_run(agreement, run))
        promise = None if public.noise is None else public.noise.statement(public.study)
        statement = _statement(public, agreement.sha256, promise)
        if ratios is None:
            known = {"included": list(public.names)}
            if model is None:
                return Learned(leakage, outcome.cost, statement, report, known)
            return JointResult(model, leakage, outcome.cost, statement, public.names, report)
        found = next(tuple(found) for found in (outcome.outputs.get(name) for name in public.names) if found is not None)
        model, spent = _model(ratios, found, promise), (0.0, 0.0) if promise is None else (promise.epsilon, promise.delta)
        facts = {"protocol": self.name, "opened": ratios.label, "bits": ratios.fraction}
        integers = np.array(found, dtype=np.int64)
        return Result(
            model, None, leakage, outcome.cost, statement, public.names, spent, total=integers, report=report, facts=facts
        )

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        """Probabilities that fix counts are an exact sum; noisy ones are paid for; of shares there are classifications."""
        study, everybody = agreement.study, len(agreement.contributors)
        if agreement.public.ratios is None:
            return Exposure(shares=True, queries=study.options.get("queries"), quorum_size=everybody)
        exact = study.epsilon is None
        return Exposure(exact=exact, quorum_size=everybody, epsilon=study.epsilon or 0.0, delta=study.delta)

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        public: Ratio = agreement.public
        said: dict[str, Any] = {"contributors": list(agreement.contributors), "compute": list(public.computing)}
        if public.ratios is None:
            return {
                **said,
                "opened": ["nothing"],
                "learners": [],
                "model": "exists only as shares of the two that compute",
                "opened_per_classified_instance": ["class, to the site whose instance it is"],
                "queries": agreement.study.options.get("queries", "not limited: sites refuse such a study by policy"),
            }
        labels = ["minimum_reached", public.ratios.label]
        return {**said, "opened": labels, "learners": list(agreement.contributors), "epsilon": agreement.study.epsilon}

    def told(self, agreement: Agreement) -> list[str]:
        first, second = agreement.public.computing
        return [
            f"{agreement.title}: rows of {', '.join(agreement.contributors)}, by {self.name}.",
            f"  {_follows(agreement.public)}",
            f"  {first} and {second} compute. Together they could read every site's counts: they must not collude.",
        ]

    def dry_run(self, agreement: Agreement, site: Site) -> tuple[dict[str, Any], list[str]]:
        said, problems = self.shown(agreement), refused_reading(self.job(agreement, site, "0" * 32))
        facts = {"leaves_as": self.facts.leaves[0], "opened": said["opened"], "opened_to": said["learners"]}
        follows = _follows(agreement.public)
        return {**facts, "refused_because": problems}, [self.facts.leaves[0], follows, "Nothing has left."]


class RatioJob(CountingJob):
    """See `job.Job`."""

    def read(self) -> None:
        """Count this site's rows. Nobody can look whether a total is too large, so each site brings its part at most."""
        public: Ratio = self.agreement.public
        if self.site.name in public.names:
            own, most = self.count(public.study.codebook), public.study.codebook.max_rows // len(public.names)
            if int(own.class_counts.sum()) > most:
                raise DataError(
                    f"with {len(public.names)} parties a site brings at most max_rows / {len(public.names)} = {most} rows: "
                    "nobody sees the total, so that each must see to it that it fits; declare a larger max_rows"
                )
            public.study.require_party_rows(own)
            self.bring(own)

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        public: Ratio = self.agreement.public
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=seat)
        own, (first, second) = coins.derive("role"), public.computing
        if public.rows is not None:
            return train(run, public.rows, public.rows.vector(self.statistics), own)
        vector = self.contribution(public, self.statistics, coins.derive("contribution"))
        if seat == first:
            return first_party(run, public.opened, vector, second, own)
        if seat == second:
            return second_party(run, public.opened, vector, first, own)
        return contributor(run, public.opened, vector, first, second, own)

    def contribution(self, public: Ratio, statistics: Statistics, coins: Coins) -> U64Array:
        """This party's vector: its counts, with its share of the noise."""
        exact = public.opened.vector(statistics)
        if public.noise is None:
            return exact
        noisy: U64Array = exact + public.noise.law.share(coins).view(np.uint64)
        return noisy

    def authorise_and_charge(self, seat: str) -> None:
        """Approval, rate, one table one set, ledger; once per run. A model in shares counts as an exact sum."""
        public: Ratio = self.agreement.public
        exact = public.noise is None
        self.site.authorise_and_charge(
            self.agreement, self.run_id, SCHEME.price(public), state=self.state, quorum_size=len(public.names), exact=exact
        )

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """The share; or write down whose counts are in what was opened."""
        public: Ratio = self.agreement.public
        if public.rows is None:
            self.site.opened(self.agreement, self.run_id, public.names)
            return
        made, name = outputs[self.site.name], self.site.name
        facts = {**replace(public.rows, training=made.training).to_dict(), "run": self.run_id}
        queries = self.agreement.study.options.get("queries")
        share = ModelShare(self.agreement.sha256, name, facts, made.tables, made.sums, None, queries)
        self.site.keep_share(self.run_id, share)


class _Opened(RatioScheme):
    """The same, of probabilities that are opened."""

    facts = replace(RatioScheme.facts, shares=False)


SCHEME, OPENED = RatioScheme(), _Opened()


def opening_of(study: Study) -> str:
    """As the study says, or by default: noisy with epsilon, else shares."""
    params = cast(PrivateRatioParams, study.params)
    return params.opening or ("shares" if study.epsilon is None else "noisy")


def ratios_of(study: Study) -> PrivateRatioSetup | None:
    """The study's options, as the protocol knows them; None: nothing is opened."""
    params, opening = cast(PrivateRatioParams, study.params), cast(Opening | Literal["shares"], opening_of(study))
    if (opening == "noisy") != (study.epsilon is not None):
        raise PrivacyError("private_ratio adds noise to what is opened: epsilon and opening='noisy' go together")
    if opening == "shares":
        return None
    usual = max(1, coarse_bits(params.minimum)) if opening == "coarse" else FINE_BITS
    fraction = usual if params.fraction is None else params.fraction
    return PrivateRatioSetup(study.codebook, opening, fraction, params.minimum, study.alpha)


def _model(ratios: PrivateRatioSetup, opened: tuple[int, ...], promise: PrivacyStatement | None) -> estimators.NaiveBayes:
    """The model of the opened probabilities, in units of 2^-fraction. Its counts are not known."""
    alpha, privacy = ratios.alpha, None
    if promise is not None:
        privacy = {"mechanism": promise.mechanism, "epsilon": promise.epsilon, "delta": promise.delta}
        privacy["statement"] = promise.to_dict()
    settings = {"alpha": alpha, "var_smoothing": 0.0, "named": False}
    record = ModelRecord(_parameters(ratios, opened), None, "text", settings, privacy)
    return estimators.NaiveBayes(ratios.codebook, alpha=alpha)._restore(record)


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


def _follows(public: Ratio) -> str:
    """What the run tells, in a sentence or two."""
    ratios, (first, second) = public.ratios, public.computing
    if ratios is None:
        queries = public.study.options.get("queries")
        limit = f"At most {queries} instances may be classified" if queries else "The number of queries is not limited"
        return (
            f"Nothing is opened: the model stays in shares of {first} and {second}. A classification, for which every site's "
            f"people ask, opens the class to the site whose instance it is. {limit}; repeated queries let the "
            "model be read off, and so the sum of all counts: some 25 answers tell one number of it."
        )
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
        "Many counts fit them; they are not differentially private, and a party that makes up its table, and so passes the "
        "minimum alone, reads from them on which side of steps of its choice the others' counts lie."
    )


def _statement(public: Ratio, study: str, promise: PrivacyStatement | None) -> str:
    first, second = public.computing
    lines = [
        f"Study {study}",
        f"Codebook {public.study.codebook.sha256}",
        f"Protocol private_ratio; {first} and {second} compute, and must not collude: together they have the sums.",
        _follows(public),
    ]
    if public.ratios is not None:
        least = f"minimum_reached (of {public.ratios.minimum} rows per class)"
        lines.append(f"Labels opened, to every party: {least}, {public.ratios.label}.")
    if public.rows is not None:
        plan = public.rows.plan
        lines.append(
            f"Scores: {plan.bits} bits, {plan.fraction} after the point. The class equals that of pooled classification "
            f"wherever the two best scores differ by more than {plan.tie_bound:.3g}."
        )
    if promise is not None:
        lines.append(promise.text)
    return "\n\n".join(lines)
