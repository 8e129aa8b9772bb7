"""Differential privacy: exact samplers, mechanisms with their price, sensitivities, accounting, audit and statement."""

from blindbayes.privacy.mechanisms import MECHANISMS, Mechanism, Price, Release, choose, make, release
from blindbayes.privacy.sensitivity import ADJACENCY, Block, Query, Sensitivity

__all__ = [
    "ADJACENCY",
    "MECHANISMS",
    "Block",
    "Mechanism",
    "Price",
    "Query",
    "Release",
    "Sensitivity",
    "choose",
    "make",
    "release",
]
