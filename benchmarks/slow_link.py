"""Classification between two sites' agents over a slow link: a proxy on loopback holds every byte for half of a round trip.

    python benchmarks/slow_link.py                          # a round trip of 40 ms: one instance, and 10,000
    python benchmarks/slow_link.py --round-trip 0.2

Real agents, as between organisations: mutual TLS, sealed envelope, journals, policy. Wall time from the moment when both
sites' people have asked to the last site's end: a run's handshake, agreement, base transfers and result folder included; the
connection between the sites stands. `columns.py classify --round-trip` measures the same batch on transfers that stand.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _delaying import Delaying
from _measured import Options
from columns import CLASSES, codebook, synthetic

from blindbayes.codebook import Codebook
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import Loopback, free_port, open_policy

NAMES = ("registry", "hospital")


def write(folder: Path, book: Codebook, rows: int) -> dict[str, str]:
    """The two sites' tables: the class, and everything else."""
    block = synthetic(book, rows, 7)
    values = {feature.name: np.array(feature.values, dtype=object)[block.columns[feature.name]] for feature in book.features}
    label = np.random.default_rng(1).choice(CLASSES, rows)
    tables = {"registry": pa.table({"y": label}), "hospital": pa.table({name: list(own) for name, own in values.items()})}
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}-{rows}.parquet")
    return {name: str(folder / f"{name}-{rows}.parquet") for name in NAMES}


def require_done(ended: dict[str, dict[str, Any]]) -> None:
    """Stop where a run failed."""
    if any(each["state"] != "done" for each in ended.values()):
        raise RuntimeError({name: each.get("message") for name, each in ended.items()})


def measure(folder: Path, round_trip: float, batches: list[int], repeat: int) -> None:
    """Train once, then classify."""
    book, ports = codebook(10, 4, 0, 2), {name: free_port() for name in NAMES}
    proxies = {name: Delaying(ports[name], round_trip) for name in NAMES}
    rows, instances = write(folder, book, 500), {batch: write(folder, book, batch) for batch in batches}
    sites = {
        "addresses": {name: f"127.0.0.1:{port}" for name, port in ports.items()},
        "reached": {name: f"127.0.0.1:{proxy.port}" for name, proxy in proxies.items()},
    }
    with Loopback(folder / "sites", rows, policy=open_policy(max_queries=1_000_000, min_cell=0), **sites) as net:
        held = Holdings({"registry": (), "hospital": book.names}, ("registry",), 500)
        options = {"queries": 1_000_000}
        times = Deadlines(step=60, join=60, run=600)
        study = net.make_study(book, kind="columns", columns=held, deadlines=times, options=options)
        net.approve(study)
        trained = net.run(study)
        require_done(trained)
        model = next(iter(trained.values()))["run"]
        for batch in batches:
            walls = []
            for at in range(repeat if batch == 1 else 2):
                asked = {"registry": {"count": batch}, "hospital": {"rows": instances[batch]["hospital"]}}
                begun = time.perf_counter()
                ended = net.predict(study, model, f"{batch} {at}", asked)
                walls.append(time.perf_counter() - begun)
                require_done(ended)
            wall = statistics.median(walls[1:] or walls)
            print(
                f"classify {batch:,} between two agents, a round trip of {1e3 * round_trip:g} ms: {wall:.2f} s, "
                f"{wall / round_trip:.1f} round trips",
                flush=True,
            )
    for proxy in proxies.values():
        proxy.__exit__(None, None, None)


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--round-trip", type=float, default=0.04, help="in seconds")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 10_000])
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    chosen = parser.parse_args()
    batches, repeat = ([1], 2) if chosen.quick else (chosen.batch, chosen.repeat)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), chosen.round_trip, batches, repeat)


if __name__ == "__main__":
    main()
