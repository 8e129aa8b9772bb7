"""Tuned constants of private fits, in one table.

Every value was set on the tuning tables of `benchmarks/private_accuracy.py` (`--part tuning`), by the mean share of the gap
between the majority class and the best model without privacy that a fit closes at epsilon 0.1, 0.3, 1 and 3; values of
postprocessing, which costs no epsilon, on the same runs. Rerun that benchmark before and after changing one. "Signal" means
rows times epsilon, divided by the rows of one person.
"""

from __future__ import annotations

import math
from fractions import Fraction

# -- how the budget is shared between stages (staged fits, all four epsilons) ----------------------------------------------

UNDECLARED_SHARE = Fraction(6, 100)
"""Share for class counts that have to show how many rows there are, where nobody declared it; they are then released again with
the features, as one more number per class. Where rows are declared there is no such stage."""
LOOK_SHARE = Fraction(8, 100)
MAX_LOOK_NOISE = 0.15
"""Noise of a cell's share in the coarse histograms, averaged over features, above which they are left out."""
SCREEN_SHARE = Fraction(20, 100)
SCREEN_SIGNAL = 20
"""Signal of one choice among features: it then prefers a feature that is right for a tenth more rows by e^2."""
MAX_SCREEN_PART = Fraction(1, 2)
"""Largest part of the features that is worth selecting."""
MAX_PURE_PART = Fraction(1, 4)
"""Largest part that is selected, with pure noise, although Gaussian noise could bear all of them."""
MIN_SCREENED = 12
"""Features from which on selecting some pays; twice as many beside rules, which find the best feature by themselves."""
SELECTION_SHARE = Fraction(5, 100)
SELECTION_SIGNAL = (40, 400)
"""Signal of the model selection: below the first it cannot tell a good model from a bad one, above the second it would tell
apart models that make no difference."""
WEIGHT_SHARE = Fraction(15, 100)
WEIGHT_SIGNAL = (16, 160)
"""Signal of the feature weights, per feature and class: below the first noise hides them, above the second they are known."""
CALIBRATION_SHARE = Fraction(10, 100)
CALIBRATION_SIGNAL = 60
"""Signal that the calibration table gets, at most `CALIBRATION_SHARE`: the share of right answers is then known to 2%."""
MAX_READ = 200_000
"""Rows of a source up to which they are read, or read again, for the model selection; larger ones are counted in place. Set
by time, not by accuracy: `benchmarks/guard.py`."""

# -- rules in place of tables, or beside them (signal up to 10,000) ---------------------------------------------------

RULES_SHARE = Fraction(85, 100)
RULES_SIGNAL = 160
"""Signal below which a model of two classes is one rule, since noise hides most tables; from it on a rule may mend a released
model."""
TABLE_SIGNAL = 1.5
"""With three classes or more a rule replaces tables only if there is less signal than this per feature and class: otherwise
one rule says too little."""
MENDING_SHARES = (Fraction(30, 100), Fraction(50, 100))
MENDING_SIGNAL = (100, 1500, 10_000)
"""A rule may mend a model from the first on. It gets `RULES_SIGNAL`, within `MENDING_SHARES`, and at most the second; above the
third hardly anything is left to mend, and scoring all rules takes too long."""
MAX_ALONE_CLASSES, MAX_RULE_CLASSES = 8, 6
"""Classes up to which one rule may be all of a model, or mend one."""
CUTS, FAR_CUTS = 4, 2
"""Parts that a number is cut into, for rules, where it is likely to lie, and on a scale that grows from zero."""
RULE_VALUES = 8
"""Values of a category that rules name one by one; of more, neighbours are joined: with very many, chance looks like skill."""
RULE_STRENGTHS = (0.7, 1.5, 3.0, 6.0)
"""Increments of a class's log score by a rule: from a hint to the last word."""
SPLIT_PROBABILITY = 0.75
"""P(side | class) of a split for the class it names: about how often splits that are selected are right."""
LIKELY_TEMPERATURE = 0.7
"""Temperature that a model of tables is likely to need before its calibration table is known."""
MISSING_ODDS = 1.5
"""Odds of the class that a split gives to rows without a value."""

# -- models to select from --------------------------------------------------------------------------------------------------

EVIDENCE_SCALES = (1.0, 0.7, 0.35, 0.0)
"""Multipliers of a model's evidence: features that repeat each other say less than their sum; 0 leaves the class counts. Rules
are tried on the first and on the last but one: a model that is believed less is mended more easily."""
HEAD_STARTS = (2, 1, 0, 0)
"""Head start of each scale, in powers of e: what chance alone would select costs less then."""
WEIGHT_START = 0.7
"""Weight of every feature at which the gradient is taken."""
WEIGHT_STEPS = (0.5, 1.0, 2.0)
"""Multiples of the estimated step that are tried."""
MAX_WIDTH = 0.6
"""Distance of classes in a cell, in root mean squares over the cells, at which the gradient clips it."""
WEIGHT_SPREAD, SHIFT_SPREAD = 0.4, 0.5
"""Prior deviations of the best weights about `WEIGHT_START`, and of the best shifts of class scores about 0."""

# -- features and cells of a release (also of sums of several parties) ------------------------------------------------------

REFERENCE_CELLS = 8
"""Cells in which mechanisms are compared and the signal per cell is stated."""
MIN_CELL_SIGNAL = 0.2
"""Rows in an average cell over its noise below which features are not released: they would only mislead."""
SUBSET_SIGNAL = 4.0
"""Rows of a table of two classes in an average cell over its noise below which only some of the features are released; with
more classes less, since the largest of many classes is seldom right."""
MIN_FEATURES = 2
MANY_CLASSES = 10
CLASS_COUNT_SIGNAL = 4
"""Signal per class below which a table of more than `MANY_CLASSES` is released by its class counts alone."""
LARGE_FEATURE = 4
"""A feature with this many times as many cells as the median one is the first to be left out where noise would bury all."""
PURE_FACTOR = 1.1
"""How many times as much noise a pure mechanism may have and still be preferred: delta is spent where it buys a tenth."""
CELLS_BY_SIGNAL = ((2.0, 2), (5.0, 3), (12.0, 4), (40.0, 6), (100.0, 12), (300.0, 16), (math.inf, 24))
"""Cells of a number, by the signal below the limit."""
VALUES_BY_SIGNAL = ((2.0, 2), (4.0, 3), (8.0, 4))
"""Cells into which the values of a category are joined, in the codebook's order; above, each has its own."""
MOMENT_SIGNAL = 300.0
"""Signal from which on a number with very many grid points is released by its moments."""
MAX_GRID_POINTS = 20_000
"""A number with more grid points spans too many orders of magnitude for equal cells, or for one normal law."""
LOOK_CELLS = 8
"""Cells of a coarse histogram."""
LOOK_PRIOR = 0.1
"""Weight of what was believed before the coarse histograms."""
LOW_PART = 0.25
"""Part of a range that begins at zero which holds half of the rows; the mean over such numbers in the tuning tables is .22."""
NEAR_ZERO = 0.02
"""Distance of the nearer bound from zero, relative to the farther one, up to which a range begins at zero."""

# -- postprocessing ---------------------------------------------------------------------------------------------------------

FIT_SIGNAL, FIT_ROWS = 60.0, 5000.0
"""Signal, and rows per class, at which a fitted normal law counts half: it is never quite true."""
PRIOR_FEATURES = 2.0
"""Number of features of the table at hand that weigh as much as the prior on how far classes differ."""
STRONG_EFFECT = 0.5
"""Effect from which on a normal law is believed by itself, since the cells are too wide to show all of it."""
EFFECTS = (0.0, 0.004, 0.015, 0.05, 0.15, 0.5, 1.5, 5.0)
"""How much classes may differ in a feature: variance of P(cell | class) / P(cell) between classes."""
EFFECT_PRIOR = (0.20, 0.06, 0.08, 0.12, 0.18, 0.20, 0.14, 0.02)
"""How often they do, as in the tuning tables without noise, with twice as many at zero."""
