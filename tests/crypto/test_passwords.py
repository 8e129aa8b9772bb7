"""Hashes of passwords: salted, and without one nobody gets in."""

from __future__ import annotations

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password, is_password


def test_a_password_is_its_own_hash_and_no_other() -> None:
    coins = Coins.seeded(bytes(32))
    one, two = (hash_password("correct horse", coins) for _ in range(2))
    assert one != two  # another salt
    assert "correct" not in one
    assert is_password("correct horse", one)
    assert not is_password("correct hors", one)


def test_without_a_hash_no_password_is_right() -> None:
    for password in ("", "none"):
        assert not is_password(password, None)
