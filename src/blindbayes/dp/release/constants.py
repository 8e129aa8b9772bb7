"""Tuned constants of private fits, in one table: at most 20 numbers (`tests/dp/test_constants.py` counts them).

Each was set by the mean share of the gap, between the majority class and the best model without privacy, that fits close on the
tuning tables at epsilon 0.1, 0.3, 1 and 3. The command for one of them, here with half of its value, on the same tables, splits
and draws as the value below:

    python benchmarks/private_accuracy.py --part tuning --splits 4 --draws 2 --most-rows 12000 --methods ours \
        --packages FOLDER --vary STAGE_SHARE=0.04

`--vary` takes any name below. "Signal" means rows times epsilon, divided by the rows of one person. What follows from theory
stands where it is used: a constant part of epsilon for a choice where signal is large, since the losses of tables and of
choices both fall as one over signal; cells as signal to 2/5 (`planner.cell_count`), where squared bias and noise meet.
"""

from __future__ import annotations

from fractions import Fraction

# -- parts of epsilon ------------------------------------------------------------------------------------------------------

STAGE_SHARE = Fraction(8, 100)
"""Part for each small stage: class counts of undeclared rows, the first look, the calibration, a choice without rules. A model
of one rule leaves two such parts to its calibration and class counts together."""
MENDING_SHARES = (Fraction(30, 100), Fraction(50, 100))
"""Least and largest part for a choice among the rules that mend a model of tables: `RULES_SIGNAL` of signal, within these."""

# -- rules -----------------------------------------------------------------------------------------------------------------

RULES_SIGNAL = 160
"""Signal that a choice among rules needs. With less, and two classes, all of epsilon goes there: the model is one rule."""
TABLE_SIGNAL = 1.5
"""With more classes a rule replaces tables only if there is less signal than this per feature and class: it says little."""
MAX_RULE_CLASSES = 8
"""Classes up to which a rule helps."""
CUTS = 4
"""Parts that a number is cut into, for rules, where it is likely to lie; twice as many values of a category are named. In
tables up to as many cells hold neighbouring values of a category; where there may be more, each value has its own."""
SPLIT_PROBABILITY = 0.75
"""P(side | class) of a split for the class it names: about how often splits that are selected are right."""

# -- evidence --------------------------------------------------------------------------------------------------------------

LIKELY_SCALE = 0.7
"""Multiplier of its evidence that a model is likely to need: features that repeat each other say less than their sum. It and
its half compete with all of the evidence and with none; it is also the likely temperature before the calibration."""
HEAD_START = 2
"""Head start of all of the evidence, in powers of e: what chance alone would select costs less then."""

# -- rows --------------------------------------------------------------------------------------------------------------------

UNDECLARED_ROWS = 1000
"""Rows that a plan is made for if nobody declared their number."""
DROWNED_SIGNAL = 0.2
"""Rows in an average cell over its noise below which a study is refused: its answers would only mislead."""

# -- cells and features of a release (also of sums of several parties) ------------------------------------------------------

CELLS_OF_SIGNAL = 1.7
"""Cells of a number are this times the signal of a cell to the power of 2/5."""
MAX_CELLS = 24
"""Cells of a number without evidence for more."""
LOOK_CELLS = 8
"""Cells of a coarse histogram; mechanisms are compared, and signal is stated, in as many."""
SUBSET_SIGNAL = 4.0
"""Rows of a table of two classes in an average cell over its noise below which only some of the features are released; with
more classes less, since the largest of many classes is seldom right."""
LARGE_FEATURE = 4
"""A feature with this many times as many cells as the median one is the first to be left out where noise would bury all."""
MAX_GRID_POINTS = 20_000
"""Grid points beyond which a number spans too many orders of magnitude for equal cells, or for one normal law."""
LOW_PART = 0.25
"""Part of a range that begins at zero which holds half of the rows; the mean over such numbers in the tuning tables is .22."""

# -- postprocessing ---------------------------------------------------------------------------------------------------------

FIT_SIGNAL = 60.0
"""Signal at which a fitted normal law counts half: it is never quite true."""
