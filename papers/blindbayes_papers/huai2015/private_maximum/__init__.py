"""`private_maximum`: the largest of the parties' numbers of rows, and nothing else. See SPEC.md."""

from blindbayes_papers.huai2015.private_maximum.roles import LABEL, contributor, miner

__all__ = ["LABEL", "contributor", "miner"]
