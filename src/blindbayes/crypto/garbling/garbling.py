"""Half-gates garbling (Zahur, Rosulek and Evans, EUROCRYPT 2015), vectorised over lanes.

A wire is an array of 128-bit labels, shape (..., lanes, 2); a number is a stack of wires, lowest bit first. XOR and NOT are
free, an AND costs two ciphertexts (32 bytes) per lane. Labels of 0 and 1 differ by the secret offset `delta`, whose lowest
bit is 1: the lowest bit of a label is its colour.

- The garbler sends no labels for its own bits: their active label is 0, so the label of 0 is bit * delta.
- The evaluator's bits come from correlated transfers with offset `delta`: its t *is* the active label.
- Every hash has its own tweak from the session's `TweakedHash`: one per (gate, half, lane).

`Garbler`, `Evaluator` and `Plain` have the same operations, so that a circuit is written once (`circuits`); `Plain` works on
bits and is the oracle. Security is against semi-honest parties.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.kernels import Kernels, Tweaks
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError

Wires: TypeAlias = npt.NDArray[Any]
"""Labels (..., lanes, 2) of a garbler or evaluator, or bits (..., lanes) of the plain evaluator."""

ROW_WORDS = 4  # table words per AND gate and lane
_ONE = np.uint64(1)


def colour_zero(wires: Wires, delta: Block128) -> Block128:
    """Return the label with colour 0 of each pair; `wires` are the labels of 0."""
    full, keys = np.uint64(0) - (wires[..., 0] & _ONE), np.empty_like(wires)
    for word in (0, 1):
        np.bitwise_xor(wires[..., word], full & delta[word], out=keys[..., word])
    return keys


class Gates(Protocol):
    """Operations of a circuit on wires; XOR of wires is the operator ^."""

    and_count: int  # AND gates so far, times lanes

    def and_(self, left: Wires, right: Wires) -> Wires: ...

    def carries(self, left: Wires, right: Wires, carry: Wires | None = None, *, every: bool = True) -> Wires: ...

    def not_(self, wires: Wires) -> Wires: ...

    def constant(self, bits: npt.NDArray[np.uint8], lanes: int) -> Wires: ...


def _masks(labels: Block128) -> Block128:
    """Return ones in place of each label of colour 1, zeros elsewhere."""
    return np.repeat(np.uint64(0) - (labels[..., 0] & _ONE), 2).reshape(labels.shape)


def _rows(left: Wires, right: Wires) -> tuple[tuple[int, ...], Block128, Block128]:
    """Return the shape of two wires after broadcasting, and their concatenated labels."""
    if left.shape != right.shape:
        left, right = np.broadcast_arrays(left, right)
    return left.shape, left.reshape(-1, 2), right.reshape(-1, 2)


class CarryChain(ABC):
    """Carry chains gate by gate, for classes that only have `and_`."""

    @abstractmethod
    def and_(self, left: Wires, right: Wires) -> Wires:
        """Return the elementwise AND."""

    def carries(self, left: Wires, right: Wires, carry: Wires | None = None, *, every: bool = True) -> Wires:
        """Return the carries out of every bit of left + right (+ carry), or a stack of the last one if not `every`.

        Both have one width. One AND per bit: carry ^ ((left ^ carry) & (right ^ carry)).
        """
        made = []
        for mine, theirs in zip(left, right, strict=True):
            carry = self.and_(mine, theirs) if carry is None else carry ^ self.and_(mine ^ carry, theirs ^ carry)
            made.append(carry)
        return np.stack(made if every else made[-1:])


class Plain(CarryChain):
    """Bits in clear: the oracle of the tests, and a counter of gates."""

    def __init__(self) -> None:
        self.and_count = 0

    def and_(self, left: Wires, right: Wires) -> Wires:
        result: Wires = np.bitwise_and(*np.broadcast_arrays(left, right))
        self.and_count += result.size
        return result

    def not_(self, wires: Wires) -> Wires:
        return wires ^ np.uint8(1)

    def constant(self, bits: npt.NDArray[np.uint8], lanes: int) -> Wires:
        return np.repeat(bits.astype(np.uint8)[..., None], lanes, axis=-1)


class HalfGates(CarryChain):
    """Common part of garbler and evaluator."""

    _delta: Block128 | None = None  # the garbler's

    def __init__(self, hash_: TweakedHash) -> None:
        self.hash_ = hash_  # replaced between steps of a long circuit
        self.and_count = 0
        self.pieces = 0  # messages of tables so far

    @abstractmethod
    def _next_tables(self, rows: int) -> npt.NDArray[np.uint64]:
        """Return the tables of the next gates, to be written by the garbler or read by the evaluator."""

    @abstractmethod
    def _and(self, left: Block128, right: Block128, first: int, tables: npt.NDArray[np.uint64]) -> Block128:
        """Process gates without kernels; tweaks of the left labels start at `first`, those of the right ones behind."""

    def and_(self, left: Wires, right: Wires) -> Wires:
        shape, left, right = _rows(left, right)
        if self.hash_.kernel is not None:
            return self._chain(left[None], right[None], None, every=False).reshape(shape)
        return self._and(left, right, *self._begin(len(left))).reshape(shape)

    def carries(self, left: Wires, right: Wires, carry: Wires | None = None, *, every: bool = True) -> Wires:
        if self.hash_.kernel is None or left.ndim != 3:
            return super().carries(left, right, carry, every=every)
        return self._chain(left, right, carry, every=every)

    def _begin(self, rows: int) -> tuple[int, npt.NDArray[np.uint64]]:
        self.and_count += rows
        return self.hash_.reserve(Domain.GATE, 2 * rows), self._next_tables(rows)

    def _chain(self, left: Wires, right: Wires, carry: Wires | None, *, every: bool) -> Wires:
        """Run a chain by the kernel: (bits, lanes, 2)."""
        bits, lanes = left.shape[:2]
        first, tables = self._begin(bits * lanes)
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        into = None if carry is None else np.ascontiguousarray(carry)
        shaped = tables.reshape(bits, lanes, ROW_WORDS)
        return self._kernel.gates(self._gate_tweaks(first), self._delta, left, right, into, shaped, every=every)

    def compare(self, values: npt.NDArray[np.uint64] | None, labels: Wires, classes: int) -> Wires:
        """Return the bits of the position of the first maximum: `argmax_by_pairs` of `sign_of_sum`, by one kernel call.

        `values` (lanes, limbs) are the garbler's shares of the differences of all pairs, `labels` those of the evaluator's.
        """
        bits, lanes = labels.shape[:2]
        pairs = classes * (classes - 1) // 2
        first, tables = self._begin((bits - 1) * lanes + (classes - 1) * (classes - 2) * lanes // pairs)
        return self._kernel.compare(self._gate_tweaks(first), self._delta, values, labels, classes, tables)

    def match(
        self, values: npt.NDArray[np.uint64] | None, labels: Wires, tag_bits: int
    ) -> tuple[Wires, Block128, npt.NDArray[np.uint8]]:
        """Compare the first bits of two numbers by one kernel call: a label per lane of their equality.

        Where they are equal, return the XOR of the other bits as keys (lanes, planes, 2) and colours (lanes, planes). `values`
        (lanes, words) are the garbler's numbers.
        """
        bits, lanes = labels.shape[:2]
        first, tables = self._begin((bits - 1) * lanes)
        return self._kernel.match(self._gate_tweaks(first), self._delta, values, labels, tag_bits, tables)

    @property
    def _kernel(self) -> Kernels:
        if self.hash_.kernel is None:
            raise LocalProtocolError("this operation needs kernels")
        return self.hash_.kernel

    def _gate_tweaks(self, first: int) -> Tweaks:
        return self.hash_.tweaks(Domain.GATE, first)


class Garbler(HalfGates):
    """The garbler: labels of 0, and tables for the evaluator in the order of the gates."""

    _delta: Block128

    def __init__(self, hash_: TweakedHash, delta: Block128) -> None:
        if not delta[0] & _ONE:
            raise LocalProtocolError("the offset's colour bit must be 1")
        super().__init__(hash_)
        self._delta = delta
        self._tables: list[npt.NDArray[np.uint64]] = []

    def own(self, bits: npt.NDArray[np.uint8]) -> Wires:
        """Wires of the garbler's own bits, any shape."""
        full = np.uint64(0) - bits.astype(np.uint64)
        wires = np.empty((*bits.shape, 2), dtype=np.uint64)
        for word in (0, 1):
            np.bitwise_and(full, self._delta[word], out=wires[..., word])
        return wires

    def constant(self, bits: npt.NDArray[np.uint8], lanes: int) -> Wires:
        return self.own(np.repeat(bits[..., None], lanes, axis=-1))

    def not_(self, wires: Wires) -> Wires:
        out = np.empty_like(wires)
        for word in (0, 1):
            np.bitwise_xor(wires[..., word], self._delta[word], out=out[..., word])
        return out

    def colour_zero(self, wires: Wires) -> Block128:
        return colour_zero(wires, self._delta)

    def _next_tables(self, rows: int) -> npt.NDArray[np.uint64]:
        tables = np.empty((rows, ROW_WORDS), dtype=np.uint64)
        self._tables.append(tables.reshape(-1))
        return tables

    def _and(self, left: Block128, right: Block128, first: int, tables: npt.NDArray[np.uint64]) -> Block128:
        rows, delta = len(left), self._delta
        labels = np.concatenate([left, left ^ delta, right, right ^ delta])
        tweaks = np.repeat(np.arange(first, first + 2 * rows, dtype=np.uint64).reshape(2, rows), 2, axis=0)
        hashed = self.hash_.at(labels, Domain.GATE, tweaks.reshape(-1)).reshape(4, rows, 2)
        right_colour = _masks(right)
        generator, evaluator = hashed[0] ^ hashed[1] ^ (right_colour & delta), hashed[2] ^ hashed[3]
        tables[:, :2], tables[:, 2:] = generator, evaluator ^ left
        return np.asarray(hashed[0] ^ hashed[2] ^ (_masks(left) & generator) ^ (right_colour & evaluator))

    def take_tables(self) -> npt.NDArray[np.uint64]:
        """Return the tables since the last call, to be sent."""
        taken, self._tables = self._tables, []
        if len(taken) == 1:  # no copy
            return taken[0]
        return np.concatenate(taken) if taken else np.zeros(0, dtype=np.uint64)

    # -- outputs -------------------------------------------------------------------------------------------------------

    def tags(self, wires: Wires) -> npt.NDArray[np.uint64]:
        """Return two 64-bit tags per output wire and lane, by which the evaluator reads bits and detects wrong labels."""
        flat = wires.reshape(-1, 2)
        rows = flat.shape[0]
        first = self.hash_.reserve(Domain.OUTPUT, rows)
        zero = self.hash_.run(flat, Domain.OUTPUT, first)[:, 0]
        one = self.hash_.run(flat ^ self._delta, Domain.OUTPUT, first)[:, 0]
        return np.concatenate([zero, one])

    def read(self, wires: Wires, returned: npt.NDArray[np.uint64], party: str | None = None) -> npt.NDArray[np.uint8]:
        """Return the bits of labels whose first words the evaluator returned."""
        zero = wires.reshape(-1, 2)[:, 0]
        if returned.shape != zero.shape:
            raise PeerProtocolError("the returned labels have the wrong length", party=party)
        is_one: npt.NDArray[np.bool_] = returned == zero ^ self._delta[0]
        if not bool(np.all(is_one | (returned == zero))):
            raise IntegrityError(party=party)
        return is_one.astype(np.uint8).reshape(wires.shape[:-1])


class Evaluator(HalfGates):
    """The evaluator: active labels, and the tables of the garbler."""

    def __init__(self, hash_: TweakedHash, party: str | None = None) -> None:
        super().__init__(hash_)
        self._party = party
        self._tables = np.zeros(0, dtype=np.uint64)
        self._at = 0

    def give_tables(self, tables: npt.NDArray[np.uint64]) -> None:
        """Set the tables of the next gates."""
        self._tables = np.concatenate([self._tables[self._at :], tables]) if self._at < len(self._tables) else tables
        self._at = 0

    def require_finished(self) -> None:
        """Raise if tables are left over."""
        if self._at != len(self._tables):
            raise PeerProtocolError("there are more garbled tables than gates", party=self._party)

    def own(self, shape: tuple[int, ...]) -> Wires:
        return np.zeros((*shape, 2), dtype=np.uint64)

    def constant(self, bits: npt.NDArray[np.uint8], lanes: int) -> Wires:
        return self.own((*bits.shape, lanes))

    def not_(self, wires: Wires) -> Wires:
        return wires

    def _next_tables(self, rows: int) -> npt.NDArray[np.uint64]:
        end = self._at + ROW_WORDS * rows
        if end > len(self._tables):
            raise PeerProtocolError("there are fewer garbled tables than gates", party=self._party)
        tables = self._tables[self._at : end].reshape(rows, ROW_WORDS)
        self._at = end
        return tables

    def _and(self, left: Block128, right: Block128, first: int, tables: npt.NDArray[np.uint64]) -> Block128:
        rows = len(left)
        tweaks = np.arange(first, first + 2 * rows, dtype=np.uint64)
        hashed = self.hash_.at(np.concatenate([left, right]), Domain.GATE, tweaks).reshape(2, rows, 2)
        out = hashed[0] ^ hashed[1] ^ (_masks(left) & tables[:, :2])
        return np.asarray(out ^ (_masks(right) & (tables[:, 2:] ^ left)))

    def read(self, wires: Wires, tags: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
        """Return the bits of output wires by the garbler's tags, or raise `IntegrityError` for a label without a tag."""
        bits, fits = self.try_read(wires, tags)
        if not fits.all():
            raise IntegrityError(party=self._party)
        return bits

    def try_read(self, wires: Wires, tags: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Return the bits, and which of them have a tag; does not raise, since a failure could reveal a bit to the garbler."""
        flat = wires.reshape(-1, 2)
        rows = flat.shape[0]
        if tags.shape != (2 * rows,):
            raise PeerProtocolError("the output tags have the wrong length", party=self._party)
        first = self.hash_.reserve(Domain.OUTPUT, rows)
        own = self.hash_.run(flat, Domain.OUTPUT, first)[:, 0]
        is_one: npt.NDArray[np.bool_] = own == tags[rows:]
        fits: npt.NDArray[np.bool_] = is_one ^ (own == tags[:rows])
        return is_one.astype(np.uint8).reshape(wires.shape[:-1]), fits.reshape(wires.shape[:-1])

    def skip_read(self, wires: Wires) -> npt.NDArray[np.uint64]:
        """Return the first words of output labels, for the garbler alone to read."""
        return np.ascontiguousarray(wires.reshape(-1, 2)[:, 0])
