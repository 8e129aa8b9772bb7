"""Password hashing by salted scrypt: 32 MB and about a tenth of a second per attempt."""

from __future__ import annotations

import hashlib
import hmac

from blindbayes.crypto.coins import Coins

_COST = {"n": 1 << 15, "r": 8, "p": 1, "maxmem": 64 << 20, "dklen": 32}


def hash_password(password: str, coins: Coins) -> str:
    salt = coins.bytes(16)
    return f"scrypt:{salt.hex()}:{hashlib.scrypt(password.encode(), salt=salt, **_COST).hex()}"


def is_password(password: str, secret: str | None) -> bool:
    """Return True if the password matches; without a stored hash the answer is False, and takes as long."""
    kind, salt, stored = (secret or f"scrypt:{'00' * 16}:none").split(":")
    hashed = hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), **_COST).hex()
    return kind == "scrypt" and hmac.compare_digest(hashed.encode(), stored.encode())
