"""What the parties of a study over rows add up: the setting of the sum, its noise, a party's own vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import DistributedNoise, dishonest
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols import registry
from blindbayes.statistics import Layout, Statistics
from blindbayes.study.schemes import Scheme
from blindbayes.wire import U64Array

FEWEST_EXACT = 3  # an exact sum of two tells each the other's


class SumPlanning:
    """The part of a `Study` that plans a sum over rows."""

    codebook: Codebook
    protocol: str
    epsilon: float | None
    delta: float
    unit: Literal["record", "party"]
    party_rows: int | None
    rows_per_person: int | None
    expected_rows: int | None
    gamma: float
    quorum: int | None
    min_parties: int
    options: dict[str, Any]
    _plans: dict[tuple[int, int, tuple[tuple[str, bool], ...]], NoisySum]

    if TYPE_CHECKING:  # what the study brings

        @property
        def scheme(self) -> Scheme:
            """How the study is run."""

        @property
        def params(self) -> msgspec.Struct:
            """The protocol's options, typed."""

    def setting(
        self, contributors: Sequence[str], founders: tuple[str, ...] = (), steps: tuple[tuple[str, bool], ...] = ()
    ) -> registry.SumSetup:
        """The public setting of the sum for these contributors, or an error if policy forbids it.

        Where sites come and go, `founders` and `steps` say how they became these.
        """
        names = tuple(contributors)
        if len(names) < self.min_parties:
            raise PrivacyError(
                f"the study asks for at least {self.min_parties} parties; {len(names)} take part. Two sites may sum with an "
                "epsilon, or hold different columns"
            )
        quorum = self.quorum
        if quorum is None and (usual := self.scheme.quorum(len(names))) is not None:
            quorum = max(usual, self._fewest_agreed(len(names)))
        setting = registry.SumSetup(names, 1, quorum, self.epsilon is not None, 1, self.options, founders or names, steps)
        if self.epsilon is not None:  # a sparse graph is planned for as many colluders as gamma allows
            setting = replace(setting, corrupt=max(setting.corrupt, dishonest(len(names), self.gamma) / len(names)))
        if self.epsilon is None and setting.quorum_size < FEWEST_EXACT:
            raise PrivacyError(
                "an exact sum of two parties tells each the other's statistics; "
                "take a third party, a quorum of at least 3, or set epsilon"
            )
        plan = self.plan(setting)
        if plan is not None:
            return replace(setting, length=plan.length, bound=plan.bound(self.shares(setting, names)))
        layout = Layout(self.codebook)
        if layout.is_wide:
            return replace(setting, length=layout.word_count, bound=2**63 - 1)
        sizes = ((max(group.bound, 1), group.columns * len(self.codebook.classes)) for group in layout.groups)
        ranges = tuple((-bound, bound, count) for bound, count in sizes)  # of the codebook: an author's would test a table
        return replace(setting, length=layout.word_count, bound=max(layout.bounds), ranges=ranges)

    def _fewest_agreed(self, parties: int) -> int:
        """Under noise: so many survivors that the dishonest and a server that deviates cannot have two sets of them opened."""
        if self.epsilon is None:
            return 0
        return min((parties + dishonest(parties, self.gamma)) // 2 + 1, parties)

    def smallest(self, setting: registry.SumSetup) -> registry.Smallest:
        """The smallest sum that the dishonest can have opened, with a reader that deviates where the protocol bears it.

        Raises `PrivacyError` where that might hold no honest party's noise.
        """
        size, protocol = len(setting.contributors), registry.load(self.protocol)
        corrupt, malicious = dishonest(size, self.gamma), protocol.resists(setting)
        found = protocol.smallest(setting, corrupt, malicious=malicious)
        if found.honest < 1:
            reader = "a reader that deviates" if malicious else "the reader"
            least = self._fewest_agreed(size) if setting.quorum_size < self._fewest_agreed(size) else 0
            raise PrivacyError(
                f"gamma lets {corrupt} of {size} parties be dishonest, and together with {reader} of {self.protocol} they "
                f"could have a sum opened that holds no honest noise: raise the quorum{f' to {least}' * bool(least)} or gamma"
            )
        return found

    def plan(self, setting: registry.SumSetup) -> NoisySum | None:
        """What is counted and which noise the contributors add together; None for an exact sum.

        Whoever looks at the sum knows its own share of the noise, so at most the fewest survivors but one count as honest.
        """
        if self.epsilon is None:
            return None
        key = (len(setting.contributors), setting.quorum_size, setting.steps)  # the key graph follows from the steps
        if key not in self._plans:
            honest = min(self.smallest(setting).honest, max(setting.quorum_size - 1, 1))
            if setting.steps:  # the tables stay those that were planned for the founders: later sums fit earlier ones
                first = self.setting(setting.founders)
                self._plans[key] = self._plans[(len(first.contributors), first.quorum_size, ())].at(honest)
                return self._plans[key]
            self._plans[key] = NoisySum.make(
                self.codebook,
                epsilon=self.epsilon,
                delta=self.delta,
                honest=honest,
                parties=len(setting.contributors),
                rows=self.expected_rows,
                unit=self.unit,
                party_rows=self.party_rows,
                rows_per_person=self.rows_per_person,
            )
        return self._plans[key]

    def honest_of(self, name: str, setting: registry.SumSetup) -> int:
        """Return for how many honest shares a party sets its own: as many as the plan has, or fewer if the protocol says so.

        Never more than the plan has, so that the shares of as many honest parties are at least one whole noise.
        """
        plan = self.plan(setting)
        honest = 1 if plan is None else plan.noise.honest
        own: Callable[..., int] | None = getattr(registry.load(self.protocol), "honest_of", None)
        return honest if own is None else min(honest, own(setting, name, honest))

    def shares(self, setting: registry.SumSetup, included: Sequence[str]) -> int:
        """How many shares of the plan's noise those of these parties come to."""
        plan = self.plan(setting)
        if plan is None:
            return len(included)
        return math.ceil(sum(Fraction(plan.noise.honest, self.honest_of(name, setting)) for name in included))

    def noise(self, setting: registry.SumSetup) -> DistributedNoise | None:
        """The noise of the plan; None for an exact sum."""
        plan = self.plan(setting)
        return None if plan is None else plan.noise

    def counting(self, setting: registry.SumSetup) -> Codebook:
        """The codebook that every contributor counts with: the study's, with finer cells where noise will be added."""
        plan = self.plan(setting)
        return self.codebook if plan is None else plan.codebook

    def contribution(
        self,
        statistics: Statistics,
        setting: registry.SumSetup,
        coins: Coins,
        removed: Statistics | None = None,
        name: str | None = None,
    ) -> U64Array:
        """One party's vector for the sum: its statistics, less what it takes back, plus its share of the noise."""
        if statistics.codebook != self.counting(setting):
            raise ConfigError("the statistics were not counted with the codebook of `counting`")
        self.require_party_rows(statistics, *([] if removed is None else [removed]))
        changed = statistics if removed is None else statistics - removed
        plan = self.plan(setting)
        if plan is None:
            return changed.words
        fresh = coins.derive(f"noise {coins.bytes(16).hex()}")  # a second vector on the same coins gets noise of its own
        noise = plan.noise.at(self.honest_of(name or setting.contributors[0], setting))
        noisy: U64Array = (plan.vector(changed) + noise.share(fresh)).view(np.uint64)
        return noisy

    def require_party_rows(self, *parts: Statistics) -> None:
        """Refuse more rows, added and taken back together, than the noise that protects a whole party is made for."""
        if self.epsilon is None or self.unit != "party" or self.party_rows is None:
            return
        if sum(int(part.class_counts.sum()) for part in parts) > self.party_rows:
            raise PrivacyError("this party brings more rows than the study's party_rows, which the noise is made for")
