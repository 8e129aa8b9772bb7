"""Dummies among the look-ups catch a class holder that answers from other tables than it signed. See SPEC.md, "Audits".

The attribute holder looks up the batch's instances and, at places that nobody knows beforehand, dummies with random values.
Both parties contribute to the coins that choose them: the attribute holder commits to its part, hears the other's, and opens
its own once the class holder has answered everything and has committed to its shares of the sums. Then the class holder opens
its shares of the dummies' sums and the table entries that they touch, which must be those of the root it signed in training,
and must add up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto import merkle, signatures
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Done, Role, Run, Send, mark, open_value, receive, receive_marked, step
from blindbayes.protocols.shared_inference.decoys import Decoys, Placed, among, draw_places, fresh, offer_places, place_decoys
from blindbayes.protocols.shared_inference.messages import (
    DummiesCommitted,
    DummiesOpened,
    DummiesRevealed,
    DummiesSeeded,
    EntriesChosen,
    EntriesMasked,
    SharesCommitted,
    TablesCommitted,
)
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup, look_up, look_up_shape, serve
from blindbayes.protocols.shared_inference.references import answer_dummies, look_up_references, random_values, restore
from blindbayes.protocols.shared_training.shared_model.score_layout import ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import Tables, score
from blindbayes.wire import U64Array

LABEL = "audited_cells"
_SEED = 32
Codes = npt.NDArray[np.int64]


# -- committed tables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    """One party's record of the commitments to both shares of the tables: its own secret, both roots, both signatures."""

    secret: bytes = field(repr=False)
    root: bytes
    signature: bytes
    theirs: bytes
    their_signature: bytes
    references: bytes = field(default=b"", repr=False)  # of the party whose look-ups are audited without noise in the shares


@dataclass(frozen=True, slots=True)
class Pledge:
    """The commitment that a party holds another to in a classification: the root of its tables, or earlier answers."""

    root: bytes
    references: Decoys | None = None

    @classmethod
    def from_committed(cls, committed: Committed, plan: ScoreLayout, tables: Tables, names: Sequence[str]) -> Pledge:
        """Restore what training left. `tables` are the party's own shares of the tables of its features `names`."""
        stored = committed.references
        return cls(committed.theirs, restore(stored, plan, tables, names) if stored else None)


def commit_tables(run: Run, other: str, tables: Tables, coins: Coins) -> Role[Committed]:
    """Run the last step of training: exchange the roots of both shares of the tables, signed if there is a key."""
    secret = coins.bytes(_SEED)
    root = _tree(tables, secret).root
    signature = b"" if run.signer is None else run.signer.sign(_payload(run, run.me, other, root))
    yield Send(other, TablesCommitted(root, signature))
    reply = yield from receive(other, TablesCommitted)
    if len(reply.root) != merkle.HASH_BYTES:
        raise PeerProtocolError("a root has 32 bytes", party=other)
    if run.signer is not None:
        if other not in run.identities:
            raise LocalProtocolError("signed roots need every party's identity", party=run.me)
        signatures.verify(run.identities[other], _payload(run, other, run.me, reply.root), reply.signature, party=other)
    return Committed(secret, root, signature, reply.root, reply.signature)


def _payload(run: Run, signer: str, other: str, root: bytes) -> bytes:
    return run.context("share tables", signer, other) + root


def _entry_starts(names: Sequence[str], plan: ScoreLayout) -> tuple[dict[str, int], int]:
    """Return where each feature's entries begin in the committed list, and its length; entry 0 is always 0."""
    starts, at = {}, 0
    for name in sorted(names):
        starts[name] = at
        at += plan.features[name].selectors * (plan.features[name].entries - 1)
    return starts, at


def _items(tables: Tables) -> list[bytes]:
    items = []
    for name in sorted(tables):
        for selector, entries in enumerate(tables[name]):
            items += [_item(name, selector, value, entries[value]) for value in range(1, len(entries))]
    return items


def _item(name: str, selector: int, value: int, entry: U64Array) -> bytes:
    return repr((name, selector, value)).encode() + entry.astype("<u8").tobytes()


def _tree(tables: Tables, secret: bytes) -> merkle.Tree:
    return merkle.Tree(_items(tables), secret)


class Evidence(msgspec.Struct, frozen=True, tag=True):
    """The record of a failed audit: who signed what. The root with its signature is in the accuser's share file.

    Entries that are not in the root, and sums that do not open their commitments, are proved by the accused party's signatures
    alone; sums that do not add up together with the accuser's shares of them, which follow from its own coins and the answers.
    """

    study: str
    run: str
    accused: str
    accuser: str
    session: bytes
    root: bytes
    seeds: tuple[bytes, bytes]
    signed: tuple[bytes, bytes]  # with the commitments, and with what was opened
    promised: SharesCommitted
    opened: DummiesOpened
    answers: U64Array  # to the dummies, which the second signature covers
    shares: U64Array  # the accuser's, of the dummies' sums


def _words_as_bytes(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype("<u8").tobytes()
    raise TypeError("evidence holds plain values and words")


# -- dummies -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dummies:
    """The places and values of the dummies."""

    places: Codes
    others: Codes
    columns: Mapping[str, Codes]

    @classmethod
    def draw(cls, query: SharedArgmaxSetup, holder: str, session: bytes, first: bytes, second: bytes) -> Dummies:
        """Derive the dummies from the coins of both parties."""
        coins = Coins.seeded(hashlib.sha256(session + first + second).digest())
        places, others = draw_places(query.count, query.dummies, coins)
        return cls(places, others, random_values(query.plan, query.shared.get(holder, ()), query.dummies, coins))

    def touched(self, plan: ScoreLayout) -> list[tuple[str, int, int]]:
        """Return each (feature, selector, entry) that some dummy chose, once."""
        cells = set()
        for name, own in self.columns.items():
            chosen = plan.features[name].choices(own).astype(np.int64)
            for selector in range(chosen.shape[1]):
                cells |= {(name, selector, int(value)) for value in np.unique(chosen[:, selector]) if value}
        return sorted(cells)


def _hashed(seed: bytes, session: bytes) -> bytes:
    return hashlib.sha256(b"blindbayes dummies" + session + seed).digest()


def _share_commitments(session: bytes, seeds: Block128, places: Codes, shares: U64Array) -> U64Array:
    """Commit to shares (n, width) of the instances at these places.

    Each commitment has 256 bits that bind to a seed, and the share under the rest of the seed's stream.
    """
    step = -(-shares.shape[1] // 2) + 2
    hash_ = TweakedHash(hashlib.sha256(b"blindbayes sums" + session).digest())
    words = hash_.expand_at(seeds, Domain.OUTPUT, places.astype(np.uint64) * np.uint64(step), 4 + shares.shape[1])
    words[:, 4:] ^= shares
    return words


class _Heard:
    """The questions of some look-ups, hashed, and the answers: of the dummies alone, once they are known."""

    def __init__(self, run: Run, query: SharedArgmaxSetup, holder: str, places: Codes | None = None) -> None:
        self._signed = run.signer is not None  # nobody signs: nothing to hash
        self._asked, self._answers, self._places = hashlib.sha256(), list[U64Array](), places
        self._chunks, self._shape = query.chunks(), look_up_shape(query, holder)

    def over(self, role: Role[Limbs]) -> Role[Limbs]:
        """Run a role and record what it receives."""
        value: Any = None
        while True:
            effect = step(role, value)
            self._hear(value)
            if isinstance(effect, Done):
                result: Limbs = effect.value
                return result
            self._hear(effect.message if isinstance(effect, Send) else None)
            value = yield effect

    def _hear(self, message: Any) -> None:
        if not self._signed:
            return
        if isinstance(message, EntriesChosen):
            self._asked.update(np.ascontiguousarray(message.corrections).data)
        elif isinstance(message, EntriesMasked):
            at, words = len(self._answers), message.entries
            self._answers.append(words if self._places is None else self._at(at, words, self._places))

    def _at(self, index: int, words: U64Array, places: Codes) -> U64Array:
        """Return the answers of one chunk at some places."""
        part, answers, read = self._chunks[index], [], 0
        own, count = places[(places >= part.start) & (places < part.stop)] - part.start, part.stop - part.start
        each = len(words) // (count * sum(selectors * (entries - 1) for entries, selectors in self._shape))
        for entries, selectors in self._shape:
            size = (entries - 1) * count * selectors * each
            answers.append(words[read : read + size].reshape(entries - 1, count, -1)[:, own].reshape(-1))
            read += size
        return np.concatenate(answers)

    def digest(self, run: Run, holder: str, other: str, session: bytes, digests: U64Array) -> bytes:
        """Return what the class holder signs before it knows the dummies."""
        hashed = hashlib.sha256(digests.astype("<u8").tobytes()).digest()
        return run.context("audited look-ups", holder, other) + session + self._asked.digest() + hashed

    def answers(self, places: Codes) -> U64Array:
        """Return the answers to the dummies, at these places; nothing where nobody signs."""
        if self._places is None:
            self._answers, self._places = [self._at(at, words, places) for at, words in enumerate(self._answers)], places
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._answers])

    def answered(self, places: Codes) -> bytes:
        """Hash the answers, for the class holder to sign with what it opens."""
        return hashlib.sha256(self.answers(places).astype("<u8", copy=False).data).digest()


def _opened_payload(run: Run, holder: str, other: str, session: bytes, opened: DummiesOpened) -> bytes:
    """Return what the class holder signs with what it opens."""
    digest = hashlib.sha256()
    words = (opened.shares.astype("<u8").tobytes(), opened.salts, opened.entries.astype("<u8").tobytes())
    for part in (*words, opened.entry_salts, opened.paths, opened.answered):
        digest.update(len(part).to_bytes(8, "big") + part)
    return run.context("audited cells", holder, other) + session + digest.digest()


def _sign(run: Run, payload: bytes) -> bytes:
    return b"" if run.signer is None else run.signer.sign(payload)


def _verify(run: Run, party: str, payload: bytes, signature: bytes) -> None:
    if run.signer is not None:
        signatures.verify(run.identities[party], payload, signature, party=party)


def serve_audited(
    run: Run,
    query: SharedArgmaxSetup,
    holder: str,
    tables: Tables,
    committed: Committed | None,
    hash_: TweakedHash,
    stream: SenderStream,
    coins: Coins,
) -> Role[Limbs]:
    """Run the class holder's side of `serve`, with dummies among the instances."""
    if not query.dummies or not query.shared.get(holder, ()):
        return (yield from serve(query, holder, tables, hash_, stream))
    if not query.opens_cells:
        answered = yield from serve(query.widened(query.dummies), holder, tables, hash_, stream)
        return (yield from answer_dummies(run, query, holder, answered, hash_, stream))
    if committed is None:
        raise LocalProtocolError("an audit needs the commitment to the tables that training made")
    session, plan = hash_.session, query.plan
    promised = yield from receive_marked(holder, DummiesCommitted, session, 0)
    mine = coins.bytes(_SEED)
    yield Send(holder, DummiesSeeded(mark(session, DummiesSeeded, 0), mine))
    wide = query.widened(query.dummies)
    heard = _Heard(run, wide, holder)
    shares = yield from heard.over(serve(wide, holder, tables, hash_, stream))
    seeds = coins.words(2 * len(shares)).reshape(-1, 2)
    digests = _share_commitments(session, seeds, np.arange(len(shares)), shares.reshape(len(shares), -1)).reshape(-1)
    signature = _sign(run, heard.digest(run, run.me, holder, session, digests))
    yield Send(holder, SharesCommitted(mark(session, SharesCommitted, 0), digests, signature))
    revealed = yield from receive_marked(holder, DummiesRevealed, session, 0)
    if len(revealed.seed) != _SEED or _hashed(revealed.seed, session) != promised.digest:
        raise IntegrityError(party=holder)  # it would choose its dummies, and with them the cells that are opened
    dummies = Dummies.draw(query, holder, session, revealed.seed, mine)
    touched, tree, (starts, _) = dummies.touched(plan), _tree(tables, committed.secret), _entry_starts(tuple(tables), plan)
    openings = [tree.open(_entry_index(starts, plan, *each)) for each in touched]
    entries = [tables[name][selector, value].reshape(-1) for name, selector, value in touched]
    opened = DummiesOpened(
        mark(session, DummiesOpened, 0),
        shares[dummies.places].reshape(-1),
        seeds[dummies.places].astype("<u8").tobytes(),
        np.concatenate(entries) if entries else np.zeros(0, dtype=np.uint64),
        b"".join(opening.salt for opening in openings),
        b"".join(opening.path for opening in openings),
        heard.answered(dummies.places),
        b"",
    )
    signature = _sign(run, _opened_payload(run, run.me, holder, session, opened))
    yield Send(holder, msgspec.structs.replace(opened, signature=signature))
    return np.ascontiguousarray(shares[dummies.others])


def look_up_audited(
    run: Run,
    query: SharedArgmaxSetup,
    columns: Mapping[str, Codes],
    pledge: Pledge | None,
    hash_: TweakedHash,
    stream: ChooserStream,
    coins: Coins,
) -> Role[Limbs]:
    """Run the attribute holder's side of `look_up`, with dummies among the instances.

    Raise `IntegrityError` if the class holder's answers were not made from the tables that it committed to.
    """
    me = run.me
    if not query.dummies or not query.shared.get(me, ()):
        return (yield from look_up(query, columns, me, hash_, stream))
    if not query.opens_cells:
        return (yield from look_up_references(run, query, columns, _references(pledge), hash_, stream, coins))
    if pledge is None:
        raise LocalProtocolError(_NOTHING_LEFT)
    session, sender, root = hash_.session, query.class_holder, pledge.root
    mine = coins.bytes(_SEED)
    yield Send(sender, DummiesCommitted(mark(session, DummiesCommitted, 0), _hashed(mine, session)))
    seeded = yield from receive_marked(sender, DummiesSeeded, session, 0)
    if len(seeded.seed) != _SEED:
        raise PeerProtocolError("a seed has 32 bytes", party=sender)
    dummies = Dummies.draw(query, me, session, mine, seeded.seed)
    wide, mixed = query.widened(query.dummies), among(dummies.columns, dummies.places, columns, dummies.others)
    heard = _Heard(run, wide, me, dummies.places)
    shares = yield from heard.over(look_up(wide, mixed, me, hash_, stream))
    promised = yield from receive_marked(sender, SharesCommitted, session, 0)
    if promised.digests.size != (4 + shares[0].size) * len(shares):
        raise PeerProtocolError("the commitments to shares have the wrong length", party=sender)
    committed = heard.digest(run, sender, me, session, promised.digests)
    _verify(run, sender, committed, promised.signature)
    yield Send(sender, DummiesRevealed(mark(session, DummiesRevealed, 0), mine))
    opened = yield from receive_marked(sender, DummiesOpened, session, 0)
    shown = _opened_payload(run, sender, me, session, opened)
    _verify(run, sender, shown, opened.signature)
    try:
        if opened.answered != heard.answered(dummies.places):
            raise IntegrityError(party=sender)
        cells = _check(query, me, dummies, shares[dummies.places], promised, session, opened, root)
    except IntegrityError as error:
        facts = Evidence(
            run.study,
            run.run_id,
            sender,
            me,
            session,
            root,
            (mine, seeded.seed),
            (committed, shown),
            promised,
            opened,
            heard.answers(dummies.places),
            shares[dummies.places].reshape(-1),
        )
        raise IntegrityError(party=sender, evidence=msgspec.msgpack.encode(facts, enc_hook=_words_as_bytes)) from error
    yield from open_value(LABEL, cells)
    return np.ascontiguousarray(shares[dummies.others])


_NOTHING_LEFT = "an audit needs what training left for it: the commitment to the tables, the references"


def _references(pledge: Pledge | None) -> Decoys:
    if pledge is None or pledge.references is None:
        raise LocalProtocolError(_NOTHING_LEFT)
    return pledge.references


def place_audited(
    run: Run,
    query: SharedArgmaxSetup,
    shares: Limbs,
    columns: Mapping[str, Codes],
    pledge: Pledge | None,
    hash_: TweakedHash,
    stream: ChooserStream,
    coins: Coins,
) -> Role[Placed]:
    """Run the evaluator's look-ups and its decoys.

    Without noise in the shares they are the same: references are put at the places of decoys. `shares` are its other shares of
    the instances' scores.
    """
    if query.opens_cells or not query.shared.get(run.me, ()):
        shares = lm.add(shares, (yield from look_up_audited(run, query, columns, pledge, hash_, stream, coins)))
        made = fresh(query, coins)
    else:
        made = _references(pledge).pick(query.decoys, coins)
    return (yield from place_decoys(query, shares, columns, made, hash_, stream, coins))


def offer_audited(
    run: Run,
    query: SharedArgmaxSetup,
    shares: Limbs,
    tables: Tables,
    committed: Committed | None,
    hash_: TweakedHash,
    stream: SenderStream,
    coins: Coins,
) -> Role[tuple[Limbs, Block128]]:
    """Run the class holder's side of `place_audited`."""
    first = query.holders[0]
    if query.opens_cells:
        shares = lm.add(shares, (yield from serve_audited(run, query, first, tables, committed, hash_, stream, coins)))
    return (yield from offer_places(query, shares, tables, hash_, stream))


def _check(
    query: SharedArgmaxSetup,
    me: str,
    dummies: Dummies,
    mine: Limbs,
    promised: SharesCommitted,
    session: bytes,
    opened: DummiesOpened,
    root: bytes,
) -> dict[str, Limbs]:
    """Return the class holder's entries that the dummies touched; raise, naming it, if anything is not as committed to."""
    plan, sender, count = query.plan, query.class_holder, len(dummies.places)
    touched, (starts, size) = dummies.touched(plan), _entry_starts(query.shared[me], plan)
    width = (plan.classes - 1) * plan.limbs
    paths, read = opened.paths, 0
    lengths = (opened.shares.size, len(opened.salts), opened.entries.size, len(opened.entry_salts))
    expected = (count * width, count * merkle.SALT_BYTES, len(touched) * width, len(touched) * merkle.SALT_BYTES)
    if lengths != expected:
        raise PeerProtocolError("what was opened has the wrong length", party=sender)
    theirs = opened.shares.reshape(mine.shape)
    seeds = np.frombuffer(opened.salts, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    commitments = _share_commitments(session, seeds, dummies.places, opened.shares.reshape(count, width))
    if not np.array_equal(commitments, promised.digests.reshape(-1, 4 + width)[dummies.places]):
        raise IntegrityError(party=sender)
    tables = {
        name: np.zeros((own.selectors, own.entries, plan.classes - 1, plan.limbs), dtype=np.uint64)
        for name in query.shared[me]
        for own in (plan.features[name],)
    }
    for at, (name, selector, value) in enumerate(touched):
        entry = opened.entries[width * at : width * (at + 1)]
        place = _entry_index(starts, plan, name, selector, value)
        length = merkle.path_bytes(size, place)
        salt = opened.entry_salts[merkle.SALT_BYTES * at : merkle.SALT_BYTES * (at + 1)]
        opening = merkle.Opening(salt, paths[read : read + length])
        read += length
        if not merkle.is_item(root, size, place, _item(name, selector, value, entry), opening):
            raise IntegrityError(party=sender)
        tables[name][selector, value] = entry.reshape(plan.classes - 1, plan.limbs)
    if read != len(paths):
        raise PeerProtocolError("what was opened has the wrong length", party=sender)
    if not np.array_equal(
        lm.cut(lm.add(mine, theirs), plan.bits), lm.cut(score(tables, dummies.columns, plan, count), plan.bits)
    ):
        raise IntegrityError(party=sender)
    return tables


def _entry_index(starts: Mapping[str, int], plan: ScoreLayout, name: str, selector: int, value: int) -> int:
    return starts[name] + selector * (plan.features[name].entries - 1) + value - 1
