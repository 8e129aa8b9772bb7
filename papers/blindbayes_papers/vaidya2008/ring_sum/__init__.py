"""The sum of the parties' vectors along masked rings, one share of each vector per ring. See SPEC.md."""

from blindbayes_papers.vaidya2008.ring_sum.roles import PROTOCOL, RingSum

__all__ = ["PROTOCOL", "RingSum"]
