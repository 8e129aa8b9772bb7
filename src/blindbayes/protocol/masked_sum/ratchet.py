"""Keys of pairs that stand over the runs of a study, and step on in each: SPEC.md, Standing keys."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from blindbayes.protocol.pair_keys import further_keys

LIFE = 64  # runs that one agreement serves
NAME_BYTES = 16
STANDING_BYTES = NAME_BYTES + 1


class Chains(msgspec.Struct, frozen=True, array_like=True):
    """One key per neighbour, as it is before run number `epoch` of the agreement `name`."""

    name: bytes
    epoch: int
    keys: dict[str, bytes]

    def __repr__(self) -> str:
        return f"Chains({self.name.hex()}, {self.epoch}, <redacted>)"

    def serves(self, others: Iterable[str]) -> bool:
        """Whether a run with these neighbours can use them."""
        return self.epoch < LIFE and all(other in self.keys for other in others)

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
