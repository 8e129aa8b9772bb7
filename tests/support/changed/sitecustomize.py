"""A changed site: Python loads this first when the folder is on PYTHONPATH, and the agent then runs other roles than ours.

PLANTED takes defences away again (`adversary.planted`), at honest sites too, as if all ran the software of before. STOLEN makes
this site the attacker of the review: it hosts the server, advertises a copy of the last contributor's key as its own, and
writes the vector of whoever stands between the two to that file. Everything else of the site is the shipped program.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

if os.environ.get("PLANTED"):
    import pytest

    from adversary import planted

    for name in os.environ["PLANTED"].split(","):
        getattr(planted, name)(pytest.MonkeyPatch())

if os.environ.get("STOLEN"):
    from blindbayes.crypto import aead, shamir
    from blindbayes.crypto.coins import Coins
    from blindbayes.crypto.key_agreement import AgreementKey
    from blindbayes.crypto.prg import add_masks
    from blindbayes.protocols import pair_keys
    from blindbayes.protocols.core import Role, Send, receive, receive_all
    from blindbayes.protocols.registry import Total
    from blindbayes.protocols.secure_sum import graph, keys, roles
    from blindbayes.protocols.secure_sum import messages as wire
    from blindbayes.protocols.secure_sum.server import Encapsulated, Recovery

    SERVER = keys.SERVER

    def contributor(terms: keys.MaskedSumSetup, vector: Any, coins: Coins) -> Role[Total]:
        """Follows the steps, but for its public key, which is a copy."""
        me = terms.setting.contributors.index(terms.run.me)
        own, seed = AgreementKey.generate(coins), coins.bytes(keys.SECRET_BYTES)
        copied = (yield from receive(SERVER, wire.KeysAdvertised)).public  # its own server shows it first
        commitments = terms.commit(seed) * 2
        vouched, encapsulated = terms.encapsulate(me, coins)
        signature = pair_keys.sign_keys(terms.run, terms.context, copied, commitments, encapsulated)
        yield Send(SERVER, wire.KeysAdvertised(commitments, copied, signature, encapsulated))
        listed = yield from receive(SERVER, wire.KeysListed)
        others = listed.neighbours
        vouched |= terms.decapsulate(me, others, listed.encapsulated)
        pairs = terms.agree(own, dict(zip(others, listed.advertised, strict=True)), vouched)
        secrets, to_them, from_them = terms.run_keys(pairs, me, others, terms.context)
        points = [at + 1 for at in (*others, me)]
        shares = shamir.split_many([coins.bytes(32), seed], points, terms.plan.threshold, coins)  # of nonsense, and of its seed
        texts = shares.astype("<u2").reshape(len(points), -1).view(np.uint8)
        boxes = aead.seal_many(to_them, texts[:-1], associated=terms.context, nonce=keys.BOX_NONCE)
        yield Send(SERVER, wire.SharesDealt(boxes.tobytes(), secrets, bytes(keys.CHECK_BYTES * len(others))))
        passed = yield from receive(SERVER, wire.SharesPassedOn)
        boxes = keys.cut(passed.boxes, keys.BOX_BYTES, len(others), SERVER)
        held, _ = aead.unseal_many(from_them, boxes, associated=terms.context, nonce=keys.BOX_NONCE)
        yield Send(SERVER, wire.MaskedVectorSent(np.zeros(terms.setting.length, np.uint64)))
        named = yield from receive(SERVER, wire.SurvivorsNamed)
        tags = terms.echoes(to_them, [me] * len(others), named.roster + named.survivors)
        yield Send(SERVER, wire.SurvivorsEchoed(tags.tobytes()))
        yield from receive(SERVER, wire.EchoesPassedOn)
        given = [*held[:, keys.SHARE_BYTES :], texts[-1, keys.SHARE_BYTES :]]
        yield Send(SERVER, wire.SharesGiven(b"".join(each.tobytes() for each in given)))
        published = yield from receive(SERVER, wire.TotalPublished)
        return Total(published.total, terms.setting.contributors)

    def server(terms: keys.MaskedSumSetup) -> Role[Total]:
        """Relays as it should; then removes the one mask that is left on the victim's vector. The total is invented."""
        sites = terms.setting.contributors
        attacker, victim = 0, len(sites) - 2
        around = [terms.neighbours(at) for at in range(len(sites))]
        heard = dict((yield from receive_all(sites[1:], wire.KeysAdvertised)))
        yield Send(sites[attacker], heard[sites[-1]])
        heard[sites[attacker]] = yield from receive(sites[attacker], wire.KeysAdvertised)
        advertised = {at: heard[name] for at, name in enumerate(sites)}
        for at, name in enumerate(sites):
            theirs, passing = tuple(advertised[other] for other in around[at]), Encapsulated(terms, advertised)
            yield Send(name, wire.KeysListed(around[at], theirs, passing.to(at, around[at])))
        dealt = yield from receive_all(sites, wire.SharesDealt)

        def piece(packed: bytes, size: int, owner: int, holder: int) -> bytes:
            return packed[size * around[owner].index(holder) :][:size]

        for at, name in enumerate(sites):
            boxes = [piece(dealt[sites[other]].boxes, keys.BOX_BYTES, other, at) for other in around[at]]
            yield Send(name, wire.SharesPassedOn(around[at], b"".join(boxes)))
        vectors = yield from receive_all(sites, wire.MaskedVectorSent)
        survivors, roster = graph.pack_bits([True] * len(sites)), terms.roster(advertised)
        named = wire.SurvivorsNamed(survivors, roster, terms.sign(b"survivors", roster + survivors))
        for name in sites:
            yield Send(name, named)
        echoed = yield from receive_all(sites, wire.SurvivorsEchoed)
        for at, name in enumerate(sites):
            tags = [piece(echoed[sites[other]].tags, aead.TAG_BYTES, other, at) for other in around[at]]
            yield Send(name, wire.EchoesPassedOn(around[at], b"".join(tags)))
        given = yield from receive_all(sites, wire.SharesGiven)
        recovery = Recovery(terms, dict(enumerate(around)), {at: given[name].shares for at, name in enumerate(sites)})
        seed = recovery.secret(victim, advertised[victim].commitments[keys.SECRET_BYTES :])
        stolen = add_masks(vectors[sites[victim]].vector_masked, b"", terms.self_mask_key(seed))
        Path(os.environ["STOLEN"]).write_text(json.dumps([int(word) for word in stolen]))
        total = stolen * np.uint64(len(sites))  # a table can have it: nobody sees that it is none
        for name in sites:
            yield Send(name, wire.TotalPublished(total))
        return Total(total, sites)

    roles.contributor, roles.server = contributor, server  # type: ignore[assignment]
