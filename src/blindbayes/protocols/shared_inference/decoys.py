"""Decoys among what is looked up and compared catch a deviating class holder. See SPEC.md, "Audits".

They catch one that garbles another comparison, enters other shares than its own or answers from other tables. Among every few
instances the evaluator puts one decoy, at a place that it alone knows: a reference instance, or scores that it makes up. It
knows the class that has to come out. By one transfer per place it chooses whether the class holder's scores of the instance at
that place are used, or nothing; what was taken away is moved to the first place of the group. Nothing of the model is opened
for that.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import Block128, TweakedHash
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols.core import Role, Send, mark, receive_marked
from blindbayes.protocols.shared_inference.messages import DecoysTold
from blindbayes.protocols.shared_inference.query import OutputGate, SharedArgmaxSetup, look_up, serve
from blindbayes.protocols.shared_training.shared_model.score_layout import ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import Tables
from blindbayes.wire import U64Array

Codes = npt.NDArray[np.int64]


def _groups(query: SharedArgmaxSetup) -> tuple[Codes, Codes]:
    """Return the group of each place and its number in it; a group has a first place and one per instance."""
    return np.divmod(np.arange(query.count + query.decoys), query.apart + 1)


def _instances(query: SharedArgmaxSetup, decoys: Codes) -> Codes:
    """Return the places of the instances, in order.

    `decoys` are, per group, the number of its decoy; the instance of that place moves to the first place.
    """
    group, number = _groups(query)
    own = np.flatnonzero(number)
    return np.where(number[own] == decoys[group[own]], group[own] * (query.apart + 1), own)


def _choices(number: Codes, decoys: Codes) -> U64Array:
    """Return 1 where the class holder's scores stay."""
    return np.not_equal(number, decoys).astype(np.uint64)


def _moved(query: SharedArgmaxSetup, shares: Limbs, taken: Limbs) -> Limbs:
    """Return shares at all places; what was taken away in each group is at its first place."""
    number = _groups(query)[1]
    rows = np.zeros((query.decoys * (query.apart + 1), *taken.shape[1:]), dtype=np.uint64)
    rows[: len(taken)] = np.where((number > 0)[:, None, None], taken, np.uint64(0))
    moved = shares.copy()
    moved[number == 0] = lm.total(rows.reshape(query.decoys, -1, *taken.shape[1:]), axis=1)
    return moved


def _digest(session: bytes, transfers: Block128) -> bytes:
    return hashlib.sha256(b"blindbayes places" + session + transfers.tobytes()).digest()


def _hash(hash_: TweakedHash) -> TweakedHash:
    return TweakedHash(hashlib.sha256(b"blindbayes placed" + hash_.session).digest())


# -- the class holder --------------------------------------------------------------------------------------------------------


def offer_places(
    query: SharedArgmaxSetup, shares: Limbs, tables: Tables, hash_: TweakedHash, stream: SenderStream
) -> Role[tuple[Limbs, Block128]]:
    """Return shares of the scores at all places and of what is looked up there, and the check of the evaluator's choices."""
    number = _groups(query)[1]
    whole = np.zeros((len(number), *shares.shape[1:]), dtype=np.uint64)
    whole[number > 0] = shares
    gate = OutputGate.offering(whole.copy())
    looked = yield from serve(query.widened(query.decoys), query.holders[0], tables, _hash(hash_), stream, gate)
    placed = _moved(query, gate.scores, lm.subtract(whole, gate.scores))
    return lm.add(looked, placed), np.concatenate(gate.transfers)


def hear_decoys(query: SharedArgmaxSetup, q: Block128, hash_: TweakedHash, stream: SenderStream) -> Role[Codes]:
    """Return the places of the instances, revealed after garbling. Raise if they contradict what the evaluator chose before."""
    other = query.holders[0]
    reply = yield from receive_marked(other, DecoysTold, hash_.session, 0)
    decoys = reply.decoys.astype(np.int64)
    group, number = _groups(query)
    if decoys.shape != (query.decoys,) or (reply.decoys >= np.bincount(group).astype(np.uint64)).any():
        raise PeerProtocolError("the places of decoys do not fit the query", party=other)
    transfers = q ^ (_choices(number, decoys[group])[:, None] * stream.delta)
    if not hmac.compare_digest(_digest(hash_.session, transfers), reply.digest):
        raise IntegrityError(party=other)  # it would ask twice about an instance, where a decoy was due
    return _instances(query, decoys)


# -- the evaluator -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decoys:
    """Instances with known classes: values, the asker's shares of the scores, the expected classes."""

    columns: Mapping[str, Codes] = field(repr=False)
    shares: Limbs = field(repr=False)
    classes: Codes = field(repr=False)

    def pick(self, count: int, coins: Coins) -> Decoys:
        """Return any of them, `count` times."""
        picked = (coins.words(count) % np.uint64(len(self.classes))).astype(np.int64)
        columns = {name: codes[picked] for name, codes in self.columns.items()}
        return Decoys(columns, self.shares[picked], self.classes[picked])


def draw_places(count: int, extra: int, coins: Coins) -> tuple[Codes, Codes]:
    """Draw the places of `extra` instances among `count` others; return both, in order."""
    order = np.argsort(coins.words(count + extra), kind="stable")
    return np.sort(order[:extra]), np.sort(order[extra:])


def among(made: Mapping[str, Codes], places: Codes, columns: Mapping[str, Codes], others: Codes) -> dict[str, Codes]:
    """Return the values of the instances with decoys inserted at their positions."""
    mixed = {}
    for name, own in made.items():
        mixed[name] = np.empty(len(places) + len(others), dtype=np.int64)
        mixed[name][places], mixed[name][others] = own, columns[name]
    return mixed


@dataclass(frozen=True, slots=True)
class Placed:
    """The evaluator's shares of the scores at all places, with its private knowledge of the decoys."""

    shares: Limbs = field(repr=False)
    instances: Codes  # their places
    decoys: Codes  # of each group, the number of its decoy
    places: Codes  # of the decoys
    classes: Codes = field(repr=False)  # that have to come out there
    transfers: Block128 = field(repr=False)

    def tell(self, other: str, session: bytes) -> Role[None]:
        """Send the places of the decoys, with a proof that nothing else was chosen."""
        numbers: U64Array = self.decoys.astype(np.uint64)
        yield Send(other, DecoysTold(mark(session, DecoysTold, 0), numbers, _digest(session, self.transfers)))

    def require(self, classes: Codes, other: str) -> None:
        """Raise unless the decoys have the classes of their scores."""
        if not np.array_equal(classes, self.classes):
            raise IntegrityError(party=other)


def place_decoys(
    query: SharedArgmaxSetup,
    shares: Limbs,
    columns: Mapping[str, Codes],
    made: Decoys,
    hash_: TweakedHash,
    stream: ChooserStream,
    coins: Coins,
) -> Role[Placed]:
    """Choose the places, take what is there and look up. `shares` are the evaluator's, of the instances."""
    me, plan = query.holders[0], query.plan
    group, number = _groups(query)
    sizes = np.bincount(group).astype(np.uint64)
    decoys = (coins.words(query.decoys) % sizes).astype(np.int64)  # uniform but for a share of size / 2^64
    instances, places = _instances(query, decoys), np.flatnonzero(number == decoys[group])
    total = np.empty((len(number), plan.classes - 1, plan.limbs), dtype=np.uint64)
    total[instances], total[places] = shares, made.shares
    mixed = among(made.columns, places, columns, instances)
    gate = OutputGate.choosing(_choices(number, decoys[group]), plan)
    looked = yield from look_up(query.widened(query.decoys), mixed, me, _hash(hash_), stream, gate)
    moved = _moved(query, gate.scores, lm.subtract(np.zeros_like(gate.scores), gate.scores))
    total = lm.add(lm.add(total, looked), moved)
    return Placed(total, instances, decoys, places, made.classes, np.concatenate(gate.transfers))


def made_up(plan: ScoreLayout, count: int, coins: Coins) -> tuple[Limbs, Codes]:
    """Make up scores, uniform over magnitudes, and their classes."""
    raw = np.frombuffer(coins.bytes(18 * count * (plan.classes - 1)), dtype=np.dtype([("size", ">u2"), ("words", ">u8", 2)]))
    high, low = raw["words"].astype(np.uint64).T
    size, one = raw["size"].astype(np.uint64) % np.uint64(plan.bits - 2), np.uint64(1)
    top = np.stack([np.where(size < 64, one << size % 64, 0), np.where(size < 64, 0, one << size % 64)], axis=1)
    below = lm.subtract(top, np.array([1, 0], dtype=np.uint64))  # as many ones as the size says
    values = top | np.stack([low >> one | high << np.uint64(63), high >> one], axis=1) & below
    values = np.where((low & one == one)[:, None], values, lm.subtract(np.zeros_like(values), values))
    values = values.reshape(count, plan.classes - 1, 2)
    best, classes = np.zeros((count, 2), dtype=np.uint64), np.zeros(count, dtype=np.int64)
    for at in range(plan.classes - 1):
        ahead = lm.subtract(best, values[:, at])[:, 1].view(np.int64) < 0  # sizes leave a bit for the difference
        best, classes = np.where(ahead[:, None], values[:, at], best), np.where(ahead, at + 1, classes)
    return lm.cut(np.ascontiguousarray(values[..., : plan.limbs]), plan.bits), classes


def fresh(query: SharedArgmaxSetup, coins: Coins) -> Decoys:
    return Decoys({}, *made_up(query.plan, query.decoys, coins))
