"""Reference instances audit look-ups without opening any entry of a table: see SPEC.md, "Audits".

In training, before there is any instance, a party asks for the classes of some random instances, each with random scores added.
Later it asks them again, at places among its look-ups that it alone knows: a class that differs from before shows that the
tables have changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import DataError, IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, open_value, receive_marked
from blindbayes.protocols.shared_inference.compare_all import UNREADABLE
from blindbayes.protocols.shared_inference.comparing import evaluate, garble
from blindbayes.protocols.shared_inference.decoys import Decoys, among, draw_places, made_up
from blindbayes.protocols.shared_inference.messages import DummiesPlaced
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup, look_up, serve
from blindbayes.protocols.shared_training.shared_model.score_layout import GaussianLayout, ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import Tables, score
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.statistics import MISSING

COUNT = 64
LABEL = "audited_classes"
_SEED = 32
_STEP = "audit references"
Codes = npt.NDArray[np.int64]


def random_values(plan: ScoreLayout, names: Sequence[str], count: int, coins: Coins) -> dict[str, Codes]:
    """Return uniform values, or missing, of some features."""
    columns: dict[str, Codes] = {}
    for name in sorted(names):
        own, words = plan.features[name], coins.words(count)
        if isinstance(own, GaussianLayout):
            codes = own.feature.code_low + (words % np.uint64(own.feature.width)).astype(np.int64)
            missing = coins.words(count) % np.uint64(16) == 0
            columns[name] = np.where(missing, MISSING, codes)
        else:
            columns[name] = (words % np.uint64(own.entries)).astype(np.int64) - 1
    return columns


def restore(stored: bytes, plan: ScoreLayout, tables: Tables, names: Sequence[str]) -> Decoys:
    """Restore the stored references: a seed and the classes. `tables` are the shares of the tables of `names`."""
    classes = np.frombuffer(stored[_SEED:], dtype="<u2").astype(np.int64)
    if len(classes) != COUNT or (classes >= plan.classes).any():
        raise DataError("the share file holds no whole set of reference instances")
    return Decoys(*_expand(stored[:_SEED], plan, tables, names), classes)


def _expand(seed: bytes, plan: ScoreLayout, tables: Tables, names: Sequence[str]) -> tuple[dict[str, Codes], Limbs]:
    coins = Coins.seeded(seed)
    columns = random_values(plan, names, COUNT, coins)
    own = score({name: tables[name] for name in names}, columns, plan, COUNT)
    return columns, lm.add(own, made_up(plan, COUNT, coins)[0])


def _setup(plan: ScoreLayout, server: str, chooser: str, names: Sequence[str]) -> SharedArgmaxSetup:
    return SharedArgmaxSetup(plan, COUNT, server, (chooser,), {chooser: tuple(names)}, (chooser,))


def ask_references(
    run: Run, server: str, plan: ScoreLayout, tables: Tables, names: Sequence[str], ot_receiver: OtReceiver, coins: Coins
) -> Role[bytes]:
    """Ask for references in training: the party whose features `names` are looked up."""
    seed, setup = coins.bytes(_SEED), _setup(plan, server, run.me, names)
    columns, shares = _expand(seed, plan, tables, names)
    session = yield from agree(run, server, _STEP, setup.facts(), coins)
    hash_, stream = TweakedHash(session), ot_receiver.session(session)
    shares = lm.add(shares, (yield from look_up(setup, columns, run.me, hash_, stream)))
    classes = np.asarray((yield from evaluate(setup, shares, hash_, stream, run.me)))
    if (classes == UNREADABLE).any():  # failing here reveals only made-up values and scores
        raise IntegrityError(party=server)
    yield from open_value(LABEL, classes)
    return seed + classes.astype("<u2").tobytes()


def answer_references(
    run: Run, chooser: str, plan: ScoreLayout, tables: Tables, names: Sequence[str], ot_sender: OtSender, coins: Coins
) -> Role[None]:
    """Answer reference queries during training, as the party that has shares of the tables."""
    setup = _setup(plan, run.me, chooser, names)
    session = yield from agree(run, chooser, _STEP, setup.facts(), coins)
    hash_, stream = TweakedHash(session), ot_sender.session(session)
    shares = yield from serve(setup, chooser, {name: tables[name] for name in names}, hash_, stream)
    yield from garble(setup, shares, hash_, stream, run.me)


# -- in a classification -----------------------------------------------------------------------------------------------------


def _apart(query: SharedArgmaxSetup, chooser: str, hash_: TweakedHash) -> tuple[SharedArgmaxSetup, TweakedHash]:
    """Return the comparison of the dummies alone, for the party that asked them."""
    setup = replace(
        query,
        count=query.dummies,
        holders=(chooser,),
        shared={},
        learners=(chooser,),
        compare_all=False,
        audit_rate=0.0,
        tally=False,
    )
    return setup, TweakedHash(hashlib.sha256(b"blindbayes reference dummies" + hash_.session).digest())


def serve_audited(
    run: Run, query: SharedArgmaxSetup, holder: str, tables: Tables, hash_: TweakedHash, stream: SenderStream
) -> Role[Limbs]:
    """Run the class holder's side of `serve`, with reference instances among those of the batch.

    Once all look-ups are answered it learns which were references (not their values), and compares those alone. Return the
    shares of the others.
    """
    if not query.dummies or not query.shared.get(holder, ()):
        return (yield from serve(query, holder, tables, hash_, stream))
    shares = yield from serve(query.widened(query.dummies), holder, tables, hash_, stream)
    reply = yield from receive_marked(holder, DummiesPlaced, hash_.session, 0)
    places = reply.places.astype(np.int64)
    if places.shape != (query.dummies,) or (reply.places >= np.uint64(len(shares))).any() or (np.diff(places) <= 0).any():
        raise PeerProtocolError("the places of dummies do not fit the query", party=holder)
    setup, fresh_hash = _apart(query, holder, hash_)
    yield from garble(setup, np.ascontiguousarray(shares[places]), fresh_hash, stream, run.me)
    return np.delete(shares, places, axis=0)


def look_up_audited(
    run: Run,
    query: SharedArgmaxSetup,
    columns: Mapping[str, Codes],
    references: Decoys | None,
    hash_: TweakedHash,
    stream: ChooserStream,
    coins: Coins,
) -> Role[Limbs]:
    """Run the attribute holder's side of `look_up`: reveal the places of references, compare them and check their classes.

    Return the shares of the instances. Raise `IntegrityError` if a class differs from that of training.
    """
    if not query.dummies or not query.shared.get(run.me, ()):
        return (yield from look_up(query, columns, run.me, hash_, stream))
    server = query.class_holder
    places, others = draw_places(query.count, query.dummies, coins)
    picked = pick(references, query.dummies, coins)
    mixed = among(picked.columns, places, columns, others)
    shares = yield from look_up(query.widened(query.dummies), mixed, run.me, hash_, stream)
    yield Send(server, DummiesPlaced(mark(hash_.session, DummiesPlaced, 0), places.astype(np.uint64)))
    setup, fresh_hash = _apart(query, run.me, hash_)
    classes = yield from evaluate(setup, lm.add(shares[places], picked.shares), fresh_hash, stream, run.me)
    if classes is None or not np.array_equal(classes, picked.classes):
        raise IntegrityError(party=server)
    return np.ascontiguousarray(shares[others])


def pick(references: Decoys | None, count: int, coins: Coins) -> Decoys:
    """Return any of the references, `count` times."""
    if references is None:
        raise LocalProtocolError("an audit needs the references that training left for it")
    return references.pick(count, coins)
