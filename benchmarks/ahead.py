"""Material made before the instances come: what a joint classification costs with it and without, measured in turns.

    python benchmarks/ahead.py [--batches 1,10000] [--rounds 5] [--quick]

CPU seconds are those inside both parties' roles, per instance, with the setup of transfers; the packs lie sealed in a folder,
as at a site. "all online" makes everything in the run; "made ahead" is what `site precompute` does; "online" is the run that
uses it.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _measured import Options

from blindbayes import Study, kernels
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.primitives.coins import Coins
from blindbayes.site.ahead import AheadFolder
from blindbayes.site.audit_log import AuditLog
from blindbayes.site.runs import RunFolders
from blindbayes.wire.transcript import Cost

OWN = Categorical("own", tuple("abcd"))
KINDS = {
    "categorical": tuple(Categorical(f"c{at}", tuple("abcde")) for at in range(10)),
    "mixed": (*(Categorical(f"c{at}", tuple("abcde")) for at in range(5)), *(Numeric(f"x{at}", 0, 100) for at in range(5))),
}


def table(features: tuple[Any, ...], rows: int, seed: int) -> pd.DataFrame:
    """Random values of every feature, and a class."""
    rng = np.random.default_rng(seed)
    drawn = {
        feature.name: rng.choice(list(feature.values), rows) if isinstance(feature, Categorical) else rng.integers(0, 101, rows)
        for feature in features
    }
    return pd.DataFrame({**drawn, "y": rng.choice(["p", "q", "r"], rows)})


def seconds(cost: Cost) -> float:
    """Of both parties."""
    return sum(party.seconds for party in cost.parties.values())


def measure(kind: str, batch: int, rounds: int, folder: Path) -> None:
    """One line."""
    features = (*KINDS[kind], OWN)
    book = Codebook("y", ("p", "q", "r"), features, variance_floor=1.0)
    held = [feature.name for feature in KINDS[kind]]
    trained = table(features, 1000, 1)
    parts = {"bank": trained[["own", "y"]], "clinic": trained[held]}
    model = Study(book, partition="columns").simulate(parts, coins=Coins.seeded(bytes(32))).model
    homes = {
        name: AheadFolder(folder / name, RunFolders(folder / name / "runs"), AuditLog(folder / f"{name}.log")) for name in parts
    }
    model._shelves = {name: home.shelf(bytes(32), 1 << 14) for name, home in homes.items()}
    asked = table(features, batch, 2)
    frames = {"bank": asked[["own"]], "clinic": asked[held]}
    costs: dict[str, list[Cost]] = {"all online": [], "made ahead": [], "online": []}
    disk = 0
    for _ in range(rounds + 1):
        costs["all online"].append(model.classify(frames).cost)
        costs["made ahead"].append(model.precompute(batch))
        disk = sum(home.size() for home in homes.values())
        costs["online"].append(model.classify(frames).cost)
        assert len(costs["online"][-1].ahead) == len(parts)
    cpu = {name: statistics.median(map(seconds, found[1:])) / batch * 1e6 for name, found in costs.items()}
    sent = {name: found[-1].bytes / batch for name, found in costs.items()}
    rounds_of = {name: found[-1].rounds for name, found in costs.items()}
    for name in costs:
        print(
            f"{kind:<12} {batch:>6} {name:<11} {cpu[name]:>10.1f} {cpu['all online'] / cpu[name]:>6.1f} "
            f"{sent[name]:>9.0f} {sent['all online'] / sent[name]:>6.1f} {rounds_of[name]:>7} {disk / batch:>9.0f}",
            flush=True,
        )


def main() -> None:
    """Print three lines per kind of column and size of a batch."""
    parser = Options(__doc__)
    parser.add_argument("--batches", default="1,10000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.batches, options.rounds = "20", 1
    kernel = kernels.active()
    print(f"kernels: {'off' if kernel is None else 'on'}; per instance, both parties; ratios to all online")
    print(
        f"{'columns':<12} {'batch':>6} {'':<11} {'CPU us':>10} {'ratio':>6} {'bytes':>9} {'ratio':>6} {'rounds':>7} {'disk':>9}"
    )
    for kind in KINDS:
        for batch in map(int, options.batches.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                measure(kind, batch, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
