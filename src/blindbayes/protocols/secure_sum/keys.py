"""Keys of the pairs of a masked sum, and how everything is bound to the run."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.crypto import aead, hybrid, shamir, signatures
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.prg import derive_key, expand_bytes
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.core import Run
from blindbayes.protocols.registry import SumSetup, require_options
from blindbayes.protocols.secure_sum import graph
from blindbayes.protocols.secure_sum.graph import MaskGraph, is_receiver, neighbours_of
from blindbayes.protocols.secure_sum.messages import KeysAdvertised
from blindbayes.protocols.secure_sum.params import MaskedSumParams

SERVER = "server"
SECRET_BYTES = 32
SHARE_BYTES = 2 * shamir.limb_count(SECRET_BYTES)
BOX_BYTES = 2 * SHARE_BYTES + aead.TAG_BYTES
CHECK_BYTES = 16
BOX_NONCE, ECHO_NONCE, MASKED_NONCE = 0, 1, 2
Bytes = npt.NDArray[np.uint8]
OPTIONS: dict[str, Any] = msgspec.structs.asdict(MaskedSumParams())


@dataclass(frozen=True)
class MaskedSumSetup:
    """The public facts of one masked sum that both roles work with."""

    run: Run
    setting: SumSetup
    publish: bool = field(init=False)
    plan: MaskGraph = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "publish", require_options(self.setting, OPTIONS)["publish"])
        if len(self.setting.contributors) < 2:
            raise ConfigError("masked_sum needs two contributors or more")
        layout = graph.plan(len(self.setting.contributors), self.setting.quorum_size, self.setting.corrupt)
        object.__setattr__(self, "plan", layout)

    @cached_property
    def context(self) -> bytes:
        """Return bytes that bind every key and signature to study, run, roster, vector length, quorum and graph."""
        shape = (self.setting.length, self.setting.quorum_size, self.plan.neighbours, self.plan.threshold)
        return pair_keys.scope_of(self.run, "masked_sum v1", _roster_digest(self.setting.contributors), *map(str, shape))

    def neighbours(self, index: int) -> tuple[int, ...]:
        return neighbours_of(self.run.study, self.run.run_id, len(self.setting.contributors), self.plan, index)

    def receivers(self, index: int) -> tuple[int, ...]:
        """Return the neighbours to whose cards a contributor encapsulates, in roster order."""
        return tuple(other for other in self.neighbours(index) if self._encapsulates(index, other))

    def senders(self, index: int, there: Iterable[int]) -> tuple[int, ...]:
        """Return those of these neighbours that encapsulate to a contributor's card."""
        return tuple(other for other in there if self._encapsulates(other, index))

    def _encapsulates(self, sender: int, receiver: int) -> bool:
        return is_receiver(self.run.study, self.run.run_id, len(self.setting.contributors), self.plan, sender, receiver)

    def name(self, index: int) -> str:
        return self.setting.contributors[index]

    def names(self, indices: Iterable[int]) -> tuple[str, ...]:
        return tuple(map(self.setting.contributors.__getitem__, indices))

    def sign(self, step: bytes, payload: bytes) -> bytes:
        if self.run.signer is None:
            raise LocalProtocolError("a masked sum needs a signing key", party=self.run.me)
        return self.run.signer.sign(self.context + step + payload)

    def verify(self, party: str, step: bytes, payload: bytes, signature: bytes) -> None:
        """Raise `IntegrityError`, naming the party, unless it signed that payload in that step of this run."""
        signatures.verify(self.run.identities.get(party, b""), self.context + step + payload, signature, party=party)

    def require_keys(
        self, advertised: Mapping[int, KeysAdvertised], *, own: Iterable[bytes] = (), blame: str | None = None
    ) -> None:
        """Raise unless all keys are well formed and distinct; the error names `blame`, or the owner of the key."""
        for index, keys in advertised.items():
            if len(keys.commitments) != 2 * SECRET_BYTES:
                raise PeerProtocolError("what is said with a key has another length", party=blame or self.name(index))
        publics = ((self.name(index), keys.public) for index, keys in advertised.items())
        pair_keys.require_keys(publics, own=own, blame=blame)

    def require_signed(self, index: int, keys: KeysAdvertised) -> None:
        """Raise `IntegrityError`, naming the owner, unless it signed this."""
        name, parts = self.name(index), (keys.public, keys.commitments, keys.encapsulated)
        pair_keys.verify_keys(self.run, self.context, name, parts, keys.signature, blame=name)

    def encapsulate(self, me: int, coins: Coins) -> tuple[dict[str, bytes], bytes]:
        """Return this party's secrets with half of its neighbours, by name, and the ciphertexts for their cards."""
        publics = self._cards(self.receivers(me))
        made = self._card().encapsulate_many(publics, coins)
        secrets = {name: secret for name, (secret, _) in zip(publics, made, strict=True)}
        return secrets, b"".join([ciphertext for _, ciphertext in made])

    def decapsulate(self, me: int, there: Iterable[int], packed: bytes) -> dict[str, bytes]:
        """Return the secrets that these neighbours encapsulated to this party's card, by name."""
        publics = self._cards(self.senders(me, there))
        ciphertexts = cut(packed, hybrid.CIPHERTEXT_BYTES, len(publics), SERVER)
        secrets = self._card().decapsulate_many(publics, [each.tobytes() for each in ciphertexts])
        return dict(zip(publics, secrets, strict=True))

    def _cards(self, indices: Iterable[int]) -> dict[str, bytes]:
        """Return the keys of these contributors' cards, by name."""
        names = self.names(indices)
        if missing := [name for name in names if not self.run.keys.get(name)]:
            raise ConfigError(f"the study has no `key` of {missing[0]}: add it from its card, as `blindbayes study init` does")
        return {name: self.run.keys[name] for name in names}

    def _card(self) -> hybrid.HybridKey:
        card = self.run.agreement
        if card is None or card.public != self.run.keys.get(self.run.me):
            raise ConfigError("the roster names another key for this site than its card")
        return card

    def agree(self, mine: AgreementKey, theirs: Mapping[int, KeysAdvertised], vouched: Mapping[str, bytes]) -> bytes:
        """Return the concatenated keys with the neighbours; `vouched` are the secrets of this card with theirs."""
        publics = {self.name(index): keys.public for index, keys in theirs.items()}
        how = {"me": self.run.me, "purpose": "masked_sum pair"}
        return b"".join(pair_keys.pair_keys(mine, publics, **how, scope=self.context, vouched=vouched))

    def run_keys(self, keys: bytes, me: int, others: Sequence[int], shown: bytes) -> tuple[bytes, bytes, bytes]:
        """Derive this run's secrets of the masks and keys of boxes to and from the others, from the pairs' keys."""
        secrets, up, down = pair_keys.further_keys(keys, "run", 3, shown)
        mine = SECRET_BYTES * bisect_left(others, me)  # those before me in the roster, then those after me
        return secrets, down[:mine] + up[mine:], up[:mine] + down[mine:]

    def mask_keys(self, secrets: bytes) -> tuple[bytes, bytes]:
        """Return the keys of the masks, and 16 bytes of each pair that show whether both have the same."""
        masks, checks = pair_keys.further_keys(secrets, "mask", 2)
        return masks, np.frombuffer(checks, np.uint8).reshape(-1, SECRET_BYTES)[:, :CHECK_BYTES].tobytes()

    def sealed_secrets(self, run_key: bytes, secrets: bytes) -> bytes:
        """Seal the secrets of the masks under the run key, or open them again. A run key seals one list."""
        pad = expand_bytes(derive_key(run_key, "secrets", self.context), len(secrets))
        return (np.frombuffer(secrets, np.uint8) ^ np.frombuffer(pad, np.uint8)).tobytes()

    def roster(self, advertised: Mapping[int, KeysAdvertised]) -> bytes:
        """Hash everything that the first set advertised; `advertised` in roster order."""
        there = struct.pack(f"<{len(advertised)}I", *advertised)
        parts = b"".join([len(each.signed).to_bytes(4, "big") + each.signed for each in advertised.values()])
        return hashlib.sha256(b"masked_sum roster" + self.context + len(there).to_bytes(4, "big") + there + parts).digest()

    def self_mask_key(self, seed: bytes) -> bytes:
        return derive_key(seed, "self mask", self.context)

    def commit(self, secret: bytes) -> bytes:
        """Commit to 32 random bytes: hiding because they have full entropy."""
        return derive_key(secret, "commitment", self.context)

    def echoes(self, keys: bytes, senders: Sequence[int], shown: bytes) -> Bytes:
        """Return the tags (n, 16) by which each sender shows its peers the roster and survivors that it was shown."""
        digest = hashlib.sha256(shown).digest()
        return aead.seal_many(keys, np.empty((len(senders), 0), np.uint8), associated=digest, nonce=ECHO_NONCE)

    def masked(self, keys: bytes) -> Bytes:
        """Return the tags (n, 16) by which a sender shows each peer that their mask is on its vector.

        On the complete graph the echoes alone keep every sum whole, and nothing is sent.
        """
        if self.plan.complete:
            return np.empty((0, aead.TAG_BYTES), np.uint8)
        empty = np.empty((len(keys) // SECRET_BYTES, 0), np.uint8)
        return aead.seal_many(keys, empty, associated=self.context, nonce=MASKED_NONCE)


@lru_cache(maxsize=4)
def _roster_digest(contributors: tuple[str, ...]) -> str:
    """Hash all names in order; the parties of a simulation share the result."""
    return hashlib.sha256(b"".join(len(name.encode()).to_bytes(4, "big") + name.encode() for name in contributors)).hexdigest()


def require_length(packed: bytes, size: int, party: str) -> bytes:
    """Return the list, or raise `PeerProtocolError` naming `party` if it has another length."""
    if len(packed) != size:
        raise PeerProtocolError("a list has another length", party=party)
    return packed


def cut(packed: bytes, size: int, count: int, party: str) -> Bytes:
    """Return (count, size) bytes. Raise `PeerProtocolError` naming `party` for any other length."""
    return np.frombuffer(require_length(packed, size * count, party), np.uint8).reshape(count, size)


def require_subset(subset: tuple[int, ...], allowed: tuple[int, ...], party: str) -> tuple[int, ...]:
    """Return `subset`, or the object `allowed` if equal; raise unless it is an ordered part of `allowed`."""
    if subset == allowed:
        return allowed
    known = set(allowed)
    if any(index not in known for index in subset) or any(a >= b for a, b in itertools.pairwise(subset)):
        raise PeerProtocolError("a list of neighbours does not fit the graph", party=party)
    return subset


def require_tag(expected: bytes, given: bytes, suspects: tuple[str, ...]) -> None:
    if not hmac.compare_digest(expected, given):
        raise IntegrityError(suspects=suspects)
