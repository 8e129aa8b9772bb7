"""What a site can ask of others' held-out rows by an exact evaluation: a model shaped to single out a combination of values.

Training opens counts of one feature at a time. A site that brings made-up rows makes a model that predicts a class for one
combination only, and the evaluation counts the held-out rows with it: a question about several features at once. Each costs an
approved run of training and one of evaluation. Exact sums cannot prevent it (docs/how-to/evaluation.md says so); noise does.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd

from blindbayes import Categorical, Codebook, NaiveBayes
from blindbayes.data.split import Reading
from blindbayes.data.table import evaluate_table
from blindbayes.dp.distributed.noise_shares import PrivacyUnit
from blindbayes.dp.distributed.noisy_evaluation import NoisyEvaluation

BOOK = Codebook("y", ("no", "yes"), tuple(Categorical(f"f{at}", ("u", "v")) for at in range(4)), max_rows=100_000)
NAMES = list(BOOK.names)
BINS = 2


def honest(seed: int, *, with_person: bool = False) -> pd.DataFrame:
    """Return rows of which one at most, of class yes, has v everywhere."""
    generator = np.random.default_rng(seed)
    cells = generator.choice(["u", "v"], (400, 4))
    cells[(cells == "v").all(axis=1), 0] = "u"
    frame = pd.DataFrame(cells, columns=NAMES).assign(y=generator.choice(["no", "yes"], 400))
    if with_person:
        frame.loc[len(frame)] = ["v", "v", "v", "v", "yes"]
    return frame


def shaping() -> pd.DataFrame:
    """Return made-up rows: yes has v everywhere, and no is so frequent that three v do not outweigh it."""
    yes = pd.DataFrame([["v"] * 4] * 4_000, columns=NAMES).assign(y="yes")
    no = np.where(np.random.default_rng(9).random((60_000, 4)) < 0.75, "u", "v")
    return pd.concat([yes, pd.DataFrame(no, columns=NAMES).assign(y="no")])


def test_an_evaluation_counts_the_rows_of_one_combination_and_noise_hides_one() -> None:
    train = pd.concat([honest(2), shaping()])
    model = NaiveBayes(BOOK).fit(train[NAMES], train["y"]).parameters_
    answers = []
    for with_person in (True, False):
        (own,) = evaluate_table(honest(1, with_person=with_person), Reading(BOOK), [model], BINS)
        answers.append(own)
    assert [int(each.confusion[:, 1].sum()) for each in answers] == [1, 0]  # a person with these four values exists
    noise = NoisyEvaluation.make(BOOK, BINS, 1, epsilon=Fraction(1), delta=0.0, honest=2, unit=PrivacyUnit()).noise
    table = noise.table(2)
    middle = len(table) // 2
    # Whatever is released, both tables may have given it: the laws of the cell with and without the person overlap.
    ratio = np.abs(np.log(table[middle - 20 : middle + 20]) - np.log(table[middle - 19 : middle + 21])).max()
    assert 0.3 < ratio <= 1.0 + 1e-6  # the table is in floating point
