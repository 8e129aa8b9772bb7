"""`transfer`: two parties set up oblivious transfers, once; everything two-party rests on it. See SPEC.md."""

from blindbayes.protocol.transfer.roles import agree, agree_all, mark, ot_receiver, ot_sender, require_mark

__all__ = ["agree", "agree_all", "mark", "ot_receiver", "ot_sender", "require_mark"]
