"""`set_intersection`: the size of an intersection, or the matching, by commutative encryption. See SPEC.md."""

from blindbayes_papers.kikuchi2011.set_intersection.groups import RISTRETTO, SAFE_PRIME, CommutingGroup
from blindbayes_papers.kikuchi2011.set_intersection.roles import Intersection, alice, bob

__all__ = ["RISTRETTO", "SAFE_PRIME", "CommutingGroup", "Intersection", "alice", "bob"]
