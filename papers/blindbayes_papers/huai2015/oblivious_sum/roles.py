"""The oblivious sum behind the interface of `protocol.registry`."""

from __future__ import annotations

from typing import Any

from blindbayes.crypto.coins import Coins
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.registry import Coalition, Smallest, SumProtocol, SumSetup, Total, require_vector
from blindbayes.wire import U64Array
from blindbayes_papers.huai2015.diluted import DilutedNoise
from blindbayes_papers.huai2015.oblivious_sum.contributor import contributor, dealer
from blindbayes_papers.huai2015.oblivious_sum.membership import Views
from blindbayes_papers.huai2015.oblivious_sum.miner import miner
from blindbayes_papers.huai2015.oblivious_sum.params import ObliviousSumParams
from blindbayes_papers.huai2015.oblivious_sum.terms import DEALER, MINER, ObliviousSumSetup
from blindbayes_papers.primitives import unsafe_keys

_NO_RUN = Run("", "", ("*",), "*")  # for what follows from the setting alone


class ObliviousSum(SumProtocol):
    """Joye-Libert aggregation: only the miner learns the sum."""

    name = "oblivious_sum"
    params = ObliviousSumParams
    apart = ((MINER, DEALER),)
    """Roles that no one site may fill together: the dealer knows the factors of N, the miner has the ciphertexts."""

    def unsafe(self, setting: SumSetup) -> tuple[str, ...]:
        """Return why the options protect nothing, or only if somebody is trusted."""
        reasons = unsafe_keys(setting.options)
        if setting.options.get("modulus") is not None:
            reasons += ("the study brings a modulus of its own, and who knows its factors reads all; leave it to a dealer",)
        return reasons

    def honest_of(self, setting: SumSetup, name: str, honest: int) -> int:
        """Return for how many honest shares a party sets its noise, by its view of how many parties there are.

        A view is more than half the true number, so that the honest shares are about two whole noises at most (Huai 2015,
        Algorithm 1 and Theorem 2).
        """
        if not setting.options.get("views"):
            return honest
        seen = Views.after(setting.founders or setting.contributors, setting.steps).of[name]
        return max(1, honest * seen // len(setting.contributors))

    def noise_law(self, setting: SumSetup) -> type[Any] | None:
        """The paper's noise, if the study asks for it."""
        return DilutedNoise if setting.options.get("noise") == "diluted" else None

    def check(self, setting: SumSetup) -> None:
        """Refuse a setting that no run can have."""
        ObliviousSumSetup(_NO_RUN, setting)

    def roster(self, setting: SumSetup) -> tuple[str, ...]:
        """The contributors, the miner, and the dealer if something is dealt."""
        others = (MINER, DEALER) if ObliviousSumSetup(_NO_RUN, setting).has_dealer else (MINER,)
        return (*setting.contributors, *others)

    def learners(self, setting: SumSetup) -> tuple[str, ...]:
        """The miner alone."""
        return (MINER,)

    def resists(self, setting: SumSetup) -> bool:
        """The miner may deviate."""
        return True

    def bears(self, setting: SumSetup) -> Coalition:
        """See SPEC.md, Threat model."""
        terms = ObliviousSumSetup(_NO_RUN, setting)
        passive, active = (terms.max_colluders(malicious=malicious) for malicious in (False, True))
        return Coalition("the miner", passive, active, trusted="the dealer" if terms.has_dealer else "")

    def smallest(self, setting: SumSetup, corrupt: int, *, malicious: bool) -> Smallest:
        """See SPEC.md, Threat model: one roster or survivor set, whose honest members the key graph keeps together."""
        terms = ObliviousSumSetup(_NO_RUN, setting)
        left = max(setting.quorum_size - corrupt, 0)
        if corrupt <= terms.max_colluders(malicious=malicious):
            return Smallest(left)
        if terms.tolerant or terms.stands:  # where keys stand, the colluders may have chosen where they stand
            return Smallest(0)
        chance = terms.groups(setting.contributors).isolation_chance(corrupt / len(setting.contributors))
        return Smallest(left, chance) if chance <= 2.0**-40 else Smallest(0)

    def role(self, run: Run, setting: SumSetup, vector: U64Array | None, coins: Coins) -> Role[Total | None]:
        """The role of `run.me`."""
        terms = ObliviousSumSetup(run, setting)
        if run.me == DEALER and terms.has_dealer:
            yield from dealer(terms, coins)
            return None
        if run.me == MINER:
            return (yield from miner(terms, coins))
        yield from contributor(terms, require_vector(vector, setting, run.me), coins)
        return None


PROTOCOL = ObliviousSum()
