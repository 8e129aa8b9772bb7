"""Smooth sensitivity of mean and variance: CPU time by n, ours and the paper's O(n^2) side by side.

python benchmarks/smooth_sensitivity.py
"""

from __future__ import annotations

import time

import numpy as np
from _measured import Options

from blindbayes_papers.zafarani2020.methods import printed_mean_bound, printed_variance_bound
from blindbayes_papers.zafarani2020.smooth import mean_sensitivity, variance_sensitivity

BETAS = (1e-5, 1e-3, 0.1)


def seconds(task) -> float:
    """Least CPU time of three runs."""
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        task()
        best = min(best, time.process_time() - started)
    return best


def main() -> None:
    """Print the table."""
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    sizes = (500, 1000) if parser.parse_args().quick else (500, 1000, 2000, 10_000, 100_000, 1_700_000)
    generator = np.random.default_rng(2020)
    print(f"{'n':>10} {'beta':>8} {'ours, both':>12} {'printed mean':>13} {'printed variance':>17}  CPU seconds with sorting")
    for count in sizes:
        values = np.clip(generator.normal(0.1, 0.25, count), -1, 1)
        for beta in BETAS:

            def ours(values=values, beta=beta) -> None:
                ordered = np.sort(values)
                mean_sensitivity(len(ordered), float(ordered[0]), float(ordered[-1]), -1.0, 1.0, beta)
                variance_sensitivity(ordered, -1.0, 1.0, beta)

            line = f"{count:>10,} {beta:>8g} {seconds(ours):>12.5f}"
            if count <= 2000:
                line += f" {seconds(lambda v=values, b=beta: printed_mean_bound(np.sort(v), b)):>13.5f}"
                line += f" {seconds(lambda v=values, b=beta: printed_variance_bound(np.sort(v), b, every=True)):>17.5f}"
            print(line)


if __name__ == "__main__":
    main()
