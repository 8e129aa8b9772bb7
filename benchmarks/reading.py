"""Counting one table from a frame, from Parquet and from CSV, interleaved, by CPU time of the process.

python benchmarks/reading.py                      # 300,000 rows x 200 numeric columns
python benchmarks/reading.py --rows 300000 --columns 4 --rounds 5
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from _measured import Options
from pyarrow import csv

from blindbayes import Codebook, Numeric
from blindbayes.data import count_table


def table(rows: int, columns: int) -> pd.DataFrame:
    generator = np.random.default_rng(7)
    numbers = np.round(generator.normal(0, 100, (rows, columns)).clip(-999, 999), 2)
    return pd.DataFrame(numbers, columns=[f"x{at}" for at in range(columns)]).assign(y=generator.choice(["a", "b"], rows))


def cpu(count: Callable[[], Any]) -> float:
    before = time.process_time()
    count()
    return time.process_time() - before


def main() -> None:
    parser = Options()
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    given = parser.parse_args()
    if given.quick:
        given.rows, given.columns, given.rounds = 2000, 8, 1
    features = tuple(Numeric(f"x{at}", -1000, 1000, 0.01) for at in range(given.columns))
    book = Codebook("y", ("a", "b"), features, max_rows=10**8)
    with tempfile.TemporaryDirectory() as folder:
        frame = table(given.rows, given.columns)
        paths = {"parquet": Path(folder, "t.parquet"), "csv": Path(folder, "t.csv")}
        frame.to_parquet(paths["parquet"])
        csv.write_csv(pa.Table.from_pandas(frame), paths["csv"])
        spent: dict[str, list[float]] = {"frame": [], "parquet": [], "csv": []}
        for at in range(given.rounds + 1):  # the first warms up
            for name, times in spent.items():
                found = cpu(lambda name=name: count_table(paths.get(name, frame), book))  # type: ignore[misc]
                times += [found] if at else []
    middle = {name: statistics.median(times) for name, times in spent.items()}
    print("CPU s: " + ", ".join(f"{name} {value:.2f}" for name, value in middle.items()))
    print(f"parquet / frame {middle['parquet'] / middle['frame']:.2f}, csv / parquet {middle['csv'] / middle['parquet']:.2f}")


if __name__ == "__main__":
    main()
