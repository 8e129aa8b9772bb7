"""Passwords of people: scrypt with a salt of its own for each. 32 MB and some tenth of a second for every try."""

from __future__ import annotations

import hashlib
import hmac

from blindbayes.crypto.coins import Coins

_COST = {"n": 1 << 15, "r": 8, "p": 1, "maxmem": 64 << 20, "dklen": 32}


def hash_password(password: str, coins: Coins) -> str:
    """What may be written down."""
    salt = coins.bytes(16)
    return f"scrypt:{salt.hex()}:{hashlib.scrypt(password.encode(), salt=salt, **_COST).hex()}"


def is_password(password: str, secret: str | None) -> bool:
    """Whether it is the one; without a secret none is, and it takes as long."""
    kind, salt, kept = (secret or f"scrypt:{'00' * 16}:none").split(":")
    found = hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), **_COST).hex()
    return kind == "scrypt" and hmac.compare_digest(found.encode(), kept.encode())
