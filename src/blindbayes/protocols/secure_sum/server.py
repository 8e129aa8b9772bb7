"""The server of a masked sum. Step numbers as in SPEC.md."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from blindbayes.crypto import shamir
from blindbayes.crypto.aead import TAG_BYTES
from blindbayes.crypto.hybrid import CIPHERTEXT_BYTES
from blindbayes.crypto.prg import add_masks
from blindbayes.errors import IntegrityError, PeerLost, PeerProtocolError
from blindbayes.protocols.core import Role, Send, open_value, receive_all
from blindbayes.protocols.registry import Total
from blindbayes.protocols.secure_sum.graph import pack_bits
from blindbayes.protocols.secure_sum.keys import (
    BOX_BYTES,
    CHECK_BYTES,
    SECRET_BYTES,
    SHARE_BYTES,
    MaskedSumSetup,
    require_length,
)
from blindbayes.protocols.secure_sum.messages import (
    EchoesPassedOn,
    KeysAdvertised,
    KeysListed,
    MaskedVectorSent,
    SharesDealt,
    SharesGiven,
    SharesPassedOn,
    SurvivorsEchoed,
    SurvivorsNamed,
    TotalPublished,
)
from blindbayes.wire import U64Array


def server(terms: MaskedSumSetup) -> Role[Total]:
    """Relay, add, remove the masks of the parties left, open the sum. Continue without lost parties, down to the quorum."""
    setting = terms.setting
    index_of = {name: index for index, name in enumerate(setting.contributors)}
    around = [terms.neighbours(index) for index in range(len(setting.contributors))]
    quorum_size = setting.quorum_size

    # 1. and 2. Keys in, the neighbours' keys out.
    advertised = yield from receive_all(setting.contributors, KeysAdvertised, quorum=quorum_size)
    keys = {index_of[name]: advertisement for name, advertisement in advertised.items()}
    terms.require_keys(keys)
    for index, advertisement in keys.items():
        terms.require_signed(index, advertisement)
    del advertised
    passing = Encapsulated(terms, keys)
    keys = {index: replace(advertisement, encapsulated=b"") for index, advertisement in keys.items()}
    roster = terms.roster(keys)
    present = {index: _among(around[index], keys) for index in keys}
    _require_enough(terms, around, present)
    for index, there in present.items():
        yield Send(terms.name(index), KeysListed(there, tuple(keys[other] for other in there), passing.to(index, there)))
    del passing

    # 3. and 4. Sealed shares in, passed on.
    dealt = yield from receive_all(terms.names(keys), SharesDealt, quorum=quorum_size)
    secrets: dict[int, _Secrets] = {}
    for name, sealed in dealt.items():
        index = index_of[name]
        require_length(sealed.boxes, BOX_BYTES * len(present[index]), name)
        secrets[index] = _Secrets(
            present[index],
            require_length(sealed.secrets, SECRET_BYTES * len(present[index]), name),
            require_length(sealed.checks, CHECK_BYTES * len(present[index]), name),
        )
    dealers = {index: _among(present[index], secrets) for index in secrets}
    _require_enough(terms, present, dealers)
    dealing = tuple(dealt)
    boxes = {index: _items(dealt.pop(terms.name(index)).boxes, BOX_BYTES, present[index], dealers[index]) for index in dealers}
    _exchange(boxes, BOX_BYTES, dealers)
    for index, there in dealers.items():
        yield Send(terms.name(index), SharesPassedOn(there, bytes(boxes.pop(index))))
    del sealed, dealt, boxes, present

    # 5. and 6. Masked vectors in; their senders are included from now on.
    vectors = yield from receive_all(dealing, MaskedVectorSent, quorum=quorum_size)
    total = np.zeros(setting.length, np.uint64)
    masked: dict[int, bytes] = {}
    for name, vector in vectors.items():
        index = index_of[name]
        masked[index] = require_length(vector.tags, 0 if terms.plan.complete else TAG_BYTES * len(dealers[index]), name)
        if len(vector.vector_masked) != setting.length:
            raise PeerProtocolError("the masked vector has another length", party=name)
        total += vector.vector_masked
    flags = np.zeros(len(setting.contributors), bool)
    flags[[index_of[name] for name in vectors]] = True
    survivors = pack_bits(flags)
    included = tuple(vectors)
    del vectors
    surviving = {index: _among(dealers[index], masked) for index in masked}
    _require_enough(terms, dealers, surviving)
    named = SurvivorsNamed(survivors, roster, terms.sign(b"survivors", roster + survivors))
    for name in included:
        yield Send(name, named)

    # 7. and 8. Echoes in, passed on.
    echoed = yield from receive_all(included, SurvivorsEchoed, quorum=quorum_size)
    tags: dict[int, bytes] = {}
    for name, echo in echoed.items():
        index = index_of[name]
        tags[index] = require_length(echo.tags, TAG_BYTES * len(surviving[index]), name)
    answers = {index: _among(surviving[index], tags) for index in tags}
    _require_enough(terms, surviving, answers)
    passed = {index: _items(tags[index], TAG_BYTES, surviving[index], there) for index, there in answers.items()}
    _exchange(passed, TAG_BYTES, answers)
    with_us = {index: bytearray() for index in surviving}
    if not terms.plan.complete:
        with_us = {index: _items(masked.pop(index), TAG_BYTES, dealers[index], there) for index, there in surviving.items()}
        _exchange(with_us, TAG_BYTES, surviving)
    for index, there in answers.items():
        yield Send(terms.name(index), EchoesPassedOn(there, bytes(passed.pop(index)), bytes(with_us.pop(index))))
    answering = tuple(terms.name(index) for index in tags)
    del tags, masked, surviving, answers, echoed, passed, with_us

    # 9. Shares in; remove what is left of the masks.
    given = yield from receive_all(answering, SharesGiven, quorum=quorum_size)
    shares: dict[int, bytes] = {}
    for name, answer in given.items():
        index = index_of[name]
        shares[index] = require_length(answer.shares, SHARE_BYTES * (len(dealers[index]) + 1), name)
    total = _remove_masks(terms, total, flags.tolist(), keys, dealers, secrets, shares)
    yield from open_value(setting.label, total)

    # 10. The total.
    if terms.publish:
        for name in given:
            yield Send(name, TotalPublished(total))
    return Total(total, included)


def _require_enough(
    terms: MaskedSumSetup,
    before: Mapping[int, tuple[int, ...]] | Sequence[tuple[int, ...]],
    left: Mapping[int, tuple[int, ...]],
) -> None:
    """Raise, naming who is missing, if a neighbourhood falls below the threshold: its contributor would refuse."""
    for index, there in left.items():
        if len(there) + 1 < terms.plan.threshold:
            missing = [terms.name(other) for other in before[index] if other not in there]
            raise PeerLost(f"too few neighbours are left; missing: {', '.join(missing)}", party=missing[0])


def _among(order: tuple[int, ...], there: Container[int]) -> tuple[int, ...]:
    """Return those of a list that are present; the same object if all are, since a large server has many such lists."""
    left = tuple(other for other in order if other in there)
    return order if len(left) == len(order) else left


def _item(packed: bytes, size: int, order: tuple[int, ...], index: int) -> bytes:
    at = size * bisect_left(order, index)
    return packed[at : at + size]


def _items(packed: bytes, size: int, order: tuple[int, ...], chosen: tuple[int, ...]) -> bytearray:
    """Return the items for `chosen` of a list that is packed in the order of `order`."""
    if chosen == order:
        return bytearray(packed)
    return bytearray().join([_item(packed, size, order, index) for index in chosen])


def _exchange(lists: dict[int, bytearray], size: int, orders: Mapping[int, tuple[int, ...]]) -> None:
    """Swap lists of one item per neighbour: from those that each party gave to those that each gets."""
    for index, order in orders.items():
        own = lists[index]
        for place in range(bisect_left(order, index), len(order)):
            other = order[place]
            theirs, at = lists[other], size * bisect_left(orders[other], index)
            here, there = slice(size * place, size * (place + 1)), slice(at, at + size)
            own[here], theirs[there] = theirs[there], own[here]


class Encapsulated:
    """The ciphertexts of all contributors, to be passed on to their receivers."""

    def __init__(self, terms: MaskedSumSetup, keys: Mapping[int, KeysAdvertised]) -> None:
        self._terms, self._packed = terms, {index: advertised.encapsulated for index, advertised in keys.items()}
        self._receivers = {index: terms.receivers(index) for index in keys}
        for index, receivers in self._receivers.items():
            require_length(self._packed[index], CIPHERTEXT_BYTES * len(receivers), terms.name(index))

    def to(self, index: int, there: tuple[int, ...]) -> bytes:
        """Return those of these neighbours for one contributor, in roster order."""
        senders = self._terms.senders(index, there)
        return b"".join([_item(self._packed[other], CIPHERTEXT_BYTES, self._receivers[other], index) for other in senders])


@dataclass(frozen=True, slots=True)
class _Secrets:
    """The statement of a contributor about its masks: for each neighbour the sealed secret, and a check of it."""

    order: tuple[int, ...]
    sealed: bytes
    checks: bytes


class Recovery:
    """Recovery of secrets from shares. On the complete graph one set of weights serves all."""

    def __init__(self, terms: MaskedSumSetup, dealers: dict[int, tuple[int, ...]], shares: dict[int, bytes]) -> None:
        self.terms, self.dealers, self.shares = terms, dealers, shares
        self._holders: tuple[int, ...] = ()
        self._weights = np.zeros(0, np.int64)

    def secret(self, owner: int, expected: bytes) -> bytes:
        """Recover the secret to which the owner committed.

        A wrong share raises `IntegrityError`. The owner may have dealt it wrong or its giver altered it, and it cannot be known
        which: both are suspects, and without a spare share that identifies the giver, all givers are.
        """
        threshold = self.terms.plan.threshold
        present = tuple(sorted(holder for holder in (*self.dealers[owner], owner) if holder in self.shares))
        chosen = present[:threshold]
        recovered = self._combine(owner, chosen)
        if recovered is not None and self.terms.commit(recovered) == expected:
            return recovered
        for spare in present[threshold : threshold + 1]:
            for suspect in chosen:
                recovered = self._combine(owner, tuple(sorted({*chosen, spare} - {suspect})))
                if recovered is not None and self.terms.commit(recovered) == expected:
                    raise IntegrityError(suspects=tuple(self.terms.name(at) for at in dict.fromkeys((suspect, owner))))
        raise IntegrityError(suspects=tuple(self.terms.name(at) for at in dict.fromkeys((owner, *chosen))))

    def _combine(self, owner: int, holders: tuple[int, ...]) -> bytes | None:
        if holders != self._holders:
            self._holders, self._weights = holders, shamir.lagrange([holder + 1 for holder in holders])
        packed = b"".join([self._share(holder, owner) for holder in holders])
        try:
            return shamir.combine(self._weights, np.frombuffer(packed, "<u2").reshape(len(holders), -1), SECRET_BYTES)
        except IntegrityError:
            return None

    def _share(self, holder: int, owner: int) -> bytes:
        """Return the share of `owner`'s secrets that `holder` gave; its own comes last."""
        if holder == owner:
            return self.shares[holder][-SHARE_BYTES:]
        return _item(self.shares[holder], SHARE_BYTES, self.dealers[holder], owner)


def _remove_masks(
    terms: MaskedSumSetup,
    total: U64Array,
    included: list[bool],
    keys: dict[int, KeysAdvertised],
    dealers: dict[int, tuple[int, ...]],
    secrets: dict[int, _Secrets],
    shares: dict[int, bytes],
) -> U64Array:
    """Return the sum without the own masks of the included and without the pair masks that the lost left behind."""
    threshold = terms.plan.threshold
    for index, there in dealers.items():  # before anything is put together: is there enough for everybody?
        missing = [terms.name(other) for other in (*there, index) if other not in shares]
        if len(there) + 1 - len(missing) < threshold:
            raise PeerLost(f"too few shares are left; missing: {', '.join(missing)}", party=missing[0])
    recovery = Recovery(terms, dealers, shares)
    plus, minus = bytearray(), bytearray()
    for index, there in dealers.items():
        commitments = keys[index].commitments
        if included[index]:
            minus += terms.self_mask_key(recovery.secret(index, commitments[SECRET_BYTES:]))
            continue
        run_key, own = recovery.secret(index, commitments[:SECRET_BYTES]), secrets[index]
        masks, checks = terms.mask_keys(terms.sealed_secrets(run_key, own.sealed))
        for other in there:
            if included[other]:  # what `other` added must go, what it subtracted must come back
                if _item(checks, CHECK_BYTES, own.order, other) != _item(
                    secrets[other].checks, CHECK_BYTES, secrets[other].order, index
                ):
                    raise IntegrityError(suspects=(terms.name(index), terms.name(other)))  # one of the two says another secret
                (minus if other < index else plus).extend(_item(masks, SECRET_BYTES, own.order, other))
    return add_masks(total, bytes(plus), bytes(minus))
