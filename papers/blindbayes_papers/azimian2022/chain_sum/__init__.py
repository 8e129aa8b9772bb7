"""The sum of packed bit strings under Paillier, passed along a signed chain in random order. See SPEC.md."""

from blindbayes_papers.azimian2022.chain_sum.roles import BUILDER, PROTOCOL, ChainSum

__all__ = ["BUILDER", "PROTOCOL", "ChainSum"]
