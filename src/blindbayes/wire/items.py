"""Count the items of a MessagePack value without building them.

An empty list is one byte on the wire and about sixty in memory, so a frame within the size limit could still exhaust the
memory of its receiver. Items of large frames are therefore counted first, containers by their announced length.
"""

from __future__ import annotations

MAX_ITEMS = 1 << 20

# First byte -> number of bytes that follow: nil, booleans, numbers, fixed extensions.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
# First byte -> (bytes of the length that follows, bytes that the length does not count): binary, extensions, strings.
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
_SIZED |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
# First byte -> (bytes of the length that follows, items for each that it counts): arrays, maps.
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def has_few_items(packed: memoryview, limit: int = MAX_ITEMS) -> bool:
    """Return False if the value announces more than `limit` items or is not MessagePack; trailing bytes are ignored."""
    i, due, items, end = 0, 1, 1, len(packed)
    while due:
        if i >= end:
            return False
        first, i, due = packed[i], i + 1, due - 1
        inside = 0
        if first <= 0x7F or first >= 0xE0:
            continue
        if first <= 0x8F:
            inside = 2 * (first & 0x0F)
        elif first <= 0x9F:
            inside = first & 0x0F
        elif first <= 0xBF:
            i += first & 0x1F
        elif first in _FIXED:
            i += _FIXED[first]
        elif first in _SIZED:
            width, more = _SIZED[first]
            i += width + more + int.from_bytes(packed[i : i + width], "big")
        elif first in _CONTAINERS:
            width, each = _CONTAINERS[first]
            inside = each * int.from_bytes(packed[i : i + width], "big")
            i += width
        else:  # 0xC1 is never used
            return False
        due += inside
        items += inside
        if items > limit:
            return False
    return i <= end
