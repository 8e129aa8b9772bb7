"""`private_ratio`: from the parties' counts to probabilities, opened without the counts, or a model in shares. See SPEC.md."""

from blindbayes.protocol.private_ratio.roles import (
    PrivateRatioSetup,
    coarse_bits,
    contributor,
    first_party,
    plain_ratios,
    second_party,
)
from blindbayes.protocol.private_ratio.shares import SharedRowsSetup, classify, connect, train

__all__ = [
    "PrivateRatioSetup",
    "SharedRowsSetup",
    "classify",
    "coarse_bits",
    "connect",
    "contributor",
    "first_party",
    "plain_ratios",
    "second_party",
    "train",
]
