"""`transfer`: two parties set up oblivious transfers, once; everything two-party rests on it. See SPEC.md."""

from blindbayes.protocol.transfer.roles import agree, keeper, planter

__all__ = ["agree", "keeper", "planter"]
