"""A hash as a QR code: for a camera what the words are for the ear.

One size does: version 3, level L, 77 signs of digits and capitals, mask 0 (ISO/IEC 18004).
"""

from __future__ import annotations

SIZE = 29
_DATA, _CHECK = 55, 15  # code words
_SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
_FORMAT = 0b111011111000100  # level L and mask 0, with their own check bits


def _code_words(text: str) -> list[int]:
    at = [_SIGNS.index(sign) for sign in text]
    bits = f"0010{len(at):09b}" + "".join(f"{45 * at[i] + at[i + 1]:011b}" for i in range(0, len(at) - 1, 2))
    bits += f"{at[-1]:06b}" if len(at) % 2 else ""
    bits += "0" * min(4, 8 * _DATA - len(bits))
    bits += "0" * (-len(bits) % 8)
    found = [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]
    return [*found, *([0xEC, 0x11] * _DATA)[: _DATA - len(found)]]


def _times(a: int, b: int) -> int:
    """In the field of 256 elements by x^8 + x^4 + x^3 + x^2 + 1."""
    product = 0
    for bit in range(7, -1, -1):
        product = (product << 1) ^ (0x11D if product & 0x80 else 0)
        product ^= a if b >> bit & 1 else 0
    return product


def _check_words(data: list[int]) -> list[int]:
    """The remainder by the product of (x - 2^i): Reed and Solomon."""
    divisor, root = [1], 1
    for _ in range(_CHECK):
        divisor = [a ^ _times(b, root) for a, b in zip([*divisor, 0], [0, *divisor], strict=True)]
        root = _times(root, 2)
    rest = [*data, *[0] * _CHECK]
    for at in range(len(data)):
        head = rest[at]
        for step, factor in enumerate(divisor):
            rest[at + step] ^= _times(factor, head)
    return rest[-_CHECK:]


def modules(text: str) -> list[list[bool]]:
    """The dark squares, row by row."""
    grid: dict[tuple[int, int], bool] = {}
    for top, left in ((0, 0), (0, SIZE - 7), (SIZE - 7, 0)):
        for row in range(max(0, top - 1), min(SIZE, top + 8)):
            for column in range(max(0, left - 1), min(SIZE, left + 8)):
                grid[row, column] = max(abs(row - top - 3), abs(column - left - 3)) not in (2, 4)
    for row in range(20, 25):
        for column in range(20, 25):
            grid[row, column] = max(abs(row - 22), abs(column - 22)) != 1
    for at in range(8, SIZE - 8):
        grid[6, at] = grid[at, 6] = at % 2 == 0
    for i in range(15):
        bit = bool(_FORMAT >> (14 - i) & 1)
        near = (8, i + (i > 5)) if i < 8 else (14 - i + (i < 9), 8)
        grid[near] = grid[(SIZE - 1 - i, 8) if i < 7 else (8, SIZE - 15 + i)] = bit
    grid[SIZE - 8, 8] = True
    data = _code_words(text)
    bits = iter("".join(f"{word:08b}" for word in data + _check_words(data)))
    for turn, right in enumerate([*range(SIZE - 1, 6, -2), 5, 3, 1]):
        for row in range(SIZE) if turn % 2 else range(SIZE - 1, -1, -1):
            for column in (right, right - 1):
                if (row, column) not in grid:
                    grid[row, column] = (next(bits, "0") == "1") != ((row + column) % 2 == 0)
    return [[grid[row, column] for column in range(SIZE)] for row in range(SIZE)]


def path(text: str) -> str:
    """The dark squares as the path of an SVG of `SIZE` by `SIZE`."""
    return "".join(f"M{x} {y}h1v1h-1z" for y, row in enumerate(modules(text)) for x, dark in enumerate(row) if dark)
