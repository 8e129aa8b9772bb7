"""`distorted_intersection`: multiplicative shares of an intersection's size, with a leak. See SPEC.md."""

from blindbayes_papers.kikuchi2011.distorted_intersection.posterior import entropy, error, posterior
from blindbayes_papers.kikuchi2011.distorted_intersection.roles import ThinningSetup, alice, bob

__all__ = ["ThinningSetup", "alice", "bob", "entropy", "error", "posterior"]
