"""Helpers of the two-party tests: a ready pair of transfer states, and a hash that remembers its tweaks."""

from collections import Counter
from dataclasses import replace

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling.circuits import to_bits
from blindbayes.crypto.ot.softspoken import OtSenderSetup, SenderStream, plant
from blindbayes.crypto.psi.oprf import Owner
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.protocols.private_join.sums.counts import Count, Executions

JOIN_MESSAGES = (
    "SeedsChosen",
    "ItemsMasked",
    "StoreFilled",
    "TagsChosen",
    "DigitsMasked",
    "MatchesChosen",
    "BinsCompared",
    "TagsMasked",
)
"""What carries somebody's rows, or asks for them, in joined_sums: in order."""


def coins(name: str) -> Coins:
    return Coins.seeded(bytes(32)).derive(name)


def transfer_pair(name: str = "pair", session: bytes = b"setup"):
    """(sender's state, chooser's state) of an OT extension."""
    setup = OtSenderSetup.begin(session, coins(name + " sender"))
    ot_receiver, point, corrections = plant(setup.choice.points, session, coins(name + " chooser"))
    return setup.finish(point, corrections), ot_receiver


def anew(state):
    """The same leaves and offset with no session taken yet, for a test that runs again on the same coins."""
    return replace(state)


def let_proofs_hold(monkeypatch):
    """For simulators that send uniform corrections. A proof of corrections is a function of them and of what the verifier holds
    itself, so a simulator that knew the verifier's coins could write it."""
    for verifier in (SenderStream, Owner):
        monkeypatch.setattr(verifier, "_holds", lambda *given: True)


def opened_count(row_holder, label_holder):
    """The number of joined identifiers, from the wires that both sides of joined_sums are left with."""
    same = (row_holder.wires == label_holder.wires).all(axis=2)[:, 0]
    other = (row_holder.wires ^ row_holder.stream.delta == label_holder.wires).all(axis=2)[:, 0]
    assert (same ^ other).all()
    return sum(1 << at for at, bit in enumerate(other) if bit)


def count_pair(number, bits=20, other=None):
    """The two sides, "rows" and "labels", of a count of joined identifiers, as two runs of joined_sums with the roles swapped
    would leave them; with `other` what the second run counted."""

    def one(found, garbler, evaluator):
        ot_sender, ot_receiver = transfer_pair(garbler)
        wires = to_bits([found], bits)[..., None].astype(np.uint64) * ot_sender.delta  # as wires of the garbler's own bits
        session = f"matches counted by {garbler}".encode()
        mine = Count(session, evaluator, ot_sender.session(session), wires)
        return mine, Count(session, garbler, ot_receiver.session(session), np.zeros_like(wires))

    first, second = one(number, "rows", "labels"), one(number if other is None else other, "labels", "rows")
    return Executions(first[0], second[1]), Executions(second[0], first[1])


class RecordingHash(TweakedHash):
    """Counts how often each (domain, tweak index) is hashed."""

    kernel = None  # which make the same hashes without telling (tests/crypto/kernels)

    def __init__(self, session: bytes) -> None:
        super().__init__(session)
        self.seen = Counter()

    def outer(self, inner, domain, indices):
        self.seen.update((int(domain), int(index)) for index in np.asarray(indices))
        return super().outer(inner, domain, indices)
