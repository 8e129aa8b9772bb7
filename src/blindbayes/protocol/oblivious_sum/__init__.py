"""Aggregator-oblivious sums (Huai 2015, corrected): the miner opens the noisy sum and nothing else. See SPEC.md."""

from blindbayes.protocol.oblivious_sum.membership import Groups, Views
from blindbayes.protocol.oblivious_sum.roles import PROTOCOL, ObliviousSum

__all__ = ["PROTOCOL", "Groups", "ObliviousSum", "Views"]
