"""Cryptographic primitives on integers, bytes and numpy arrays, over cryptography and libsodium."""
