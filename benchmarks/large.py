"""Time and memory of counting as the table grows, from 10^5 to 10^8 rows: in batches from Parquet files, and by an engine.

    python benchmarks/large.py --out docs/images          # 10^5, 10^6, 10^7, 10^8 rows of 3 categories, 2 numbers and a class
    python benchmarks/large.py --quick                    # 10^4 and 10^5

Each count runs in a process of its own, which tells its peak memory. The largest tables are folders that
hold one file of 10^7 rows many times: all rows are read, and their counts must be so many times those of the file. Writes
large.csv and, with matplotlib, large.svg into --out; the tables lie in a temporary folder and are removed.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _measured import Options

MOST = 10**7  # rows of one file
WAYS = ("parquet", "duckdb")
COLUMNS = """
    hash(i) % 12 AS a, hash(i + 7) % 5 AS b, CASE WHEN hash(i * 3) % 4 = 0 THEN 'x' ELSE 'y' END AS c,
    round((hash(i * 5) % 200000) / 1000.0 - 100, 2) AS u, CAST(hash(i * 11) % 1000 AS INTEGER) AS v,
    CASE WHEN hash(i * 13) % 3 = 0 THEN 'no' ELSE 'yes' END AS y
"""


def write(folder: Path, rows: int) -> Path:
    import duckdb

    made = folder / str(rows)
    made.mkdir()
    size = min(rows, MOST)
    first = made / "0.parquet"
    connection = duckdb.connect()
    connection.execute("SET memory_limit = '1GB'")
    connection.execute(f"COPY (SELECT {COLUMNS} FROM range({size}) t(i)) TO '{first}' (FORMAT parquet)")
    connection.close()
    for at in range(1, rows // size):
        os.link(first, made / f"{at}.parquet")
    return made


def count(way: str, folder: str) -> dict[str, Any]:
    import ibis

    from blindbayes import Categorical, Codebook, Numeric
    from blindbayes.data import count_table

    features = (
        Categorical("a", tuple(map(str, range(12)))), Categorical("b", tuple(map(str, range(5)))), Categorical("c", ("x", "y")),
        Numeric("u", -100, 100, 0.01), Numeric("v", 0, 1000, bins=20),
    )  # fmt: skip
    book = Codebook("y", ("no", "yes"), features, max_rows=10**9)
    source: Any = folder
    if way == "duckdb":
        source = ibis.duckdb.connect(memory_limit="512MB").read_parquet(f"{folder}/*.parquet")
    wall, cpu = time.perf_counter(), time.process_time()
    found = count_table(source, book)
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return {**spent, "peak_mb": peak_mb(), "counts": [int(each) for each in found.vector]}


def peak_mb() -> float:
    """Of this process alone: what `getrusage` tells begins with the memory of whoever started it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def measured(way: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for way in WAYS:
        own = [row for row in rows if row["way"] == way]
        for axis, name in zip(axes, ("cpu", "peak_mb"), strict=True):
            label = {"parquet": "Parquet files, in batches", "duckdb": "DuckDB, where it lies"}[way]
            axis.plot([row["rows"] for row in own], [row[name] for row in own], marker="o", label=label)
    for axis, title in zip(axes, ("CPU seconds", "peak memory of the process, MB"), strict=True):
        axis.set(xscale="log", title=title, xlabel="rows")
        axis.grid(alpha=0.3)
    axes[0].set(yscale="log")
    axes[1].set(ylim=(0, None))
    axes[0].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = Options()
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--folder")
    given = parser.parse_args()
    if given.way is not None:
        print(json.dumps(count(given.way, given.folder)))
        return
    sizes = [10**4, 10**5] if given.quick else [10**5, 10**6, 10**7, 10**8]
    rows: list[dict[str, Any]] = []
    counts: dict[int, list[int]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as temporary:
        for size in sizes:
            folder = write(Path(temporary), size)
            for way in WAYS:
                found = measured(way, folder)
                own = found.pop("counts")
                assert counts.setdefault(size, own) == own, "the two ways count alike"
                assert size <= MOST or own == [each * (size // MOST) for each in counts[MOST]], "all rows are counted"
                rows.append({"way": way, "rows": size, **found})
                print(
                    f"{way:8} {size:>11,} rows: {found['wall']:8.1f} s, {found['cpu']:8.1f} CPU s, {found['peak_mb']:6.0f} MB",
                    flush=True,
                )
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "large.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["way", "rows", "wall", "cpu", "peak_mb"])
        writer.writeheader()
        writer.writerows(rows)
    try:
        draw(rows, given.out / "large.svg")
    except ImportError:
        print("no matplotlib: no picture")


if __name__ == "__main__":
    main()
