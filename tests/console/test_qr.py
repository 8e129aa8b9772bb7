"""The QR code of a hash, held against another encoder's and read back by the rules of the standard."""

from __future__ import annotations

from hashlib import sha256

from blindbayes.console import qr as code

HASH = sha256(b"a study").hexdigest().upper()


def test_the_code_of_a_hash_is_the_one_that_another_encoder_makes() -> None:
    # segno 1.6.6: version 3, level L, mask 0
    drawn = "\n".join("".join("#" if dark else "." for dark in row) for row in code.modules(HASH))
    assert sha256(drawn.encode()).hexdigest() == "25c3641ec712f2627a02ec8b2c2a6ad601eabb01ddfff0cc1b5f123338775249"


def test_the_code_says_the_hash_to_whoever_reads_its_squares() -> None:
    rows = code.modules(HASH)
    taken = {(r, c) for r in range(29) for c in range(29) if r == 6 or c == 6 or (20 <= r < 25 and 20 <= c < 25)}
    taken |= {(r, c) for r in range(29) for c in range(29) if (r < 9 and (c < 9 or c > 20)) or (r > 20 and c < 9)}
    bits, up = "", True
    for right in (28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 5, 3, 1):
        for r in range(28, -1, -1) if up else range(29):
            bits += "".join(str(int(rows[r][c] != ((r + c) % 2 == 0))) for c in (right, right - 1) if (r, c) not in taken)
        up = not up
    assert (bits[:4], int(bits[4:13], 2)) == ("0010", 64)
    pairs = [int(bits[13 + 11 * n : 24 + 11 * n], 2) for n in range(32)]
    assert "".join(f"{pair // 45:X}{pair % 45:X}" for pair in pairs) == HASH


def test_other_hashes_have_other_codes_and_the_path_draws_every_dark_square() -> None:
    assert code.modules(HASH) != code.modules(HASH[::-1])
    assert code.path(HASH).count("M") == sum(map(sum, code.modules(HASH)))
