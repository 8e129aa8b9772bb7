"""Accuracy of a joint release on the papers' datasets, against the best other joint release in hindsight, paired over splits.

BLINDBAYES_DATA=... python benchmarks/dp_accuracy.py [--splits 20] [--datasets seeds,iris] [--csv out.csv]
"""

from __future__ import annotations

import csv
import time
from dataclasses import asdict

from _measured import Options

from blindbayes_papers.zafarani2020.data import load_rows
from blindbayes_papers.zafarani2020.experiment import EPSILONS, TABLE, compare


def main() -> None:
    """Print ours / theirs per dataset and epsilon; + and -: beyond two paired standard errors."""
    parser = Options(__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--datasets", default=",".join(TABLE))
    parser.add_argument("--csv")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.splits, options.datasets = 2, "iris"
    rows = []
    print(f"{'dataset':<12} {'privacy':<17}" + "".join(f"{epsilon:>15g}" for epsilon in EPSILONS))
    for name in options.datasets.split(","):
        started = time.process_time()
        found = list(compare(load_rows(name), options.splits))
        rows += found
        for privacy in ("pure", "(epsilon, delta)"):
            marks = {"better": "+", "worse": "-", "same": " "}
            cells = [f"{row.ours:.3f}/{row.theirs:.3f}{marks[row.verdict]}" for row in found if row.privacy == privacy]
            print(f"{name:<12} {privacy:<17}" + "".join(f"{cell:>15}" for cell in cells), flush=True)
        print(f"{'':<12} {time.process_time() - started:.0f} CPU seconds", flush=True)
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])))
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)


if __name__ == "__main__":
    main()
