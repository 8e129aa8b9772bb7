"""What the pairs of a masked sum agree on, and how everything is bound to the run."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.primitives import aead, shamir, signatures
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.prg import derive_key
from blindbayes.protocol import pair_keys
from blindbayes.protocol.core import Run
from blindbayes.protocol.masked_sum.graph import MaskGraph, neighbours_of, plan
from blindbayes.protocol.masked_sum.messages import KeysAdvertised
from blindbayes.protocol.masked_sum.params import MaskedSumParams
from blindbayes.protocol.registry import SumSetup, require_options

SERVER = "server"
SECRET_BYTES = 32
SHARE_BYTES = 2 * shamir.limb_count(SECRET_BYTES)
BOX_BYTES = 2 * SHARE_BYTES + aead.TAG_BYTES
OPTIONS: dict[str, Any] = msgspec.structs.asdict(MaskedSumParams())


@dataclass(frozen=True)
class MaskedSumSetup:
    """The public facts of one masked sum that both roles work with."""

    run: Run
    setting: SumSetup
    options: dict[str, Any] = field(init=False)
    plan: MaskGraph = field(init=False)

    def __post_init__(self) -> None:
        options = require_options(self.setting, OPTIONS)
        object.__setattr__(self, "options", options)
        if len(self.setting.contributors) < 2:
            raise ConfigError("masked_sum needs two contributors or more")
        layout = plan(
            len(self.setting.contributors),
            self.setting.quorum_size,
            options["corrupt"],
            options["neighbours"],
            options["malicious_server"],
        )
        object.__setattr__(self, "plan", layout)

    @cached_property
    def context(self) -> bytes:
        """Binds every key and signature to study, run, roster, vector length, quorum and graph."""
        shape = (self.setting.length, self.setting.quorum_size, self.plan.neighbours, self.plan.threshold)
        return pair_keys.scope_of(self.run, "masked_sum v2", _roster_digest(self.setting.contributors), *map(str, shape))

    def neighbours(self, index: int) -> tuple[int, ...]:
        """The neighbours of a contributor, by roster index."""
        return neighbours_of(self.run.study, self.run.run_id, len(self.setting.contributors), self.plan, index)

    def name(self, index: int) -> str:
        """The name of a contributor."""
        return self.setting.contributors[index]

    def sign(self, step: bytes, payload: bytes) -> bytes:
        """Our signature of one step's payload."""
        if self.run.signer is None:
            raise LocalProtocolError("a masked sum needs a signing key", party=self.run.me)
        return self.run.signer.sign(self.context + step + payload)

    def verify(self, party: str, step: bytes, payload: bytes, signature: bytes, *, blame: str | None = None) -> None:
        """Raise `IntegrityError` unless `party` signed that payload in that step of this run; names `blame` or `party`."""
        identity = self.run.identities.get(party, b"")
        signatures.verify(identity, self.context + step + payload, signature, party=blame or party)

    def require_keys(
        self, advertised: Mapping[int, KeysAdvertised], *, own: Iterable[bytes] = (), blame: str | None = None
    ) -> None:
        """Raise, naming `blame` or the owner, unless all keys are proper, differ, and are what their owners signed."""
        for index, keys in advertised.items():
            if not len(keys.mask_key) == len(keys.channel_key) == len(keys.commitment) == SECRET_BYTES:
                raise PeerProtocolError("a key has another length", party=blame or self.name(index))
        pair_keys.require_keys(
            ((self.name(index), key) for index, keys in advertised.items() for key in (keys.mask_key, keys.channel_key)),
            own=own,
            blame=blame,
        )
        for index, keys in advertised.items():
            name, parts = self.name(index), (keys.mask_key, keys.channel_key, keys.commitment)
            pair_keys.verify_keys(self.run, self.context, name, parts, keys.signature, blame=blame or name)

    def channel(self, mine: AgreementKey, me: int, other: int, public: bytes) -> bytes:
        """The key of the channel between two contributors, through the server."""
        return self._pair_key(mine, me, other, public, "masked_sum channel")

    def box_key(self, channel: bytes, sender: int, receiver: int) -> bytes:
        """The key that seals `sender`'s shares for `receiver`."""
        names = self.setting.contributors
        return pair_keys.directed_key(channel, "shares", names[sender], names[receiver])

    def mask_key(self, mine: AgreementKey, me: int, other: int, public: bytes) -> bytes:
        """The key of the mask that a pair adds and subtracts."""
        return self._pair_key(mine, me, other, public, "masked_sum mask")

    def _pair_key(self, mine: AgreementKey, me: int, other: int, public: bytes, purpose: str) -> bytes:
        names = self.setting.contributors
        return pair_keys.pair_key(mine, public, me=names[me], other=names[other], scope=self.context, purpose=purpose)

    def roster(self, advertised: Mapping[int, KeysAdvertised]) -> bytes:
        """One hash of everything that the first set advertised; `advertised` in roster order."""
        parts = {self.name(at): keys.mask_key + keys.channel_key + keys.commitment for at, keys in advertised.items()}
        return pair_keys.digest_of(parts)

    def self_mask_key(self, seed: bytes) -> bytes:
        """The key of a contributor's own mask."""
        return derive_key(seed, "self mask", self.context)

    def commit(self, seed: bytes) -> bytes:
        """A commitment to a seed of 32 random bytes: hiding because the seed has full entropy."""
        return derive_key(seed, "commitment", self.context)

    def echo(self, channel: bytes, sender: int, receiver: int, shown: bytes) -> bytes:
        """The tag by which `sender` tells `receiver` which roster of keys and which survivors it was shown."""
        names = self.setting.contributors
        return pair_keys.directed_tag(channel, "echo", names[sender], names[receiver], shown)


@lru_cache(maxsize=4)
def _roster_digest(contributors: tuple[str, ...]) -> str:
    """One hash for all names in order; in simulation the parties share it."""
    return hashlib.sha256(b"".join(len(name.encode()).to_bytes(4, "big") + name.encode() for name in contributors)).hexdigest()


def require_length(packed: bytes, size: int, party: str) -> bytes:
    """The list itself, or `PeerProtocolError` naming `party` if it has another length."""
    if len(packed) != size:
        raise PeerProtocolError("a list has another length", party=party)
    return packed


def cut(packed: bytes, size: int, count: int, party: str) -> list[bytes]:
    """`count` items of `size` bytes. Raises `PeerProtocolError` naming `party` for any other length."""
    require_length(packed, size * count, party)
    return [packed[at : at + size] for at in range(0, len(packed), size)]


def require_subset(found: tuple[int, ...], allowed: tuple[int, ...], party: str) -> None:
    """Raise unless `found` is part of `allowed`, in the same order and without repeats."""
    known = set(allowed)
    if any(index not in known for index in found) or any(a >= b for a, b in itertools.pairwise(found)):
        raise PeerProtocolError("a list of neighbours does not fit the graph", party=party)


def require_tag(expected: bytes, given: bytes, suspects: tuple[str, ...]) -> None:
    """Raise `IntegrityError` unless the tags are equal."""
    if not hmac.compare_digest(expected, given):
        raise IntegrityError(suspects=suspects)
