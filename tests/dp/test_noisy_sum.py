"""The plan of a noisy sum: which cells it takes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from blindbayes import Privacy, RowStudy
from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.release.cells import likely_shape
from blindbayes.dp.release.constants import MAX_CELLS


def test_a_sum_takes_cells_by_public_bounds_and_leaves_out_what_noise_would_bury() -> None:
    def planned(*features: Feature, rows: int) -> NoisySum:
        book = Codebook("class", ("a", "b"), features, max_rows=10**6)
        return NoisySum.make(book, epsilon=1.0, honest=2, parties=3, rows=rows)

    amount, length = Numeric("amount", 0, 10**6), Numeric("length", 150, 200)
    cells = {each.feature: each for each in planned(amount, length, rows=500).tables.encodings}
    assert {each.kind for each in cells.values()} == {"cells"}
    assert max(each.cells for each in cells.values()) <= MAX_CELLS  # grid points of a number do not decide it
    fine = likely_shape(amount)
    first_half = np.cumsum(fine.mass)[np.array(cells["amount"].edges[1:]) - 1]
    assert np.diff([0.0, *first_half]).max() < 2 / cells["amount"].cells  # equally full where amounts lie low

    many = [Numeric(f"x{at}", 0, 100) for at in range(40)]
    few, all_of_them = planned(*many, rows=200), planned(*many, rows=200_000)
    kept = [each.kind != "nothing" for each in few.tables.encodings]
    assert 1 < sum(kept) < 40
    assert isinstance(few.noise, WholeNoise)  # two class counts; of each histogram its differences to the first cell
    assert few.length == 2 + sum(2 * (each.cells - 1) for each in few.tables.encodings if each.kind != "nothing")
    assert isinstance(all_of_them.noise, DistributedNoise)
    assert all_of_them.length == sum(2 * each.cells for each in all_of_them.tables.encodings)
    assert all(each.kind != "nothing" for each in all_of_them.tables.encodings)


@pytest.mark.parametrize("epsilon", [300.0, 1000.0])
def test_a_sum_whose_noise_is_below_every_float_is_the_count(epsilon: float) -> None:
    codebook = Codebook("ill", ("no", "yes"), (Categorical("smoker", ("no", "yes")),), max_rows=1000)
    table = pd.DataFrame({"ill": ["no", "no", "yes"] * 20, "smoker": ["no", "yes"] * 30})
    result = RowStudy(codebook, privacy=Privacy(epsilon=epsilon)).simulate(dict.fromkeys(("a", "b", "c"), table))
    assert result.statistics.class_counts.tolist() == [120, 60]
