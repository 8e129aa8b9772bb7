"""Pure functions on integers, bytes and numpy arrays; thin over gmpy2, cryptography and libsodium."""
