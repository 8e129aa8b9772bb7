"""The miner's role. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blindbayes.errors import PeerLost, PeerProtocolError
from blindbayes.primitives import signatures
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.core import Role, Send, open_value, receive_all, send_all
from blindbayes.protocol.oblivious_sum.contributor import learn_key, learn_scheme, survivors_payload
from blindbayes.protocol.oblivious_sum.membership import Groups
from blindbayes.protocol.oblivious_sum.messages import (
    CiphertextsSent,
    CorrectionsSent,
    KeyAnnounced,
    RosterNamed,
    SharesSealed,
    SurvivorsConfirmed,
    SurvivorsNamed,
    SurvivorsSigned,
)
from blindbayes.protocol.oblivious_sum.session import announcement, most_holders, pair_key
from blindbayes.protocol.oblivious_sum.terms import MINER, Scheme, Terms
from blindbayes.protocol.registry import Total


class _Keys:
    """The miner's part of the keys: minus the sum of its edges."""

    def __init__(self, terms: Terms, scheme: Scheme, coins: Coins) -> None:
        self._terms = terms
        self._scheme = scheme
        self._agreement = AgreementKey.generate(coins.derive("agreement"))
        self._announced: Mapping[str, KeyAnnounced] = {}

    def hear(self, announced: Mapping[str, KeyAnnounced]) -> None:
        for name, message in announced.items():
            payload = announcement(self._terms, name, message.public)
            signatures.verify(self._terms.run.identities.get(name, b""), payload, message.signature, party=name)
        self._announced = announced

    def roster_for(self, name: str, names: Sequence[str], groups: Groups, inbox: Sequence[bytes], final: bool) -> RosterNamed:
        keys = [self._announced[other] for other in groups.neighbours(name)]
        return RosterNamed(
            tuple(names),
            self._agreement.public,
            tuple(key.public for key in keys),
            tuple(key.signature for key in keys),
            tuple(inbox),
            final,
        )

    def capability(self, names: Sequence[str]) -> int:
        digest = self._terms.roster_digest(names)
        secrets = (self._agreement.agree(self._announced[name].public, party=name) for name in names)
        return -self._scheme.total(pair_key(self._terms, self._scheme, secret, digest) for secret in secrets)


def enrol_all(terms: Terms, scheme: Scheme, coins: Coins) -> Role[tuple[tuple[str, ...], int]]:
    """Name the roster and pass on keys and shares; who is in, and the miner's key (2 to 5)."""
    keys = _Keys(terms, scheme, coins)
    announced = yield from receive_all(terms.setting.contributors, KeyAnnounced, quorum=terms.setting.quorum)  # 2
    keys.hear(announced)
    names = tuple(announced)
    while True:
        groups = terms.groups(names)
        for name in names:
            yield Send(name, keys.roster_for(name, names, groups, (), not terms.tolerant))  # 3
        if not terms.tolerant:
            return names, keys.capability(names)
        dealt = yield from receive_all(names, SharesSealed, quorum=terms.setting.fewest)  # 4
        if len(dealt) == len(names):
            break
        names = tuple(dealt)
    boxes: dict[str, dict[str, bytes]] = {name: {} for name in names}
    for owner, message in dealt.items():
        holders = groups.around(groups.segment_of(owner))
        if len(message.sealed) != len(holders):
            raise PeerProtocolError("the wrong number of shares", party=owner)
        for holder, sealed in zip(holders, message.sealed, strict=True):
            if holder != owner:
                boxes[holder][owner] = sealed
    for name in names:
        inbox = [boxes[name][owner] for owner in names if owner in boxes[name]]
        yield Send(name, keys.roster_for(name, names, groups, inbox, True))  # 5
    return names, keys.capability(names)


def miner(terms: Terms, coins: Coins) -> Role[Total]:
    """Collects ciphertexts and opens their sum, and nothing else."""
    setting = terms.setting
    scheme = yield from learn_scheme(terms)
    packing = scheme.packing(setting.length, terms.bound)
    count = packing.chunks
    names: tuple[str, ...]
    if terms.option["keys"] == "dealer":
        key = yield from learn_key(scheme)
        names = setting.contributors
    else:
        names, key = yield from enrol_all(terms, scheme, coins)
    label = terms.label(names, "sum")
    quorum = setting.fewest if terms.tolerant else None
    sent = yield from receive_all(names, CiphertextsSent, quorum=quorum)  # 6
    for name, message in sent.items():
        scheme.require_elements(message.elements, count, party=name)
    product = scheme.multiply([message.elements for message in sent.values()])
    scale = 1
    if terms.tolerant:
        groups = terms.groups(names)
        scale = scheme.scale(most_holders(groups))
        left = yield from collect_corrections(terms, scheme, groups, names, tuple(sent), label, count)
        product = scheme.multiply([scheme.power(product, scale), scheme.power(left, -1)])
    product = scheme.multiply([product, scheme.masks(key * scale, label, count)])
    totals = packing.unpack(scheme.open(product, scale))  # 11
    words = np.array([total % 2**64 for total in totals], dtype=np.uint64)
    yield from open_value(setting.label, words)
    return Total(words, tuple(sent))


def collect_corrections(
    terms: Terms, scheme: Scheme, groups: Groups, names: Sequence[str], survivors: tuple[str, ...], label: bytes, count: int
) -> Role[list[bytes]]:
    """The mask that is left on the survivors' product, to the power `scale`, from a threshold of shares (7 to 10)."""
    refusal = terms.refusal(groups, survivors)
    if refusal is not None:
        missing = next(name for name in names if name not in survivors)
        raise PeerLost(refusal, party=missing)
    yield from send_all(survivors, SurvivorsNamed(survivors))  # 7
    signed = yield from receive_all(survivors, SurvivorsSigned, quorum=terms.setting.fewest)  # 8
    payload = survivors_payload(terms, label, survivors)
    for name, vote in signed.items():
        signatures.verify(terms.run.identities.get(name, b""), payload, vote.signature, party=name)
    confirmation = SurvivorsConfirmed(tuple(signed), tuple(vote.signature for vote in signed.values()))
    yield from send_all(tuple(signed), confirmation)  # 9
    answered = yield from receive_all(tuple(signed), CorrectionsSent, quorum=terms.setting.fewest)  # 10
    shares: dict[int, dict[str, tuple[bytes, ...]]] = {at: {} for at in range(len(groups.blocks))}
    for name, message in answered.items():
        held = groups.held_by(name)
        if len(message.elements) != len(held):
            raise PeerProtocolError("the wrong number of corrections", party=name)
        for block, elements in zip(held, message.elements, strict=True):
            scheme.require_elements(elements, count, party=name)
            shares[block][name] = elements
    most = most_holders(groups)
    columns: list[list[bytes]] = []
    for block, found in shares.items():
        holders = groups.around(block)
        points = [at + 1 for at, name in enumerate(holders) if name in found][: terms.threshold(groups, block)]
        if len(points) < terms.threshold(groups, block):
            raise PeerLost("too few share holders answered", party=next(name for name in holders if name not in found))
        weights = scheme.weights(points, most)
        for point, weight in zip(points, weights, strict=True):
            columns.append(scheme.power(found[holders[point - 1]], weight))
    return scheme.multiply(columns)


__all__ = ["MINER", "collect_corrections", "enrol_all", "miner"]
