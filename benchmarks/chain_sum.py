"""chain_sum against the unpacked baseline on python-paillier and against the printed scheme, side by side in one run.

    python benchmarks/chain_sum.py            # the three sizes of Azimian et al. 2022 at 2,048 bits; about five minutes
    python benchmarks/chain_sum.py --quick

150 x 123 values x 3 classes, 366 x 189 x 6, 768 x 1,254 x 2; one record per contributor. CPU seconds of all parties together,
best of some runs; every scheme in a process of its own, whose peak memory is its own. Everything is counted: keys, tables,
key agreement, signatures. The baseline encrypts one ciphertext per value and class (and per class) for each contributor: one
operation of python-paillier is measured and multiplied, since Pima alone would take five hours. The printed scheme runs for
40 contributors and is scaled up. Without python-paillier, textbook Paillier on gmpy2 stands in. Writes chain_sum.csv to --out.
"""

from __future__ import annotations

import csv
import importlib.util
import pathlib
import time

import numpy as np
from _measured import Options

from blindbayes_papers.azimian2022.measure import Measurement, measure_apart
from blindbayes_papers.azimian2022.schemes import Records

SHAPES = {
    "iris": ([35, 23, 43, 22], 150, 3),
    "dermatology": ([4] * 30 + [3, 2, 3, 61], 366, 6),
    "pima": ([17, 136, 47, 51, 186, 248, 517, 52], 768, 2),
}
KEY_BITS = 2048


def synthetic(name: str) -> Records:
    """Random records of the dataset's shape: time and memory depend on nothing else."""
    sizes, rows, classes = SHAPES[name]
    generator = np.random.default_rng(2022)
    starts = np.cumsum([0, *sizes[:-1]])
    values = [[int(start + generator.integers(size)) for start, size in zip(starts, sizes, strict=True)] for _ in range(rows)]
    return Records.one_each(values, generator.integers(0, classes, rows), sum(sizes), classes)


def python_paillier(batches: int) -> tuple[float, float, float]:
    """CPU seconds of one encryption, addition and decryption of python-paillier at 2,048 bits, best of some batches."""
    from phe import paillier

    public, private = paillier.generate_paillier_keypair(n_length=KEY_BITS)
    best = [float("inf")] * 3
    for _ in range(batches):
        times = [time.process_time()]
        made = [public.encrypt(at & 1) for at in range(20)]
        times.append(time.process_time())
        running = made[0]
        for c in made:
            running = running + c
        times.append(time.process_time())
        for c in made:
            private.decrypt(c)
        times.append(time.process_time())
        best = [min(least, (end - start) / 20) for least, start, end in zip(best, times, times[1:], strict=False)]
    return best[0], best[1], best[2]


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    arguments = parser.parse_args()
    rows = []
    head = ["dataset", "scheme", "total CPU s", "per contributor ms", "builder s", "saved %", "peak MB", "of the run MB", "how"]
    print("  ".join(head))

    def show(one: Measurement, scheme: str, baseline: float, how: str) -> None:
        total, ms = one.total_seconds, one.contributor_ms
        row = [
            one.dataset,
            scheme,
            f"{total:.3f}",
            f"{ms:.3f}",
            f"{one.builder_seconds:.3f}",
            f"{100 * (1 - total / baseline):.3f}",
        ]
        row += [f"{one.peak_mb:.1f}", f"{one.growth_mb:.2f}", how]
        rows.append(row)
        print("  ".join(row), flush=True)

    for name in SHAPES:
        records = synthetic(name)
        unpacked = measure_apart(name, records, "unpacked", KEY_BITS, arguments.quick)
        baseline, how = unpacked.total_seconds, "textbook Paillier on gmpy2, operations multiplied"
        if importlib.util.find_spec("phe"):
            encrypt, add, decrypt = python_paillier(1 if arguments.quick else 6)
            cells = unpacked.encryptions
            baseline = len(records.owners) * cells * (encrypt + add) + cells * decrypt
            row = [
                name,
                "unpacked",
                f"{baseline:.0f}",
                f"{1e3 * cells * (encrypt + add):.0f}",
                f"{cells * decrypt:.1f}",
                "0",
                "",
                "",
            ]
            rows.append([*row, "python-paillier, operations multiplied"])
            print("  ".join(rows[-1]), flush=True)
        show(unpacked, "unpacked", baseline, how)
        printed = measure_apart(name, records, "printed", KEY_BITS, arguments.quick)
        show(printed, "printed", baseline, f"textbook Paillier on gmpy2, scaled up from {printed.timed} contributors")
        show(measure_apart(name, records, "chain_sum", KEY_BITS, arguments.quick), "chain_sum", baseline, "measured")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "chain_sum.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


if __name__ == "__main__":
    main()
