"""Record a circuit, for protocols that communicate at every layer of AND gates.

`RecordedCircuit` has the operations of `garbling.Gates` on symbols. A wire is a Python integer: the set of base wires (inputs
and AND gates) whose XOR it is, with bit 0 for the constant 1. XOR of wires is XOR of integers, and arrays of wires are numpy
arrays of objects. ANDs with constants are free. `layers` places every gate as early as possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.garbling.garbling import CarryChain, Wires


@dataclass(frozen=True, slots=True)
class Gate:
    """An AND gate: base wire `out` is left AND right, both sets of base wires."""

    left: int
    right: int
    out: int


@dataclass(slots=True)
class RecordedCircuit(CarryChain):
    """Gates in order, and the layer of every base wire."""

    gates: list[Gate] = field(default_factory=list)
    depth: list[int] = field(default_factory=lambda: [0])  # of base wires; wire 0 is the constant
    and_count: int = 0

    def inputs(self, bits: int) -> Wires:
        """Return fresh input wires, (bits, 1)."""
        wires = np.empty((bits, 1), dtype=object)
        for bit in range(bits):
            wires[bit, 0] = 1 << len(self.depth)
            self.depth.append(0)
        return wires

    def and_(self, left: Wires, right: Wires) -> Wires:
        left, right = np.broadcast_arrays(left, right)
        out = np.empty(left.shape, dtype=object)
        for index in np.ndindex(left.shape):
            out[index] = self._and(int(left[index]), int(right[index]))
        return out

    def _and(self, left: int, right: int) -> int:
        if left == 0 or right == 0 or left ^ right == 1:
            return 0
        if left in (1, right):
            return right
        if right == 1:
            return left
        wire = len(self.depth)
        self.depth.append(1 + max(self._depth(left), self._depth(right)))
        self.gates.append(Gate(left, right, wire))
        self.and_count += 1
        return 1 << wire

    def _depth(self, wire: int) -> int:
        return max(self.depth[base] for base in bases(wire))

    def not_(self, wires: Wires) -> Wires:
        return wires ^ 1

    def constant(self, bits: npt.NDArray[np.uint8], lanes: int) -> Wires:
        return np.repeat(bits.astype(object)[..., None], lanes, axis=-1)

    def layers(self) -> list[list[Gate]]:
        layers: list[list[Gate]] = [[] for _ in range(max(self.depth))]
        for gate in self.gates:
            layers[self.depth[gate.out] - 1].append(gate)
        return layers


def bases(wire: Any) -> list[int]:
    wires, rest = [], int(wire)
    while rest:
        low = rest & -rest
        wires.append(low.bit_length() - 1)
        rest ^= low
    return wires
