"""What the kit takes from the protocols, by the names that its cases use."""

from __future__ import annotations

from blindbayes.protocols.registry import SumSetup as SUM_SETUP
from blindbayes.protocols.secure_sum.keys import MaskedSumSetup as MASKED_SETUP
from blindbayes.protocols.secure_sum.messages import KeysAdvertised
from blindbayes_papers.azimian2022.chain_sum.chain_layout import ChainLayout as CHAIN
from blindbayes_papers.huai2015 import private_maximum as MAXIMUM
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER
from blindbayes_papers.huai2015.oblivious_sum.terms import ObliviousSumSetup as OBLIVIOUS_SETUP

__all__ = ["CHAIN", "MASKED_KEYS", "MASKED_SETUP", "MAXIMUM", "MINER", "OBLIVIOUS_SETUP", "SUM_SETUP", "fewest"]

MASKED_KEYS = tuple(which for which in ("mask_key", "channel_key", "public") if which in KeysAdvertised.__struct_fields__)


def fewest(setting: SUM_SETUP) -> int:
    """How many vectors a sum holds at least."""
    return setting.quorum_size
