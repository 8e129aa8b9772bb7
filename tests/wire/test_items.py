"""Items of a message are counted without building them."""

from __future__ import annotations

import msgspec

from blindbayes.wire.items import has_few_items


def test_many_small_containers_count_together() -> None:
    row = b"\xdc" + (1000).to_bytes(2, "big") + b"\x90" * 1000
    packed = memoryview(b"\xdc" + (1000).to_bytes(2, "big") + row * 1000)
    assert not has_few_items(packed, 1_001_000)
    assert has_few_items(packed, 1_001_001)


def test_counting_items_agrees_with_the_decoder() -> None:
    """Whatever msgspec reads, the count reads to its end, with the right number of items."""
    values: list[object] = [None, True, -1, 2**63, 1.5, "x" * 40, "y" * 300, b"z" * 70_000, [1, [2, []]], {"a": {"b": [1]}}]
    values += [list(range(70_000)), {str(number): number for number in range(70_000)}, ["s" * 31, -33, 128, 65_536, 2**40]]
    for value in values:
        items = _count(value)
        packed = memoryview(msgspec.msgpack.encode(value))
        assert has_few_items(packed, items)
        assert items == 1 or not has_few_items(packed, items - 1)
        assert not has_few_items(packed[:-1], items)


def _count(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    if isinstance(value, dict):
        return 1 + sum(1 + _count(item) for item in value.values())
    return 1
