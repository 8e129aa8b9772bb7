"""`private_ratio`: from the parties' counts to probabilities, of which nothing, or nothing but them, is opened. See SPEC.md."""

from blindbayes.protocol.private_ratio.roles import (
    PrivateRatioSetup,
    coarse_bits,
    contributor,
    first_party,
    plain_ratios,
    second_party,
)

__all__ = ["PrivateRatioSetup", "coarse_bits", "contributor", "first_party", "plain_ratios", "second_party"]
