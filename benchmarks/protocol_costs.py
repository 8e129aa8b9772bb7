"""What each protocol costs on this machine, for your codebook and your number of parties: CPU, rounds, bytes.

All parties run in this process, on made-up rows of the codebook, with keys of the real size. Networks add their round trips:
rounds times latency, bytes over bandwidth.

python benchmarks/protocol_costs.py
python benchmarks/protocol_costs.py --codebook codebook.toml --parties 10 --protocol masked_sum
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from _measured import Options

from blindbayes import ColumnStudy, JoinStudy, RowStudy
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.crypto import kernels
from blindbayes.crypto.coins import Coins
from blindbayes.datasets import hospitals
from blindbayes.dp.release.forecast import synthetic_proxy
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.protocols import registry
from blindbayes.statistics import CodedRows, Layout, count_block
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.traits import ModelForm
from blindbayes.wire.transcript import Cost, Keep

COLUMNS = tuple(name for name in tasks.known("columns") if tasks.task_class(name).model is ModelForm.SHARED)
KEY = "blindbayes_bench_id"


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--codebook", help="a codebook; by default the demo's")
    parser.add_argument("--parties", type=int, default=3, help="sites of the protocols over rows")
    parser.add_argument("--rows", type=int, default=10_000, help="rows per site")
    parser.add_argument("--instances", type=int, default=1000, help="instances to classify jointly")
    parser.add_argument(
        "--protocol",
        action="append",
        choices=[*registry.known(), *COLUMNS],
        help="only this protocol; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    given = parser.parse_args()
    if given.quick:
        given.rows, given.instances = 200, 5
    if given.codebook is None:
        demo = hospitals(rows=100).codebook
        most = 1000 if given.quick else demo.max_rows  # one protocol searches for its totals among all that are possible
        codebook = msgspec.structs.replace(demo, variance_floor=0.01, max_rows=most)
    else:
        codebook = Codebook.from_toml(given.codebook)
    measured("masked_sum", codebook, 3, 100, 1)  # a warm-up: what is loaded once is no protocol's cost
    lines: list[dict[str, Any]] = []
    for name in given.protocol or (*registry.known(), *COLUMNS):
        lines += measured(name, codebook, given.parties, given.rows, given.instances)
    if given.json:
        about = {"codebook": codebook.sha256, "kernels": kernels.describe(), "rows": given.rows}
        print(json.dumps({**about, "measured": lines}, indent=2))
    else:
        show(lines, given.rows)


def measured(name: str, codebook: Codebook, parties: int, rows: int, instances: int) -> list[dict[str, Any]]:
    try:
        if name in registry.known():
            return [of_rows(name, codebook, parties, rows)]
        return of_columns(name, codebook, rows, instances)
    except BlindbayesError as error:  # such as a codebook that fits no study over columns: the others are measured still
        return [{"protocol": name, "why": str(error)}]


def of_rows(name: str, codebook: Codebook, parties: int, rows: int) -> dict[str, Any]:
    layout, coins = Layout(codebook), Coins.seeded(bytes(32))
    sources = {f"site-{at}": count_block(layout, synthetic_proxy(codebook, rows, coins)) for at in range(parties)}
    study = RowStudy(codebook, protocol=name)
    return measure(name, "the sum", parties, lambda: study.simulate(sources, keep=Keep.COUNTS).cost)


def of_columns(name: str, codebook: Codebook, rows: int, instances: int) -> list[dict[str, Any]]:
    """Two parties: the first has the class and half of the features, the second the rest."""
    if len(codebook.features) < 2:
        raise ConfigError("a study over columns needs two features or more")
    if codebook.variance_floor is None and any(not feature.counted for feature in codebook.features):
        raise ConfigError("a study over columns with numbers needs a codebook with variance_floor")
    aligned = tasks.task_class(name).aligned
    if not aligned:
        codebook = msgspec.structs.replace(codebook, identifier=IdRecipe((IdPart(KEY, "exact"),)))
    half = len(codebook.features) // 2
    held = {"first": codebook.names[:half], "second": codebook.names[half:]}
    table = as_table(codebook, synthetic_proxy(codebook, max(rows, instances), Coins.seeded(bytes(32))))
    key = () if aligned else (KEY,)
    frames = {
        "first": table.select([*held["first"], codebook.target, *key]).slice(0, rows),
        "second": table.select([*held["second"], *key]).slice(0, rows),
    }
    study = ColumnStudy(codebook, protocol=name) if aligned else JoinStudy(codebook, protocol=name, duplicates="reject")
    kept: list[Any] = []

    def train() -> Cost:
        kept.append(study.simulate(frames))
        cost: Cost = kept[0].cost
        return cost

    lines = [measure(name, "training", 2, train)]
    queries = {party: table.select(list(names)).slice(0, instances) for party, names in held.items()}

    def classify() -> Cost:
        cost: Cost = kept[0].model.classify(queries).cost
        return cost

    lines.append(measure(name, f"{instances:,} classes", 2, classify))
    return lines


def measure(name: str, what: str, parties: int, run: Callable[[], Cost]) -> dict[str, Any]:
    begun, cpu = time.perf_counter(), time.process_time()
    cost = run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - begun
    return {
        "protocol": name,
        "what": what,
        "parties": parties,
        "cpu_seconds": round(cpu, 4),
        "wall_seconds": round(wall, 4),
        "slowest_party_seconds": round(max(party.seconds for party in cost.parties.values()), 4),
        "rounds": cost.rounds,
        "messages": cost.messages,
        "bytes": cost.bytes,
    }


def as_table(codebook: Codebook, block: CodedRows) -> pa.Table:
    """The rows of a block as values, as a party would have them in its table."""
    columns: dict[str, Any] = {}
    for feature in codebook.features:
        codes = block.columns[feature.name]
        if isinstance(feature, Categorical):
            columns[feature.name] = pa.array(np.array(feature.values, dtype=object)[codes])
        elif isinstance(feature, Numeric):
            codes = codes if feature.bins is None else np.array(feature.starts)[codes]
            columns[feature.name] = pa.array((codes + feature.centre) / feature.scale)
    if block.labels is not None:
        columns[codebook.target] = pa.array(np.array(codebook.classes, dtype=object)[block.labels])
    columns[KEY] = pa.array(range(block.rows)).cast(pa.string())
    return pa.table(columns)


def show(lines: list[dict[str, Any]], rows: int) -> None:
    print(f"Made-up rows, {rows:,} per site, all parties in this process. {kernels.describe()}")
    form = "{:22} {:>14} {:>9} {:>9} {:>7} {:>11}"
    print(form.format("protocol", "computes", "CPU s", "slowest", "rounds", "KB"))
    for line in lines:
        if "why" in line:
            print(f"{line['protocol']} was not measured: {line['why']}")
            continue
        seconds, slowest = f"{line['cpu_seconds']:.3f}", f"{line['slowest_party_seconds']:.3f}"
        size = f"{line['bytes'] / 1000:,.1f}"
        print(form.format(line["protocol"], line["what"], seconds, slowest, line["rounds"], size))


if __name__ == "__main__":
    main()
