"""Accuracy of models in shares with noise of every party, against the central release at the same epsilon (`privacy.stages`),
paired over splits.

BLINDBAYES_DATA=... python benchmarks/columns_noise.py [--splits 20] [--datasets car,wdbc] [--parties 2,3] [--epsilon 1]
BLINDBAYES_DATA=... python benchmarks/columns_noise.py --labels [--epsilon 0.5,1,2,3]

With --labels: noise in shares alone beside randomised labels (`label_epsilon`), alone and with noise, paired over splits.

Columns are dealt to the parties in order; the first holds the class. The circuit is run in clear (`plain_tables`, which the
tests hold equal to the garbled one), with the noise that the parties would draw.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from _measured import Options

from blindbayes import ColumnStudy, Privacy
from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise.randomised_response import LARGEST
from blindbayes.dp.release.forecast import in_cells
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.protocols.shared_training.columns import any_counts, prior
from blindbayes.protocols.shared_training.shared_model import score
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.study.tasks.aligned import columns_for
from blindbayes.study.tasks.columns import class_counts_of, local_parameters
from blindbayes.study.tasks.guards import guard_local, noise_of
from blindbayes.study.tasks.labels import law_of
from blindbayes_papers.zafarani2020.data import Rows, load_rows
from blindbayes_papers.zafarani2020.experiment import _splits

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.plain_model import plain_tables, to_floats

TABLE = ("car", "mushroom", "wdbc", "adult")
Codes = npt.NDArray[np.int64]


def deal(names: Sequence[str], parties: int) -> dict[str, tuple[str, ...]]:
    """Columns in order, to parties called p0 (who holds the class), p1, ..."""
    return {f"p{at}": tuple(map(str, part)) for at, part in enumerate(np.array_split(np.array(names), parties))}


def accuracy(
    rows: Rows,
    parties: int,
    epsilon: float,
    fold: tuple[Codes, Codes, Codes],
    coins: Coins,
    label_epsilon: float | bool = False,
    noisy: str = "all",
) -> float:
    """Of one training on one split, with randomised labels, and with noise of `noisy` parties in the shared tables."""
    train, test, _ = fold
    owners = deal(rows.codebook.names, parties)
    study = ColumnStudy(rows.codebook, privacy=Privacy(epsilon=epsilon, label_epsilon=label_epsilon))
    columns = columns_for(study, len(train), owners, ("p0",))
    noise, law = noise_of(study, columns), law_of(study)
    assert noise is not None
    block = in_cells(rows.block, rows.codebook, noise.counted)
    there, asked, plan, classes = block.take(train), block.take(test), columns.plan, len(rows.codebook.classes)
    labels = there.known_labels
    if law is not None:
        labels = law.draw(labels, coins.derive("labels"))
    drawn = {party: noise.draw(party, coins.derive(party)) for party in owners}
    book = columns.codebook.with_features(columns.features("p0"))
    counted = count_block(
        Layout(book), CodedRows(labels, {name: there.columns[name] for name in book.names}, there.rows)
    ).by_name()
    local = guard_local(
        {"class_counts": counted["class_counts"], "statistics": counted}, columns, None if noisy == "nobody" else drawn["p0"]
    )
    scores = np.tile(prior(class_counts_of(local), plan), (asked.rows, 1))
    parameters = local_parameters(columns, "p0", local)
    for name, term in parameters.terms.items():
        scores += parameters.score(name, term, asked.columns[name])
    for party in columns.holders:
        layout = columns.layout(party)
        encoded = layout.encode(there)
        words = np.stack([encoded[labels == label].sum(axis=0, dtype=np.uint64) for label in range(classes)])
        both = {"all": [drawn["p0"].tables, drawn[party].tables], "holders": [drawn[party].tables], "nobody": []}[noisy]
        tables = plain_tables(words, any_counts(columns), layout, plan, both)[0]
        found = score(tables, asked.columns, plan, asked.rows)
        shaped = {"sum": np.concatenate([np.zeros_like(found[:, None]), found[:, None]], axis=1)}
        scores[:, 1:] += to_floats(shaped, plan)["sum"][:, 1]
    return float((scores.argmax(axis=1) == asked.labels).mean())


def central_accuracies(rows: Rows, epsilon: float, folds: Sequence[tuple[Codes, Codes, Codes]]) -> list[float]:
    """Of the central release in stages, with the number of rows declared as it is in shares."""
    plan = plan_fit(rows.codebook, epsilon=epsilon, rows=len(folds[0][0]))
    block, layout = in_cells(rows.block, rows.codebook, plan.codebook), Layout(plan.codebook)
    total, found = count_block(layout, block), []
    coins = Coins.seeded(bytes(32)).derive(f"central {rows.name} {epsilon}")
    for at, (_, test, left_out) in enumerate(folds):
        statistics = Statistics(layout, total.vector - count_block(layout, block.take(left_out)).vector)
        parameters = fit_parameters(plan.release(statistics, coins.derive(f"split {at}")))
        there = block.take(test)
        found.append(float((parameters.joint_log_likelihood(there).argmax(axis=1) == there.labels).mean()))
    return found


def compare(rows: Rows, parties: int, epsilon: float, splits: int) -> tuple[float, float, float]:
    """Mean accuracy in shares, mean accuracy of the central release, and the standard error of the paired difference."""
    folds = _splits(rows.size, splits)
    central = np.array(central_accuracies(rows, epsilon, folds))
    coins = Coins.seeded(bytes(32)).derive(f"{rows.name} {parties} {epsilon}")
    shared = np.array([accuracy(rows, parties, epsilon, fold, coins.derive(f"split {at}")) for at, fold in enumerate(folds)])
    return float(shared.mean()), float(central.mean()), float((shared - central).std() / math.sqrt(max(1, splits - 1)))


WAYS: dict[str, tuple[float | None, str]] = {  # label_epsilon in times of epsilon, and whose noise is on the shared tables
    "noise": (None, "all"),
    "both": (2, "all"),
    "both, labels at 4": (4, "all"),
    "labels, holders' noise": (2, "holders"),
    "labels": (2, "nobody"),
}


def compare_labels(rows: Rows, parties: int, epsilon: float, splits: int) -> dict[str, tuple[float, float]]:
    """Per way its mean accuracy and the standard error of the paired difference to noise alone."""
    folds = _splits(rows.size, splits)
    coins = Coins.seeded(bytes(32)).derive(f"{rows.name} {parties} {epsilon} labels")
    found: dict[str, npt.NDArray[np.float64]] = {}
    for way, (times, noisy) in WAYS.items():
        at = False if times is None else min(LARGEST, times * epsilon)
        each = [accuracy(rows, parties, epsilon, fold, coins.derive(f"split {n}"), at, noisy) for n, fold in enumerate(folds)]
        found[way] = np.array(each)
    errors = {way: float((each - found["noise"]).std() / math.sqrt(max(1, splits - 1))) for way, each in found.items()}
    return {way: (float(each.mean()), errors[way]) for way, each in found.items()}


def print_labels(options: Any) -> None:
    """Print one line per dataset and epsilon."""
    print(f"{'dataset':<10} epsilon  " + "  ".join(WAYS))
    for name in options.datasets.split(","):
        rows = load_rows(name)
        for epsilon in map(float, options.epsilon.split(",")):
            ways = compare_labels(rows, int(options.parties.split(",")[0]), epsilon, options.splits)
            line = "  ".join(f"{mean:.4f} ({error:.4f})" for mean, error in ways.values())
            print(f"{name:<10} {epsilon:>7g}  {line}", flush=True)


def main() -> None:
    """Print one line per dataset and number of parties."""
    parser = Options(__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--datasets", default=",".join(TABLE))
    parser.add_argument("--parties", default="2,3")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--labels", action="store_true", help="compare randomised labels with noise in shares")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.splits, options.datasets, options.parties = 2, "wdbc", "2"  # needs no file
    if options.labels:
        print_labels(options)
        return
    print(f"{'dataset':<10} parties  in shares  central  difference  CPU s")
    for name in options.datasets.split(","):
        rows = load_rows(name)
        for parties in map(int, options.parties.split(",")):
            begun = time.process_time()
            shared, central, error = compare(rows, parties, float(options.epsilon), options.splits)
            spent = time.process_time() - begun
            line = f"{name:<10} {parties:>7} {shared:>10.4f} {central:>8.4f} {shared - central:>+8.4f} +- {error:.4f}"
            print(f"{line} {spent:>6.0f}", flush=True)


if __name__ == "__main__":
    main()
