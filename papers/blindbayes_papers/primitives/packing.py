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
class _Segment:
    """Neighbouring fields of one chunk with the same bounds."""

    start: int  # number of its first field
    count: int
    offset: int  # of its first field, in bits
    width: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Chunk:
    segments: tuple[_Segment, ...]
    bits: int  # width of all its fields together
    bias: int  # sum(-low << offset)


class Packing:
    """Layout of fields in plaintexts.

    `runs` are triples (low, high, count): `count` neighbouring fields whose totals lie within low and high, both included.
    Every integer of absolute value below `2 ** plaintext_bits` must be a plaintext.
    """

    def __init__(self, runs: Sequence[tuple[int, int, int]], plaintext_bits: int, *, guard: int = GUARD_BITS) -> None:
        capacity = plaintext_bits - guard
        chunks: list[_Chunk] = []
        segments: list[_Segment] = []
        field = at = 0
        for low, high, count in runs:
            if low > 0 or high < 0 or low == high or count < 1:
                raise ConfigError("the bounds of packed fields include zero and one more integer; a run has at least one field")
            width = (high - low).bit_length()
            if width > capacity:
                raise ConfigError(f"a field of {width} bits does not fit into {plaintext_bits} bits with {guard} guard bits")
            while count:
                fit = min(count, (capacity - at) // width)
                if fit:
                    segments.append(_Segment(field, fit, at, width, low, high))
                    field, at, count = field + fit, at + fit * width, count - fit
                if count:
                    chunks.append(_chunk(segments, at))
                    segments, at = [], 0
        if not field:
            raise ConfigError("there is nothing to pack")
        chunks.append(_chunk(segments, at))
        self.fields = field
        self._chunks = tuple(chunks)

    @property
    def chunks(self) -> int:
        """Number of large integers."""
        return len(self._chunks)

    def pack(self, values: Sequence[int]) -> list[int]:
        """The chunks of one party's values, signed. A value outside its field's bounds is refused."""
        if len(values) != self.fields:
            raise DataError("a packed vector has one value for each field")
        packed = []
        for chunk in self._chunks:
            total = 0
            for segment in chunk.segments:
                for index, value in enumerate(values[segment.start : segment.start + segment.count]):
                    if value:
                        if not segment.low <= value <= segment.high:
                            raise DataError("a value is outside the bounds of its packed field")
                        total += value << (segment.offset + index * segment.width)
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
            for segment in chunk.segments:
                part = shifted >> segment.offset
                mask = (1 << segment.width) - 1
                fields = [(part >> at) & mask for at in range(0, segment.count * segment.width, segment.width)]
                if max(fields) > segment.high - segment.low:
                    raise PeerProtocolError("a packed total is outside its range", party=party)
                values += [value + segment.low for value in fields]
        return values


def _chunk(segments: list[_Segment], bits: int) -> _Chunk:
    bias = 0
    for segment in segments:
        ones = ((1 << (segment.width * segment.count)) - 1) // ((1 << segment.width) - 1)  # a 1 in each field
        bias += (-segment.low * ones) << segment.offset
    return _Chunk(tuple(segments), bits, bias)
