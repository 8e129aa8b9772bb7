"""Files as a stranger might send them: mutated bytes, and texts that readers are known to stumble over."""

from __future__ import annotations

import random
import re

NASTY = (
    b"9" * 5000, b"1e400", b"-1e400", b"1e-320", b"NaN", b"inf", b"[" * 3000, b"{" * 3000, b"a." * 3000, b"\xff\xfe", b"\x00",
    b"\x1b[31m", "\u202e".encode(), b"18446744073709551616", b"-1", b"0", b"true", b"null", b'""', b"[]", b"{}", b"\n", b"]",
    b"}", b"60000000", b"1e999999999", b"0000-00-00", b"'''", b'"""', b"\\ud800", b"../../etc/passwd", b"1/0", b"=",
)  # fmt: skip


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """One to four changes: bytes flipped, cut, doubled, moved, or replaced by something nasty; often a whole value."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(raw) + 1)
        to = min(len(raw), at + rng.choice((1, 2, 8, 40)))
        match rng.randrange(7):
            case 0:
                raw = raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]
            case 1:
                raw = raw[:at] + raw[to:]
            case 2:
                raw = raw[:to] + raw[at:]
            case 3:
                raw = raw[:at] + rng.choice(NASTY) + raw[at:]
            case 4:
                raw = raw[:at] + rng.choice(NASTY) + raw[to:]
            case _:
                raw = _other_value(raw, rng)
    return raw


def _other_value(raw: bytes, rng: random.Random) -> bytes:
    """What stands behind a colon or an equals sign, replaced: the most telling mutation of JSON and TOML."""
    places = [found.start() for found in re.finditer(b"[:=,]", raw)]
    if not places:
        return raw
    at = rng.choice(places) + 1
    ends = [found for mark in (b",", b"\n", b"}", b"]") if (found := raw.find(mark, at)) >= 0]
    return raw[:at] + rng.choice(NASTY) + raw[min(ends, default=len(raw)) :]
