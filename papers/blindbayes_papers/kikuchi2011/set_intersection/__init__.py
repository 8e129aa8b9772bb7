"""`set_intersection`: the size of an intersection, or the matching, by commutative encryption. See SPEC.md."""

from blindbayes_papers.kikuchi2011.set_intersection.groups import RISTRETTO, SAFE_PRIME, CommutingGroup
from blindbayes_papers.kikuchi2011.set_intersection.roles import Found, alice, bob

__all__ = ["RISTRETTO", "SAFE_PRIME", "CommutingGroup", "Found", "alice", "bob"]
