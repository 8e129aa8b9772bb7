"""masked_sum: time per contributor and server, bytes and memory, as the number of parties grows.

    python benchmarks/masked_sum.py                 # Azimian's three sizes, then 250 and 1,000 parties of one record
    python benchmarks/masked_sum.py --parties 10000
    python benchmarks/masked_sum.py --simulate 10000    # a whole study in this process, from one record per party to the model
    python benchmarks/masked_sum.py --json out.json

Every party runs in this process, one after the other, with all messages encoded and decoded; times are CPU seconds inside each
role, 5% of the parties are really lost (half before their vector, half after), and every total is compared with the pooled one.
If python-paillier (`phe`) is installed, the count-by-count baseline is measured beside it: one encryption at 2,048 bits times
the number of value x class cells of a contributor.
"""

from __future__ import annotations

import json
import math
import resource
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from _measured import Options

from blindbayes.crypto.coins import Coins
from blindbayes.protocols import registry
from blindbayes.protocols.memory import Fault, Vanish, local_runs, run_in_memory
from blindbayes.protocols.secure_sum import graph
from blindbayes.wire.transcript import Keep

AZIMIAN = {"iris": (150, 123, 3), "dermatology": (366, 189, 6), "pima": (768, 1254, 2)}  # contributors, values, classes
ADULT_CELLS = 250  # 102 values of categorical features + 6 x (sum, square) + class, times 2 classes, rounded up
SENDS_VECTOR = 4


def _graph(parties: int, quorum_size: int, corrupt: float, neighbours: int) -> graph.MaskGraph:
    """Return a graph of the paper's degree in place of the planned one."""
    return graph.best_threshold(parties, neighbours, math.ceil(corrupt * parties), parties - quorum_size)[1]


def measure(
    parties: int, words: int, *, neighbours: int | None = None, lost: float = 0.05, publish: bool = False
) -> dict[str, Any]:
    """One run with really lost parties; asserts the exact sum."""
    coins = Coins.seeded(bytes(32))
    names = tuple(f"p{index}" for index in range(parties))
    dropped = int(lost * parties)
    rng = np.random.default_rng(7)
    chosen = [names[index] for index in rng.choice(parties, dropped, replace=False)]
    faults: list[Fault] = [Vanish(name, SENDS_VECTOR + at % 2) for at, name in enumerate(chosen)]
    early = {name for at, name in enumerate(chosen) if at % 2 == 0}
    vectors = {name: rng.integers(0, 2, words).astype(np.uint64) for name in names}
    setting = registry.SumSetup(names, words, parties - dropped, options={"publish": publish})
    protocol = registry.load("masked_sum")
    runs = local_runs(protocol.roster(setting), coins=coins)
    planned = graph.plan if neighbours is None else lambda *shape: _graph(*shape, neighbours)
    begun = time.perf_counter()
    with mock.patch.object(graph, "plan", planned):
        roles = registry.simulate_roles(protocol, runs, setting, vectors, coins)
    outcome = run_in_memory(roles, faults=faults, keep=Keep.COUNTS)
    elapsed = time.perf_counter() - begun
    total = outcome.outputs["server"]
    expected = np.zeros(words, np.uint64)
    for name in names:
        if name not in early:
            expected += vectors[name]
    if not np.array_equal(total.words, expected) or set(total.included) != set(names) - early:
        raise SystemExit("the total is wrong")
    costs = [outcome.cost.parties[name] for name in names if name not in chosen]
    return {
        "parties": parties,
        "words": words,
        "neighbours": neighbours,
        "lost": dropped,
        "contributor_ms": round(1e3 * float(np.median([cost.seconds for cost in costs])), 2),
        "contributor_bytes_up": int(np.median([cost.sent_bytes for cost in costs])),
        "server_s": round(outcome.cost.parties["server"].seconds, 3),
        "server_ms_per_party": round(1e3 * outcome.cost.parties["server"].seconds / parties, 3),
        "wall_s": round(elapsed, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def simulate(parties: int) -> None:
    """A study of one-record tables, all sites in this process: CPU, and the peak memory of the process."""
    import pyarrow as pa

    from blindbayes import Categorical, Codebook, RowStudy

    values, features = tuple("abcdefghij"), 12
    codebook = Codebook("class", ("0", "1"), tuple(Categorical(f"a{at}", values) for at in range(features)))
    rng = np.random.default_rng(7)
    columns = {f"a{at}": [values[code] for code in rng.integers(0, 10, parties)] for at in range(features)}
    whole = pa.table({**columns, "class": [str(label) for label in rng.integers(0, 2, parties)]})
    tables = {f"p{at}": whole.slice(at, 1) for at in range(parties)}
    begun = time.process_time()
    result = RowStudy(codebook).simulate(tables)
    spent = time.process_time() - begun
    if result.statistics.class_counts.sum() != parties:
        raise SystemExit("the total is wrong")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"simulate, {parties:,} parties: {spent:.1f} CPU s, peak {peak:.0f} MB, {result.cost.bytes / 1e6:.0f} MB of messages")


def baseline_ms() -> float | None:
    """One encryption by python-paillier at 2,048 bits, or None if it is not installed."""
    try:
        from phe import paillier
    except ImportError:
        return None
    public, _ = paillier.generate_paillier_keypair(n_length=2048)
    begun = time.process_time()
    for _ in range(10):
        public.encrypt(1)
    return (time.process_time() - begun) * 100


def main() -> None:
    parser = Options(__doc__.splitlines()[0])
    parser.add_argument("--parties", type=int, nargs="*", default=[250, 1000])
    parser.add_argument("--simulate", type=int, metavar="PARTIES", help="a whole study instead, in this process")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--skip-azimian", action="store_true")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    arguments = parser.parse_args()
    if arguments.simulate:
        simulate(arguments.simulate)
        return
    if arguments.quick:
        arguments.parties, arguments.skip_azimian = [40], True
    report: dict[str, Any] = {"azimian": {}, "growth": []}
    if not arguments.skip_azimian:
        one = baseline_ms()
        print("table        contributors  words  k    contributor ms  bytes up  server ms  times less than count by count")
        for name, (parties, values, classes) in AZIMIAN.items():
            cells = values * classes
            found = measure(parties, cells + classes, neighbours=100)
            found["times_less"] = round(cells * one / found["contributor_ms"]) if one else None
            report["azimian"][name] = found
            print(
                f"{name:12} {parties:12} {found['words']:6} {100:3} {found['contributor_ms']:15}"
                f" {found['contributor_bytes_up']:9} {1e3 * found['server_s']:10.0f}  {found['times_less'] or '-'}"
            )
    print("\nparties  words  contributor ms  bytes up  server s  server ms/party  peak MB   (one record each, Adult-sized)")
    for parties in arguments.parties:
        found = measure(parties, ADULT_CELLS)
        report["growth"].append(found)
        print(
            f"{parties:7} {found['words']:6} {found['contributor_ms']:15} {found['contributor_bytes_up']:9}"
            f" {found['server_s']:9} {found['server_ms_per_party']:16} {found['peak_memory_mb']:8}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
