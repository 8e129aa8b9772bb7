"""Probabilities from rows that several parties hold, without the counts behind them: private_ratio.

By default nothing is opened: two of the parties hold shares of every probability. `combine` joins them, for simulation alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.errors import BlindbayesError, ConfigError, LocalProtocolError, PrivacyError
from blindbayes.lazy import lazy
from blindbayes.model.file import ModelRecord, dump_model
from blindbayes.model.parameters import Histogram, Parameters, Term
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.distributed import DistributedNoise, honest_survivors
from blindbayes.privacy.exact_events import as_decimal, budget_floor
from blindbayes.privacy.fitting import data_domain
from blindbayes.privacy.mechanisms import Price
from blindbayes.privacy.noisy_sum import SEVERAL_RECORDS, SEVERAL_SITES
from blindbayes.privacy.statement import NOT_PROTECTED, PrivacyStatement
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.private_ratio import PrivateRatioSetup, coarse_bits, contributor, first_party, second_party
from blindbayes.protocol.private_ratio.roles import SHARE_BITS, Opening
from blindbayes.protocol.registry import SumSetup
from blindbayes.report import LeakReport, leak_report, model_files, run_files, seal_files
from blindbayes.scheme.job import Charge, CountingJob, Site
from blindbayes.scheme.result import Leak, about_run, leakage_of
from blindbayes.statistics import Statistics
from blindbayes.storage.folder import write_folder
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Exposure, Facts
from blindbayes.study.study import Study
from blindbayes.transport.memory import Outcome
from blindbayes.wire import U64Array
from blindbayes.wire.transcript import Cost

if TYPE_CHECKING:
    from blindbayes import estimators
else:
    estimators = lazy("blindbayes.estimators")


@dataclass(frozen=True)
class RatioResult:
    """How the run ended. `opened` are the opened probabilities in units of 2^-fraction, or None if all stayed in shares."""

    ratios: PrivateRatioSetup
    opened: tuple[int, ...] | None = field(repr=False)
    shares: Mapping[str, tuple[int, ...]] = field(repr=False)  # of the two computing parties, modulo 2^(fraction + 1)
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]
    report: LeakReport = field(repr=False)
    promise: PrivacyStatement | None = field(default=None, repr=False)  # with noise

    @property
    def spent(self) -> tuple[float, float]:
        """Epsilon and delta of this run."""
        return (0.0, 0.0) if self.promise is None else (self.promise.epsilon, self.promise.delta)

    @property
    def model(self) -> estimators.NaiveBayes:
        """The model of the opened probabilities. Its counts are not known."""
        parameters, alpha = self.parameters(), self.ratios.alpha
        privacy = None
        if self.promise is not None:
            privacy = {"mechanism": self.promise.mechanism, "epsilon": self.promise.epsilon, "delta": self.promise.delta}
            privacy["statement"] = self.promise.to_dict()
        settings = {"alpha": alpha, "var_smoothing": 0.0, "named": False}
        return estimators.NaiveBayes(self.ratios.codebook, alpha=alpha)._restore(
            ModelRecord(parameters, None, "text", settings, privacy)
        )

    def parameters(self) -> Parameters:
        """What `model` scores with."""
        if self.opened is None:
            raise PrivacyError("nothing was opened: the probabilities are in shares; classify with shares, or combine them")
        return _parameters(self.ratios, self.opened)

    def combine(self) -> Parameters:
        """Simulation only: the model that the shares stand for."""
        if not self.shares:
            return self.parameters()
        modulus = 1 << (self.ratios.fraction + 1)
        first, second = self.shares.values()
        return _parameters(self.ratios, tuple((a + b) % modulus for a, b in zip(first, second, strict=True)))

    @property
    def known(self) -> dict[str, Any]:
        """Public facts for the run.json of a site."""
        return {"included": list(self.included)}

    def files(self) -> dict[str, bytes]:
        """Every file of the release but the checksums. Shares are not among them."""
        files = run_files(self.report, self.cost, self.statement)
        if self.opened is not None:
            facts = {"protocol": "private_ratio", "opened": self.ratios.label, "included": ", ".join(self.included)}
            files["model.json"] = dump_model(self.model._record()).encode()
            files |= model_files(self.parameters(), facts, self.promise, None)
        return files

    def save(self, folder: str | os.PathLike[str]) -> os.PathLike[str]:
        """Write the release: leak report, cost, statement, and the model if it was opened. Shares are not written."""
        return write_folder(folder, seal_files(self.files()))


class PrivateRatioParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of private_ratio."""

    opening: Opening = "shares"  # shares: nothing; coarse: as many bits as `minimum` allows; noisy: takes epsilon; fine: all
    minimum: int = 0  # public: every class has at least so many rows, or one bit says that it has not
    fraction: int | None = None  # bits after the point; by default as many as the opening allows


def _require_parties(ratios: PrivateRatioSetup, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        raise ConfigError("private_ratio needs at least two parties")
    if ratios.opening in ("coarse", "fine") and len(names) < 3:
        raise PrivacyError("opened probabilities of two parties tell each about the other's counts; take a third party")


@dataclass(frozen=True)
class _Noise:
    """The parties' noise on the counts behind a noisy opening."""

    law: DistributedNoise

    @classmethod
    def make(cls, study: Study, ratios: PrivateRatioSetup, parties: int) -> _Noise:
        """One record touches its class count and one count per feature. A reader knows its own share of the noise."""
        if study.epsilon is None:
            raise PrivacyError("noise needs epsilon")
        honest = min(honest_survivors(parties, parties, study.gamma), parties - 1)
        return cls(
            DistributedNoise.plan(
                touched=1 + len(study.codebook.features),
                cells=ratios.lanes,
                epsilon=budget_floor(study.epsilon),
                delta=study.delta,
                honest=honest,
                unit=study.unit,
                party_rows=study.party_rows,
                rows_per_person=study.rows_per_person,
                mechanism=study.mechanism,
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
            sensitivity=f"One record moves at most {self.law.touched} counts by 1: its class count, and one count of each "
            f"feature. Probabilities, and the bit about the minimum, are computed from noisy counts",
            codebook=study.codebook.sha256,
            data_domain=data_domain(study.codebook),
            tuning=study.tuning,
            trust_model=f"At least {study.gamma:.0%} of the parties follow the protocol, add their noise and keep it to "
            f"themselves: calibrated to {self.law.honest} honest shares; a party that takes its own share off what is opened "
            "counts among the others. The two computing parties do not collude",
            not_protected=f"{NOT_PROTECTED} {persons}",
            model="Federated",
        )


@dataclass(frozen=True)
class Ratio:
    """What is public about one run: the ratios, and the noise on the counts behind them."""

    study: Study
    names: tuple[str, ...]
    ratios: PrivateRatioSetup
    noise: _Noise | None

    @property
    def setting(self) -> SumSetup:
        """For the difference rule: what is opened depends on everybody's counts."""
        return SumSetup(self.names, self.ratios.lanes, noisy=self.noise is not None)

    @property
    def computing(self) -> tuple[str, str]:
        """The two parties that compute, who must not collude."""
        return self.names[0], self.names[-1]


class RatioScheme:
    """See `study.schemes.Scheme`."""

    name = "private_ratio"
    params = PrivateRatioParams
    facts = Facts(
        partitions=("rows",),
        line="probabilities without counts: in shares of two sites, or opened as coarsely as the study says. All must answer.",
        allowed=False,  # until a site's people have read what an opening tells
        offered=False,
        leaves=("shares of this site's counts, one to each of the two sites that compute",),
    )

    def check(self, study: Study) -> None:
        """The opening and epsilon fit."""
        if study.quorum is not None:
            raise ConfigError("private_ratio needs every party; leave quorum unset")
        ratios_of(study)

    def quorum(self, parties: int) -> int | None:
        """Everybody."""
        return None

    def apart(self) -> tuple[tuple[str, ...], ...]:
        """Every role is a party's own."""
        return ()

    def seats(self, agreement: Agreement) -> tuple[str, ...]:
        """The contributors."""
        return agreement.contributors

    def learners(self, agreement: Agreement) -> tuple[str, ...]:
        """Everybody, or the two that keep shares."""
        public: Ratio = agreement.public
        return public.computing if public.ratios.label is None else agreement.contributors

    def agree(self, agreement: Agreement) -> Ratio:
        """Which probabilities, opened how."""
        study, names = agreement.study, agreement.contributors
        ratios = ratios_of(study)
        if len(names) < study.min_parties:
            raise PrivacyError(f"the study asks for at least {study.min_parties} parties; {len(names)} take part")
        _require_parties(ratios, names)
        noise = None
        if study.epsilon is not None:
            noise = _Noise.make(study, ratios, len(names))
            ratios = replace(ratios, noise_bound=noise.law.tail(2.0**-40 / ratios.lanes, len(names)))
        return Ratio(study, names, ratios, noise)

    def require_runnable(self, agreement: Agreement) -> None:
        """What is agreed can run."""
        agreement.public  # noqa: B018 - refused there

    def meet(self, study: Study, sites: Mapping[str, Any]) -> Agreement:
        """Every site brings rows."""
        return Agreement(study, study.sha256, tuple(sites), tuple(sites))

    def job(self, agreement: Agreement, site: Site, run_id: str) -> RatioJob:
        """This site's counts go into the ratios."""
        return RatioJob(agreement, site, run_id)

    def price(self, public: Ratio) -> Charge | None:
        """What a party pays for a noisy opening."""
        if public.noise is None:
            return None
        price = public.noise.price
        return Charge(Spend(as_decimal(price.epsilon), as_decimal(price.delta)), price.unit)

    def result(self, agreement: Agreement, outcome: Outcome, *, run: str = "", **_: Any) -> RatioResult:
        """The opened probabilities, or the shares that stayed here."""
        public: Ratio = agreement.public
        ratios, (first, second) = public.ratios, public.computing
        outputs = {name: outcome.outputs[name] for name in (first, second, *public.names) if name in outcome.outputs}
        told = next((tuple(found) for found in outputs.values() if found is not None), None)
        opened = None if ratios.label is None else told
        held = {name: tuple(outputs[name]) for name in (first, second) if outputs.get(name) is not None}
        shares = {} if ratios.label is not None else held
        seen, protocols = outcome.transcript, ("transfer", "private_ratio")
        follows = (_follows(ratios), f"{first} and {second} together have the sums of all counts; they must not collude.")
        about, size = about_run(agreement, run), len(public.names)
        report = leak_report(protocols, size, seen.received, outcome.opened, seen.entries, follows, seen.traffic, about)
        promise = None if public.noise is None else public.noise.statement(public.study)
        statement = _statement(ratios, agreement.sha256, first, second, promise)
        leakage = leakage_of(outcome)
        return RatioResult(ratios, opened, shares, leakage, outcome.cost, statement, public.names, report, promise)

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        """Probabilities that fix counts are an exact sum; noisy ones are paid for."""
        study, ratios = agreement.study, agreement.public.ratios
        exact = ratios.label is not None and study.epsilon is None
        quorum_size = None if ratios.label is None else len(agreement.contributors)
        return Exposure(exact=exact, quorum_size=quorum_size, epsilon=study.epsilon or 0.0, delta=study.delta)

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        """For `study check`."""
        ratios = agreement.public.ratios
        labels = ["nothing"] if ratios.label is None else ["minimum_reached", ratios.label]
        return {
            "contributors": list(agreement.contributors),
            "compute": list(agreement.public.computing),
            "opened": labels,
            "learners": list(agreement.contributors) if ratios.label is not None else [],
            "epsilon": agreement.study.epsilon,
        }

    def told(self, agreement: Agreement) -> list[str]:
        """For the wizard."""
        return [f"{agreement.title}: rows of {', '.join(agreement.contributors)}.", f"  {_follows(agreement.public.ratios)}"]

    def dry_run(self, agreement: Agreement, site: Site) -> tuple[dict[str, Any], list[str]]:
        """The shares that would leave."""
        said, problems = self.shown(agreement), []
        try:
            self.job(agreement, site, "0" * 32).read()
        except BlindbayesError as error:
            problems.append(str(error))
        facts = {"leaves_as": self.facts.leaves[0], "opened": said["opened"], "opened_to": said["learners"]}
        follows = _follows(agreement.public.ratios)
        return {**facts, "refused_because": problems}, [self.facts.leaves[0], follows, "Nothing has left."]


class RatioJob(CountingJob):
    """See `job.Job`."""

    def read(self) -> None:
        """Count this site's rows."""
        public: Ratio = self.agreement.public
        if self.site.name in public.names:
            own = self.count(public.study.codebook)
            public.study.require_party_rows(own)
            self.bring(own)

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """Of one of the two that compute, or of a contributor."""
        public: Ratio = self.agreement.public
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=seat)
        vector = self.contribution(public, self.statistics, coins.derive("contribution"))
        (first, second), own = public.computing, coins.derive("role")
        if seat == first:
            return first_party(run, public.ratios, vector, second, own)
        if seat == second:
            return second_party(run, public.ratios, vector, first, own)
        return contributor(run, public.ratios, vector, first, second, own)

    def contribution(self, public: Ratio, statistics: Statistics, coins: Coins) -> U64Array:
        """This party's vector: its counts, with its share of the noise."""
        if public.noise is None:
            return statistics.words
        noisy: U64Array = statistics.words + public.noise.law.share(coins).view(np.uint64)
        return noisy

    def authorise_and_charge(self, seat: str) -> None:
        """Approval, rate, difference rule, ledger; once per run."""
        public: Ratio = self.agreement.public
        exact = public.ratios.label is not None and public.noise is None
        self.site.authorise_and_charge(
            self.agreement, self.run_id, SCHEME.price(public), state=self.state, quorum_size=len(public.names), exact=exact
        )

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Write down whose counts are in what was opened."""
        if self.agreement.public.ratios.label is not None:
            self.site.opened(self.agreement, self.run_id, self.agreement.public.names)


SCHEME = RatioScheme()


def scheme(name: str) -> RatioScheme:
    """The scheme of private_ratio."""
    return SCHEME


def ratios_of(study: Study) -> PrivateRatioSetup:
    """The study's options, as the protocol knows them."""
    params = cast(PrivateRatioParams, study.params)
    if (params.opening == "noisy") != (study.epsilon is not None):
        raise PrivacyError("private_ratio adds noise to what is opened: epsilon and opening='noisy' go together")
    usual = max(1, coarse_bits(params.minimum)) if params.opening == "coarse" else SHARE_BITS
    fraction = usual if params.fraction is None else params.fraction
    return PrivateRatioSetup(study.codebook, params.opening, fraction, params.minimum, study.alpha)


def _parameters(ratios: PrivateRatioSetup, values: tuple[int, ...]) -> Parameters:
    """Log-probabilities; a cut probability stands for the middle of its interval, so that none is 0."""
    layout, classes = ratios.layout, len(ratios.codebook.classes)
    found: npt.NDArray[np.float64] = (np.array(values, dtype=np.float64) + 0.5) / 2.0**ratios.fraction
    terms: dict[str, Term] = {}
    prior = np.zeros(classes)
    for group in layout.groups:
        part = found[layout.slice(group)].reshape(classes, group.columns)
        if group.feature is None:
            prior = np.log(part[:, 0])
        else:
            terms[group.feature.name] = Histogram(np.log(part))
    return Parameters(ratios.codebook, prior, terms)


def _follows(ratios: PrivateRatioSetup) -> str:
    """What the run tells, in a sentence or two."""
    bits = f"probabilities at {ratios.fraction} bits"
    if ratios.label is None:
        return "Nothing was opened: every probability is in shares of two parties."
    if ratios.opening == "fine":
        return (
            f"Opened: {bits}. **This opens the counts**: at this width a probability fixes the size of its class, and so "
            "every count."
        )
    if ratios.opening == "noisy":
        return f"Opened: {bits}, of counts with noise. What follows from them is bounded by the privacy statement."
    return (
        f"Opened: {bits}, two fewer than a class of {ratios.minimum} rows has. "
        "Many counts fit them; they are not differentially private."
    )


def _statement(ratios: PrivateRatioSetup, study: str, first: str, second: str, promise: PrivacyStatement | None) -> str:
    lines = [
        f"Study {study}",
        f"Codebook {ratios.codebook.sha256}",
        f"Protocol private_ratio; {first} and {second} compute, and must not collude: together they have the sums.",
        _follows(ratios),
    ]
    if ratios.label is not None:
        lines.append(f"Labels opened, to every party: minimum_reached (of {ratios.minimum} rows per class), {ratios.label}.")
    if promise is not None:
        lines.append(promise.text)
    return "\n\n".join(lines)
