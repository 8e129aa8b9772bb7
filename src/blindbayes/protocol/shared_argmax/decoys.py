"""Decoys among the comparisons: a class holder that garbles another comparison, or enters other shares than its own, is caught.
See SPEC.md, "Audits".

Among every few instances the evaluator puts one decoy, at a place that it alone knows. It chooses, by transfers, what of the
class holder's scores stands at each place: an instance's, or nothing. So it knows the score of a decoy, which it makes up, and
the class that has to come out. Nothing of the model is opened for that.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.ot import bits_for, choice_bits
from blindbayes.primitives.softspoken import ChooserStream, SenderStream
from blindbayes.primitives.tweaks import Block128, TweakedHash
from blindbayes.protocol import lookups
from blindbayes.protocol.core import Role, Send, receive
from blindbayes.protocol.shared_argmax.messages import DecoysTold, PlacesChosen, PlacesMasked
from blindbayes.protocol.shared_argmax.query import SharedArgmaxSetup
from blindbayes.protocol.shared_model.score_layout import ScoreLayout
from blindbayes.protocol.transfer import mark, require_mark
from blindbayes.wire import U64Array

_AT_ONCE = 1 << 22  # bytes of a message, about
_ENTRIES = 3  # of a place: nothing, the instance at its number in the group, the one before
_BITS = bits_for(_ENTRIES)
Codes = npt.NDArray[np.int64]


def widened(query: SharedArgmaxSetup) -> SharedArgmaxSetup:
    """The comparison with decoys among the instances."""
    return replace(query, count=query.count + query.decoys, audit_rate=0.0)


def _chunks(query: SharedArgmaxSetup) -> list[slice]:
    """The places, cut: of each little is sent, so in longer pieces than the comparison."""
    total, each = query.count + query.decoys, 8 * (_ENTRIES - 1) * (query.plan.classes - 1) * query.plan.limbs
    size = max(1, _AT_ONCE // each)
    return [slice(low, min(total, low + size)) for low in range(0, total, size)]


def _groups(query: SharedArgmaxSetup) -> tuple[Codes, Codes]:
    """Per place its group, and its number in the group; each group has up to `query.apart` instances and one decoy."""
    return np.divmod(np.arange(query.count + query.decoys), query.apart + 1)


def _instances(query: SharedArgmaxSetup, decoys: Codes) -> Codes:
    """Which of all places hold instances, in order. `decoys`: per group, the decoy's number."""
    group, number = _groups(query)
    return np.flatnonzero(number != decoys[group])


def _digest(session: bytes, labels: Block128) -> bytes:
    return hashlib.sha256(b"blindbayes places" + session + labels.tobytes()).digest()


# -- the class holder --------------------------------------------------------------------------------------------------------


def offer_places(
    query: SharedArgmaxSetup, shares: Limbs, hash_: TweakedHash, stream: SenderStream
) -> Role[tuple[Limbs, Block128]]:
    """Its shares of the scores at all places, from those of the instances; and what the evaluator's choices are checked by."""
    other, plan = query.holders[0], query.plan
    group, number = _groups(query)
    here = group * query.apart + number
    candidates = [here, here - 1]
    is_there = [(number < query.apart) & (here < query.count), number > 0]
    found, kept = [], []
    for index, part in enumerate(_chunks(query)):
        count = part.stop - part.start
        chosen = yield from receive(other, PlacesChosen)
        require_mark(chosen.mark, hash_.session, PlacesChosen, index, other)
        q = stream.extend(chosen.corrections, count * _BITS, other)

        def pick(value: int, part: slice = part) -> Limbs:
            if value == 0:
                return np.zeros((part.stop - part.start, 1, plan.classes - 1, plan.limbs), dtype=np.uint64)
            own = shares[np.clip(candidates[value - 1][part], 0, query.count - 1)]
            return np.where(is_there[value - 1][part, None, None], own, np.uint64(0))[:, None]

        shape = plan.classes - 1, plan.limbs
        share, sent = lookups.offer(hash_, q.reshape(count, _BITS, 2), stream.delta, _ENTRIES, pick, shape, count)
        yield Send(other, PlacesMasked(mark(hash_.session, PlacesMasked, index), sent))
        found.append(share)
        kept.append(q)
    return np.concatenate(found), np.concatenate(kept)


def hear_decoys(query: SharedArgmaxSetup, q: Block128, hash_: TweakedHash, stream: SenderStream) -> Role[Codes]:
    """Which places hold instances, once everything is garbled; an error if the evaluator chose otherwise than it says."""
    other = query.holders[0]
    told = yield from receive(other, DecoysTold)
    require_mark(told.mark, hash_.session, DecoysTold, 0, other)
    decoys = told.decoys.astype(np.int64)
    group, number = _groups(query)
    if decoys.shape != (query.decoys,) or (told.decoys > np.uint64(query.apart)).any():
        raise PeerProtocolError("the places of decoys do not fit the query", party=other)
    bits = choice_bits(_choices(number, decoys[group]), _ENTRIES).reshape(-1)
    labels = q ^ (bits.astype(np.uint64)[:, None] * stream.delta)
    if not hmac.compare_digest(_digest(hash_.session, labels), told.digest):
        raise IntegrityError(party=other)  # it would ask twice about an instance, where a decoy was due
    return _instances(query, decoys)


# -- the evaluator -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    """The evaluator's shares of the scores at all places, and what it alone knows of them."""

    shares: Limbs = field(repr=False)
    instances: Codes  # their places
    decoys: Codes  # of each group, the number of its decoy
    places: Codes  # of the decoys
    classes: Codes = field(repr=False)  # that have to come out there
    labels: Block128 = field(repr=False)

    def tell(self, other: str, session: bytes) -> Role[None]:
        """Which were decoys, with what shows that nothing else was chosen."""
        numbers: U64Array = self.decoys.astype(np.uint64)
        yield Send(other, DecoysTold(mark(session, DecoysTold, 0), numbers, _digest(session, self.labels)))

    def require(self, classes: Codes, other: str) -> None:
        """Refuse other classes of decoys than those that their scores have."""
        if not np.array_equal(classes, self.classes):
            raise IntegrityError(party=other)


def place_decoys(
    query: SharedArgmaxSetup, shares: Limbs, hash_: TweakedHash, stream: ChooserStream, coins: Coins
) -> Role[Placed]:
    """Choose the places, and take what stands there. `shares`: the evaluator's, of the instances."""
    other, plan = query.class_holder, query.plan
    group, number = _groups(query)
    sizes = np.bincount(group)
    decoys = np.array([coins.below(int(size)) for size in sizes], dtype=np.int64)
    instances, places = _instances(query, decoys), np.flatnonzero(number == decoys[group])
    scores, classes = made_up(plan, query.decoys, coins)
    total = np.empty((len(number), plan.classes - 1, plan.limbs), dtype=np.uint64)
    total[instances], total[places] = shares, scores
    choices = _choices(number, decoys[group])
    asked = []
    for index, part in enumerate(_chunks(query)):
        corrections, t = stream.extend(choice_bits(choices[part], _ENTRIES).reshape(-1))
        yield Send(other, PlacesChosen(mark(hash_.session, PlacesChosen, index), corrections))
        asked.append(t)
    for index, part in enumerate(_chunks(query)):
        count, shape = part.stop - part.start, (plan.classes - 1, plan.limbs)
        masked = yield from receive(other, PlacesMasked)
        require_mark(masked.mark, hash_.session, PlacesMasked, index, other)
        if masked.entries.size != (_ENTRIES - 1) * count * shape[0] * shape[1]:
            raise PeerProtocolError("masked scores have the wrong length", party=other)
        t = asked[index].reshape(count, _BITS, 2)
        total[part] = lm.add(total[part], lookups.take(hash_, t, choices[part], _ENTRIES, masked.entries, shape, count))
    return Placed(total, instances, decoys, places, classes, np.concatenate(asked))


def _choices(number: Codes, decoys: Codes) -> U64Array:
    """Before its group's decoy stand instances at their numbers, behind it those one further."""
    return np.where(number == decoys, 0, np.where(number < decoys, 1, 2)).astype(np.uint64)


def made_up(plan: ScoreLayout, count: int, coins: Coins) -> tuple[Limbs, Codes]:
    """Scores of all magnitudes alike, and their classes."""
    raw = coins.bytes(18 * count * (plan.classes - 1))
    values = []
    for at in range(0, len(raw), 18):
        size = int.from_bytes(raw[at : at + 2], "big") % (plan.bits - 2)
        value = int.from_bytes(raw[at + 2 : at + 18], "big")
        values.append((1 << size | (value >> 1) & ((1 << size) - 1)) * (1 if value & 1 else -1))
    table = np.array(values, dtype=object).reshape(count, plan.classes - 1)
    classes = np.array([int(np.argmax([0, *row])) for row in table], dtype=np.int64)
    return lm.cut(lm.from_integers(values, plan.limbs), plan.bits).reshape(count, plan.classes - 1, plan.limbs), classes
