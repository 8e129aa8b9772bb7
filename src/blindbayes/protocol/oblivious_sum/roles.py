"""The oblivious sum behind the interface of `protocol.registry`."""

from __future__ import annotations

from blindbayes.primitives.coins import Coins
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.oblivious_sum.contributor import contributor, dealer
from blindbayes.protocol.oblivious_sum.miner import miner
from blindbayes.protocol.oblivious_sum.terms import DEALER, MINER, Terms
from blindbayes.protocol.registry import Setting, Total, require_vector
from blindbayes.wire import Words


class ObliviousSum:
    """Joye-Libert aggregation: only the miner learns the sum."""

    name = "oblivious_sum"
    apart = ((MINER, DEALER),)
    """Roles that no one site may fill together: the dealer knows the factors of N, the miner has the ciphertexts."""

    def roster(self, setting: Setting) -> tuple[str, ...]:
        """The contributors, the miner, and the dealer if something is dealt."""
        run = Run("", "", ("*",), "*")
        others = (MINER, DEALER) if Terms(run, setting).has_dealer else (MINER,)
        return (*setting.contributors, *others)

    def learners(self, setting: Setting) -> tuple[str, ...]:
        """The miner alone."""
        return (MINER,)

    def role(self, run: Run, setting: Setting, vector: Words | None, coins: Coins) -> Role[Total | None]:
        """The role of `run.me`."""
        terms = Terms(run, setting)
        if run.me == DEALER and terms.has_dealer:
            yield from dealer(terms, coins)
            return None
        if run.me == MINER:
            return (yield from miner(terms, coins))
        yield from contributor(terms, require_vector(vector, setting, run.me), coins)
        return None


PROTOCOL = ObliviousSum()
