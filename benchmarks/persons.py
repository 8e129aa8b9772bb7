"""What it is worth, and costs, to count a person at one of their sites: accuracy by epsilon, CPU time and bytes.

python benchmarks/persons.py
python benchmarks/persons.py --data folder   # with adult.csv

Persons are spread over three sites, some at several. "3": every row counts, with noise for a person at three sites.
"thinned": a public choice by the identifier says at which of the three sites a person may count, so that noise for one site
is enough and nobody is matched. "matched": `sites_per_person = "matched"`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from _measured import Options, machine

from blindbayes import Codebook, Privacy, RowStudy
from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.crypto.coins import Coins
from blindbayes_papers.datasets import load_dataset

SITES = ("north", "south", "west")
PERSON = "person"
TABLES = (("car", "class"), ("mushroom", "class"), ("adult", "income"))
SEVERAL = 0.2
EPSILONS = (0.1, 0.3, 1.0)


def spread(frame: pd.DataFrame, generator: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Put everybody at one site, and a share of them at one or two more."""
    home = generator.integers(0, 3, len(frame))
    more = np.where(generator.random(len(frame)) < SEVERAL, generator.integers(1, 3, len(frame)), 0)
    at = [((home + step) % 3, step <= more) for step in range(3)]
    return {name: frame[np.any([(where == place) & there for where, there in at], axis=0)] for place, name in enumerate(SITES)}


def thinned(sites: dict[str, pd.DataFrame], seed: int) -> dict[str, pd.DataFrame]:
    """Keep of each site the persons that a public choice sends there."""

    def chosen(person: str) -> str:
        return SITES[hashlib.sha256(f"{seed} {person}".encode()).digest()[0] % 3]

    return {name: frame[[chosen(person) == name for person in frame[PERSON]]] for name, frame in sites.items()}


def declared(frame: pd.DataFrame, target: str) -> Codebook:
    """Return the codebook of a table, as if it were public, with an identifier."""
    book = Codebook.from_frame(frame, target=target)
    return msgspec.structs.replace(
        book, provenance="declared", max_rows=200_000, identifier=IdRecipe((IdPart(PERSON, "exact"),))
    )


def accuracy(frame: pd.DataFrame, target: str, splits: int) -> Iterator[str]:
    """Yield a line per epsilon: mean accuracy on a third of the rows, over splits, by what bounds a person."""
    book = declared(frame, target)
    for epsilon in EPSILONS:
        found: dict[str, list[float]] = {"3": [], "thinned": [], "matched": []}
        for seed in range(splits):
            mixed = frame.sample(frac=1, random_state=seed)
            test, train = mixed[: len(mixed) // 3], mixed[len(mixed) // 3 :]
            named = train.assign(**{PERSON: [f"p{at}" for at in range(len(train))]})
            sites = spread(named, np.random.default_rng(seed))
            arms = {"3": (3, sites), "thinned": (1, thinned(sites, seed)), "matched": ("matched", sites)}
            for arm, (at_sites, tables) in arms.items():
                rows = len(train) if arm == "matched" else sum(map(len, tables.values()))  # that count
                privacy = Privacy(epsilon=epsilon, rows_per_person=1, sites_per_person=at_sites, expected_rows=rows)
                model = RowStudy(book, privacy=privacy).simulate(tables, coins=Coins.seeded(seed.to_bytes(32, "big"))).model
                right = model.predict(test.drop(columns=target)) == test[target].astype(str).to_numpy()
                found[arm].append(float(right.mean()))
        shares = "  ".join(f"{arm} {np.mean(each):.3f}" for arm, each in found.items())
        yield f"epsilon {epsilon:<4g} {shares}"


def cost(frame: pd.DataFrame, target: str) -> str:
    """Return CPU seconds and bytes of one run with matched persons, and of one without."""
    book = declared(frame, target)
    sites = spread(frame.assign(**{PERSON: [f"p{at}" for at in range(len(frame))]}), np.random.default_rng(0))
    parts = []
    for at_sites in (3, "matched"):
        study = RowStudy(book, privacy=Privacy(epsilon=1.0, rows_per_person=1, sites_per_person=at_sites))
        begun = time.process_time()
        result = study.simulate(sites)
        seconds = time.process_time() - begun
        parts.append(f"{at_sites}: {seconds:.2f} s, {result.cost.bytes / 1e6:.3g} MB, {result.cost.rounds} rounds")
    return f"{sum(map(len, sites.values())):,} rows of {len(frame):,} persons. {'; '.join(parts)}"


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--data", help="a folder with adult.csv")
    parser.add_argument("--quick", action="store_true", help="one split of one table, to see that it runs")
    given = parser.parse_args()
    print(machine())
    print(f"{SEVERAL:.0%} of the persons are at two or three of three sites")
    for name, target in TABLES[:1] if given.quick else TABLES:
        if name == "adult" and not given.data:
            continue
        frame = pd.read_csv(Path(given.data) / "adult.csv") if name == "adult" else load_dataset(name).to_pandas()
        print(name)
        for line in accuracy(frame, target if target in frame else str(frame.columns[-1]), 1 if given.quick else 6):
            print(f"  {line}", flush=True)
        print(f"  {cost(frame, target if target in frame else str(frame.columns[-1]))}", flush=True)


if __name__ == "__main__":
    main()
