"""Noise in shares at epsilon 1 costs at most one point of accuracy against the central release."""

from pathlib import Path

import pytest

WIDE = "a column with many grid points is released as sums, in shares with nearly twice the noise in every table"
SPLITS = {"car": 40, "mushroom": 20, "wdbc": 80, "adult": 3}


@pytest.mark.slow
@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=WIDE)) if name == "wdbc" else name for name in SPLITS],
)
def test_a_model_in_shares_is_within_a_point_of_the_central_release(dataset, name, parties, monkeypatch):
    if name != "wdbc":
        dataset(name)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import columns_noise as bench

    shared, central, _ = bench.compare(bench.load_rows(name), parties, 1.0, SPLITS[name])
    assert shared > central - 0.01
