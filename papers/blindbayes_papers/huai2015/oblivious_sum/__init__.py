"""Aggregator-oblivious sums (Huai 2015, corrected): the miner opens the noisy sum and nothing else. See SPEC.md."""

from blindbayes_papers.huai2015.oblivious_sum.membership import Groups, Views
from blindbayes_papers.huai2015.oblivious_sum.roles import PROTOCOL, ObliviousSum

__all__ = ["PROTOCOL", "Groups", "ObliviousSum", "Views"]
