"""Plan of the sum of a study over rows: its setting, its noise, a party's own vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit, dishonest
from blindbayes.dp.distributed.noisy_sum import NoisySum, SumNoise
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols import registry
from blindbayes.protocols.registry import U64Array
from blindbayes.statistics import Layout, Statistics
from blindbayes.study.study import Study

MIN_EXACT_PARTIES = 3  # an exact sum of two parties reveals to each the other's statistics


@dataclass(frozen=True)
class Sum:
    """The public plan of one sum: its setting, and the noise that the contributors add together."""

    study: Study
    setting: registry.SumSetup
    plan: NoisySum | None

    @classmethod
    def make(
        cls,
        study: Study,
        contributors: Sequence[str],
        founders: tuple[str, ...] = (),
        steps: tuple[tuple[str, bool], ...] = (),
    ) -> Sum:
        """Plan the sum over these contributors. Raises `PrivacyError` for one that no policy can allow.

        Where sites come and go, `founders` and `steps` say how they became these.
        """
        names = tuple(contributors)
        minimum = study.limits.min_parties
        if len(names) < minimum:
            raise PrivacyError(
                f"the study asks for at least {minimum} parties; {len(names)} take part. Two sites may sum with an "
                "epsilon (min_parties = 2, --min-parties 2 on the command line), or hold different columns"
            )
        setting = _draft(study, names, founders or names, steps)
        plan = _plan(study, setting)
        if plan is not None:
            sized = cls(study, setting, plan)
            setting = replace(setting, length=plan.length, bound=plan.bound(sized.shares(names)))
            return cls(study, setting, plan)
        layout = Layout(study.codebook)
        if layout.is_wide:
            return cls(study, replace(setting, length=layout.word_count, bound=2**63 - 1), None)
        sizes = ((max(group.bound, 1), group.columns * len(study.codebook.classes)) for group in layout.groups)
        ranges = tuple((-bound, bound, count) for bound, count in sizes)  # of the codebook: an author's would test a table
        setting = replace(setting, length=layout.word_count, bound=max(layout.bounds), ranges=ranges)
        return cls(study, replace(setting, codebook=study.codebook), None)

    @property
    def noise(self) -> SumNoise | None:
        """The noise that is added to the sum; None for an exact sum."""
        return None if self.plan is None else self.plan.noise

    @property
    def honest(self) -> int:
        """The number of honest shares that noise in shares is calibrated to."""
        return _honest(self.study, self.setting)

    @property
    def training_law(self) -> type[DistributedNoise] | None:
        """The noise in shares that a training has to take; None: whichever noise there is less of."""
        return _training_law(self.study, self.setting)

    @property
    def relied_on(self) -> str:
        """The sites that the promise relies on, in a few words."""
        shares = f"{self.study.privacy.honest_fraction:g} of the sites are relied on to add their noise"
        if not isinstance(self.noise, WholeNoise):
            return shares
        whole = "no other site is relied on: each adds to its own counts all the noise that the persons in its table need"
        return f"in training {whole}; in evaluations {shares}" if self.is_evaluated else whole

    @property
    def is_evaluated(self) -> bool:
        """True if the study also evaluates its model, by further sums whose noise is added in shares."""
        return bool(self.study.estimation.held_out or self.study.estimation.folds)

    @property
    def law(self) -> type[DistributedNoise]:
        """The law that plans the noise of every sum of the study: the usual one, or one that its protocol brings."""
        return _law(self.study, self.setting)

    @property
    def counting(self) -> Codebook:
        """The codebook that every contributor counts with: the study's, with finer cells where noise will be added."""
        return self.study.codebook if self.plan is None else self.plan.codebook

    @property
    def smallest(self) -> registry.Smallest:
        """The smallest sum that dishonest parties can have opened."""
        return _smallest(self.study, self.setting)

    def honest_of(self, name: str) -> int:
        """Return the number of honest shares to which a party calibrates its own noise.

        Never more than planned, so that the shares of that many honest parties amount to at least the planned noise.
        """
        honest = self.honest
        return min(honest, registry.load(self.study.protocol).honest_of(self.setting, name, honest))

    def shares(self, included: Sequence[str]) -> int:
        """Return the number of shares of the planned noise that these parties add together."""
        return len(included) if self.noise is None else self.shares_of(self.noise, included)

    def shares_of(self, noise: SumNoise, included: Sequence[str]) -> int:
        """Return the number of shares of some noise of this study that these parties add together."""
        if isinstance(noise, WholeNoise):
            return len(included)
        return math.ceil(sum(Fraction(noise.honest, self.honest_of(name)) for name in included))

    def contribution(
        self, statistics: Statistics, coins: Coins, removed: Statistics | None = None, name: str | None = None
    ) -> U64Array:
        """Return one party's vector for the sum: its statistics, less what it takes back, plus its share of the noise."""
        if statistics.codebook != self.counting:
            raise ConfigError("the statistics were not counted with the codebook of `counting`")
        require_party_rows(self.study, *([statistics] if removed is None else [statistics, removed]))
        changed = statistics if removed is None else statistics - removed
        if self.plan is None:
            return changed.words
        fresh = coins.derive(f"noise {coins.bytes(16).hex()}")  # a second vector on the same coins gets noise of its own
        noise = self.plan.noise.at(self.honest_of(name or self.setting.contributors[0]))
        noisy: U64Array = (self.plan.vector(changed) + noise.share(fresh)).view(np.uint64)
        return noisy


def require_party_rows(study: Study, *parts: Statistics) -> None:
    """Refuse more rows, added and taken back together, than the noise that protects a whole party is calibrated to."""
    privacy = study.privacy
    if privacy.epsilon is None or privacy.unit != "party" or privacy.party_rows is None:
        return
    if sum(int(part.class_counts.sum()) for part in parts) > privacy.party_rows:
        raise PrivacyError("this party brings more rows than the study's party_rows, which the noise is made for")


def _draft(
    study: Study, names: tuple[str, ...], founders: tuple[str, ...], steps: tuple[tuple[str, bool], ...]
) -> registry.SumSetup:
    """Return the setting of a sum before its length is known."""
    quorum, private = study.limits.quorum, study.is_private
    if quorum is None and (default := study.task_class.default_quorum(len(names))) is not None:
        quorum = max(default, _min_agreeing(study, len(names)))
    setting = registry.SumSetup(names, 1, quorum, private, 1, study.options, founders, steps)
    if private:  # a sparse graph is planned for as many colluders as honest_fraction allows
        corrupt = dishonest(len(names), study.privacy.honest_fraction) / len(names)
        return replace(setting, corrupt=max(setting.corrupt, corrupt))
    if setting.quorum_size < MIN_EXACT_PARTIES:
        raise PrivacyError(
            "an exact sum of two parties reveals to each the other's statistics; "
            "take a third party, a quorum of at least 3, or set epsilon"
        )
    return setting


def _min_agreeing(study: Study, parties: int) -> int:
    """Return the number of survivors from which, under noise, no deviating server can have two sets of them opened."""
    if not study.is_private:
        return 0
    return min((parties + dishonest(parties, study.privacy.honest_fraction)) // 2 + 1, parties)


def _smallest(study: Study, setting: registry.SumSetup) -> registry.Smallest:
    """Return the smallest sum that dishonest parties can have opened, with a deviating reader if the protocol resists one.

    Raises `PrivacyError` if it might contain no honest party's noise.
    """
    size, protocol = len(setting.contributors), registry.load(study.protocol)
    corrupt, malicious = dishonest(size, study.privacy.honest_fraction), protocol.resists(setting)
    smallest = protocol.smallest(setting, corrupt, malicious=malicious)
    if smallest.honest < 1:
        reader = "a reader that deviates" if malicious else "the reader"
        minimum = _min_agreeing(study, size) if setting.quorum_size < _min_agreeing(study, size) else 0
        raise PrivacyError(
            f"honest_fraction lets {corrupt} of {size} parties be dishonest, and together with {reader} of {study.protocol} "
            f"they could have a sum opened that holds no honest noise: raise the quorum{f' to {minimum}' * bool(minimum)} or "
            "honest_fraction"
        )
    return smallest


def _plan(study: Study, setting: registry.SumSetup) -> NoisySum | None:
    """Return what is counted and which noise the contributors add together; None for an exact sum."""
    privacy = study.privacy
    if privacy.epsilon is None:
        return None
    honest = _honest(study, setting)
    if setting.steps:  # the tables stay those that were planned for the founders: later sums fit earlier ones
        first = Sum.make(study, setting.founders).plan
        return None if first is None else first.at(honest)
    return NoisySum.make(
        study.codebook,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        honest=honest,
        parties=len(setting.contributors),
        rows=privacy.expected_rows,
        unit=PrivacyUnit.declared(privacy.unit, privacy.party_rows, privacy.person_rows),
        law=_training_law(study, setting),
    )


def _honest(study: Study, setting: registry.SumSetup) -> int:
    """Return the number of honest shares in the smallest sum.

    Every reader of the sum knows its own share of the noise, so at most all but one of a quorum count as honest.
    """
    return min(_smallest(study, setting).honest, max(setting.quorum_size - 1, 1))


def _law(study: Study, setting: registry.SumSetup) -> type[DistributedNoise]:
    return registry.load(study.protocol).noise_law(setting) or DistributedNoise


def _training_law(study: Study, setting: registry.SumSetup) -> type[DistributedNoise] | None:
    """Return the noise in shares that a training has to take; None: whichever noise there is less of.

    Where small counts are hidden it is in shares: histograms that are known up to a constant have no small counts.
    """
    brought: type[DistributedNoise] | None = registry.load(study.protocol).noise_law(setting)
    return brought or (DistributedNoise if study.limits.min_cell else None)
