"""Exact integer sufficient statistics of Naive Bayes, as one vector.

`CodedRows` is a batch of encoded rows, `count_block` counts it, `Layout` maps names to positions, `Statistics` is the vector
with its names. Rows do not pass beyond this package.
"""

from blindbayes.statistics.bags import Bags
from blindbayes.statistics.block import MISSING, CodedRows, FeatureTally, cells_of, count_block
from blindbayes.statistics.layout import Cell, Layout, layout_of
from blindbayes.statistics.statistics import Statistics, names_of

__all__ = [
    "MISSING",
    "Bags",
    "Cell",
    "CodedRows",
    "FeatureTally",
    "Layout",
    "Statistics",
    "cells_of",
    "count_block",
    "layout_of",
    "names_of",
]
