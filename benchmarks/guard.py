"""A guard against regressions: what the core protocols cost in small, against what was stored in guard.json.

    python benchmarks/guard.py            # compare; exit code 1 and a line for each figure that grew
    python benchmarks/guard.py --store    # after a change that is meant to cost more, or that costs less

Ratios, not times. CPU is divided by that of a fixed piece of work of the same kind (interpreter, numpy passes, AES) that is
measured before and after it in the same thread; the least of several rounds counts, and a figure that is too high is measured
again before it is believed. Bytes and calls of Python functions are counted: they do not depend on the machine. CPU may double
before the guard speaks (processors differ), calls may grow by a quarter (versions of libraries differ), bytes not at all.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from _measured import Options
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from blindbayes import kernels
from kernels import CASES, Pair, Work

STORED = Path(__file__).with_suffix(".json")
SIZES = {"train": 1024, "classify": 512, "one": 1, "one-mixed": 1, "join": 4096}
MORE_CPU, MORE_CALLS, ATTEMPTS = 2.0, 1.25, 4


def fixed_work() -> float:
    """CPU seconds of work that never changes."""
    begun = time.thread_time()
    total, left, right = 0, np.arange(1 << 18, dtype=np.uint64), np.ones(1 << 18, dtype=np.uint64)
    for at in range(100_000):
        total += at & 3
    for _ in range(12):
        left = (left ^ right) + (left >> np.uint64(3))
    encryptor, data = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor(), bytes(1 << 20)
    for _ in range(12):
        data = encryptor.update(data)
    return time.thread_time() - begun


def ratio(work: Work, rounds: int) -> float:
    """CPU in units of the fixed work, the least of some rounds."""
    found = []
    for _ in range(rounds):
        pair, before = Pair(), fixed_work()
        work(pair)
        found.append(2 * pair.cpu / (before + fixed_work()))
    return min(found)


def counts(work: Work) -> tuple[int, int]:
    """Bytes sent, and calls of functions."""
    pair, profile = Pair(), cProfile.Profile()
    profile.runcall(work, pair)
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return pair.bytes, calls


def ends() -> list[str]:
    """numpy, and the fastest kernels that are here."""
    return ["off", *kernels.available()[-1:]]


def compare(stored: dict[str, Any], names: list[str], rounds: int) -> list[str]:
    """A line for everything that grew."""
    grown = []
    for name in names:
        work = CASES[name].make(SIZES[name])
        for at, end in enumerate(ends()):
            known = stored[name]["kernels" if at else "numpy"]
            with kernels.using(end):
                work(Pair())  # caches
                sent, calls = counts(work)
                limit = MORE_CPU * known["cpu"]
                cpu = ratio(work, rounds)
                for _ in range(ATTEMPTS):
                    cpu = min(cpu, ratio(work, rounds)) if cpu > limit else cpu
            print(f"{name} ({end}): CPU {cpu:.2f} ({known['cpu']:.2f}), calls {calls:,} ({known['calls']:,}), bytes {sent:,}")
            if cpu > limit:
                grown.append(f"{name} ({end}) takes {cpu / known['cpu']:.1f} times the CPU that it took")
            if calls > MORE_CALLS * known["calls"]:
                grown.append(f"{name} ({end}) makes {calls:,} calls, {known['calls']:,} before")
            if sent > stored[name]["bytes"]:
                grown.append(f"{name} sends {sent:,} bytes, {stored[name]['bytes']:,} before")
    return grown


def measured(rounds: int) -> dict[str, Any]:
    """What to store."""
    found: dict[str, Any] = {}
    for name, size in SIZES.items():
        work, line = CASES[name].make(size), {}
        for at, end in enumerate(ends()):
            with kernels.using(end):
                work(Pair())
                sent, calls = counts(work)
                line["kernels" if at else "numpy"] = {"cpu": round(ratio(work, rounds), 3), "calls": calls}
        found[name] = {"bytes": sent, **line}
    return found


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("what", nargs="*", help=f"of {', '.join(SIZES)}; all by default")
    parser.add_argument("--against", type=Path, default=STORED, help="stored figures")
    parser.add_argument("--store", action="store_true", help="store today's figures")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, without training; measured again where it is too high")
    chosen = parser.parse_args()
    rounds = 1 if chosen.quick else chosen.rounds
    if chosen.store:
        if len(ends()) < 2:
            raise SystemExit("there are no kernels here: python -m blindbayes.kernels.build")
        STORED.write_text(json.dumps(measured(rounds), indent=2) + "\n")
        return
    grown = compare(json.loads(chosen.against.read_text()), chosen.what or list(SIZES)[chosen.quick :], rounds)
    for line in grown:
        print(line, file=sys.stderr)
    if grown:
        sys.exit(1)


if __name__ == "__main__":
    main()
