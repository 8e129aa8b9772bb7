"""Another source tree beside this one: the same benchmark in turn, and the ratio of CPU time and bytes, line by line.

    git worktree add ../before 6e79d09
    python benchmarks/against.py ../before columns.py train
    python benchmarks/against.py ../before columns.py classify --batch 10000
    python benchmarks/against.py ../before joined_sums.py --ids 100000

Both run alternately (`--rounds` times each) under this interpreter, each with its own sources and benchmark, so that load
hits both alike. Figures are medians of what the benchmark prints as `CPU a + b`, and the last `.. MB` or `.. B` of its line.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from _measured import Options

HERE = Path(__file__).resolve().parent.parent
CPU = re.compile(r"CPU ([\d.]+) \+ ([\d.]+)")
SIZE = re.compile(r"([\d,.]+) (MB|B)\b")


def measure(tree: Path, script: str, options: list[str]) -> dict[str, tuple[float, float]]:
    """CPU and bytes of each line of one run."""
    command = [sys.executable, str(tree / "benchmarks" / script), *options]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr[-2000:]}")
    found = {}
    for line in done.stdout.splitlines():
        used = CPU.search(line)
        if used:
            sizes = SIZE.findall(line.split(", peak")[0])
            size = float(sizes[-1][0].replace(",", "")) if sizes else float("nan")
            found[re.split(r": | CPU ", line)[0]] = (sum(map(float, used.groups())), size)
    return found


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("tree", type=Path, nargs="?", default=HERE, help="the other source tree")
    parser.add_argument("script", nargs="?", default="columns.py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of a small size, to see that it runs")
    chosen, options = parser.parse_known_args()
    if chosen.quick:
        chosen.rounds, options = 1, ["train", "--quick"]
    runs: dict[str, dict[str, list[tuple[float, float]]]] = {"before": defaultdict(list), "now": defaultdict(list)}
    for _ in range(chosen.rounds):
        for name, tree in (("before", chosen.tree.resolve()), ("now", HERE)):
            for line, figures in measure(tree, chosen.script, options).items():
                runs[name][line].append(figures)
    for line, now in runs["now"].items():
        before = runs["before"].get(line)
        if not before:
            continue
        (cpu, size), (cpu_before, size_before) = (
            [statistics.median(column) for column in zip(*side, strict=True)] for side in (now, before)
        )
        print(
            f"{line}: CPU {cpu_before:.2f} -> {cpu:.2f} ({100 * (cpu / cpu_before - 1):+.1f}%), "
            f"bytes {100 * (size / size_before - 1):+.1f}%, medians of {len(now)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
