"""Pure functions on integers, bytes and numpy arrays; thin over cryptography and libsodium."""
