"""The miner's role. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blindbayes.crypto import signatures
from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError, PeerLost, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.core import Role, Send, open_value, receive_all, send_all
from blindbayes.protocols.registry import Total
from blindbayes_papers.huai2015.oblivious_sum.contributor import learn_key, learn_scheme, survivors_payload
from blindbayes_papers.huai2015.oblivious_sum.membership import Groups
from blindbayes_papers.huai2015.oblivious_sum.messages import (
    CiphertextsSent,
    CorrectionsSent,
    KeyAnnounced,
    RosterNamed,
    SharesSealed,
    SurvivorsConfirmed,
    SurvivorsNamed,
    SurvivorsSigned,
)
from blindbayes_papers.huai2015.oblivious_sum.session import channel, edge_key, max_holders
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER, ObliviousEncryption, ObliviousSumSetup


class _Keys:
    """The miner's part of the keys: minus the sum of its edges."""

    def __init__(self, terms: ObliviousSumSetup, scheme: ObliviousEncryption, coins: Coins) -> None:
        self._terms = terms
        self._scheme = scheme
        self._agreement = terms.agreement(coins)
        self._announced: Mapping[str, KeyAnnounced] = {}
        self._scope = terms.scope(scheme)
        self._names: tuple[str, ...] = ()
        self._keys = self.digest = self._signature = b""

    def hear(self, announced: Mapping[str, KeyAnnounced]) -> None:
        run, standing = self._terms.run, self._terms.standing
        own = () if self._terms.stands else (self._agreement.public,)
        pair_keys.require_keys(((name, message.public) for name, message in announced.items()), own=own)
        for name, message in announced.items():
            pair_keys.verify_keys(run, self._scope, name, (message.public,), message.signature, blame=name)
        if self._terms.stands and (wrong := [name for name in announced if standing[name] != announced[name].public]):
            raise PeerProtocolError("a key is not the one in the signed roster", party=wrong[0])
        self._announced = announced

    def stand(self) -> None:
        """Everybody's key is in the signed roster."""
        terms, self._names = self._terms, self._terms.setting.contributors
        standing = terms.standing
        self._announced = {name: KeyAnnounced(standing[name], b"") for name in self._names}
        self.digest = terms.standing_digest()

    def name_roster(self, names: Sequence[str]) -> None:
        """Fix who takes part, and sign it with all keys."""
        self._names = tuple(names)
        self._keys = pair_keys.digest_of({name: self._announced[name].public for name in names})
        self.digest = self._terms.roster_digest(names, self._keys, self._agreement.public)
        self._signature = pair_keys.sign_keys(self._terms.run, self._scope, self._agreement.public, self.digest)

    def roster_for(self, name: str, groups: Groups, inbox: Sequence[bytes], final: bool) -> RosterNamed:
        keys = [self._announced[other] for other in groups.neighbours(name)]
        return RosterNamed(
            self._names,
            self._agreement.public,
            b"" if groups.is_complete else self._keys,  # else the receiver has all keys and hashes them itself
            self._signature,
            tuple(key.public for key in keys),
            tuple(key.signature for key in keys),
            tuple(inbox),
            final,
        )

    def capability(self) -> int:
        scope, roster = self._scope, self.digest
        channels = (
            channel(self._agreement, self._announced[name].public, me=MINER, other=name, scope=scope, roster=roster)
            for name in self._names
        )
        return -self._scheme.total(edge_key(self._scheme, key) for key in channels)


def enrol_all(terms: ObliviousSumSetup, scheme: ObliviousEncryption, coins: Coins) -> Role[tuple[tuple[str, ...], int, bytes]]:
    """Name the roster and pass on keys and shares; who is in, the miner's key, and the roster's digest (2 to 5)."""
    keys = _Keys(terms, scheme, coins)
    if terms.stands and not terms.tolerant:
        keys.stand()
        return terms.setting.contributors, keys.capability(), keys.digest
    announced = yield from receive_all(terms.setting.contributors, KeyAnnounced, quorum=terms.setting.quorum)  # 2
    keys.hear(announced)
    names = tuple(announced)
    while True:
        groups = terms.groups(names)
        keys.name_roster(names)
        for name in names:
            yield Send(name, keys.roster_for(name, groups, (), not terms.tolerant))  # 3
        if not terms.tolerant:
            return names, keys.capability(), keys.digest
        dealt = yield from receive_all(names, SharesSealed, quorum=terms.setting.quorum_size)  # 4
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
        yield Send(name, keys.roster_for(name, groups, inbox, True))  # 5
    return names, keys.capability(), keys.digest


def miner(terms: ObliviousSumSetup, coins: Coins) -> Role[Total]:
    """Collects ciphertexts and opens their sum, and nothing else."""
    setting = terms.setting
    scheme = yield from learn_scheme(terms)
    packing = scheme.packing(setting.length, terms.bound)
    count = packing.chunks
    names: tuple[str, ...]
    if terms.option["keys"] == "dealer":
        key = yield from learn_key(scheme)
        names, roster = setting.contributors, terms.roster_digest(setting.contributors)
    else:
        names, key, roster = yield from enrol_all(terms, scheme, coins)
    label = terms.label(roster, "sum")
    quorum = setting.quorum_size if terms.tolerant else None
    sent = yield from receive_all(names, CiphertextsSent, quorum=quorum)  # 6
    answered = tuple(sent)
    sent = _proved(terms, scheme, sent, label, count)
    refused = tuple(name for name in answered if name not in sent)
    product = scheme.multiply([message.elements for message in sent.values()])
    scale = 1
    if terms.tolerant:
        groups = terms.groups(names)
        scale = scheme.scale(max_holders(groups))
        left = yield from collect_corrections(terms, scheme, groups, names, tuple(sent), label, count)
        product = scheme.multiply([scheme.power(product, scale), scheme.power(left, -1)])
    product = scheme.multiply([product, scheme.masks(key * scale, label, count)])
    try:
        totals = packing.unpack(scheme.open(product, scale))  # 11
    except (IntegrityError, PeerProtocolError):  # a vector, a ciphertext or a share is wrong, and nothing shows whose
        return Total(np.zeros(0, np.uint64), tuple(sent), IntegrityError(suspects=tuple(sent)), refused)
    words = np.array([total % 2**64 for total in totals], dtype=np.uint64)
    yield from open_value(setting.label, words)
    return Total(words, tuple(sent), refused=refused)


def _proved(
    terms: ObliviousSumSetup, scheme: ObliviousEncryption, sent: Mapping[str, CiphertextsSent], label: bytes, count: int
) -> dict[str, CiphertextsSent]:
    """Return the ciphertexts of those whose proofs hold. Raise with the name of one whose does not, unless a quorum is left."""
    proved, refused = {}, None
    for name, message in sent.items():
        scheme.require_elements(message.elements, count, party=name)
        try:
            if terms.rules:
                terms.proof(label, name).require(message.elements, message.proof)
        except PeerProtocolError as error:
            refused = refused or error
        else:
            proved[name] = message
    if refused is not None and (not terms.tolerant or len(proved) < terms.setting.quorum_size):
        raise refused
    return proved


def collect_corrections(
    terms: ObliviousSumSetup,
    scheme: ObliviousEncryption,
    groups: Groups,
    names: Sequence[str],
    survivors: tuple[str, ...],
    label: bytes,
    count: int,
) -> Role[list[bytes]]:
    """The mask that is left on the survivors' product, to the power `scale`, from a threshold of shares (7 to 10)."""
    refusal = terms.refusal(groups, survivors)
    if refusal is not None:
        missing = next(name for name in names if name not in survivors)
        raise PeerLost(refusal, party=missing)
    yield from send_all(survivors, SurvivorsNamed(survivors))  # 7
    signed = yield from receive_all(survivors, SurvivorsSigned, quorum=terms.setting.quorum_size)  # 8
    payload = survivors_payload(terms, label, survivors)
    for name, vote in signed.items():
        signatures.verify(terms.run.identities.get(name, b""), payload, vote.signature, party=name)
    confirmation = SurvivorsConfirmed(tuple(signed), tuple(vote.signature for vote in signed.values()))
    yield from send_all(tuple(signed), confirmation)  # 9
    answered = yield from receive_all(tuple(signed), CorrectionsSent, quorum=terms.setting.quorum_size)  # 10
    shares: dict[int, dict[str, tuple[bytes, ...]]] = {at: {} for at in range(len(groups.blocks))}
    for name, message in answered.items():
        blocks = groups.held_by(name)
        if len(message.elements) != len(blocks):
            raise PeerProtocolError("the wrong number of corrections", party=name)
        for block, elements in zip(blocks, message.elements, strict=True):
            scheme.require_elements(elements, count, party=name)
            shares[block][name] = elements
    max_count = max_holders(groups)
    columns: list[list[bytes]] = []
    for block, answers in shares.items():
        holders = groups.around(block)
        points = [at + 1 for at, name in enumerate(holders) if name in answers][: terms.threshold(groups, block)]
        if len(points) < terms.threshold(groups, block):
            raise PeerLost("too few share holders answered", party=next(name for name in holders if name not in answers))
        weights = scheme.weights(points, max_count)
        for point, weight in zip(points, weights, strict=True):
            columns.append(scheme.power(answers[holders[point - 1]], weight))
    return scheme.multiply(columns)


__all__ = ["MINER", "collect_corrections", "enrol_all", "miner"]
