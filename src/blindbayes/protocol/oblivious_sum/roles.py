"""The oblivious sum behind the interface of `protocol.registry`."""

from __future__ import annotations

from blindbayes.primitives.coins import Coins
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.oblivious_sum.contributor import contributor, dealer
from blindbayes.protocol.oblivious_sum.miner import miner
from blindbayes.protocol.oblivious_sum.params import ObliviousSumParams
from blindbayes.protocol.oblivious_sum.terms import DEALER, MINER, ObliviousSumSetup
from blindbayes.protocol.registry import Coalition, Smallest, SumSetup, Total, require_vector
from blindbayes.wire import U64Array

_NO_RUN = Run("", "", ("*",), "*")  # for what follows from the setting alone


class ObliviousSum:
    """Joye-Libert aggregation: only the miner learns the sum."""

    name = "oblivious_sum"
    params = ObliviousSumParams
    apart = ((MINER, DEALER),)
    """Roles that no one site may fill together: the dealer knows the factors of N, the miner has the ciphertexts."""

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
        passive, active = (terms.most_colluders(malicious=malicious) for malicious in (False, True))
        return Coalition("the miner", passive, active, trusted="the dealer" if terms.has_dealer else "")

    def smallest(self, setting: SumSetup, corrupt: int, *, malicious: bool) -> Smallest:
        """See SPEC.md, Threat model: one roster or survivor set, whose honest members the key graph keeps together."""
        terms = ObliviousSumSetup(_NO_RUN, setting)
        left = max(setting.quorum_size - corrupt, 0)
        if corrupt <= terms.most_colluders(malicious=malicious):
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
