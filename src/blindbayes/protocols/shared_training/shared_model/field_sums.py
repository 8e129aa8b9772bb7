"""Sums of fields from shares of summed words, inside the circuit.

Where all rows are one stretch, the two shares of each word are added and the fields cut out of it. Where there are many, a
field's sum over a stretch is what the two shares have in its place, plus the carry into it, minus the carry out of it. So each
party enters, beside its words, the sums over all stretches of what its share has in each place; the circuit counts carries, an
AND for each bit of a word, and one for each carry.

Each party's noise is added to its share of the words before that. Per feature it is an array of whole numbers: (K, values) for
a histogram, (K, 3) for a Gaussian feature (number of present values, sum of codes, sum of squares). A word is linear in its
fields, so a share plus the word of the noise is a share of the noisy sums, before anything is cut: no matter what the other
party enters, the circuit sees sums with this party's noise.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Gates
from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.shared_training.class_sums.layout import Field, HistogramFields, RowLayout
from blindbayes.wire import U64Array

_WORD_BITS = 64
Bits = npt.NDArray[np.uint8]
Noise: TypeAlias = Mapping[str, npt.NDArray[Any]]  # int64, or Python integers


def with_noise(share: U64Array, noise: Noise | None, layout: RowLayout) -> U64Array:
    """Return the share (classes, words) with a party's noise in every field. Layout and noise must fit each other."""
    if not layout.noise_bits:
        if noise:
            raise LocalProtocolError("this model takes no noise")
        return share
    if noise is None:
        raise LocalProtocolError("a model with noise needs each party's own")
    share = share.copy()
    for fields in layout.fields:
        table = np.asarray(noise[fields.feature.name])
        placed = fields.counts if isinstance(fields, HistogramFields) else (fields.present, fields.total, *fields.squares)
        if table.shape != (len(share), len(placed)):
            raise LocalProtocolError("the noise does not fit the layout")
        for field, column in zip(placed, table.T, strict=True):
            if field is None:
                raise LocalProtocolError("with noise every value has a counter")
            share[:, field.word] += np.array([(int(value) << field.shift) % (1 << 64) for value in column], dtype=np.uint64)
    return share


def entered(share: U64Array, layout: RowLayout, *, raised: bool) -> list[Bits]:
    """Return what a party enters of its share (classes, sums): the words and, if there are stretches, the sums per place.

    One party raises fields that may be negative, of every stretch, to where they cannot be, and takes that off their sums.
    Fields with noise, which is in the share already, are all raised; the circuit takes that off.
    """
    if layout.stretches == 1:
        if raised and layout.noise_bits:
            share = share.copy()
            for field, _ in layout.placed():
                share[:, field.word] += np.uint64(1) << np.uint64(field.shift + field.raised)
        return [c.to_bits(_by_word(share), _WORD_BITS)]
    split = share.reshape(len(share), layout.stretches, layout.words).copy()
    fields = layout.placed()
    for field, below in fields if raised else ():
        split[:, :, field.word] += np.uint64(below << field.shift)
    sums = []
    for field, below in fields:
        mask = np.uint64((1 << field.width) - 1)
        own = ((split[:, :, field.word] >> np.uint64(field.shift)) & mask).astype(object).sum(axis=1)
        sums.append(c.to_bits([int(value) - raised * below * layout.stretches for value in own], field.whole))
    return [c.to_bits(_by_word(split.reshape(share.shape)), _WORD_BITS), *sums]


def widths(layout: RowLayout, classes: int) -> list[tuple[int, int]]:
    """Return bits and lanes of each part of `entered`."""
    sums = [(field.whole, classes) for field, _ in layout.placed()] if layout.stretches > 1 else []
    return [(_WORD_BITS, layout.sums * classes), *sums]


class FieldSums:
    """The sums of fields on wires, from what the parties entered. Gates are made when the first is asked for.

    Where there are stretches, there are two parties.
    """

    def __init__(self, g: Gates, parts: Iterable[list[Number]], layout: RowLayout, classes: int) -> None:
        self._gates, self._parts, self._layout, self._classes = g, tuple(parts), layout, classes

    def take(self, fields: Iterable[Field]) -> Number:
        """Return fields of one width side by side; with noise still raised."""
        return c.join_lanes([self._sums[field] for field in fields])

    @functools.cached_property
    def _sums(self) -> dict[Field, Number]:
        g, classes, layout = self._gates, self._classes, self._layout
        fields = [field for field, _ in layout.placed()]
        by_field: dict[Field, Number] = {}
        if layout.stretches == 1:
            words = c.add_up(g, [part for part, *_ in self._parts], _WORD_BITS)
            for field in fields:
                lane = field.word * classes
                by_field[field] = words[field.shift : field.shift + field.width, lane : lane + classes]
            return by_field
        (left, *own), (right, *other) = self._parts
        carries = self._carries(g, g.carries(left, right), layout, fields)
        sums = {field: pair for field, *pair in zip(fields, own, other, strict=True)}
        alike = sorted(fields, key=lambda field: (field.width, field.whole))
        for (width, whole), group in itertools.groupby(alike, key=lambda field: (field.width, field.whole)):
            some = list(group)
            first, second = (c.join_lanes([sums[field][at] for field in some]) for at in (0, 1))
            into = c.join_lanes([carries[field.word, field.shift] for field in some])
            out = c.join_lanes([carries[field.word, field.shift + width] for field in some])
            minus = g.not_(c.widen(c.shift_up(out, width), whole))  # its complement, and 1
            terms = [(0, first), (0, second), (0, into), (0, minus), (0, c.public(g, 1, 1, c.lanes_of(first)))]
            summed = c.add_many(g, terms, whole)
            by_field |= {field: summed[:, at * classes : (at + 1) * classes] for at, field in enumerate(some)}
        return by_field

    def _carries(self, g: Gates, made: Number, layout: RowLayout, fields: list[Field]) -> dict[tuple[int, int], Number]:
        """Count the stretches that carry into each place (word, bit) where a field begins or ends."""
        places = sorted({(field.word, bit) for field in fields for bit in (field.shift, field.shift + field.width) if bit})
        split = made.reshape(_WORD_BITS, layout.stretches, layout.words, self._classes, *made.shape[2:])
        rows = [np.concatenate([split[bit - 1, stretch, word] for word, bit in places]) for stretch in range(layout.stretches)]
        counts = c.add_many(g, [(0, row[None]) for row in rows], layout.stretches.bit_length())
        carries = {place: counts[:, at * self._classes : (at + 1) * self._classes] for at, place in enumerate(places)}
        nothing = np.zeros_like(counts[:, : self._classes])
        return {(word, 0): nothing for word in range(layout.words)} | carries


def _by_word(share: U64Array) -> U64Array:
    return np.ascontiguousarray(share.T).reshape(-1)
