"""The contributor of a masked sum. Step numbers as in SPEC.md."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from itertools import compress

import numpy as np

from blindbayes.crypto import aead, shamir
from blindbayes.crypto.aead import TAG_BYTES
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.prg import add_masks
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.core import Role, Send, open_value, receive
from blindbayes.protocols.registry import Total
from blindbayes.protocols.secure_sum.graph import unpack_bits
from blindbayes.protocols.secure_sum.keys import (
    BOX_BYTES,
    BOX_NONCE,
    SECRET_BYTES,
    SERVER,
    SHARE_BYTES,
    Bytes,
    MaskedSumSetup,
    cut,
    require_length,
    require_subset,
    require_tag,
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


def contributor(terms: MaskedSumSetup, vector: U64Array, coins: Coins) -> Role[Total | None]:
    """Add this party's vector to the sum; return the total if the study publishes it."""
    setting, threshold = terms.setting, terms.plan.threshold
    me = setting.contributors.index(terms.run.me)
    mine = terms.neighbours(me)

    # 1. and 2. A run key, and a seed for the mask of its own; then the keys of this run with its neighbours.
    run_key, seed = coins.bytes(SECRET_BYTES), coins.bytes(SECRET_BYTES)
    present, roster, pairs = yield from _meet(terms, me, mine, terms.commit(run_key) + terms.commit(seed), coins)
    secrets, to_them, _ = terms.run_keys(pairs, me, present, roster or terms.context)
    _, checks = terms.mask_keys(secrets)

    # 3. Shares of run key and seed: one pair for itself, the others sealed to their holders. The masks' secrets, sealed.
    shares = shamir.split_many([run_key, seed], [index + 1 for index in (*present, me)], threshold, coins)
    texts = shares.astype("<u2", copy=False).reshape(len(shares), -1).view(np.uint8)
    boxes = aead.seal_many(to_them, texts[:-1], associated=terms.context, nonce=BOX_NONCE)
    own_share = texts[-1, SHARE_BYTES:].tobytes()
    yield Send(SERVER, SharesDealt(boxes.tobytes(), terms.sealed_secrets(run_key, secrets), checks))
    del boxes, shares, texts, secrets, checks, run_key, coins, to_them, _  # the pairs' keys give the others again

    # 4. The neighbours' shares; a neighbour that dealt none is out.
    passed = yield from receive(SERVER, SharesPassedOn)
    dealers = require_subset(passed.neighbours, present, SERVER)
    _require_enough(terms, dealers)
    secrets, to_them, from_them = terms.run_keys(_chosen(pairs, present, dealers), me, dealers, roster or terms.context)
    masks, _ = terms.mask_keys(secrets)
    boxes = cut(passed.boxes, BOX_BYTES, len(dealers), SERVER)
    dealt = np.ascontiguousarray(_unseal(terms, from_them, boxes, dealers))
    del passed, boxes, pairs, secrets, _

    # 5. The vector under its own mask and one mask per pair, added by one and subtracted by the other.
    later = SECRET_BYTES * bisect_left(dealers, me)
    masked = add_masks(vector, terms.self_mask_key(seed) + masks[later:], masks[:later])
    yield Send(SERVER, MaskedVectorSent(masked, terms.masked(to_them).tobytes()))
    del masks, seed, masked, vector

    # 6. Whose vectors the server accepted: us among them, a quorum, none that we know to be out. Which keys it listed.
    named = yield from receive(SERVER, SurvivorsNamed)
    if len(named.roster) != SECRET_BYTES or named.roster != (roster or named.roster):
        raise PeerProtocolError("the keys that the server listed are not those that it names", party=SERVER)
    shown = named.roster + named.survivors
    terms.verify(SERVER, b"survivors", shown, named.signature)
    flags = unpack_bits(named.survivors, len(setting.contributors))
    if flags is None or not flags[me] or int.from_bytes(named.survivors).bit_count() < setting.quorum_size:
        raise PeerProtocolError("the named survivors do not fit the study", party=SERVER)
    there = flags[list(dealers)]
    if dealers != mine and int(flags[list(mine)].sum()) != int(there.sum()):
        raise PeerProtocolError("a party that dealt no shares is named as a survivor", party=SERVER)
    surviving = dealers if there.all() else tuple(compress(dealers, there.tolist()))
    _require_enough(terms, surviving)
    del flags

    # 7. Tell every surviving neighbour which roster and survivors we were shown ...
    tags = terms.echoes(to_them + from_them, (me,) * len(dealers) + dealers, shown).reshape(2, len(dealers), TAG_BYTES)
    ours, expected = tags.compress(there, axis=1)  # those that we send, and those that we should hear
    with_us = terms.masked(from_them)  # tags of step 5: this party's mask is on their vectors
    yield Send(SERVER, SurvivorsEchoed(ours.tobytes()))
    del tags, ours, to_them, from_them

    # 8. ... and go on only if enough of them were shown the same.
    echoes = yield from receive(SERVER, EchoesPassedOn)
    require_subset(echoes.neighbours, surviving, SERVER)
    _require_enough(terms, echoes.neighbours)
    if echoes.neighbours != surviving:
        expected = expected[np.searchsorted(surviving, echoes.neighbours)]
    _require_tags(terms, expected, echoes.tags, echoes.neighbours)
    # This party has a share of the seed of each neighbour that dealt. Only the owner can confirm the mask on its vector.
    if terms.plan.complete:
        require_length(echoes.masked, 0, SERVER)
    else:
        _require_tags(terms, with_us[there], echoes.masked, surviving)

    # 9. One share per dealer, never both: of the seed if it survived, of the run key if not. Ours comes last.
    given = np.stack([~there, there], axis=1).reshape(-1)
    answer = dealt.reshape(-1, SHARE_BYTES).compress(given, axis=0).tobytes() + own_share
    yield Send(SERVER, SharesGiven(answer))
    del dealt, answer, echoes, expected, with_us, given

    # 10. The total.
    if not terms.publish:
        return None
    published = yield from receive(SERVER, TotalPublished)
    if len(published.total) != setting.length:
        raise PeerProtocolError("the total has another length", party=SERVER)
    yield from open_value(setting.label, published.total)
    return Total(published.total, _included(setting.contributors, named.survivors))


@lru_cache(maxsize=4)
def _included(contributors: tuple[str, ...], survivors: bytes) -> tuple[str, ...]:
    """Return the names that the bits mark; one tuple for all contributors of a simulation, which are up to 10,000."""
    flags = unpack_bits(survivors, len(contributors))
    return () if flags is None else tuple(compress(contributors, flags.tolist()))


def _meet(
    terms: MaskedSumSetup, me: int, mine: tuple[int, ...], commitments: bytes, coins: Coins
) -> Role[tuple[tuple[int, ...], bytes | None, bytes]]:
    """Return the neighbours that are present, on the complete graph a hash of everything advertised, and the pairs' keys."""
    key = AgreementKey.generate(coins)
    vouched, encapsulated = terms.encapsulate(me, coins.derive("cards"))
    signature = pair_keys.sign_keys(terms.run, terms.context, key.public, commitments, encapsulated)
    advertised = KeysAdvertised(commitments, key.public, signature, encapsulated)
    yield Send(SERVER, advertised)
    del encapsulated
    listed = yield from receive(SERVER, KeysListed)
    present = require_subset(listed.neighbours, mine, SERVER)
    _require_enough(terms, present)
    if len(listed.advertised) != len(present):
        raise PeerProtocolError("a list has another length", party=SERVER)
    theirs = dict(zip(present, listed.advertised, strict=True))
    terms.require_keys(theirs, own=(key.public,), blame=SERVER)  # which has checked them before
    roster = None
    if terms.plan.complete:  # then all are here, and everybody can compute the hash of what all were shown
        roster = terms.roster(dict(sorted((theirs | {me: advertised}).items())))
    vouched |= terms.decapsulate(me, present, listed.encapsulated)
    return present, roster, terms.agree(key, theirs, vouched)


def _chosen(keys: bytes, whose: tuple[int, ...], wanted: tuple[int, ...]) -> bytes:
    if wanted == whose:
        return keys
    return np.frombuffer(keys, np.uint8).reshape(-1, SECRET_BYTES)[np.searchsorted(whose, wanted)].tobytes()


def _require_enough(terms: MaskedSumSetup, left: tuple[int, ...]) -> None:
    """Raise unless this party and the neighbours left reach the threshold: an honest server gives up before that."""
    if len(left) + 1 < terms.plan.threshold:
        raise PeerProtocolError("shows fewer neighbours than the threshold", party=SERVER)


def _require_tags(terms: MaskedSumSetup, expected: Bytes, packed: bytes, senders: tuple[int, ...]) -> None:
    """Raise, naming its sender and the server, if a tag is not the one that is due."""
    given = cut(packed, TAG_BYTES, len(senders), SERVER)
    wrong = aead.differs(expected, given)
    if wrong is not None:
        suspects = (SERVER, terms.name(senders[wrong]))
        require_tag(expected[wrong].tobytes(), given[wrong].tobytes(), suspects)


def _unseal(terms: MaskedSumSetup, keys: bytes, boxes: Bytes, authors: tuple[int, ...]) -> Bytes:
    """Open boxes. If one fails, its author or the server that passed it on is at fault, and it cannot be known which."""
    opened, wrong = aead.unseal_many(keys, boxes, associated=terms.context, nonce=BOX_NONCE)
    if wrong is not None:
        raise IntegrityError(suspects=(terms.name(authors[wrong]), SERVER))
    return opened
