"""Many bounded integers in a few large ones, so that adding the large ones adds the small ones.

Azimian et al.'s bit string (2022, section 5.2): each value has a field of fixed width, wide enough for its *total*, so that
no sum of the parties' values ever carries into the next field. A string longer than one plaintext is cut into chunks
between fields (section 5.4). Fields may be signed: a packed integer is `sum(value << offset)`, and the bias that makes
every field non-negative is added only when a total is read, so the packed total depends on the totals and on nothing else.

Above the fields of each chunk stand guard bits, which are zero in every honest total: a total in which masks did not
cancel is uniform, and passes for a proper one with probability at most 2^-guard per chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blindbayes.errors import ConfigError, DataError, PeerProtocolError

GUARD_BITS = 64


@dataclass(frozen=True, slots=True)
class _Chunk:
    start: int  # first field
    stop: int
    bits: int  # width of all its fields together
    bias: int  # sum(-low << offset)


class Packing:
    """Where each field stands. `bounds` are (low, high) of each field's total, both included."""

    def __init__(self, bounds: Sequence[tuple[int, int]], plaintext_bits: int, *, guard: int = GUARD_BITS) -> None:
        """`plaintext_bits`: every integer of absolute value below `2 ** plaintext_bits` is a plaintext."""
        self.bounds = tuple((int(low), int(high)) for low, high in bounds)
        room = plaintext_bits - guard
        offsets: list[int] = []
        chunks: list[_Chunk] = []
        start = at = bias = 0
        for index, (low, high) in enumerate(self.bounds):
            if low > 0 or high < 0 or low == high:
                raise ConfigError("the bounds of a packed field include zero and one more integer")
            width = (high - low).bit_length()
            if width > room:
                raise ConfigError(
                    f"a field of {width} bits does not fit into a plaintext of {plaintext_bits} with {guard} guard bits"
                )
            if at + width > room:
                chunks.append(_Chunk(start, index, at, bias))
                start, at, bias = index, 0, 0
            offsets.append(at)
            bias += -low << at
            at += width
        if not self.bounds:
            raise ConfigError("there is nothing to pack")
        chunks.append(_Chunk(start, len(self.bounds), at, bias))
        self._offsets = tuple(offsets)
        self._chunks = tuple(chunks)

    @property
    def chunks(self) -> int:
        """Number of large integers."""
        return len(self._chunks)

    def pack(self, values: Sequence[int]) -> list[int]:
        """The chunks of one party's values, signed. A value outside its field's bounds is refused."""
        if len(values) != len(self.bounds):
            raise DataError("a packed vector has one value for each field")
        packed = []
        for chunk in self._chunks:
            total = 0
            for index in range(chunk.start, chunk.stop):
                value = values[index]
                if value:
                    low, high = self.bounds[index]
                    if not low <= value <= high:
                        raise DataError("a value is outside the bounds of its packed field")
                    total += value << self._offsets[index]
            packed.append(total)
        return packed

    def unpack(self, totals: Sequence[int], *, party: str | None = None) -> list[int]:
        """The fields of a total of chunks, signed. Raises `PeerProtocolError` for what no honest total can be."""
        if len(totals) != len(self._chunks):
            raise PeerProtocolError("the wrong number of packed integers", party=party)
        values: list[int] = []
        for chunk, total in zip(self._chunks, totals, strict=True):
            shifted = int(total) + chunk.bias
            if shifted < 0 or shifted.bit_length() > chunk.bits:
                raise PeerProtocolError("a packed total is outside its range", party=party)
            for index in range(chunk.start, chunk.stop):
                low, high = self.bounds[index]
                field = (shifted >> self._offsets[index]) & ((1 << (high - low).bit_length()) - 1)
                if field > high - low:
                    raise PeerProtocolError("a packed total is outside its range", party=party)
                values.append(field + low)
        return values
