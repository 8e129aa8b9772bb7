"""The contributor of a masked sum. Step numbers as in SPEC.md."""

from __future__ import annotations

import numpy as np

from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.primitives import aead, shamir
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.prg import add_masks
from blindbayes.protocol import pair_keys
from blindbayes.protocol.core import Role, Send, open_value, receive
from blindbayes.protocol.masked_sum.graph import unpack_bits
from blindbayes.protocol.masked_sum.keys import (
    BOX_BYTES,
    SECRET_BYTES,
    SERVER,
    SHARE_BYTES,
    MaskedSumSetup,
    cut,
    require_subset,
    require_tag,
)
from blindbayes.protocol.masked_sum.messages import (
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
from blindbayes.protocol.pair_keys import TAG_BYTES
from blindbayes.protocol.registry import Total
from blindbayes.wire import U64Array


def contributor(terms: MaskedSumSetup, vector: U64Array, coins: Coins) -> Role[Total | None]:
    """Adds its vector to the sum; hears the total if the study publishes it."""
    setting, threshold = terms.setting, terms.plan.threshold
    me = setting.contributors.index(terms.run.me)
    mine = terms.neighbours(me)

    # 1. Fresh keys, and a seed for the mask of its own.
    mask, channel, seed = AgreementKey.generate(coins), AgreementKey.generate(coins), coins.bytes(SECRET_BYTES)
    commitment = terms.commit(seed)
    signature = pair_keys.sign_keys(terms.run, terms.context, mask.public, channel.public, commitment)
    yield Send(SERVER, KeysAdvertised(mask.public, channel.public, commitment, signature))

    # 2. The neighbours' keys, each signed by its owner.
    listed = yield from receive(SERVER, KeysListed)
    require_subset(listed.neighbours, mine, SERVER)
    if len(listed.advertised) != len(listed.neighbours):
        raise PeerProtocolError("a list has another length", party=SERVER)
    _require_enough(terms, listed.neighbours)
    theirs = dict(zip(listed.neighbours, listed.advertised, strict=True))
    terms.require_keys(theirs, own=(mask.public, channel.public), blame=SERVER)  # which has checked them before
    channels = {index: terms.channel(channel, me, index, keys.channel_key) for index, keys in theirs.items()}
    mask_keys = {index: keys.mask_key for index, keys in theirs.items()}
    roster: bytes | None = None
    if terms.plan.complete:  # then all keys are here, and everybody can compute the hash of what all were shown
        theirs[me] = KeysAdvertised(mask.public, channel.public, commitment, signature)
        roster = terms.roster(dict(sorted(theirs.items())))

    present = listed.neighbours
    del listed, theirs  # a run has thousands of these open at once in simulation

    # 3. Shares of the mask key and of the seed: one pair for itself, the others sealed to their holders.
    points = [index + 1 for index in (*present, me)]
    shares = shamir.split_many([mask.secret_bytes(), seed], points, threshold, coins)
    own_share = shares[-1, 1].astype("<u2").tobytes()
    boxes = [
        aead.seal(terms.box_key(channels[index], me, index), row.astype("<u2").tobytes(), associated=terms.context)
        for index, row in zip(present, shares[:-1], strict=True)
    ]
    yield Send(SERVER, SharesDealt(b"".join(boxes)))
    del boxes, shares

    # 4. The neighbours' shares; whoever dealt none is out.
    passed = yield from receive(SERVER, SharesPassedOn)
    require_subset(passed.neighbours, present, SERVER)
    dealers = passed.neighbours
    _require_enough(terms, dealers)
    held: dict[int, bytes] = {}
    for index, box in zip(dealers, cut(passed.boxes, BOX_BYTES, len(dealers), SERVER), strict=True):
        held[index] = _unseal(terms, terms.box_key(channels[index], index, me), box, terms.name(index))
    del passed

    # 5. The vector under its own mask and one mask per pair, added by one and subtracted by the other.
    plus: list[bytes] = [terms.self_mask_key(seed)]
    minus: list[bytes] = []
    for index in dealers:
        pair = terms.mask_key(mask, me, index, mask_keys[index])
        (plus if me < index else minus).append(pair)
    yield Send(SERVER, MaskedVectorSent(add_masks(vector, plus, minus)))
    del plus, minus, mask, mask_keys, seed

    # 6. Whose vectors the server accepted: us among them, a quorum, none that we know to be out. Which keys it listed.
    named = yield from receive(SERVER, SurvivorsNamed)
    if len(named.roster) != SECRET_BYTES or named.roster != (roster or named.roster):
        raise PeerProtocolError("the keys that the server listed are not those that it names", party=SERVER)
    shown = named.roster + named.survivors
    terms.verify(SERVER, b"survivors", shown, named.signature)
    flags = unpack_bits(named.survivors, len(setting.contributors))
    if flags is None or not flags[me] or int(flags.sum()) < setting.quorum_size:
        raise PeerProtocolError("the named survivors do not fit the study", party=SERVER)
    if any(flags[index] and index not in held for index in mine):
        raise PeerProtocolError("a party that dealt no shares is named as a survivor", party=SERVER)
    surviving = tuple(index for index in dealers if flags[index])
    _require_enough(terms, surviving)

    # 7. Tell every surviving neighbour which roster and survivors we were shown ...
    tags = [terms.echo(channels[index], me, index, shown) for index in surviving]
    yield Send(SERVER, SurvivorsEchoed(b"".join(tags)))

    # 8. ... and go on only if enough of them were shown the same.
    echoes = yield from receive(SERVER, EchoesPassedOn)
    require_subset(echoes.neighbours, surviving, SERVER)
    _require_enough(terms, echoes.neighbours)
    for index, tag in zip(echoes.neighbours, cut(echoes.tags, TAG_BYTES, len(echoes.neighbours), SERVER), strict=True):
        require_tag(terms.echo(channels[index], index, me, shown), tag, (SERVER, terms.name(index)))

    # 9. One share per dealer, never both: of the seed if it survived, of the mask key if not. Ours comes last.
    given = [held[index][SHARE_BYTES:] if flags[index] else held[index][:SHARE_BYTES] for index in dealers]
    yield Send(SERVER, SharesGiven(b"".join([*given, own_share])))
    del held, given, channels

    # 10. The total.
    if not terms.options["publish"]:
        return None
    published = yield from receive(SERVER, TotalPublished)
    if len(published.total) != setting.length:
        raise PeerProtocolError("the total has another length", party=SERVER)
    yield from open_value(setting.label, published.total)
    return Total(published.total, tuple(terms.name(index) for index in np.flatnonzero(flags).tolist()))


def _require_enough(terms: MaskedSumSetup, left: tuple[int, ...]) -> None:
    """Raise unless we and the neighbours left reach the threshold: an honest server gives up before it shows fewer."""
    if len(left) + 1 < terms.plan.threshold:
        raise PeerProtocolError("shows fewer neighbours than the threshold", party=SERVER)


def _unseal(terms: MaskedSumSetup, key: bytes, box: bytes, author: str) -> bytes:
    """A box; if it does not open, its author or the server that passed it on is at fault, and nothing tells which."""
    try:
        held = aead.unseal(key, box, associated=terms.context)
    except IntegrityError as cause:
        raise IntegrityError(suspects=(author, SERVER)) from cause
    return held
