"""A guard against regressions: the cost of what users run, in small, against the costs stored in guard.json.

    python benchmarks/guard.py            # compare; exit code 1 and a line for each cost that grew
    python benchmarks/guard.py --quick    # tables and sums alone, as `make test` does
    python benchmarks/guard.py --store    # after a change that is meant to cost more, or that costs less

Costs are ratios, not times: our CPU over that of scikit-learn's fit of the same table, of one process instead of agents, or
of a fixed piece of work (interpreter, numpy, AES), measured in turn. Each side counts with its minimum over the rounds, and a
ratio that is too high is measured again, with the minima kept, before it is believed: load makes a round slower, never faster.
CPU may grow by 30% on the processor that stored it, and may double on another one. Bytes of roles may not grow at all. Calls
of Python functions, which depend on versions of libraries but not on the machine, may grow by a quarter.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _measured import Options, machine
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from kernels import CASES, Pair
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes
from blindbayes.crypto import kernels
from blindbayes.crypto.coins import Coins
from blindbayes.protocols import registry
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.wire.transcript import Keep

STORED = Path(__file__).with_suffix(".json")
SAME_PROCESSOR, OTHER_PROCESSOR, MORE_CALLS, ATTEMPTS = 1.3, 2.0, 1.25, 8
MORE_BYTES = 1.05  # of agents, whose sessions may say more than once that they live
ROWS, HALF, VALUES, LABELS = 100_000, 5, 12, ("no", "yes", "maybe")
PROTOCOLS = {"train": 1024, "classify": 512, "one": 1, "one-mixed": 1, "join": 4096}
TABLES = ("parquet", "csv", "frame", "array", "predict", "private")
Cpu = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """CPU of our work and of what it is compared with; bytes that it sends."""

    ours: Cpu
    reference: Cpu
    sent: Callable[[], int] = lambda: 0
    counts_calls: bool = True  # not where other processes do the work


def timed(work: Callable[[], Any]) -> float:
    """CPU seconds of the process, all threads."""
    before = time.process_time()
    work()
    return time.process_time() - before


def fixed_work() -> None:
    """Work that never changes."""
    total, left, right = 0, np.arange(1 << 18, dtype=np.uint64), np.ones(1 << 18, dtype=np.uint64)
    for at in range(100_000):
        total += at & 3
    for _ in range(12):
        left = (left ^ right) + (left >> np.uint64(3))
    encryptor, data = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor(), bytes(1 << 20)
    for _ in range(12):
        data = encryptor.update(data)


# -- tables ------------------------------------------------------------------------------------------------------------------


def table_cases(folder: Path) -> dict[str, Case]:
    """Fits of one table of texts and numbers from where users have it, prediction, and a private fit."""
    generator = np.random.default_rng(7)
    y = generator.integers(0, len(LABELS), ROWS)
    numbers = np.clip(generator.normal(0.7 * y[:, None], 1.5, (ROWS, HALF)), -20, 20).round(2)
    codes = (generator.integers(0, VALUES, (ROWS, HALF)) + y[:, None]) % VALUES
    words = np.array([f"value {at}" for at in range(VALUES)])
    frame = pd.DataFrame(numbers, columns=[f"x{at}" for at in range(HALF)])
    frame = frame.assign(**{f"k{at}": words[codes[:, at]] for at in range(HALF)}, label=np.array(LABELS)[y])
    features = (
        *(Numeric(f"x{at}", -20, 20, 0.01) for at in range(HALF)),
        *(Categorical(f"k{at}", tuple(words.tolist())) for at in range(HALF)),
    )
    book, plain = Codebook("label", LABELS, features), Codebook("label", ("0", "1", "2"), features[:HALF])
    frame.to_parquet(folder / "t.parquet")
    frame.to_csv(folder / "t.csv", index=False)
    model, asked = NaiveBayes(book).fit(frame), frame.drop(columns="label")
    work: dict[str, Callable[[], Any]] = {
        "parquet": lambda: NaiveBayes(book).fit(folder / "t.parquet"),
        "csv": lambda: NaiveBayes(book).fit(folder / "t.csv"),
        "frame": lambda: NaiveBayes(book).fit(frame),
        "array": lambda: NaiveBayes(plain).fit(numbers, y),
        "predict": lambda: model.predict(asked),
        "private": lambda: PrivateNaiveBayes(book, epsilon=1.0, expected_rows=ROWS).fit(folder / "t.parquet"),
    }

    def theirs() -> None:
        GaussianNB().fit(numbers, y)
        CategoricalNB().fit(codes, y)

    return {name: Case(partial(timed, own), partial(timed, theirs)) for name, own in work.items()}


# -- protocols ---------------------------------------------------------------------------------------------------------------


def protocol_case(name: str) -> Case:
    """Both roles of a two-party protocol in one process."""
    work = CASES[name].make(PROTOCOLS[name])

    def driven() -> Pair:
        pair = Pair()
        work(pair)
        return pair

    return Case(lambda: driven().cpu, partial(timed, fixed_work), lambda: driven().bytes)


def masked_sum() -> Case:
    """A sum over 16 sites and a server, every message encoded and decoded."""
    names, protocol = tuple(f"p{at}" for at in range(16)), registry.load("masked_sum")
    vectors = {name: np.arange(250, dtype=np.uint64) for name in names}

    def run() -> int:
        setting, coins = registry.SumSetup(names, 250, len(names)), Coins.seeded(bytes(32))
        runs = local_runs(protocol.roster(setting), coins=coins)
        outcome = run_in_memory(registry.simulate_roles(protocol, runs, setting, vectors, coins), keep=Keep.COUNTS)
        return sum(cost.sent_bytes for cost in outcome.cost.parties.values())

    return Case(partial(timed, run), partial(timed, fixed_work), run)


@contextmanager
def agents(folder: Path) -> Iterator[dict[str, Case]]:
    """Training and classification over columns by two agents, beside the same study in one process."""
    import column_sites as sites
    import pyarrow as pa

    rows, instances = 10_000, 2_000
    (folder / "ask").mkdir()
    sources, asked = sites.write(folder, rows), sites.write(folder / "ask", instances)
    with sites.Loopback(folder / "sites", sources, policy=sites.open_policy(max_queries=10**6, min_cell=0)) as net:
        study = sites.study_of(net, rows)
        net.approve(study, runs=100)
        state: dict[str, Any] = {"asked": 0}

        def spent(act: Callable[[], Any]) -> float:
            before = sum(sites.used(site)[0] for site in net.sites.values())
            state["ended"] = act()
            if any(each["state"] != "done" for each in state["ended"].values()):
                raise SystemExit(f"a run of agents failed: {[each.get('message') for each in state['ended'].values()]}")
            return sum(sites.used(site)[0] for site in net.sites.values()) - before

        def sent() -> int:
            return sum(seat["bytes_out"] for each in state["ended"].values() for seat in each["roles"].values())

        def trained() -> float:
            cpu = spent(lambda: net.run(study))
            state["model"] = next(iter(state["ended"].values()))["run"]
            return cpu

        def classified() -> float:
            state["asked"] += 1
            given = {"registry": {"count": instances}, "hospital": {"rows": asked["hospital"]}}
            return spent(lambda: net.predict(study, state["model"], f"batch {state['asked']}", given))

        def alone() -> None:
            state["joint"] = sites.ColumnStudy(sites.BOOK).simulate(sources)

        def classified_alone() -> None:
            state["joint"].model.predict({"registry": pa.table({"y": []}), "hospital": asked["hospital"]})

        yield {
            "agents-train": Case(trained, partial(timed, alone), sent, counts_calls=False),
            "agents-classify": Case(classified, partial(timed, classified_alone), sent, counts_calls=False),
        }


# -- comparison --------------------------------------------------------------------------------------------------------------


def figures(case: Case, rounds: int, limit: float = 0.0) -> dict[str, float]:
    """CPU ratio by minima, calls and bytes; with a limit, a ratio above it is measured again."""
    case.ours(), case.reference()  # caches
    profile, made = cProfile.Profile(), {}
    if case.counts_calls:
        profile.runcall(case.ours)
        made["calls"] = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    mine, theirs = [], []
    for attempt in range(ATTEMPTS):
        for _ in range(rounds):
            mine.append(case.ours())
            theirs.append(case.reference())
        if not limit or min(mine) <= limit * min(theirs) or (attempt and not case.counts_calls):
            break
    return {"cpu": round(min(mine) / min(theirs), 3), **made, "bytes": case.sent()}


@contextmanager
def chosen_cases(names: list[str]) -> Iterator[dict[str, tuple[str, Case]]]:
    """Back end and case by name of the figure."""
    back, cases = ["off", *kernels.available()[-1:]], {}
    with tempfile.TemporaryDirectory() as folder:
        tables = table_cases(Path(folder)) if {*names} & {*TABLES} else {}
        cases = {name: (back[-1], case) for name, case in tables.items() if name in names}
        if "sum" in names:
            cases["sum"] = (back[-1], masked_sum())
        for name in PROTOCOLS:
            if name in names:
                cases |= {name if end == back[-1] else f"{name} by numpy": (end, protocol_case(name)) for end in back}
        if any(name.startswith("agents") for name in names):
            (Path(folder) / "agents").mkdir()
            with agents(Path(folder) / "agents") as more:
                yield cases | {name: (back[-1], case) for name, case in more.items()}
        else:
            yield cases


def compare(stored: dict[str, Any], names: list[str], rounds: int) -> list[str]:
    """A line for everything that grew."""
    grown, more = [], SAME_PROCESSOR if stored["machine"] == machine() else OTHER_PROCESSOR
    with chosen_cases(names) as cases:
        for name, (end, case) in cases.items():
            known = stored["costs"][name]
            with kernels.using(end):
                now = figures(case, rounds, more * known["cpu"])
            print(", ".join([name, *(f"{key} {now[key]:,} ({known[key]:,})" for key in now)]), flush=True)
            more_bytes = 1.0 if case.counts_calls else MORE_BYTES
            for key, factor in (("cpu", more), ("calls", MORE_CALLS), ("bytes", more_bytes)):
                if key in now and now[key] > factor * known[key]:
                    grown.append(f"{name}: {key} {now[key]:,}, {known[key]:,} stored: {now[key] / known[key]:.2f} times")
    return grown


def main() -> None:
    parser = Options(__doc__)
    every = [*TABLES, "sum", *PROTOCOLS, "agents"]
    parser.add_argument("what", nargs="*", help=f"of {', '.join(every)}; all by default")
    parser.add_argument("--against", type=Path, default=STORED, help="stored costs")
    parser.add_argument("--store", action="store_true", help="store today's costs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tables and a sum alone, in three rounds")
    chosen = parser.parse_args()
    names = chosen.what or ([*TABLES, "sum"] if chosen.quick else every)
    if chosen.store:
        if not kernels.available():
            raise SystemExit("there are no kernels here: python -m blindbayes.crypto.kernels.build")
        stored = json.loads(STORED.read_text()) if chosen.what else {"costs": {}}
        with chosen_cases(names) as cases:
            for name, (end, case) in cases.items():
                with kernels.using(end):
                    stored["costs"][name] = figures(case, 2 * chosen.rounds)
                print(name, stored["costs"][name], flush=True)
        STORED.write_text(json.dumps({"machine": machine(), "costs": stored["costs"]}, indent=2) + "\n")
        return
    grown = compare(json.loads(chosen.against.read_text()), names, 3 if chosen.quick else chosen.rounds)
    for line in grown:
        print(line, file=sys.stderr)
    if grown:
        sys.exit(1)


if __name__ == "__main__":
    main()
