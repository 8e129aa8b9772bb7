"""Roles of noisy_histograms. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive_all
from blindbayes_papers.huai2015.noisy_histograms.messages import HistogramsReleased

LABEL = "noisy_histograms"
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NoisyHistogramsSetup:
    """The public facts of a run: who releases how many counts, and to whom."""

    miner: str
    sizes: Mapping[str, int]  # contributor -> released counts
    codebooks: Mapping[str, str] = field(default_factory=dict)  # contributor -> hash of the codebook of its columns
    ranges: Mapping[str, tuple[Integers, Integers]] = field(default_factory=dict)  # lowest, highest count that a table can give

    def __post_init__(self) -> None:
        if self.miner in self.sizes or not self.sizes or any(size < 1 for size in self.sizes.values()):
            raise LocalProtocolError("contributors release counts to a miner that is not among them")


def contributor(run: Run, facts: NoisyHistogramsSetup, released: Integers) -> Role[None]:
    """A party that holds the class and its own columns. `released` carries its noise already."""
    if released.shape != (facts.sizes[run.me],) or released.dtype != np.int64:
        raise LocalProtocolError("the released counts do not fit the public facts")
    message = HistogramsReleased(facts.codebooks.get(run.me, ""), released.view(np.uint64))
    yield Send(facts.miner, message)  # step 2


def miner(run: Run, facts: NoisyHistogramsSetup) -> Role[dict[str, Integers]]:
    """Collect what the parties release, to build the model."""
    sent = yield from receive_all(tuple(facts.sizes), HistogramsReleased)
    released = {}
    for name, message in sent.items():  # step 3
        if message.counts.shape != (facts.sizes[name],) or message.codebook != facts.codebooks.get(name, ""):
            raise PeerProtocolError("the released counts do not fit the public facts", party=name)
        released[name] = counts = message.counts.view(np.int64)
        low, high = facts.ranges.get(name, (counts, counts))
        if (counts < low).any() or (counts > high).any():
            raise PeerProtocolError("it released counts that no table of max_rows rows gives with its noise", party=name)
    return (yield from open_value(LABEL, released))
