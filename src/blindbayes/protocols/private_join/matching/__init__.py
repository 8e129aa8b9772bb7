"""`matching`: two parties learn which identifiers they share, and nothing of the others. See SPEC.md."""

from blindbayes.protocols.private_join.matching.roles import MatchingSetup, asker, owner

__all__ = ["MatchingSetup", "asker", "owner"]
