"""Oblivious pseudo-random functions and key-value stores for private set intersection."""
