"""Standing keys: one agreement, then a single message per contributor and round, while parties join and leave.

Each contributor keeps an X25519 key and a secret with every neighbour in the key graph (`membership.Groups`); the miner keeps
one with everybody. A join or leave is a public fact, from which all compute the new graph; only those who get new neighbours
hear of keys, and only they, and the former neighbours of a leaver, have another zero-sum key afterwards. The label of a round
carries the roster and the round's name, so ciphertexts of different rosters or rounds never fit together.

A round is all or nothing: everybody in the roster must send. Where parties may fail within a round, use `roles` with a quorum.
What a leaver knows are keys of edges that are no longer in use; what a newcomer knows was not used before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError
from blindbayes.primitives import signatures
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.prg import derive_key
from blindbayes.protocol.core import Role, Run, Send, open_value, receive, receive_all
from blindbayes.protocol.oblivious_sum.membership import Groups
from blindbayes.protocol.oblivious_sum.messages import CiphertextsSent, KeyAnnounced, KeysChanged
from blindbayes.protocol.oblivious_sum.terms import MINER, Scheme


def _payload(run: Run, name: str, public: bytes) -> bytes:
    """What is signed of a standing key: bound to the study, not to a run, since it serves many."""
    return hashlib.sha256(b"blindbayes standing key v1" + run.study.encode() + b"\0" + name.encode() + b"\0" + public).digest()


def _label(run: Run, groups: Groups, step: str) -> bytes:
    return hashlib.sha256(run.context("standing", step, *groups.parties)).digest()


class _Keeper:
    """An agreement key and the secrets made with it."""

    def __init__(self, scheme: Scheme, coins: Coins) -> None:
        self.scheme = scheme
        self._agreement = AgreementKey.generate(coins.derive("standing"))
        self.public = self._agreement.public
        self._edges: dict[str, int] = {}
        self._used: set[bytes] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<redacted>)"

    def _meet(self, name: str, public: bytes) -> None:
        secret = self._agreement.agree(public, party=name)
        self._edges[name] = self.scheme.pair_key(derive_key(secret, "oblivious_sum standing key", self.scheme.digest))

    def _use(self, label: bytes) -> None:
        if label in self._used:
            raise LocalProtocolError("a label is used once: two plaintexts under one label show their difference")
        self._used.add(label)


class StandingKeys(_Keeper):
    """A contributor's keys."""

    def zero_key(self, me: str, groups: Groups) -> int:
        """My key in this graph; all contributors' and the miner's add up to zero."""
        edges = {name: self._edges[name] for name in (*groups.neighbours(me), MINER)}
        return self.scheme.total(key if name == MINER or me < name else -key for name, key in edges.items())

    def rekey(self, run: Run, groups: Groups, *, joins: bool, changed: bool) -> Role[None]:
        """Take part in a change of the roster: as the newcomer, as one of the changed, or (no message) as anybody else."""
        if joins:
            if run.signer is None:
                raise ConfigError("standing keys need identities: give the run a signer")
            yield Send(MINER, KeyAnnounced(self.public, run.signer.sign(_payload(run, run.me, self.public))))  # 1
        if joins or changed:
            message = yield from receive(MINER, KeysChanged)  # 2
            neighbours = set(groups.neighbours(run.me))
            if not len(message.names) == len(message.publics) == len(message.signatures) or not neighbours >= set(
                message.names
            ):
                raise PeerProtocolError("the new keys are not those of neighbours", party=MINER)
            self._meet(MINER, message.miner)
            for name, public, signature in zip(message.names, message.publics, message.signatures, strict=True):
                signatures.verify(run.identities.get(name, b""), _payload(run, name, public), signature, party=name)
                self._meet(name, public)
        for gone in set(self._edges) - set(groups.neighbours(run.me)) - {MINER}:
            del self._edges[gone]
        if set(groups.neighbours(run.me)) - set(self._edges):
            raise PeerProtocolError("a neighbour's key is missing", party=MINER)

    def contribute(self, run: Run, groups: Groups, plaintexts: Sequence[int], step: str) -> Role[None]:
        """One round: one message."""
        label = _label(run, groups, step)
        self._use(label)
        elements = self.scheme.encrypt(plaintexts, self.zero_key(run.me, groups), label)
        yield Send(MINER, CiphertextsSent(tuple(elements)))


class StandingMiner(_Keeper):
    """The miner's keys, and everybody's signed public ones."""

    def __init__(self, scheme: Scheme, coins: Coins) -> None:
        super().__init__(scheme, coins)
        self._announced: dict[str, KeyAnnounced] = {}
        self._known: dict[str, set[str]] = {}  # whose keys each party has already

    def rekey(self, run: Run, groups: Groups, *, joining: Collection[str], changed: Collection[str]) -> Role[None]:
        """Hear the newcomers' keys; tell those with new neighbours."""
        heard = yield from receive_all(sorted(joining), KeyAnnounced)  # 1
        for name, message in heard.items():
            signatures.verify(run.identities.get(name, b""), _payload(run, name, message.public), message.signature, party=name)
            self._announced[name] = message
            self._meet(name, message.public)
        for name in sorted({*joining, *changed}):
            neighbours = set(groups.neighbours(name))
            known = self._known.setdefault(name, set()) & neighbours
            news = sorted(neighbours - known)
            keys = [self._announced[other] for other in news]
            publics, signed = tuple(key.public for key in keys), tuple(key.signature for key in keys)
            yield Send(name, KeysChanged(self.public, tuple(news), publics, signed))  # 2
            self._known[name] = neighbours
        for gone in set(self._announced) - set(groups.parties):
            del self._announced[gone], self._known[gone], self._edges[gone]

    def collect(self, run: Run, groups: Groups, count: int, step: str, opened: str = "sum") -> Role[list[int]]:
        """One round: the plaintexts' sums."""
        label = _label(run, groups, step)
        self._use(label)
        sent = yield from receive_all(groups.parties, CiphertextsSent)
        for name, message in sent.items():
            self.scheme.require_elements(message.elements, count, party=name)
        key = -self.scheme.total(self._edges[name] for name in groups.parties)
        product = self.scheme.multiply([*(m.elements for m in sent.values()), self.scheme.masks(key, label, count)])
        return (yield from open_value(opened, self.scheme.open(product)))
