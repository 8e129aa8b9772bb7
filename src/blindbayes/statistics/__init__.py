"""Exact integer sufficient statistics of Naive Bayes, and the layout that makes one vector of them.

Rows stop here: what leaves this room is integers. `CodedRows` is a batch of rows already turned into codes, `count_block` adds
a block up, `Layout` maps names to positions, `Statistics` is the vector with its names.
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
