"""Forecast the accuracy of a private study by epsilon, on a synthetic table: no row is read, no budget is spent."""

from __future__ import annotations

from typing import Any

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.release.forecast import forecast, plan_fits, synthetic_proxy
from blindbayes.errors import ConfigError

CURVE_EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REPETITIONS = 12
_ROWS = 2000  # if the study names no number of rows
_MAX_ROWS = 20_000  # of the made-up table: more rows only sharpen the curve


def accuracy_curve(
    codebook: Codebook, *, rows: int | None, delta: float = 0.0, rows_per_person: int | None = None
) -> dict[str, Any]:
    """Return the forecast of `blindbayes plan --synthetic` as plain builtins. Takes seconds."""
    if rows is not None and rows < 1:
        raise ConfigError("expected_rows is a whole number, at least 1")
    coins, declared = Coins.seeded(bytes(32)), rows or _ROWS
    plans = plan_fits(codebook, CURVE_EPSILONS, delta=delta, rows=declared, rows_per_unit=rows_per_person or 1)
    table = synthetic_proxy(codebook, min(max(declared, _ROWS), _MAX_ROWS), coins)
    result = forecast(plans, table, coins=coins, repetitions=_REPETITIONS, proxy="synthetic table")
    return {
        "rows": declared,
        "delta": delta,
        "not_private": result.not_private,
        "majority": result.majority,
        "smallest": result.smallest,
        "lines": [{"epsilon": line.epsilon, "mean": line.mean, "low": line.low, "high": line.high} for line in result.lines],
    }
