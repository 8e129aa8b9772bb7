"""Roles of shared_model. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Gates, Plain, Wires
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.shared_training.class_sums.layout import Field, RowLayout
from blindbayes.protocols.shared_training.shared_model.circuit import build
from blindbayes.protocols.shared_training.shared_model.field_sums import FieldSums, Noise, entered, widths, with_noise
from blindbayes.protocols.shared_training.shared_model.messages import ModelGarbled, SumsChosen
from blindbayes.protocols.shared_training.shared_model.score_layout import ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import add_denominators, from_outputs, output_lanes
from blindbayes.protocols.two_party.garbled import Circuit, dual_first, dual_second
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.wire import U64Array

Bits = npt.NDArray[np.uint8]


class WireSide:
    """The bits of both parties on the wires of a garbler or an evaluator.

    The class holder brings its share of the sums, its class counts and its masks; the attribute holder brings its share.
    """

    def __init__(self, gates: Gates, class_wires: Wires, attribute_wires: Wires, layout: RowLayout, plan: ScoreLayout) -> None:
        self.gates = gates
        self._plan = plan
        first, second = _Wires(class_wires), _Wires(attribute_wires)
        both = [[part.take(*size) for size in widths(layout, plan.classes)] for part in (first, second)]
        self._sums = FieldSums(gates, both, layout, plan.classes)
        self._counts = first.take(layout.count_bits, plan.classes)
        self._masks = first

    def sums(self, fields: Iterable[Field]) -> Number:
        return self._sums.take(fields)

    def class_counts(self) -> Number:
        return self._counts

    def mask(self, lanes: int) -> Number:
        return self._masks.take(self._plan.bits, lanes)


class _Wires:
    """A list of wires, taken number by number."""

    def __init__(self, wires: Wires) -> None:
        self._wires, self._at = wires, 0

    def take(self, bits: int, lanes: int) -> Number:
        taken = self._wires[self._at : self._at + bits * lanes]
        self._at += bits * lanes
        return taken.reshape(bits, lanes, *self._wires.shape[1:])


def attribute_bits(share: U64Array, noise: Noise | None, layout: RowLayout, *, raised: bool = False) -> Bits:
    """Return the attribute holder's input bits: those of its share, which includes its noise."""
    return np.concatenate([part.reshape(-1) for part in entered(with_noise(share, noise, layout), layout, raised=raised)])


def class_bits(
    share: U64Array, noise: Noise | None, class_counts: npt.NDArray[np.int64], masks: Sequence[Bits], layout: RowLayout
) -> Bits:
    """Return the class holder's input bits: those of its share, then class counts and masks."""
    counts = c.to_bits([int(value) for value in class_counts], layout.count_bits)
    own = attribute_bits(share, noise, layout, raised=True)
    return np.concatenate([own, *(part.reshape(-1) for part in (counts, *masks))])


def transfers(layout: RowLayout, plan: ScoreLayout) -> tuple[int, int]:
    """Return how many bits the class holder and the attribute holder bring."""
    both = sum(bits * lanes for bits, lanes in widths(layout, plan.classes))
    return both + layout.count_bits * plan.classes + plan.bits * sum(output_lanes(layout, plan)), both


def circuit_of(layout: RowLayout, plan: ScoreLayout) -> Circuit:
    def outputs(g: Gates, first: Wires, second: Wires) -> Iterator[Wires]:
        return build(WireSide(g, first, second, layout, plan), layout, plan)

    return outputs


def and_gates(layout: RowLayout, plan: ScoreLayout) -> int:
    """Return the AND gates of the circuit, counted by playing it on zeros."""
    gates, bits = Plain(), (np.zeros(count, dtype=np.uint8) for count in transfers(layout, plan))
    for _ in circuit_of(layout, plan)(gates, *bits):
        pass
    return gates.and_count


Shape: TypeAlias = tuple[RowLayout, ScoreLayout]
"""The public layouts of the sums and of the scores."""


def class_holder(
    run: Run,
    attribute_holder_name: str,
    share: U64Array,
    class_counts: npt.NDArray[np.int64],
    shape: Shape,
    transfers_with: tuple[OtSender, OtReceiver],
    coins: Coins,
    noise: Noise | None = None,
) -> Role[dict[str, Limbs]]:
    """Run the first garbler; return its share of the score tables."""
    layout, plan = shape
    require_share(share, layout, plan)
    if class_counts.shape != (plan.classes,) or int(class_counts.sum()) != layout.rows:
        raise LocalProtocolError("the class counts do not add up to the rows")
    facts = plan.facts() + layout.facts()
    session = yield from agree(run, attribute_holder_name, "shared_model", facts, coins)  # step 1
    lanes = output_lanes(layout, plan)
    masks = [coins.bit_rows(plan.bits, count) for count in lanes]
    bits = class_bits(share, noise, class_counts, masks, layout), transfers(layout, plan)[1]
    kinds = SumsChosen, ModelGarbled
    yield from dual_first(  # steps 2 to 7
        attribute_holder_name, session, circuit_of(layout, plan), len(lanes), bits, transfers_with, kinds, coins
    )
    return add_denominators(from_outputs(masks, layout, plan, negative=True), class_counts, layout, plan)  # step 8


def attribute_holder(
    run: Run,
    class_holder_name: str,
    share: U64Array,
    shape: Shape,
    transfers_with: tuple[OtSender, OtReceiver],
    coins: Coins,
    noise: Noise | None = None,
) -> Role[dict[str, Limbs]]:
    """Run the first evaluator; return its share of the score tables."""
    layout, plan = shape
    require_share(share, layout, plan)
    facts = plan.facts() + layout.facts()
    session = yield from agree(run, class_holder_name, "shared_model", facts, coins)  # step 1
    steps = len(output_lanes(layout, plan))
    bits = attribute_bits(share, noise, layout), transfers(layout, plan)[0]
    kinds = SumsChosen, ModelGarbled
    opened = yield from dual_second(  # steps 2 to 7
        class_holder_name, session, circuit_of(layout, plan), steps, bits, transfers_with, kinds, coins
    )
    return from_outputs(opened, layout, plan)


def require_share(share: U64Array, layout: RowLayout, plan: ScoreLayout) -> None:
    """Raise unless a share of the sums has the shape of the layout, and the layout the noise of the plan."""
    if share.shape != (plan.classes, layout.sums) or share.dtype != np.uint64:
        raise LocalProtocolError("the share of the sums does not fit the layout")
    if layout.noise_bits != plan.guard.noise_bits:
        raise LocalProtocolError("the layout and the plan must provide for the same noise")
