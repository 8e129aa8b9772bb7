"""Differential privacy: exact samplers, mechanisms with their price, sensitivities, accounting, audit and statement."""

from blindbayes.privacy.mechanisms import MECHANISMS, Mechanism, Price, Release, choose, make, release
from blindbayes.privacy.sensitivity import ADJACENCY, Query, Sensitivity, SensitivityBlock

__all__ = [
    "ADJACENCY",
    "MECHANISMS",
    "Mechanism",
    "Price",
    "Query",
    "Release",
    "Sensitivity",
    "SensitivityBlock",
    "choose",
    "make",
    "release",
]
