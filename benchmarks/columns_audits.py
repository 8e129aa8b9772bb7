"""What audits cost a joint classification: CPU time and bytes with and without, measured in turns.

python benchmarks/columns_audits.py [--rows 4000] [--rounds 5] [--rates 0.05,0.1,0.2] [--quick]
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pandas as pd
from _measured import Options

from blindbayes import ColumnStudy, Privacy
from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.study.simulation import driver as memory

FEATURES: tuple[Feature, ...] = (
    *(Categorical(f"c{at}", tuple("abcdefgh")) for at in range(8)),
    *(Numeric(f"x{at}", 0, 100) for at in range(2)),
    Categorical("own", tuple("abcd")),
)
BOOK = Codebook("y", ("p", "q", "r"), FEATURES, variance_floor=1.0)


def table(rows: int, seed: int) -> pd.DataFrame:
    """Random values of every feature, and a class."""
    rng = np.random.default_rng(seed)
    drawn = {
        feature.name: rng.choice(list(feature.values), rows) if isinstance(feature, Categorical) else rng.integers(0, 101, rows)
        for feature in FEATURES
    }
    return pd.DataFrame({**drawn, "y": rng.choice(["p", "q", "r"], rows)})


def main() -> None:
    """Print one line per rate, without and with noise in the shares: what is added, over the share of dummies."""
    parser = Options(__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rates", default="0.05,0.1,0.2")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.rounds, options.rates = 64, 1, "0.2"
    held = [feature.name for feature in FEATURES if feature.name != "own"]
    training, asked = table(2000, 1), table(options.rows, 2)
    parts = {"bank": asked[["own"]], "clinic": asked[held]}
    print(f"{'shares':<12} {'rate':>5} {'CPU':>8} {'bytes':>8}   dummies over instances: r / (1 - r)")
    sizes: list[int] = []
    run = memory.run_in_memory

    def counted(*given: Any, **named: Any) -> Any:
        outcome = run(*given, **named)
        sizes.append(sum(entry.size for entry in outcome.transcript.entries))
        return outcome

    setattr(memory, "run_in_memory", counted)  # noqa: B010
    for epsilon, kind in ((None, "exact"), (6.0, "with noise")):
        rates = [0.0, *map(float, options.rates.split(","))]
        models = []
        for rate in rates:
            study = ColumnStudy(BOOK, options={"audit_rate": rate} if rate else {}, privacy=Privacy(epsilon=epsilon))
            trained = study.simulate({"bank": training[["own", "y"]], "clinic": training[held]}, coins=Coins.seeded(bytes(32)))
            models.append(trained.model)
        spent: list[list[float]] = [[] for _ in rates]
        sent = [0] * len(rates)
        for turn in range(options.rounds + 1):
            for at, model in enumerate(models):
                begun, before = time.process_time(), sum(sizes)
                model.classify(parts)
                if turn:  # the first sets up transfers
                    spent[at].append(time.process_time() - begun)
                sent[at] = sum(sizes) - before
        for at, rate in enumerate(rates[1:], 1):
            cpu = statistics.median(spent[at]) / statistics.median(spent[0]) - 1
            print(f"{kind:<12} {rate:>5.2f} {cpu:>+8.1%} {sent[at] / sent[0] - 1:>+8.1%}   {rate / (1 - rate):.1%}", flush=True)


if __name__ == "__main__":
    main()
