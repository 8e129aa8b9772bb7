"""Columns split between two sites: training and classification through real agents, beside the same study in one process.

    python benchmarks/column_sites.py                      # 10^5 and 10^6 rows x 50 columns, then 20,000 instances
    python benchmarks/column_sites.py --rows 1000000 --instances 100000

Two agents on loopback, as between organisations: mutual TLS, the sealed envelope, journals
with every message on disk, policy.
One holds the class, the other 50 columns (45 categorical, 5 Gaussian) as a Parquet file. CPU seconds are those of each agent
process (user and system) from the start of the run to its end, reading and coding of the file included: it is read once, for
the digest that a run taken up after a crash must find again, and the codes are kept (where they take over 256 MB it is read
again). Peak memory is the process's high-water mark, journal bytes what lay on disk at the end. The in-process run drives the
same two parts on the same files and counts CPU time of the process. Both are run some times in turn: the first time loads
libraries (the process of the benchmark has loaded some before), which an agent that runs for a year does once.
Machine and load are the reader's: compare ratios.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _measured import Options

from blindbayes import ColumnStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.testing.loopback import Loopback, LoopbackSite, open_policy

CLASSES = ("a", "b", "c")
BOOK = Codebook(
    "y",
    CLASSES,
    (
        *(Categorical(f"c{at}", ("0", "1")) for at in range(45)),
        *(Numeric(f"g{at}", -2047, 2047) for at in range(5)),
    ),
    variance_floor=1.0,
)
NAMES = ("registry", "hospital")


def write(folder: Path, rows: int) -> dict[str, str | None]:
    """The two sites' files, in pieces."""
    paths = {name: folder / f"{name}-{rows}.parquet" for name in NAMES}
    features = [pa.field(name, pa.string() if name.startswith("c") else pa.float64()) for name in BOOK.names]
    kinds = {"registry": pa.schema([pa.field("y", pa.string())]), "hospital": pa.schema(features)}
    words = {"c": np.array(["0", "1"], dtype=object), "y": np.array(CLASSES, dtype=object)}
    rng = np.random.default_rng(1)
    writers = {name: pq.ParquetWriter(paths[name], kinds[name]) for name in NAMES}
    for low in range(0, rows, 1 << 17):
        size = min(1 << 17, rows - low)
        label = rng.integers(0, 3, size)
        made = {"y": pa.array(words["y"][label], pa.string())}
        for name in BOOK.names:
            if name.startswith("c"):
                made[name] = pa.array(words["c"][(rng.random(size) < 0.2 + 0.2 * label).astype(int)], pa.string())
            else:
                made[name] = pa.array(np.clip(np.rint(rng.normal(200 * label, 500)), -2047, 2047))
        for name, writer in writers.items():
            writer.write_table(pa.table({field.name: made[field.name] for field in kinds[name]}, schema=kinds[name]))
    for writer in writers.values():
        writer.close()
    return {name: str(path) for name, path in paths.items()}


def used(site: LoopbackSite) -> tuple[float, float]:
    """(CPU seconds so far, peak memory in MB) of an agent's process."""
    if site.process is None:
        raise RuntimeError("the agent is not running")
    fields = Path(f"/proc/{site.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{site.process.pid}/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), peak / 1024


class Watch:
    """The largest size of the journals of a run, looked at while it lasts."""

    def __init__(self, net: Loopback) -> None:
        self.most, self._on = 0, True
        self._net = net
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while self._on:
            for site in self._net.sites.values():
                total = 0
                for path in (site.home.folder / "runs").glob("*/*/journal"):
                    try:
                        total += path.stat().st_size
                    except FileNotFoundError:
                        continue
                self.most = max(self.most, total)
            time.sleep(0.05)

    def end(self) -> int:
        self._on = False
        self._thread.join()
        return self.most


def measure(net: Loopback, what: str, count: int, act: Any) -> dict[str, Any]:
    before = {name: used(site) for name, site in net.sites.items()}
    watch, begun = Watch(net), time.perf_counter()
    ended = act()
    wall, journal = time.perf_counter() - begun, watch.end()
    if any(each["state"] != "done" for each in ended.values()):
        raise RuntimeError({name: each.get("message") for name, each in ended.items()})
    after = {name: used(site) for name, site in net.sites.items()}
    cpu = {name: after[name][0] - before[name][0] for name in NAMES}
    sent = sum(seat["bytes_out"] for each in ended.values() for seat in each["roles"].values())
    roles = sum(seat["cpu_seconds"] for each in ended.values() for seat in each["roles"].values())
    peak = "/".join(f"{after[name][1]:.0f}" for name in NAMES)
    print(
        f"{what}, two agents: CPU {cpu['registry']:.2f} + {cpu['hospital']:.2f} s (roles {roles:.2f}), wall {wall:.2f} s, "
        f"{sent / count:.0f} B each ({sent / 1e6:.1f} MB), journal {journal / 1e6:.1f} MB, peak {peak} MB",
        flush=True,
    )
    return {"cpu": sum(cpu.values()), "ended": ended}


def study_of(net: Loopback, rows: int) -> StudyFile:
    held = Holdings({"registry": (), "hospital": BOOK.names}, ("registry",), rows)
    times = Deadlines(step=120, join=120, run=3000)
    options = {"queries": 1_000_000}
    return net.make_study(BOOK, kind="columns", columns=held, deadlines=times, options=options)


def compare(folder: Path, rows: int, instances: int, times: int = 3) -> tuple[float, float]:
    """One size, both ways in turn. The first time libraries are loaded and tables built, the later ones are an agent's life.

    Returns CPU of the agents over that of one process, for training and (0 without instances) for classification.
    """
    sources = write(folder, rows)
    with Loopback(folder / f"sites {rows}", sources, policy=open_policy(max_queries=1_000_000, min_cell=0)) as net:
        study = study_of(net, rows)
        net.approve(study, runs=times)
        both: list[tuple[float, float]] = []
        for _ in range(times):
            trained = measure(net, f"train rows={rows:,}", rows, lambda: net.run(study))
            begun = time.process_time()
            joint = ColumnStudy(BOOK).simulate(sources)
            both.append((trained["cpu"], time.process_time() - begun))
        trained_ratio = tell(f"train rows={rows:,}, in one process: {joint.cost.bytes / rows:.0f} B each", both)
        if not instances:
            return trained_ratio, 0.0
        model, asked = next(iter(trained["ended"].values()))["run"], write(folder / "ask", instances)
        each = {"registry": {"count": instances}, "hospital": {"rows": asked["hospital"]}}
        both = []
        for at in range(times):
            found = measure(net, f"classify {instances:,}", instances, partial(net.predict, study, model, f"batch {at}", each))
            begun = time.process_time()
            joint.model.predict({"registry": pa.table({"y": []}), "hospital": asked["hospital"]})
            both.append((found["cpu"], time.process_time() - begun))
        return trained_ratio, tell(f"classify {instances:,}, in one process", both)


def tell(what: str, both: list[tuple[float, float]]) -> float:
    """CPU seconds of one process, and the agents' by it: the first time, and the median of the later ones."""
    later = both[1:] or both
    ratio = float(np.median([agents / alone for agents, alone in later]))
    print(
        f"{what}, CPU {both[0][1]:.2f} s, then {np.median([alone for _, alone in later]):.2f} s; "
        f"agents / one process: {both[0][0] / both[0][1]:.2f}, then {ratio:.2f}",
        flush=True,
    )
    return ratio


def main() -> None:
    """Command line."""
    parser = Options(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    chosen = parser.parse_args()
    sizes = [2_000] if chosen.quick else chosen.rows
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ask").mkdir()
        for at, rows in enumerate(sizes):
            last = at == len(sizes) - 1
            asked = (200 if chosen.quick else chosen.instances) if last else 0
            compare(Path(folder), rows, asked, 1 if chosen.quick else chosen.times)


if __name__ == "__main__":
    main()
