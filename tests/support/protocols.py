"""Registered protocols whose modules are installed."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np

from blindbayes.protocols import registry
from support.sums import random_vectors

SMALL = 2**20  # counts, for the protocols that pack


def is_ready(name: str) -> bool:
    return hasattr(importlib.import_module(registry.known()[name]), "PROTOCOL")


PROTOCOLS = [name for name, module in registry.known().items() if importlib.util.find_spec(module) is not None]


READY = [name for name in PROTOCOLS if is_ready(name)]


def small_vectors(parties: tuple[str, ...], length: int) -> dict[str, np.ndarray]:
    """Signed integers within +-1000, as words; protocols that work on integers need a bound."""
    drawn = random_vectors(parties, length)
    return {name: ((words % 2001).astype(np.int64) - 1000).view(np.uint64) for name, words in drawn.items()}
