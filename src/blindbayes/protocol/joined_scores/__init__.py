"""`joined_scores`: classes of everybody a party knows, with the others' columns where they are shared. See SPEC.md."""

from blindbayes.protocol.joined_scores.roles import NONE, Asked, Helped, Hidden, Scope, connect, helper, scorer
from blindbayes.protocol.joined_scores.shape import Shape

__all__ = ["NONE", "Asked", "Helped", "Hidden", "Scope", "Shape", "connect", "helper", "scorer"]
