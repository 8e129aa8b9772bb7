"""What a floor under the cells of an exact sum costs: CPU and bytes beside the plain masked sum, and accuracy.

python benchmarks/floored_sum.py
python benchmarks/floored_sum.py --data folder   # with adult.csv; Car and Mushroom come with blindbayes-papers
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from _measured import Options, machine, require_kernels

from blindbayes import NaiveBayes
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data.table import count_table
from blindbayes.protocols import memory, registry
from blindbayes.protocols.floored_sum.roles import FlooredSetup, role
from blindbayes.protocols.registry import SumSetup
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.floor import impute
from blindbayes_papers.datasets import load_dataset

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.floors import floored

NAMES = ("north", "south", "west")
FEATURES = (
    *(Categorical(f"f{at}", tuple("abcdefgh"), optional=at % 3 == 0) for at in range(15)),
    Numeric("z", 0, 100, optional=True),
    Numeric("w", 0, 10),
)
BOOK = Codebook("y", ("a", "b"), FEATURES, max_rows=100_000)


def table(generator: np.random.Generator, rows: int) -> Statistics:
    """Return the statistics of random rows, with rare values."""
    columns = {f"f{at}": np.array(list("abcdefgh"))[np.minimum(generator.geometric(0.4, rows) - 1, 7)] for at in range(15)}
    numbers = {"z": generator.integers(0, 100, rows), "w": generator.integers(0, 10, rows)}
    return count_table(pd.DataFrame({"y": generator.choice(["a", "b"], rows), **columns, **numbers}), BOOK)


def measure(floor: int | None, at: int) -> tuple[float, int, int]:
    """Return CPU milliseconds, bytes and rounds of one run between three sites."""
    generator, layout, protocol = np.random.default_rng(0), Layout(BOOK), registry.load("masked_sum")
    vectors = {name: table(generator, 1500).words for name in NAMES}
    setting = SumSetup(NAMES, layout.word_count, bound=100_000)
    coins = Coins.seeded(at.to_bytes(32, "big"))
    runs = memory.local_runs(protocol.roster(setting), coins=coins.derive("identities"))
    if floor is None:
        roles = registry.simulate_roles(protocol, runs, setting, vectors, coins)
    else:
        setup = FlooredSetup.make(setting, layout, floor, "server")
        roles = {name: role(runs[name], setup, vectors.get(name), coins.derive(name)) for name in runs}
    begun = time.process_time()
    outcome = memory.run_in_memory(roles)
    return 1e3 * (time.process_time() - begun), outcome.cost.bytes, outcome.cost.rounds


def accuracy(frame: pd.DataFrame, target: str, rows: int | None, floors: tuple[int, ...]) -> list[str]:
    """Return mean accuracy on a third of the rows and the share of suppressed cells, over five splits."""
    book = Codebook.from_frame(frame, target=target)
    found: dict[int, list[tuple[float, float]]] = {floor: [] for floor in floors}
    for seed in range(5):
        mixed = frame.sample(frac=1, random_state=seed)
        test, train = mixed[: len(mixed) // 3], mixed[len(mixed) // 3 :][:rows]
        counted = count_table(train, book)
        for floor in floors:
            used, hidden = counted, 0.0
            if floor:
                opened = floored(counted, floor)
                used, hidden = impute(opened), opened.suppressed / len(opened.cells)
            model = NaiveBayes.from_statistics(used)
            right = (model.predict(test.drop(columns=target)) == test[target].astype(str).to_numpy()).mean()
            found[floor].append((float(right), hidden))
    return [
        f"{np.mean([each[0] for each in found[floor]]):.3f} ({np.mean([each[1] for each in found[floor]]):.0%})"
        for floor in floors
    ]


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--data", help="a folder with adult.csv")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    given = parser.parse_args()
    require_kernels()
    repeats = 3 if given.quick else 60
    print(f"{machine()}; {Layout(BOOK).word_count} words, 3 sites, 4,500 rows")
    measured: dict[int | None, list[tuple[float, int, int]]] = {None: [], 5: [], 10: []}
    for at in range(repeats + 2):  # in turns, so that what else the machine does meets all of them; the first two warm up
        for floor, runs in measured.items():
            runs.append(measure(floor, at))
    plain = np.median(measured[None][2:], axis=0)
    for floor, runs in measured.items():
        cpu, size, rounds = np.median(runs[2:], axis=0)
        of = f" ({cpu / plain[0]:.1f}x), {size:.0f} bytes ({size / plain[1]:.1f}x)" if floor else f", {size:.0f} bytes"
        print(f"{f'min_cell {floor}' if floor else 'masked_sum'}: {cpu:.1f} ms CPU{of}, {rounds:.0f} rounds")
    frames = {name: load_dataset(name).to_pandas() for name in ("car", "mushroom")}
    targets = {"car": "class", "mushroom": "class", "adult": "income"}
    if given.data:
        frames["adult"] = pd.read_csv(Path(given.data) / "adult.csv")
    print("accuracy without a floor, with 5, with 10 (cells suppressed)")
    for name, frame in frames.items():
        target = targets[name] if targets[name] in frame else str(frame.columns[-1])
        for rows in (200,) if given.quick else (None, 500):
            print(f"{name}, {rows or 'all'} rows:", ", ".join(accuracy(frame, target, rows, (0, 5, 10))))


if __name__ == "__main__":
    main()
