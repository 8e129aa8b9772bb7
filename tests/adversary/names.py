"""What the kit takes from a source tree, by the names it has now and those it had before: so the kit runs on older trees."""

from __future__ import annotations

import importlib
from typing import Any


def named(*places: str) -> Any:
    """The first of "module:attribute" (or "module") that this tree has, under `blindbayes.protocol` or in the papers."""
    for place in places:
        module, _, attribute = place.partition(":")
        try:
            found = importlib.import_module(
                module if module.startswith("blindbayes_papers") else f"blindbayes.protocol.{module}"
            )
            return getattr(found, attribute) if attribute else found
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this tree has none of {', '.join(places)}")


SUM_SETUP = named("registry:SumSetup", "registry:Setting")
MASKED_SETUP = named("masked_sum.keys:MaskedSumSetup", "masked_sum.keys:Terms")
_ADVERTISED = named("masked_sum.messages:KeysAdvertised").__struct_fields__
MASKED_KEYS = tuple(which for which in ("mask_key", "channel_key", "public") if which in _ADVERTISED)
OBLIVIOUS_SETUP = named("oblivious_sum.terms:ObliviousSumSetup", "oblivious_sum.terms:Terms")
MINER = named("oblivious_sum.terms:MINER")
CHAIN = named("chain_sum.chain_layout:ChainLayout", "chain_sum.plan:ChainLayout", "chain_sum.plan:Plan")
MAXIMUM = named("private_maximum", "oblivious_sum.maximum")
STANDING = named("oblivious_sum.standing", "blindbayes_papers.huai2015.standing")


def fewest(setting: Any) -> int:
    """How many vectors a sum holds at least."""
    found: int = setting.quorum_size if hasattr(setting, "quorum_size") else setting.fewest
    return found
