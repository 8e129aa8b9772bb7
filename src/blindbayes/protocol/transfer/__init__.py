"""`transfer`: two parties set up oblivious transfers, once; everything two-party rests on it. See SPEC.md."""

from blindbayes.protocol.transfer.roles import (
    agree,
    agree_all,
    answer_coins,
    commit_coins,
    hear_coins,
    mark,
    open_coins,
    ot_receiver,
    ot_sender,
    require_mark,
    standing,
)

__all__ = [
    "agree",
    "agree_all",
    "answer_coins",
    "commit_coins",
    "hear_coins",
    "mark",
    "open_coins",
    "ot_receiver",
    "ot_sender",
    "require_mark",
    "standing",
]
