"""The contributor's role, and the dealer's. Step numbers as in SPEC.md."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from blindbayes.crypto import signatures
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, PeerProtocolError
from blindbayes.protocols.core import Role, Send, receive, send_all
from blindbayes.wire import Big, U64Array
from blindbayes_papers.huai2015.oblivious_sum.messages import (
    CiphertextsSent,
    CorrectionsSent,
    KeyAnnounced,
    KeyDealt,
    ModulusDealt,
    RosterNamed,
    SharesSealed,
    SurvivorsConfirmed,
    SurvivorsNamed,
    SurvivorsSigned,
)
from blindbayes_papers.huai2015.oblivious_sum.proof import require_rules
from blindbayes_papers.huai2015.oblivious_sum.session import KeySession
from blindbayes_papers.huai2015.oblivious_sum.terms import DEALER, MINER, ObliviousEncryption, ObliviousSumSetup
from blindbayes_papers.huai2015.primitives.joye_libert import deal_modulus


def dealer(terms: ObliviousSumSetup, coins: Coins) -> Role[None]:
    """Makes the modulus, and in the dealt form all keys; keeps neither."""
    everybody = (*terms.setting.contributors, MINER)
    modulus: int | None = None
    if terms.needs_modulus:
        option = terms.option
        modulus = deal_modulus(option["modulus_bits"], coins.derive("modulus"), toy_keys=option["toy_keys"])
        yield from send_all(everybody, ModulusDealt(Big(modulus)))  # 1
    if terms.option["keys"] == "dealer":
        scheme = terms.scheme(modulus)
        keys = [scheme.random_key(coins) for _ in terms.setting.contributors]
        for name, key in zip(everybody, [*keys, -scheme.total(keys)], strict=True):
            yield Send(name, KeyDealt(Big(abs(key)), key < 0))  # 1


def learn_scheme(terms: ObliviousSumSetup) -> Role[ObliviousEncryption]:
    """Hear the modulus, if one is dealt, and check it (1)."""
    modulus: int | None = None
    if terms.needs_modulus:
        modulus = int((yield from receive(DEALER, ModulusDealt)).modulus)
    try:
        return terms.scheme(modulus)
    except BlindbayesError as cause:
        raise PeerProtocolError("the modulus is not acceptable", party=DEALER) from cause


def learn_key(scheme: ObliviousEncryption) -> Role[int]:
    """Hear the own key from the dealer (1)."""
    dealt = yield from receive(DEALER, KeyDealt)
    if int(dealt.key).bit_length() > scheme.share_bits(1, 1, 1 << 32):
        raise PeerProtocolError("the key has the wrong size", party=DEALER)
    return -int(dealt.key) if dealt.negative else int(dealt.key)


def enrol(terms: ObliviousSumSetup, scheme: ObliviousEncryption, coins: Coins) -> Role[KeySession]:
    """Announce a key, agree with the neighbours, and, where some may fail, deal and collect shares (2 to 5)."""
    session = KeySession(terms, scheme, coins)
    if terms.stands and not terms.tolerant:
        session.stand()
        return session
    yield Send(MINER, KeyAnnounced(session.public, session.signature))  # 2
    session.adopt((yield from receive(MINER, RosterNamed)))  # 3
    if not terms.tolerant:
        return session
    for _ in range(len(terms.setting.contributors) - terms.setting.quorum_size + 1):
        yield Send(MINER, SharesSealed(session.deal()))  # 4
        roster = yield from receive(MINER, RosterNamed)
        if not roster.final:  # somebody was lost while dealing: once more, without them
            session.adopt(roster)
            continue
        if not session.is_same(roster):
            raise PeerProtocolError("the roster changed after the shares were dealt", party=MINER)
        session.take(roster.inbox)  # 5
        return session
    raise PeerProtocolError("too many rosters", party=MINER)


def contributor(terms: ObliviousSumSetup, vector: U64Array, coins: Coins) -> Role[None]:
    """Encrypts its vector; helps to open the sum over the one set of survivors that a quorum signed."""
    setting = terms.setting
    scheme = yield from learn_scheme(terms)
    packing = scheme.packing(setting.length, terms.bound)
    words = [int(value) for value in vector.view(np.int64)]
    require_rules(terms.rules, words, terms.run.me)
    if terms.option["keys"] == "dealer":
        key = yield from learn_key(scheme)
        label = terms.label(terms.roster_digest(setting.contributors), "sum")
        yield Send(MINER, _encrypted(terms, scheme, words, key, label, coins))  # 6
        return
    session = yield from enrol(terms, scheme, coins)
    label = terms.label(session.digest, "sum")
    key = scheme.total([session.zero_key, session.blind])
    yield Send(MINER, _encrypted(terms, scheme, words, key, label, coins))  # 6
    if terms.tolerant:
        yield from help_open(terms, session, label, packing.chunks)


def _encrypted(
    terms: ObliviousSumSetup, scheme: ObliviousEncryption, words: list[int], key: int, label: bytes, coins: Coins
) -> CiphertextsSent:
    elements = tuple(scheme.encrypt(scheme.packing(len(words), terms.bound).pack(words), key, label))
    if not terms.rules:
        return CiphertextsSent(elements)
    return CiphertextsSent(elements, terms.proof(label, terms.run.me).prove(words, elements, key, coins.derive("proof")))


def survivors_payload(terms: ObliviousSumSetup, label: bytes, survivors: Sequence[str]) -> bytes:
    """Return what is signed of a survivor set."""
    return terms.run.context("survivors", label.hex(), hashlib.sha256(terms.run.context("set", *survivors)).hexdigest())


def help_open(terms: ObliviousSumSetup, session: KeySession, label: bytes, count: int) -> Role[None]:
    """Sign one survivor set, see that a quorum signed the same, and send the share of the mask that is left (7 to 10)."""
    signer = terms.run.signer
    named = yield from receive(MINER, SurvivorsNamed)  # 7
    if list(named.names) != [name for name in session.names if name in set(named.names)] or session.me not in named.names:
        raise PeerProtocolError("the survivors are not of the roster, in order, with me", party=MINER)
    refusal = terms.refusal(session.groups, named.names)
    if refusal is not None or signer is None:
        raise PeerProtocolError(refusal or "no signer", party=MINER)
    payload = survivors_payload(terms, label, named.names)
    yield Send(MINER, SurvivorsSigned(signer.sign(payload)))  # 8
    confirmed = yield from receive(MINER, SurvivorsConfirmed)  # 9
    signers = set(confirmed.names)
    if len(signers) < terms.setting.quorum_size or not signers <= set(named.names) or len(confirmed.names) != len(signers):
        raise PeerProtocolError("the survivors are not confirmed by a quorum", party=MINER)
    if len(confirmed.signatures) != len(confirmed.names):
        raise PeerProtocolError("a signature is missing", party=MINER)
    for name, signature in zip(confirmed.names, confirmed.signatures, strict=True):
        signatures.verify(terms.run.identities.get(name, b""), payload, signature, party=MINER)  # which checked it before
    yield Send(MINER, CorrectionsSent(session.corrections(named.names, label, count)))  # 10
