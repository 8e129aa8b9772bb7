"""The circuits of shared_model among more than two parties: step 3 of SPEC.md.

Every computing party enters its share of the sums, and all but the last a mask per output: the last one learns the outputs
plus all masks, so that the tables end in additive shares of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Gates
from blindbayes.crypto.garbling.recording import Recorder, Recording
from blindbayes.crypto.limbs import Limbs
from blindbayes.protocols import joint_circuit
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.joint_circuit import CircuitParty
from blindbayes.protocols.private_join.sums.counts import log_counts, prior_table
from blindbayes.protocols.shared_training.class_sums.layout import Field, RowLayout
from blindbayes.protocols.shared_training.shared_model.circuit import build
from blindbayes.protocols.shared_training.shared_model.field_sums import FieldSums, entered
from blindbayes.protocols.shared_training.shared_model.score_layout import ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import from_outputs, output_lanes
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.wire import U64Array

Bits = npt.NDArray[np.uint8]
Shape: TypeAlias = tuple[RowLayout, ScoreLayout]


class RecordedSide:
    """The inputs of all parties on recorded wires: their shares, then of all but the last a mask per stack of outputs."""

    def __init__(self, recorder: Recorder, parties: int, layout: RowLayout, plan: ScoreLayout) -> None:
        self.gates: Gates = recorder
        words = [recorder.inputs(64, layout.sums * plan.classes) for _ in range(parties)]
        self._sums = FieldSums(recorder, [[part] for part in words], layout, plan.classes)
        self.counts = [recorder.inputs(layout.count_bits, plan.classes) for _ in range(parties)]
        lanes = mask_lanes(layout, plan)
        masks = [[recorder.inputs(plan.bits, count) for count in lanes] for _ in range(parties - 1)]
        self._masks = iter(list(zip(*masks, strict=True)))
        self._bits = plan.bits

    def sums(self, fields: Iterable[Field]) -> Number:
        return self._sums.take(fields)

    def class_counts(self) -> Number:
        raise TypeError("every denominator is a sum of counters: no class count enters by itself")

    def mask(self, lanes: int) -> Number:
        """Return the sum of all masks of the next stack."""
        return c.add_up(self.gates, next(self._masks), self._bits)


def mask_lanes(layout: RowLayout, plan: ScoreLayout) -> list[int]:
    """Return the lanes of each stack of outputs; the priors come last."""
    return [*output_lanes(layout, plan), plan.classes]


def model_circuit(parties: int, layout: RowLayout, plan: ScoreLayout) -> Recording:
    """Record the circuit from everybody's shares of sums to masked score tables and priors."""
    recorder = Recorder()
    side = RecordedSide(recorder, parties, layout, plan)

    def outputs() -> Iterator[Number]:
        yield from build(side, layout, plan)
        logs = log_counts(recorder, side.counts, plan)
        yield c.add(recorder, logs, side.mask(plan.classes), bits=plan.bits)

    return recorder.finish(list(outputs()))


def joint_tables(
    run: Run, facts: bytes, shape: Shape, share: tuple[U64Array, U64Array], coins: Coins
) -> Role[dict[str, Limbs]]:
    """Return a computing party's share of the score tables and priors, from its share of the sums and of the class counts.

    The parties of the run are those that compute.
    """
    (layout, plan), (sums, counts) = shape, share
    parties, me = len(run.parties), run.parties.index(run.me)
    sessions = yield from transfer.agree_all(run, dict.fromkeys(run.others, "private_ratio"), facts, coins)  # step 2
    party = CircuitParty(run, sessions, (yield from joint_circuit.connect(run, coins)))
    circuit, last = model_circuit(parties, layout, plan), parties - 1
    (words,) = entered(sums, layout, raised=False)
    own: dict[int, Bits] = {me: words, parties + me: c.to_bits(counts, layout.count_bits)}
    lanes = mask_lanes(layout, plan)
    masks = [coins.bit_rows(plan.bits, count) for count in lanes] if me != last else []
    own |= {2 * parties + me * len(lanes) + at: mask for at, mask in enumerate(masks)}
    triples = yield from party.triples(circuit.and_count, coins)  # step 3
    stacks = yield from party.evaluate(circuit, own, triples)
    opened = yield from party.open(np.concatenate([stack.reshape(-1) for stack in stacks]), run.parties[-1:])
    if opened is not None:
        ends = np.cumsum([plan.bits * count for count in lanes])
        masks = [part.reshape(plan.bits, -1) for part in np.split(opened, ends[:-1])]
    tables = from_outputs(masks[:-1], layout, plan, negative=opened is None)
    return tables | {plan.codebook.target: prior_table(masks[-1], plan, negative=opened is None)}
