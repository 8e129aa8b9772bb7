"""Probabilities from rows that several parties hold, in one process: private_ratio with every party's role here.

By default nothing is opened: two of the parties hold shares of every probability. `combine` joins them, for simulation alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data import count_table
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.estimators import NaiveBayes
from blindbayes.ledger import Ledger
from blindbayes.model.file import ModelRecord, dump_model
from blindbayes.model.parameters import Histogram, Parameters, Term
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.chance import spendable, written
from blindbayes.privacy.distributed import DistributedNoise, honest_survivors
from blindbayes.privacy.fitting import data_domain
from blindbayes.privacy.mechanisms import Price
from blindbayes.privacy.noisy_sum import SEVERAL_RECORDS, SEVERAL_SITES
from blindbayes.privacy.statement import NOT_PROTECTED, PrivacyStatement
from blindbayes.protocol.private_ratio import Ratios, coarse_bits, contributor, first_party, second_party
from blindbayes.protocol.private_ratio.roles import SHARE_BITS, Opening
from blindbayes.report import LeakReport, leak_report, model_files, run_files, seal_files
from blindbayes.scheme.result import Leak, leakage_of
from blindbayes.statistics.feasible import require_plausible
from blindbayes.storage.folder import write_folder
from blindbayes.study.study import Study
from blindbayes.transport.memory import local_runs, run_in_memory
from blindbayes.wire import Words
from blindbayes.wire.transcript import Cost

_OPTIONS = ("fraction", "minimum", "opening")


@dataclass(frozen=True)
class RatioResult:
    """How the run ended. `opened` are the opened probabilities in units of 2^-fraction, or None if all stayed in shares."""

    ratios: Ratios
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
    def model(self) -> NaiveBayes:
        """The model of the opened probabilities. Its counts are not known."""
        parameters, alpha = self.parameters(), self.ratios.alpha
        privacy = None
        if self.promise is not None:
            privacy = {"mechanism": self.promise.mechanism, "epsilon": self.promise.epsilon, "delta": self.promise.delta}
            privacy["statement"] = self.promise.to_dict()
        settings = {"alpha": alpha, "var_smoothing": 0.0, "named": False}
        return NaiveBayes(self.ratios.codebook, alpha=alpha)._restore(ModelRecord(parameters, None, "text", settings, privacy))

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

    def save(self, folder: str | os.PathLike[str]) -> os.PathLike[str]:
        """Write the release: leak report, cost, statement, and the model if it was opened. Shares are not written."""
        files = run_files(self.report, self.cost, self.statement)
        if self.opened is not None:
            facts = {"protocol": "private_ratio", "opened": self.ratios.label, "included": ", ".join(self.included)}
            files["model.json"] = dump_model(self.model._record()).encode()
            files |= model_files(self.parameters(), facts, self.promise, None)
        return write_folder(folder, seal_files(files))


def simulate(
    codebook: Codebook,
    sources: Mapping[str, Any],
    *,
    opening: Opening = "shares",
    fraction: int = SHARE_BITS,
    minimum: int = 0,
    alpha: float = 1.0,
    coins: Coins | None = None,
) -> RatioResult:
    """Run private_ratio over the parties' tables. The first and the last party compute; they must not collude.

    `opening` is "shares" (nothing is opened), "coarse" (as many bits as the public `minimum` class size allows) or "fine",
    which opens the counts and must be chosen. A noisy opening takes a `Study` with epsilon.
    """
    if opening == "noisy":
        raise ConfigError("a noisy opening takes a Study with epsilon")
    ratios = Ratios(codebook, opening, fraction, minimum, alpha)
    _require_parties(ratios, tuple(sources))
    vectors = {name: require_plausible(count_table(source, codebook)).words for name, source in sources.items()}
    return _run(ratios, vectors, codebook.sha256, Coins.system() if coins is None else coins)


def simulate_study(
    study: Study, sources: Mapping[str, Any], *, ledgers: Mapping[str, str | os.PathLike[str]], coins: Coins
) -> RatioResult:
    """Run a study with protocol="private_ratio"; its options are `opening`, `minimum` and `fraction`."""
    names = tuple(sources)
    ratios = _agreed(study)
    if len(names) < study.min_parties:
        raise PrivacyError(f"the study asks for at least {study.min_parties} parties; {len(names)} take part")
    if study.quorum not in (None, len(names)):
        raise ConfigError("private_ratio needs every party; leave quorum unset")
    _require_parties(ratios, names)
    noise = None
    if study.epsilon is not None:
        noise = _Noise.make(study, ratios, len(names))
        ratios = replace(ratios, noise_bound=noise.law.tail(2.0**-40 / ratios.lanes, len(names)))
    run_id = coins.bytes(16).hex()
    coins = coins.derive(f"run {run_id}")  # two runs on the same coins never share noise or masks
    vectors = {}
    for name, source in sources.items():
        persons = study.persons(coins.derive(f"rows of {name}"))
        own = count_table(source, study.codebook, total=study.is_private, persons=persons)
        require_plausible(own, complete=not study.is_private)
        if int(own.class_counts.sum()) < study.min_rows:
            raise PrivacyError(f"the study asks for at least {study.min_rows} rows per party")
        study.require_party_rows(own)
        vectors[name] = own.words
    if noise is not None:
        for name in names:
            if name in ledgers:  # before anything is drawn or sent
                spend = Spend(written(noise.price.epsilon), written(noise.price.delta))
                Ledger(ledgers[name]).charge(
                    spend, purpose=f"study {study.protocol}", unit=noise.price.unit, study=study.sha256
                )
            vectors[name] = vectors[name] + noise.law.share(coins.derive(f"noise of {name}")).view(np.uint64)
    promise = None if noise is None else noise.statement(study)
    return _run(ratios, vectors, study.sha256, coins, promise)


def _agreed(study: Study) -> Ratios:
    """The study's options, as the protocol knows them."""
    options = study.options
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(_OPTIONS)}")
    opening, minimum = options.get("opening", "shares"), options.get("minimum", 0)
    if any(type(options.get(name, 0)) is not int for name in ("minimum", "fraction")):
        raise ConfigError("minimum and fraction are whole numbers")
    fraction = options.get("fraction", max(1, coarse_bits(minimum)) if opening == "coarse" else SHARE_BITS)
    if opening not in get_args(Opening):
        raise ConfigError(f"opening is one of {', '.join(get_args(Opening))}")
    if (opening == "noisy") != (study.epsilon is not None):
        raise PrivacyError("private_ratio adds noise to what is opened: epsilon and opening='noisy' go together")
    return Ratios(study.codebook, opening, fraction, minimum, study.alpha)


def _require_parties(ratios: Ratios, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        raise ConfigError("private_ratio needs at least two parties")
    if ratios.opening in ("coarse", "fine") and len(names) < 3:
        raise PrivacyError("opened probabilities of two parties tell each about the other's counts; take a third party")


@dataclass(frozen=True)
class _Noise:
    """The parties' noise on the counts behind a noisy opening."""

    law: DistributedNoise

    @classmethod
    def make(cls, study: Study, ratios: Ratios, parties: int) -> _Noise:
        """One record touches its class count and one count per feature. A reader knows its own share of the noise."""
        if study.epsilon is None:
            raise PrivacyError("noise needs epsilon")
        honest = min(honest_survivors(parties, parties, study.gamma), parties - 1)
        return cls(
            DistributedNoise.plan(
                touched=1 + len(study.codebook.features),
                cells=ratios.lanes,
                epsilon=spendable(study.epsilon),
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
            trust_model=f"At least {study.gamma:.0%} of the parties follow the protocol, add their noise and keep it to "
            f"themselves: calibrated to {self.law.honest} honest shares; a party that takes its own share off what is opened "
            "counts among the others. The two computing parties do not collude",
            not_protected=f"{NOT_PROTECTED} {persons}",
            model="Federated",
        )


def _run(
    ratios: Ratios, vectors: Mapping[str, Words], study: str, coins: Coins, promise: PrivacyStatement | None = None
) -> RatioResult:
    names = tuple(vectors)
    first, second = names[0], names[-1]
    runs = local_runs(names, study=study, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    parts: dict[str, Any] = {}
    for name, vector in vectors.items():
        own = coins.derive(f"ratio {runs[name].run_id} {name}")
        if name == first:
            parts[name] = first_party(runs[name], ratios, vector, second, own)
        elif name == second:
            parts[name] = second_party(runs[name], ratios, vector, first, own)
        else:
            parts[name] = contributor(runs[name], ratios, vector, first, second, own)
    outcome = run_in_memory(parts)
    opened = None if ratios.label is None else tuple(outcome.outputs[first])
    shares = {} if ratios.label is not None else {name: tuple(outcome.outputs[name]) for name in (first, second)}
    transcript, protocols = outcome.transcript, ("transfer", "private_ratio")
    follows = (_follows(ratios), f"{first} and {second} together have the sums of all counts; they must not collude.")
    report = leak_report(protocols, len(names), transcript.received, outcome.opened, transcript.entries, follows)
    statement = _statement(ratios, study, first, second, promise)
    return RatioResult(ratios, opened, shares, leakage_of(outcome), outcome.cost, statement, names, report, promise)


def _parameters(ratios: Ratios, values: tuple[int, ...]) -> Parameters:
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


def _follows(ratios: Ratios) -> str:
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


def _statement(ratios: Ratios, study: str, first: str, second: str, promise: PrivacyStatement | None) -> str:
    lines = [
        *([f"Study {study}"] if study != ratios.codebook.sha256 else []),
        f"Codebook {ratios.codebook.sha256}",
        f"Protocol private_ratio; {first} and {second} compute, and must not collude: together they have the sums.",
        _follows(ratios),
    ]
    if ratios.label is not None:
        lines.append(f"Labels opened, to every party: minimum_reached (of {ratios.minimum} rows per class), {ratios.label}.")
    if promise is not None:
        lines.append(promise.text)
    return "\n\n".join(lines)
