"""Standing keys of the paper's own form: one agreement, then a single message per contributor and round, while parties join
and leave. In a study, `oblivious_sum` with `keys = "standing"` does the same with the keys of the sites' cards.

Each contributor keeps an X25519 key and a secret with every neighbour in the key graph (`membership.Groups`); the miner keeps
one with everybody. A join or leave is a public fact, from which all compute the new graph; only those who get new neighbours
hear of keys, and only they, and the former neighbours of a leaver, have another zero-sum key afterwards. The label of a round
carries the roster and the round's name, so ciphertexts of different rosters or rounds never fit together.

A round is all or nothing: everybody in the roster must send. Where parties may fail within a round, use `roles` with a quorum.
What a leaver knows are keys of edges that are no longer in use; what a newcomer knows was not used before. Every run uses
edge keys of its own, derived from the standing ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all
from blindbayes.wire import KeyMessage
from blindbayes_papers.huai2015.oblivious_sum.membership import Groups
from blindbayes_papers.huai2015.oblivious_sum.messages import CiphertextsSent, KeyAnnounced
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER, ObliviousEncryption


class KeysChanged(KeyMessage, frozen=True):
    """Standing keys, 2: the signed keys of the receiver's new neighbours, and the miner's."""

    miner: bytes
    signature: bytes
    names: tuple[str, ...]
    publics: tuple[bytes, ...]
    signatures: tuple[bytes, ...]


def _label(run: Run, groups: Groups, step: str) -> bytes:
    return hashlib.sha256(run.context("standing", step, *groups.parties)).digest()


class _KeyStore:
    """An agreement key and the secrets made with it."""

    def __init__(self, scheme: ObliviousEncryption, coins: Coins) -> None:
        self.scheme = scheme
        self._agreement = AgreementKey.generate(coins.derive("standing"))
        self.public = self._agreement.public
        self._channels: dict[str, bytes] = {}
        self._publics: dict[str, bytes] = {}  # of whom there is a channel
        self._used: set[bytes] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<redacted>)"

    def _scope(self, run: Run) -> bytes:
        """Standing keys are bound to the study, not to a run, since they serve many; what a round uses of them is."""
        return pair_keys.standing_scope(run, "oblivious_sum standing v2", self.scheme.digest.hex())

    def _sign(self, run: Run) -> bytes:
        return pair_keys.sign_keys(run, self._scope(run), self.public)

    def _meet(self, run: Run, signed_keys: Mapping[str, tuple[bytes, bytes]], *, blame: str | None = None) -> None:
        """Make channels with these parties, by their public keys and signatures; refused keys name `blame` or their owner."""
        stay = {name: public for name, public in self._publics.items() if name not in signed_keys}
        publics = [(name, public) for name, (public, _) in signed_keys.items()]
        pair_keys.require_keys(publics, own=(self.public, *stay.values()), blame=blame)
        scope = self._scope(run)
        for name, (public, signature) in signed_keys.items():
            pair_keys.verify_keys(run, scope, name, (public,), signature, blame=blame or name)
            names = {"me": run.me, "other": name}
            self._channels[name] = pair_keys.pair_key(
                self._agreement, public, **names, scope=scope, purpose="oblivious_sum standing channel"
            )
            self._publics[name] = public

    def _forget(self, names: Collection[str]) -> None:
        for name in names:
            del self._channels[name], self._publics[name]

    def _edge(self, run: Run, name: str) -> int:
        """The key of an edge in this run."""
        context = run.context("standing edge")
        return self.scheme.pair_key(pair_keys.shared_key(self._channels[name], "oblivious_sum zero key", context))

    def _use(self, label: bytes) -> None:
        if label in self._used:
            raise LocalProtocolError("a label is used once: two plaintexts under one label show their difference")
        self._used.add(label)


class StandingKeys(_KeyStore):
    """A contributor's keys."""

    def zero_key(self, run: Run, groups: Groups) -> int:
        """My key in this graph and run; all contributors' and the miner's add up to zero."""
        edges = {name: self._edge(run, name) for name in (*groups.neighbours(run.me), MINER)}
        return self.scheme.total(key if name == MINER or run.me < name else -key for name, key in edges.items())

    def rekey(self, run: Run, groups: Groups, *, joins: bool, changed: bool) -> Role[None]:
        """Take part in a change of the roster: as the newcomer, as one of the changed, or (no message) as anybody else."""
        if joins:
            if run.signer is None:
                raise ConfigError("standing keys need identities: give the run a signer")
            yield Send(MINER, KeyAnnounced(self.public, self._sign(run)))  # 1
        if joins or changed:
            message = yield from receive(MINER, KeysChanged)  # 2
            neighbours = set(groups.neighbours(run.me))
            if not len(message.names) == len(message.publics) == len(message.signatures) or not neighbours >= set(
                message.names
            ):
                raise PeerProtocolError("the new keys are not those of neighbours", party=MINER)
            keys = zip(message.publics, message.signatures, strict=True)
            signed_keys = {**dict(zip(message.names, keys, strict=True)), MINER: (message.miner, message.signature)}
            if len(signed_keys) != len(message.names) + 1 or self._publics.get(MINER, message.miner) != message.miner:
                raise PeerProtocolError("a key is named twice, or the miner's has changed", party=MINER)
            self._meet(run, signed_keys, blame=MINER)  # the miner has checked them before
        self._forget(set(self._channels) - set(groups.neighbours(run.me)) - {MINER})
        if set(groups.neighbours(run.me)) - set(self._channels):
            raise PeerProtocolError("a neighbour's key is missing", party=MINER)

    def contribute(self, run: Run, groups: Groups, plaintexts: Sequence[int], step: str) -> Role[None]:
        """One round: one message."""
        label = _label(run, groups, step)
        self._use(label)
        elements = self.scheme.encrypt(plaintexts, self.zero_key(run, groups), label)
        yield Send(MINER, CiphertextsSent(tuple(elements)))


class StandingMiner(_KeyStore):
    """The miner's keys, and everybody's signed public ones."""

    def __init__(self, scheme: ObliviousEncryption, coins: Coins) -> None:
        super().__init__(scheme, coins)
        self._announced: dict[str, KeyAnnounced] = {}
        self._known: dict[str, set[str]] = {}  # whose keys each party has already

    def rekey(self, run: Run, groups: Groups, *, joining: Collection[str], changed: Collection[str]) -> Role[None]:
        """Hear the newcomers' keys; tell those with new neighbours."""
        heard = yield from receive_all(sorted(joining), KeyAnnounced)  # 1
        self._meet(run, {name: (message.public, message.signature) for name, message in heard.items()})
        self._announced.update(heard)
        signature = self._sign(run)
        for name in sorted({*joining, *changed}):
            neighbours = set(groups.neighbours(name))
            known = self._known.setdefault(name, set()) & neighbours
            news = sorted(neighbours - known)
            keys = [self._announced[other] for other in news]
            publics, signed = tuple(key.public for key in keys), tuple(key.signature for key in keys)
            yield Send(name, KeysChanged(self.public, signature, tuple(news), publics, signed))  # 2
            self._known[name] = neighbours
        gone = set(self._announced) - set(groups.parties)
        self._forget(gone)
        for name in gone:
            del self._announced[name], self._known[name]

    def collect(self, run: Run, groups: Groups, count: int, step: str, opened: str = "sum") -> Role[list[int]]:
        """One round: the plaintexts' sums."""
        label = _label(run, groups, step)
        self._use(label)
        sent = yield from receive_all(groups.parties, CiphertextsSent)
        for name, message in sent.items():
            self.scheme.require_elements(message.elements, count, party=name)
        key = -self.scheme.total(self._edge(run, name) for name in groups.parties)
        product = self.scheme.multiply([*(m.elements for m in sent.values()), self.scheme.masks(key, label, count)])
        try:
            totals = self.scheme.open(product)
        except IntegrityError as cause:  # a ciphertext is wrong, and nothing shows whose
            raise IntegrityError(suspects=groups.parties) from cause
        return (yield from open_value(opened, totals))
