"""Circuits on numbers, written once for the garbler, the evaluator and the plain oracle.

A number is a stack of wires: axis 0 is the bit, lowest first, axis 1 the lane. Numbers are unsigned and have n bits unless
stated otherwise. XOR and NOT are free; docstrings state the AND gates per lane, and tests compare. Sums of many terms are in
carry-save form, so that one call works on all bits at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.garbling.garbling import Gates, Wires
from blindbayes.errors import LocalProtocolError

Number: TypeAlias = Wires


# -- bits --------------------------------------------------------------------------------------------------------------


def to_bits(values: npt.NDArray[np.uint64] | Sequence[int], bits: int) -> npt.NDArray[np.uint8]:
    """Return the bits (bits, lanes) of integers of any size modulo 2^bits."""
    if isinstance(values, np.ndarray) and values.dtype == np.uint64 and bits <= 64:
        shifts = np.arange(bits, dtype=np.uint64)[:, None]
        return ((values[None, :] >> shifts) & np.uint64(1)).astype(np.uint8)
    size = -(-bits // 8)
    mask = (1 << bits) - 1
    raw = b"".join((int(value) & mask).to_bytes(size, "little") for value in values)
    table = np.frombuffer(raw, dtype=np.uint8).reshape(len(values), size)
    return np.ascontiguousarray(np.unpackbits(table, axis=1, bitorder="little")[:, :bits].T)


def from_bits(bits: npt.NDArray[np.uint8]) -> list[int]:
    """Return the integers of bits (bits, lanes)."""
    packed = np.packbits(bits.astype(np.uint8), axis=0, bitorder="little")
    return [int.from_bytes(packed[:, lane].tobytes(), "little") for lane in range(bits.shape[1])]


def zeros(like: Number, bits: int) -> Number:
    """Return the number 0 of `bits` bits with the lanes of `like`."""
    return np.zeros_like(like, shape=(bits, *like.shape[1:]))


def widen(number: Number, bits: int) -> Number:
    """Extend a number by zero bits at the top, or truncate it to its low bits."""
    if len(number) >= bits:
        return number[:bits]
    return np.concatenate([number, zeros(number, bits - len(number))])


def shift_up(number: Number, by: int) -> Number:
    """Return number * 2^by."""
    return np.concatenate([zeros(number, by), number]) if by else number


def public(g: Gates, value: int, bits: int, lanes: int) -> Number:
    """Return a public integer modulo 2^bits on every lane."""
    pattern = np.array([(value >> bit) & 1 for bit in range(bits)], dtype=np.uint8)
    return g.constant(pattern, lanes)


def lanes_of(number: Number) -> int:
    return int(number.shape[1])


def join_lanes(numbers: Sequence[Number]) -> Number:
    """Concatenate numbers of one width along their lanes."""
    return np.concatenate(numbers, axis=1)


# -- add, subtract, compare, select --------------------------------------------------------------------------------------


def add(g: Gates, left: Number, right: Number, *, bits: int | None = None, carry: Wires | None = None) -> Number:
    """Return left + right (+ carry) modulo 2^bits, bits - 1 AND; without `bits` the full sum of n + 1 bits, n AND."""
    whole = max(len(left), len(right)) + 1
    bits = whole if bits is None else bits
    left, right = widen(left, bits), widen(right, bits)
    out = left ^ right
    known = min(bits - 1, whole - 1)  # no carries above the operands
    if carry is not None:
        out[0] ^= carry
    if known:
        out[1 : known + 1] ^= g.carries(left[:known], right[:known], carry)
    return out


def subtract(g: Gates, left: Number, right: Number, *, bits: int) -> Number:
    """Return left - right modulo 2^bits. bits AND."""
    one = public(g, 1, 1, lanes_of(left))[0]
    left, right = widen(left, bits), widen(right, bits)
    return add(g, left, g.not_(right), bits=bits, carry=one)


def negate_if(g: Gates, condition: Wires, number: Number) -> Number:
    """Return -number modulo 2^n where the condition is 1, else the number. n - 1 AND."""
    flipped = number ^ condition[None]
    return add(g, flipped, zeros(number, len(number)), bits=len(number), carry=condition)


def sign_of_sum(g: Gates, left: Number, right: Number) -> Wires:
    """Return the top bit of left + right modulo 2^n: the sign, if they are shares of a signed number. n - 1 AND."""
    top: Wires = left[-1] ^ right[-1]
    return top ^ g.carries(left[:-1], right[:-1], every=False)[0] if len(left) > 1 else top


def sign_of_many(g: Gates, numbers: Sequence[Number]) -> Wires:
    """Return the top bit of the sum of any number of shares modulo 2^n, by carry-save addition."""
    bits = len(numbers[0])
    rows = [_placed(number, shift, bits) for shift, number in carry_save(g, [(0, number) for number in numbers], bits)]
    if len(rows) == 1:
        only: Wires = rows[0][-1]
        return only
    return sign_of_sum(g, *rows)


def is_less(g: Gates, left: Number, right: Number, *, signed: bool = False) -> Wires:
    """Return 1 where left < right. n AND."""
    carry = public(g, 1, 1, lanes_of(left))[0]
    other = g.not_(right)
    if signed:  # top bits have negative weight
        left, other = np.concatenate([left[:-1], g.not_(left[-1:])]), np.concatenate([other[:-1], g.not_(other[-1:])])
    return g.not_(g.carries(left, other, carry, every=False)[0])


def select(g: Gates, condition: Wires, yes: Number, no: Number) -> Number:
    """Return `yes` where the condition is 1, else `no`. n AND."""
    return no ^ g.and_(np.broadcast_to(condition[None], no.shape), yes ^ no)


def is_zero(g: Gates, number: Number) -> Wires:
    """Return 1 where all bits are 0. n - 1 AND."""
    level = g.not_(number)
    while len(level) > 1:
        half = len(level) // 2
        joined = g.and_(level[:half], level[half : 2 * half])
        level = np.concatenate([joined, level[2 * half :]])
    result: Wires = level[0]
    return result


def add_up(g: Gates, numbers: Sequence[Number], bits: int) -> Number:
    """Return the sum of numbers modulo 2^bits. For two bits - 1 AND, and about bits more for each other one."""
    if len(numbers) == 2:
        return add(g, *numbers, bits=bits)
    return add_many(g, [(0, number) for number in numbers], bits)


# -- multiply, divide ----------------------------------------------------------------------------------------------------


def add_many(g: Gates, terms: Sequence[tuple[int, Number]], bits: int) -> Number:
    """Return the sum of number * 2^shift over (shift, number), modulo 2^bits.

    Carry-save reduces three rows to two, with an AND only where at least two rows have a bit; the last two rows ripple.
    """
    rows = carry_save(g, terms, bits)
    if len(rows) == 1:
        return widen(shift_up(rows[0][1], rows[0][0]), bits)
    (low, first), (high, second) = sorted(rows, key=lambda row: row[0])
    # Below the second row nothing can carry.
    head = widen(first, high - low)
    tail = add(g, first[high - low :], second) if len(first) > high - low else second
    return widen(shift_up(np.concatenate([head, tail]), low), bits)


def carry_save(g: Gates, terms: Sequence[tuple[int, Number]], bits: int) -> list[tuple[int, Number]]:
    """Return one or two rows (shift, number) with the same sum modulo 2^bits."""
    rows = [(shift, number[: max(0, bits - shift)]) for shift, number in terms if shift < bits]
    rows = [row for row in rows if len(row[1])]
    if not rows:
        raise LocalProtocolError("a sum needs a term")
    while len(rows) > 2:
        rows.sort(key=lambda row: row[0])
        triples = [rows[index : index + 3] for index in range(0, len(rows) - 2, 3)]
        rows = [*_carry_save(g, triples, bits), *rows[3 * len(triples) :]]
    return rows


def _carry_save(g: Gates, triples: Sequence[Sequence[tuple[int, Number]]], bits: int) -> list[tuple[int, Number]]:
    """Reduce each three rows to sums and carries, in one call, with an AND only where at least two rows have a bit."""
    rows: list[tuple[int, Number]] = []
    windows: list[tuple[int, Number, Number, Number]] = []
    for triple in triples:
        start = min(shift for shift, _ in triple)
        end = max(shift + len(number) for shift, number in triple)
        a, b, c = (_placed(number, shift - start, end - start) for shift, number in triple)
        low = sorted(shift for shift, _ in triple)[1]
        high = min(bits - 1, sorted(shift + len(number) for shift, number in triple)[1])  # carries beyond are not kept
        rows.append((start, a ^ b ^ c))
        if high > low:
            a, b, c = (number[low - start : high - start] for number in (a, b, c))
            windows.append((low + 1, a, a ^ b, a ^ c))
    if windows:
        made, start = g.and_(*(np.concatenate([window[side] for window in windows]) for side in (2, 3))), 0
        for shift, first, _, _ in windows:
            rows.append((shift, first ^ made[start : start + len(first)]))
            start += len(first)
    return rows


def count_ones(g: Gates, wires: Wires) -> Number:
    """Count the ones of n wires, given as lanes: a number of one lane and n.bit_length() bits. n - n.bit_count() AND in all.

    Full adders reduce three wires of one weight to one of it and one of the next; a half adder takes the last two.
    """
    bits, column = [], wires
    while len(column):
        carries = []
        while len(column) > 1:
            third = len(column) // 3
            first, second = column[: third or 1], column[third or 1 : 2 * (third or 1)]
            rest = column[2 * (third or 1) :]
            if third:
                last, rest = rest[:third], rest[third:]
                carries.append(last ^ g.and_(first ^ last, second ^ last))
                column = np.concatenate([first ^ second ^ last, rest])
            else:
                carries.append(g.and_(first, second))
                column = first ^ second
        bits.append(column)
        column = np.concatenate(carries) if carries else column[:0]
    return np.stack(bits)


def _placed(number: Number, offset: int, bits: int) -> Number:
    return widen(shift_up(number, offset), bits)


def multiply(g: Gates, left: Number, right: Number) -> Number:
    """Return left * right, n + m bits. About 2nm AND (nm products, nm additions)."""
    if len(left) < len(right):
        left, right = right, left
    shape = (len(right), *left.shape)
    products = g.and_(np.broadcast_to(left[None], shape), np.broadcast_to(right[:, None], shape))
    return add_many(g, list(enumerate(products)), len(left) + len(right))


def square(g: Gates, number: Number) -> Number:
    """Return number^2, 2n bits. About 1.2 n^2 AND: each mixed product is computed once, with double weight."""
    bits = len(number)
    diagonal = zeros(number, 2 * bits)
    diagonal[::2] = number
    if bits == 1:
        return diagonal
    left, right = np.triu_indices(bits, k=1)
    products = g.and_(number[left], number[right])
    terms: list[tuple[int, Number]] = [(0, diagonal)]
    start = 0
    for row in range(bits - 1):
        size = bits - 1 - row
        terms.append((2 * row + 2, products[start : start + size]))
        start += size
    return add_many(g, terms, 2 * bits)


def times(g: Gates, number: Number, factor: int, bits: int) -> Number:
    """Return number * a public factor, modulo 2^bits. n AND per set bit of the factor after the first."""
    if factor <= 0:
        raise LocalProtocolError("a public factor must be positive")
    places = [bit for bit in range(factor.bit_length()) if (factor >> bit) & 1]
    return add_many(g, [(place, number) for place in places], bits)


def divide(g: Gates, numerator: Number, divisor: Number, bits: int) -> Number:
    """Return floor(numerator / divisor) of `bits` bits, for divisor > 0 and numerator < divisor * 2^bits. d * bits AND.

    Non-restoring: one addition or subtraction per quotient bit keeps the partial remainder in [-divisor, divisor); the
    quotient bit is 1 where it is not negative.
    """
    size = len(divisor) + 1
    numerator = widen(numerator, max(len(numerator), bits))
    remainder = widen(numerator[bits:], size)
    positive = public(g, 1, 1, lanes_of(divisor))[0]
    wide = widen(divisor, size)
    quotient: list[Wires] = []
    for bit in reversed(range(bits)):
        doubled = np.concatenate([numerator[bit : bit + 1], remainder[:-1]])
        remainder = add(g, doubled, wide ^ positive[None], bits=size, carry=positive)
        positive = g.not_(remainder[-1])
        quotient.append(positive)
    return np.stack(quotient[::-1])


# -- tables, normal form ----------------------------------------------------------------------------------------


def one_hot(g: Gates, index: Number) -> Wires:
    """Return 2^n wires, of which the one at the index is 1. 2^n - 2 AND."""
    wires = np.stack([g.not_(index[0]), index[0]])
    for bit in index[1:]:
        high = g.and_(np.broadcast_to(bit[None], wires.shape), wires)
        wires = np.concatenate([wires ^ high, high])
    return wires


def look_up(hot: Wires, values: Sequence[int], bits: int) -> Number:
    """Return the public value at the hot position. No AND.

    Sums of the subsets of four neighbours are shared: each bit of the value then takes a quarter of the wires.
    """
    count = min(len(hot), len(values))
    sums = np.zeros_like(hot, shape=(-(-count // 4), 16, *hot.shape[1:]))
    for place in range(4):
        own = hot[place:count:4]
        sums[: len(own), 1 << place : 2 << place] = sums[: len(own), : 1 << place] ^ own[:, None]
    padded = np.zeros((bits, 4 * len(sums)), dtype=np.uint8)
    padded[:, :count] = to_bits([int(value) for value in values[:count]], bits)
    chosen = padded.reshape(bits, -1, 4) @ np.array([1, 2, 4, 8], dtype=np.uint8)
    groups = np.arange(len(sums))
    return np.stack([np.bitwise_xor.reduce(sums[groups, own], axis=0) for own in chosen])


def normalise(g: Gates, number: Number) -> tuple[Number, Number]:
    """Shift a number up until its top bit is 1 (unless it is 0); return it and the shift. ns + 2^s - 1 - s AND, s = log2 n."""
    bits = len(number)
    places: list[Wires] = []
    for power in reversed(range((bits - 1).bit_length())):
        by = 1 << power
        empty = is_zero(g, number[bits - by :])
        number = select(g, empty, shift_up(number, by)[:bits], number)
        places.append(empty)
    return number, np.stack(places[::-1])


# -- argmax --------------------------------------------------------------------------------------------------------------

PAIRWISE_CLASSES = 5
"""Up to this number of classes every pair is compared; beyond, one champion meets each class in turn (fewer gates)."""


def pairs_of(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def argmax_by_pairs(g: Gates, behind: Wires, classes: int) -> Number:
    """Return the position of the first maximum, as a number. (K - 1)(K - 2) AND.

    `behind` has one wire per pair i < j (in the order of `pairs_of`): 1 where score i < score j. The lowest wins ties.
    """
    position = {pair: index for index, pair in enumerate(pairs_of(classes))}
    winners = []
    for own in range(classes - 1):
        beats = [
            g.not_(behind[position[own, other]]) if own < other else behind[position[other, own]]
            for other in range(classes)
            if other != own
        ]
        while len(beats) > 1:
            half = len(beats) // 2
            joined = g.and_(np.stack(beats[:half]), np.stack(beats[half : 2 * half]))
            beats = [*joined, *beats[2 * half :]]
        winners.append(beats[0])
    last = winners[0]
    for wire in winners[1:]:
        last = last ^ wire
    winners.append(g.not_(last))  # exactly one class wins
    return look_up(np.stack(winners), range(classes), (classes - 1).bit_length())


def argmax_by_turns(g: Gates, scores: Sequence[Number]) -> Number:
    """Return the position of the first maximum of signed scores, as a number. (K - 1)(2n + log2 K) AND at most."""
    lanes = lanes_of(scores[0])
    bits = max(1, (len(scores) - 1).bit_length())
    best = scores[0]
    index = public(g, 0, bits, lanes)
    for position, score in enumerate(scores[1:], start=1):
        behind = is_less(g, best, score, signed=True)
        if position < len(scores) - 1:
            best = select(g, behind, score, best)
        index = select(g, behind, public(g, position, bits, lanes), index)
    return index
