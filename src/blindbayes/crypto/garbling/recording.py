"""Circuits as lists of array operations, for parties that exchange a message per layer of AND gates.

A `Recorder` runs a circuit of `circuits` on `Symbol`s, arrays whose shape is known and whose bits are not, and records what is
done with them. No operation changes its arguments, so each may run as soon as these are there: a `Recording` has all
AND gates of one depth in one layer, whatever the order in which the circuit is written.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.garbling.garbling import CarryChain, Wires
from blindbayes.errors import LocalProtocolError

Bits = npt.NDArray[np.uint8]


class Place(int):
    """The number of a value of a recording, as an argument of an operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A function of earlier values, and the place of its result."""

    place: Place
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def run(self, values: Sequence[Any]) -> Any:
        return self.function(*_resolved(self.arguments, values), **self.keywords)


@dataclass(slots=True)
class Layer:
    """Operations without AND, then the AND gates that take their results."""

    local: list[Operation] = field(default_factory=list)
    gates: list[Operation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded circuit."""

    layers: tuple[Layer, ...]
    inputs: tuple[tuple[Place, tuple[int, ...]], ...]  # with their shapes
    outputs: tuple[Place, ...]
    size: int  # number of values
    and_count: int

    @property
    def depth(self) -> int:
        """Number of layers with AND gates."""
        return sum(bool(layer.gates) for layer in self.layers)


def conjunction(left: Bits, right: Bits) -> Bits:
    """Return the elementwise AND, after broadcasting."""
    return np.bitwise_and(left, right)


def public_bits(bits: Bits, lanes: int) -> Bits:
    """Return public bits on every lane."""
    return np.repeat(bits.astype(np.uint8)[..., None], lanes, axis=-1)


class Recorder(CarryChain):
    """Gates that are written down."""

    def __init__(self) -> None:
        self.and_count = 0
        self._operations: list[Operation] = []
        self._levels: list[int] = []  # by place: layers of AND gates below it
        self._inputs: list[tuple[Place, tuple[int, ...]]] = []

    def inputs(self, *shape: int) -> Wires:
        """Return fresh input wires of a shape."""
        symbol = Symbol(self, shape, self._next(0))
        self._inputs.append((symbol.place, shape))
        return cast(Wires, symbol)

    def finish(self, outputs: Sequence[Wires]) -> Recording:
        """Return the circuit with these outputs."""
        layers = [Layer() for _ in range(max(self._levels) + 1)]
        for operation in self._operations:
            level = self._levels[operation.place]
            if operation.function is conjunction:
                layers[level - 1].gates.append(operation)
            else:
                layers[level].local.append(operation)
        places = tuple(cast(Symbol, output).place for output in outputs)
        return Recording(tuple(layers), tuple(self._inputs), places, len(self._levels), self.and_count)

    def record(self, function: Callable[..., Any], arguments: tuple[Any, ...], **keywords: Any) -> Any:
        """Write an operation down; return the symbol of its result, or a list of symbols."""
        shaped = function(*_mapped(arguments, _shadow), **keywords)
        level = max([0, *(self._levels[symbol.place] for symbol in _symbols(arguments))]) + (function is conjunction)
        place = self._next(level)
        self._operations.append(Operation(place, function, _mapped(arguments, _place), keywords))
        if isinstance(shaped, list | tuple):
            whole = Symbol(self, (), place)
            return [self._item(whole, at, part.shape) for at, part in enumerate(shaped)]
        return Symbol(self, shaped.shape, place)

    def _item(self, whole: Symbol, at: int, shape: tuple[int, ...]) -> Symbol:
        place = self._next(self._levels[whole.place])
        self._operations.append(Operation(place, operator.getitem, (whole.place, at), {}))
        return Symbol(self, shape, place)

    def _next(self, level: int) -> Place:
        self._levels.append(level)
        return Place(len(self._levels) - 1)

    # -- gates ---------------------------------------------------------------------------------------------------------

    def and_(self, left: Wires, right: Wires) -> Wires:
        made = self.record(conjunction, (left, right))
        self.and_count += int(np.prod(made.shape))
        return cast(Wires, made)

    def not_(self, wires: Wires) -> Wires:
        return wires ^ self.constant(np.ones(wires.shape[:-1], dtype=np.uint8), wires.shape[-1])

    def constant(self, bits: Bits, lanes: int) -> Wires:
        return cast(Wires, self.record(public_bits, (bits, lanes)))

    def carries(self, left: Wires, right: Wires, carry: Wires | None = None, *, every: bool = True) -> Wires:
        """Return the carries in 1 + ceil(log2 n) layers: a prefix tree (Sklansky 1960), or a plain tree for the last one."""
        bits = len(left)
        if bits <= 2:
            return super().carries(left, right, carry, every=every)
        passes = left ^ right
        if carry is None:
            makes = self.and_(left, right)
        else:
            first = carry[None]
            lefts, rights = (np.concatenate([side[:1] ^ first, side[1:]]) for side in (left, right))
            makes = self.and_(lefts, rights)
            makes[0] ^= carry
        return self._prefix(makes, passes) if every else self._last(makes, passes)

    def _prefix(self, makes: Wires, passes: Wires) -> Wires:
        bits, span = len(makes), 1
        while span < bits:
            upper = np.array([bit for bit in range(bits) if bit & span])
            lower = upper // span * span - 1
            inner = upper >= 2 * span  # below the others lies bit 0: nothing is passed on any more
            both = self.and_(
                np.concatenate([passes[upper], passes[upper[inner]]]), np.concatenate([makes[lower], passes[lower[inner]]])
            )
            makes[upper] ^= both[: len(upper)]
            passes[upper[inner]] = both[len(upper) :]
            span *= 2
        return makes

    def _last(self, makes: Wires, passes: Wires) -> Wires:
        while len(makes) > 1:  # of a pair, the upper one makes a carry or passes that of the lower one on
            even = len(makes) // 2 * 2
            upper, half = passes[1:even:2], even // 2
            both = self.and_(np.concatenate([upper, upper[1:]]), np.concatenate([makes[0:even:2], passes[2:even:2]]))
            makes = np.concatenate([makes[1:even:2] ^ both[:half], makes[even:]])
            passes = np.concatenate([passes[:1], both[half:], passes[even:]])
        return makes


class Symbol:
    """An array of wires whose bits are not known yet."""

    def __init__(self, recorder: Recorder, shape: tuple[int, ...], place: Place) -> None:
        self.recorder, self.shape, self.place = recorder, shape, place

    dtype = np.dtype(np.uint8)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Symbol]:
        return (self[at] for at in range(len(self)))

    def __array__(self, *_: Any, **__: Any) -> npt.NDArray[Any]:
        raise LocalProtocolError("the bits of a recorded wire are not known")

    def __array_function__(self, function: Any, _: Any, arguments: Any, keywords: Any) -> Any:
        return self.recorder.record(function, arguments, **keywords)

    def __array_ufunc__(self, function: Any, method: str, *arguments: Any, **keywords: Any) -> Any:
        if function is not np.bitwise_xor or "out" in keywords:
            return NotImplemented
        return self.recorder.record(getattr(function, method), arguments, **keywords)

    def __xor__(self, other: Any) -> Symbol:
        return cast(Symbol, self.recorder.record(np.bitwise_xor, (self, other)))

    def __getitem__(self, key: Any) -> Symbol:
        return cast(Symbol, self.recorder.record(operator.getitem, (self, key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.place = self.recorder.record(_assigned, (self, key, value)).place

    def reshape(self, *shape: int) -> Symbol:
        return cast(Symbol, self.recorder.record(np.reshape, (self, shape)))


def _assigned(array: Bits, key: Any, value: Bits) -> Bits:
    changed = np.array(array)
    changed[key] = value
    return changed


def _shadow(symbol: Symbol) -> Bits:
    return np.broadcast_to(np.uint8(0), symbol.shape)


def _place(symbol: Symbol) -> Place:
    return symbol.place


def _mapped(argument: Any, function: Callable[[Symbol], Any]) -> Any:
    if isinstance(argument, Symbol):
        return function(argument)
    if isinstance(argument, list | tuple):
        return type(argument)(_mapped(part, function) for part in argument)
    return argument


def _symbols(argument: Any) -> Iterator[Symbol]:
    if isinstance(argument, Symbol):
        yield argument
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from _symbols(part)


def _resolved(argument: Any, values: Sequence[Any]) -> Any:
    if isinstance(argument, Place):
        return values[argument]
    if isinstance(argument, list | tuple):
        return type(argument)(_resolved(part, values) for part in argument)
    return argument
