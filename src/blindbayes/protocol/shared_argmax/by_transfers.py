"""The comparison by one-of-n transfers, for narrow lines: steps 4' to 6' of SPEC.md, "By transfers".

A difference of two scores is behind where its shares' low bits carry into the top one: where the class holder's are larger than
the complement of the evaluator's. Digits of 4 bits are compared by one-of-16 transfers, which leave XOR shares of "larger" and
"equal"; two or three neighbours at a time become one, and the signs of all pairs become the class's position. Parties choose
and answer in turn, with transfers in both directions, so that a level costs half a round trip: an answer and the choice of
the next level are one message.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.primitives import circuits as c
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.primitives.tweaks import TweakedHash
from blindbayes.protocol import digits
from blindbayes.protocol.core import Role, Send, mark, receive_marked
from blindbayes.protocol.digits import Bits
from blindbayes.protocol.shared_argmax.compare_all import classes_of
from blindbayes.protocol.shared_argmax.comparing import Classes, differences
from blindbayes.protocol.shared_argmax.levels import DIGIT_BITS, Level, levels
from blindbayes.protocol.shared_argmax.messages import LevelCompared, OutputsShared
from blindbayes.protocol.shared_argmax.query import SharedArgmaxSetup
from blindbayes.wire import U64Array

_BLOCKS = 1 << 33  # of the session's hash, behind those of the look-ups and of garbled comparisons
Both = tuple[OtSender, OtReceiver]
"""One party's transfers with the other, in both directions."""


class _Shares:
    """One party's shares of what the levels leave, for one chunk of a batch."""

    def __init__(self, compared: Limbs, query: SharedArgmaxSetup, *, leads: bool) -> None:
        self._classes, self._one = query.plan.classes, np.uint8(not leads)  # public ones are in the class holder's share
        bits = lm.to_bits(compared, query.plan.bits)
        self._top, low = bits[-1], bits[:-1] ^ np.uint8(leads)  # the evaluator compares with the complement of its own
        low = np.concatenate([low, np.zeros((-len(low) % DIGIT_BITS, low.shape[1]), dtype=np.uint8)])
        weights = np.uint8(1) << np.arange(DIGIT_BITS, dtype=np.uint8)[None, :, None]
        self._digits = (low.reshape(-1, DIGIT_BITS, low.shape[1]) * weights).sum(axis=1, dtype=np.uint8)[::-1]
        self._larger = self._equal = np.zeros((0, low.shape[1]), dtype=np.uint8)
        self._wins: Bits | None = None  # (classes - 1, members, instances)
        self.pads = self.number = np.zeros(0, dtype=np.uint8)

    def numbers(self, level: Level) -> Bits:
        """What this party brings to a level's transfers."""
        if level.members == 1:
            found = self._digits
        elif self._wins is not None:
            found = self._grouped(self._wins, level).transpose(2, 0, 1, 3)
        else:
            larger, equal = self._grouped(self._larger, level, 0), self._grouped(self._equal, level)
            both = np.stack([larger, equal], axis=1).reshape(2 * level.members, level.groups, -1)
            found = both[1 : 1 + level.bits]
        if level.members > 1:
            found = np.bitwise_or.reduce([bit << np.uint8(at) for at, bit in enumerate(found)])
        return np.ascontiguousarray(found).reshape(-1)

    def _grouped(self, shares: Bits, level: Level, pad: int = 1) -> Bits:
        """Neighbours side by side; a last one that is alone waits for the next level."""
        axis, size = shares.ndim - 2, level.members * level.groups
        kept = shares[..., :size, :]
        lacking = [(0, 0)] * shares.ndim
        lacking[axis] = (0, size - kept.shape[axis])
        full = np.pad(kept, lacking, constant_values=self._one if pad else 0)
        if axis:
            return full.reshape(len(full), level.groups, level.members, -1)
        return full.reshape(level.groups, level.members, -1).transpose(1, 0, 2)

    def take(self, level: Level, shares: Bits) -> None:
        """What a level's transfers leave."""
        if self._wins is not None:
            rest = self._wins[:, level.members * level.groups :]
            self._wins = np.concatenate([shares.reshape(level.many, level.groups, -1), rest], axis=1)
            return
        made = shares.reshape(level.groups, -1)
        larger, equal = made & np.uint8(1), made >> np.uint8(1)
        if level.members > 1:
            size = level.members * level.groups
            larger = np.concatenate([larger ^ self._larger[: size : level.members], self._larger[size:]])
            equal = np.concatenate([equal, self._equal[size:]])
        self._larger, self._equal = larger, equal
        if len(larger) == 1:
            self._wins = self._signed(larger[0] ^ self._top)

    def _signed(self, behind: Bits) -> Bits:
        """Which class is ahead of which, from the signs of all pairs: of each class but the first, (classes - 1, others, n)."""
        pairs = c.pairs_of(self._classes)
        signs = dict(zip(pairs, behind.reshape(len(pairs), -1), strict=True))
        return np.stack(
            [
                np.stack([signs[i, own] if i < own else signs[own, i] ^ self._one for i in range(self._classes) if i != own])
                for own in range(1, self._classes)
            ]
        )

    @property
    def outputs(self) -> Bits:
        """Shares of the bits of the class's position, (bits, instances)."""
        if self._wins is None or self._wins.shape[1] != 1:
            raise LocalProtocolError("a comparison is not finished")
        wins, found = self._wins[:, 0], []
        for bit in range((self._classes - 1).bit_length()):
            found.append(np.bitwise_xor.reduce([wins[own - 1] for own in range(1, self._classes) if own >> bit & 1]))
        return np.stack(found)


def compare(
    query: SharedArgmaxSetup,
    total: Limbs,
    session: bytes,
    both: Both | None,
    me: str,
    later: Callable[[int], Role[Limbs]] | None = None,
) -> Role[Classes | None]:
    """Either party's part. `total`: its shares of the scores; `later` adds what a chunk still waits for."""
    if both is None:
        raise LocalProtocolError("a comparison by transfers needs them in both directions")
    leads, chunks, steps = me == query.holders[0], query.chunks(), levels(query.plan.bits, query.plan.classes)
    other = query.class_holder if leads else query.holders[0]
    name = session + b" by transfers from "
    sender, chooser = both[0].session(name + me.encode()), both[1].session(name + other.encode())
    states: list[_Shares] = []
    for at, part in enumerate(chunks):
        shares = total[part] if later is None else lm.add(total[part], (yield from later(at)))
        states.append(_Shares(differences(shares, query), query, leads=leads))
        if leads:
            yield Send(other, _step(session, at, _chosen(states[at], steps[0], chooser, session, at), _NONE))
    for step in range(leads, len(steps) + 1, 2):
        for at, state in enumerate(states):
            index = step * len(chunks) + at
            came = yield from receive_marked(other, LevelCompared, session, index)
            if (not step and came.masked.size) or (step == len(steps) and came.corrections.size):
                raise PeerProtocolError("a level of the comparison has the wrong length", party=other)
            if step:
                before = steps[step - 1]
                taken = digits.take(state.pads, came.masked, state.number, before.entries, before.width, other)
                state.take(before, taken)
            if step == len(steps):
                continue
            answer = _answered(state, steps[step], sender, session, index, came.corrections, other)
            following = index + len(chunks)
            chosen = _NONE if step + 1 == len(steps) else _chosen(state, steps[step + 1], chooser, session, following)
            yield Send(other, _step(session, following, chosen, answer))
    own = np.concatenate([state.outputs for state in states], axis=1)
    if other in query.learners:
        yield Send(other, OutputsShared(mark(session, OutputsShared, leads), digits.pack(own)))
    if me not in query.learners:
        return None
    told = yield from receive_marked(other, OutputsShared, session, not leads)
    if told.bits.shape != (-(-own.size // 64),):
        raise PeerProtocolError("shares of the class have the wrong length", party=other)
    return classes_of(own ^ digits.unpack(told.bits, own.size).reshape(own.shape), query.plan.classes)


_NONE = np.zeros(0, dtype=np.uint64)


def _step(session: bytes, index: int, corrections: U64Array, masked: U64Array) -> LevelCompared:
    return LevelCompared(mark(session, LevelCompared, index), corrections, masked)


def _hash(session: bytes, index: int) -> TweakedHash:
    return TweakedHash.of_block(session, _BLOCKS + index)


def _chosen(state: _Shares, level: Level, stream: ChooserStream, session: bytes, index: int) -> U64Array:
    state.number = state.numbers(level)
    corrections, state.pads = digits.choose(_hash(session, index), stream, state.number, level.entries, level.width)
    return corrections


def _answered(
    state: _Shares, level: Level, stream: SenderStream, session: bytes, index: int, corrections: U64Array, party: str
) -> U64Array:
    own, hash_ = state.numbers(level), _hash(session, index)
    share, sent = digits.offer(hash_, stream, corrections, own, level.table(), level.width, party)
    state.take(level, share)
    return sent
