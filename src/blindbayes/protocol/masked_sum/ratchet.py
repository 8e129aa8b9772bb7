"""Keys of pairs that stand over the runs of a study, and step on in each: SPEC.md, Standing keys."""

from __future__ import annotations

import msgspec

from blindbayes.primitives.prg import KEY_BYTES, keys_of
from blindbayes.protocol.pair_keys import further_keys

LIFE = 64  # runs that one agreement serves
NAME_BYTES = 16
STANDING_BYTES = NAME_BYTES + 1


class Chains(msgspec.Struct, frozen=True, array_like=True):
    """One key per neighbour, as it is before run number `epoch` of the agreement `name`."""

    name: bytes
    epoch: int
    others: tuple[str, ...]
    keys: bytes  # one after the other

    def __repr__(self) -> str:
        return f"Chains({self.name.hex()}, {self.epoch}, <redacted>)"

    def of(self, others: tuple[str, ...]) -> bytes | None:
        """The keys with these; None if there are not all of them, or they have come to their end."""
        if self.epoch >= LIFE or len(self.keys) != KEY_BYTES * len(self.others):
            return None
        if others == self.others:
            return self.keys
        found = dict(zip(self.others, keys_of(self.keys), strict=True))
        return b"".join([found[name] for name in others]) if found.keys() >= set(others) else None

    @property
    def told(self) -> bytes:
        """What the others hear of them."""
        return self.name + bytes([self.epoch])


_DECODER = msgspec.msgpack.Decoder(Chains)


def read(state: bytes) -> Chains | None:
    """What an earlier run kept; None if nothing, or nothing that can be read."""
    try:
        return _DECODER.decode(state) if state else None
    except msgspec.MsgspecError:
        return None


def write(chains: Chains) -> bytes:
    """What the next run reads."""
    return msgspec.msgpack.encode(chains)


def forward(keys: bytes, count: int) -> bytes:
    """The keys `count` runs later; nobody finds the way back."""
    for _ in range(count):
        (keys,) = further_keys(keys, "next", 1)
    return keys
