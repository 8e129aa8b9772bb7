"""`transfer`: two parties set up oblivious transfers, once; everything two-party rests on it. See SPEC.md."""

from blindbayes.protocol.transfer.roles import (
    agree,
    agree_all,
    answer_coins,
    commit_coins,
    hear_coins,
    open_coins,
    ot_receiver,
    ot_sender,
    standing,
)

__all__ = [
    "agree",
    "agree_all",
    "answer_coins",
    "commit_coins",
    "hear_coins",
    "open_coins",
    "ot_receiver",
    "ot_sender",
    "standing",
]
