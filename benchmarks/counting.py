"""Fitting from Parquet and CSV, plain and private, against scikit-learn's in-memory fit; and prediction against prediction.

    python benchmarks/counting.py            # 2.5, 5, 10 and 20 million rows x 14 attributes
    python benchmarks/counting.py --quick    # 0.25 to 1 million

Both sides see the same table of whole-number codes. scikit-learn's array is in memory before its clock starts; ours starts at
the file. Each fit runs in a process of its own, so that its peak memory is its own. The CSV holds the same rows, and a fit from
it must give the same numbers; the private fit reads the same Parquet file. Writes counting.csv and, with
matplotlib, counting.png into --out.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _measured import Options
from pyarrow import csv

ATTRIBUTES, VALUES, CLASSES = 14, 12, 3
CHUNK = 1_000_000


def write_table(path: Path, rows: int) -> None:
    """The same rows as Parquet, and as CSV beside it."""
    generator = np.random.default_rng(7)
    names = [f"a{at}" for at in range(ATTRIBUTES)]
    schema = pa.schema([(name, pa.int8()) for name in names] + [("label", pa.int8())])
    with pq.ParquetWriter(path, schema) as writer, csv.CSVWriter(path.with_suffix(".csv"), schema) as texts:
        for start in range(0, rows, CHUNK):
            size = min(CHUNK, rows - start)
            label = generator.integers(0, CLASSES, size, dtype=np.int8)
            columns = [(generator.integers(0, VALUES, size, dtype=np.int8) + label) % VALUES for _ in names]
            table = pa.table([*(pa.array(column.astype(np.int8)) for column in columns), pa.array(label)], schema=schema)
            writer.write_table(table)
            texts.write_table(table)


def ours(path: str, epsilon: float | None = None) -> dict[str, float]:
    from blindbayes import Categorical, Codebook, NaiveBayes, PrivateNaiveBayes

    values = tuple(str(value) for value in range(VALUES))
    features = tuple(Categorical(f"a{at}", values) for at in range(ATTRIBUTES))
    codebook = Codebook("label", tuple(str(label) for label in range(CLASSES)), features)
    wall, cpu = time.perf_counter(), time.process_time()
    model = (NaiveBayes(codebook) if epsilon is None else PrivateNaiveBayes(codebook, epsilon=epsilon)).fit(path)
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**spent, "check": float(model.feature_log_prob_["a3"].sum()), **memory()}


def private(path: str) -> dict[str, float]:
    return ours(path, epsilon=1.0)


def theirs(path: str) -> dict[str, float]:
    from sklearn.naive_bayes import CategoricalNB

    table = pq.read_table(path)
    matrix = np.column_stack([table.column(f"a{at}").to_numpy() for at in range(ATTRIBUTES)])
    label = table.column("label").to_numpy()
    del table
    wall, cpu = time.perf_counter(), time.process_time()
    model = CategoricalNB().fit(matrix, label)
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**spent, "check": float(model.feature_log_prob_[3].sum()), **memory()}


def predictions(rows: int) -> dict[str, float]:
    """Seconds for each side to classify `rows` rows from the same array; best of three."""
    from sklearn.naive_bayes import CategoricalNB

    from blindbayes import Categorical, Codebook, NaiveBayes

    generator = np.random.default_rng(8)
    matrix = generator.integers(0, VALUES, (rows, ATTRIBUTES))
    label = generator.integers(0, CLASSES, rows)
    values = tuple(str(value) for value in range(VALUES))
    codebook = Codebook("label", ("0", "1", "2"), tuple(Categorical(f"a{at}", values) for at in range(ATTRIBUTES)))
    mine, peer = NaiveBayes(codebook).fit(matrix, label), CategoricalNB().fit(matrix, label)
    if not np.array_equal(mine.predict(matrix[:100_000]), peer.predict(matrix[:100_000])):
        raise SystemExit("the two models disagree")
    best: dict[str, float] = {}
    for name, model in (("ours", mine), ("scikit-learn", peer)):
        for _ in range(3):
            start = time.process_time()
            model.predict(matrix)
            best[name] = min(best.get(name, 1e9), time.process_time() - start)
    return best


def memory() -> dict[str, float]:
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_process(side: str, path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--side", side, str(path)], check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true", help="1 million rows instead of 20")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps({"ours": ours, "private": private, "theirs": theirs}[options.side[0]](options.side[1])))
        return
    sizes = [250_000, 500_000, 1_000_000] if options.quick else [2_500_000, 5_000_000, 10_000_000, 20_000_000]
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory(dir=options.out) as folder:
        for size in sizes:
            path = Path(folder) / "table.parquet"
            write_table(path, size)
            mine, peer = in_process("ours", path), in_process("theirs", path)
            text, noisy = in_process("ours", path.with_suffix(".csv")), in_process("private", path)
            if text["check"] != mine["check"] or not np.isclose(mine["check"], peer["check"], rtol=1e-12):
                raise SystemExit("the models differ")
            rows.append((size, mine, peer))
            print(
                f"{size:>11,} rows: ours {mine['wall']:.2f} s wall, {mine['cpu']:.2f} s CPU, {mine['peak_mb']:.0f} MB; "
                f"scikit-learn {peer['wall']:.2f} s, {peer['cpu']:.2f} s CPU, {peer['peak_mb']:.0f} MB; "
                f"ratio {peer['wall'] / mine['wall']:.1f} wall, {peer['cpu'] / mine['cpu']:.1f} CPU; "
                f"CSV {text['cpu']:.2f} s CPU, {text['cpu'] / mine['cpu']:.2f} times Parquet, {text['peak_mb']:.0f} MB; "
                f"private {noisy['cpu']:.2f} s CPU, {noisy['cpu'] / mine['cpu']:.2f} times plain",
                flush=True,
            )
    best = predictions(1_000_000)
    print(f"  predict 1,000,000 rows: ours {best['ours']:.2f} CPU s, scikit-learn {best['scikit-learn']:.2f} CPU s")
    lines = ["rows,ours_wall,ours_cpu,ours_mb,sklearn_wall,sklearn_cpu,sklearn_mb"]
    for size, mine, peer in rows:
        figures = (f"{side[key]:.3f}" for side in (mine, peer) for key in ("wall", "cpu", "peak_mb"))
        lines.append(",".join([str(size), *figures]))
    (options.out / "counting.csv").write_text("\n".join(lines) + "\n")
    plot(rows, options.out / "counting.png")


def plot(rows: list[tuple[int, dict[str, float], dict[str, float]]], path: Path) -> None:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    sizes = [size / 1e6 for size, _, _ in rows]
    axes.plot(sizes, [peer["wall"] for _, _, peer in rows], "o-", label="scikit-learn fit, array in memory")
    axes.plot(sizes, [mine["wall"] for _, mine, _ in rows], "s-", label="blindbayes fit, from Parquet")
    axes.set(xlabel="million rows (14 attributes)", ylabel="seconds", title="Fitting Naive Bayes")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
