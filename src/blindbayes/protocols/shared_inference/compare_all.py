"""The argmax by all parties at once: no coalition short of all but one learns more than the class.

Scores stay in additive shares of all parties until the end (Vaidya 5.4), and `joint_circuit` compares them. Step numbers as in
SPEC.md, "All parties together".
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.recording import Recorder, Recording
from blindbayes.crypto.limbs import Limbs
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.joint_circuit import CircuitParty, Mesh
from blindbayes.protocols.joint_circuit.roles import TRIPLES_AT_ONCE

Bits = npt.NDArray[np.uint8]
Classes = npt.NDArray[np.int64]
UNREADABLE = -2  # in place of a class


@functools.lru_cache(maxsize=16)
def argmax_circuit(parties: int, bits: int, classes: int, count: int = 1) -> Recording:
    """Return the circuit of the positions of the first maxima, from one share per party of all pairwise differences."""
    recorder, pairs = Recorder(), len(c.pairs_of(classes))
    numbers = [recorder.inputs(bits, pairs * count) for _ in range(parties)]
    behind = c.sign_of_many(recorder, numbers)
    return recorder.finish([c.argmax_by_pairs(recorder, behind.reshape(pairs, count), classes)])


def triples_needed(parties: int, bits: int, classes: int, count: int) -> int:
    """Return the number of AND gates of a batch."""
    return count * argmax_circuit(parties, bits, classes).and_count


def compare(
    run: Run, shares: Limbs, bits: int, sessions: Mapping[str, bytes], mesh: Mesh, learners: tuple[str, ...], coins: Coins
) -> Role[Classes | None]:
    """Run this party's part of the comparison of its shares of K - 1 differences to class 0, (count, K - 1, limbs)."""
    count, classes = shares.shape[0], shares.shape[1] + 1
    parties, pairs, me = len(run.parties), c.pairs_of(classes), run.parties.index(run.me)
    party = CircuitParty(run, sessions, mesh)
    learnt: list[Classes] = []
    step = max(1, TRIPLES_AT_ONCE // triples_needed(parties, bits, classes, 1))  # instances compared at once
    for low in range(0, count, step):
        part = shares[low : low + step]
        circuit = argmax_circuit(parties, bits, classes, len(part))
        triples = yield from party.triples(circuit.and_count, coins)  # step 4
        full = np.concatenate([np.zeros((len(part), 1, part.shape[2]), dtype=np.uint64), part], axis=1)
        compared = np.concatenate([lm.subtract(full[:, i], full[:, j]) for i, j in pairs])
        (winners,) = yield from party.evaluate(circuit, {me: lm.to_bits(compared, bits)}, triples)  # step 5
        opened = yield from party.open(winners, learners)  # step 6
        if opened is not None:
            learnt.append(classes_of(opened, classes))
    return np.concatenate(learnt) if learnt else None


def classes_of(bits: Bits, classes: int, fits: npt.NDArray[np.bool_] | None = None) -> Classes:
    """Read positions (bits, instances) as classes; `fits` marks the bits that could be read.

    A position that is no class comes from another circuit or a wrong share and becomes `UNREADABLE`: to fail here would reveal
    something about the class to its sender, so the run goes on to its end.
    """
    weights = 1 << np.arange(len(bits), dtype=np.int64)
    numbers = (bits.astype(np.int64) * weights[:, None]).sum(axis=0)
    right = numbers < classes if fits is None else (numbers < classes) & fits.all(axis=0)
    return np.where(right, numbers, UNREADABLE)
